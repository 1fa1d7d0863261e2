"""Who is on a visit at this moment."""

from __future__ import annotations

from typing import NamedTuple


class AtWork(NamedTuple):
    """Visit under way: which client, its dispatch number, the version that it was sent, and since when, virtually."""

    client: int
    dispatch: int
    version: int
    since: float
