"""Ids of runs, and moments as they are recorded."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # in order, and none that look alike


def now() -> str:
    """This moment: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def new_id() -> str:
    """Such as `20260301-142530-7kx3`: the time in UTC, two characters of its thousandths, two of chance."""
    milliseconds = time.time_ns() // 1_000_000
    base = len(_LETTERS)
    step = milliseconds % 1000 * base**2 // 1000  # sorts two runs of one second; 961 steps
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y%m%d-%H%M%S")
    chance = "".join(secrets.choice(_LETTERS) for _ in range(2))
    return f"{moment}-{_LETTERS[step // base]}{_LETTERS[step % base]}{chance}"
