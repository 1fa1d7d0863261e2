"""What may pass: a disk that is full, a database that another process holds. How long it is borne.

A run goes on meanwhile and keeps what it could not write. Only if that lasts too long it ends.
"""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable
from typing import final

PATIENCE = 30.0
"""Seconds that a full disk or a locked database may last."""


@final
class Patience:
    """With something that may pass.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self.times = 0
        """How often it had to be borne."""

    def bears(self) -> bool:
        """Whether one more failure may be borne."""
        self.times += 1
        now = self._clock()
        self._since = now if self._since is None else self._since
        return now - self._since <= PATIENCE

    def share(self, other: Patience) -> None:
        """Counts from when another one was first tried, where that has not passed yet: two in a row wait no longer."""
        self._since = self._since if other._since is None else other._since

    def over(self) -> None:
        """It has passed."""
        self._since = None


def is_full(error: BaseException) -> bool:
    """Whether a disk is full, or a quota used up."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process holds the database."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
