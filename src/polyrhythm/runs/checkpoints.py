"""Checkpoints: files from which a run that was killed goes on."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from polyrhythm.errors import UserError
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.stored import Damaged, load, store
from polyrhythm.settings import Count, Settings

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_FILE = "checkpoint-{version:08d}.safetensors"


@final
@dataclass(frozen=True, kw_only=True)
class Checkpoint(Settings):
    """How often a run writes down all that it needs to go on after its process was killed. Changes no number.

    One more is written before the last version, if it is known which one that is: from there a finished run goes on to
    more versions. A checkpoint takes the disk space of the model, once for each visit under way, and of what the server
    and the clients remember. It is whole or not there, whatever happens while it is written.

    Args:
        every: versions, such as 10; or wall-clock time, such as "30 s", "5 min" or "2 h"; or "never".
        keep: how many of a run are kept, the newest ones.
    """

    every: int | str = "5 min"
    keep: Count = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cadence  # noqa: B018  # read now, so that a mistake is refused before anything runs

    @property
    def wanted(self) -> bool:
        """Whether there are any."""
        return self._cadence is not None

    def due(self, version: int, seconds: float) -> bool:
        """Whether it is time for one.

        Args:
            version: that the server has just made.
            seconds: since the last one, or since the run began.
        """
        if self._cadence is None:
            return False
        number, unit = self._cadence
        return seconds >= number * _UNITS[unit] if unit else version > 0 and version % number == 0

    @functools.cached_property
    def _cadence(self) -> tuple[float, str] | None:
        if self.every == "never":
            return None
        if isinstance(self.every, int) and self.every >= 1:
            return self.every, ""
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", str(self.every))
        if match is not None and not isinstance(self.every, int):
            return float(match[1]), match[2]
        raise UserError(
            f"checkpoint: every = {self.every!r}",
            expected='versions, such as 10; or "30 s", "5 min", "2 h"; or "never"',
            why="so often a run writes down what it needs to go on after its process was killed",
            fix='every="5 min"',
        )


@final
class Keeper:
    """Writes the checkpoints of one run.

    Args:
        settings: how often, and how many.
        codec: knows what is in them.
    """

    def __init__(self, settings: Checkpoint, codec: Codec) -> None:
        self._settings, self._codec = settings, codec
        self._last = time.monotonic()

    def due(self, version: int, *, before_last: bool) -> bool:
        """Whether it is time for one."""
        return (before_last and self._settings.wanted) or self._settings.due(version, time.monotonic() - self._last)

    def write(self, folder: Path, version: int, value: Callable[[], object]) -> int:
        """Writes one, and removes those that are no longer kept; gives its bytes.

        Raises:
            OSError: it cannot be written. Those before it are as they were.
        """
        path = folder / _FILE.format(version=version)
        size = store(path, self._codec, value(), {"run_id": folder.name, "version": str(version)})
        for old in checkpoints(folder)[self._settings.keep :]:
            old.unlink(missing_ok=True)
        self._last = time.monotonic()
        return size


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run's folder, newest first, whole or not."""
    return sorted(folder.glob(_FILE.format(version=0).replace("0" * 8, "*")), reverse=True)


def version_of(path: Path) -> int:
    """The version that a checkpoint was written at."""
    return int(path.stem.rpartition("-")[2])


def newest(folder: Path, codec: Codec, *, before: int | None = None) -> tuple[Any, list[str]]:
    """What the newest whole checkpoint holds, None if there is none; and what is to be said about others.

    Args:
        folder: the run's.
        codec: knows what is in it.
        before: a version that it must be earlier than.
    """
    notes: list[str] = []
    for path in checkpoints(folder):
        if before is not None and version_of(path) >= before:
            continue
        try:
            return load(path, codec)[0], notes
        except Damaged as damage:
            notes.append(f"{path.name} is damaged ({damage}), so the one before it is used")
    return None, notes
