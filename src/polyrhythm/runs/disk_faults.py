"""What may pass: a disk that is full, a database that another process holds. How long it is borne, and how to make it.

A run goes on meanwhile and keeps what it could not write. Only if that lasts too long it ends.
"""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from polyrhythm.base.streams import stream

if TYPE_CHECKING:
    from polyrhythm.fleet import Faults

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


@final
class Trouble:
    """Makes a disk full and a database locked now and then, as a plan of faults says; to its record it looks real.

    Args:
        faults: how often, by version, and for how long.
        seed: the experiment's; names the draws.
        clock: gives seconds.
    """

    def __init__(self, faults: Faults, seed: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._faults, self._seed, self._clock = faults, seed, clock
        self._locked = self._full = -1.0  # until when

    def version(self, number: int) -> None:
        """The run has come to a version."""
        until = self._clock() + self._faults.trouble
        if self._happens("database_locked", self._faults.database_locked, number):
            self._locked = until
        if self._happens("disk_full", self._faults.disk_full, number):
            self._full = until

    def _happens(self, what: str, share: float, number: int) -> bool:
        return bool(share) and float(stream(self._seed, "fault", what, number).random()) < share

    def in_database(self) -> None:
        """Fails as writing to the database would now."""
        if self._clock() < self._locked:
            raise _failing("database is locked", sqlite3.SQLITE_BUSY)
        if self._clock() < self._full:
            raise _failing("database or disk is full", sqlite3.SQLITE_FULL)

    def in_files(self) -> None:
        """Fails as writing a file would now."""
        if self._clock() < self._full:
            raise OSError(errno.ENOSPC, "No space left on device")


def _failing(words: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


def trouble_of(faults: Faults, seed: int) -> Trouble | None:
    """What a plan of faults makes of the record of a run; None if nothing."""
    return Trouble(faults, seed) if faults.database_locked or faults.disk_full else None
