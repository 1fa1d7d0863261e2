"""Which checkpoints a run has: files from which it goes on after it was killed. Imports no torch."""

from __future__ import annotations

import functools
import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file
from polyrhythm.base.settings import Count, Settings, Takes

_NAME = re.compile(r"checkpoint-[0-9]{8,18}\.safetensors")
_PATIENCE = 20.0
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@final
@dataclass(frozen=True, kw_only=True)
class Checkpoint(Settings):
    """How often a run writes down all that it needs to go on after its process was killed. Changes no number.

    One more is written before the last version, if it is known which one that is: from there a finished run goes on to
    more versions. A checkpoint takes the disk space of what learns, once for each visit under way, and of what the
    server and the clients remember. It is whole or not there, whatever happens while it is written.

    Args:
        every: versions, such as 10; or wall-clock time, such as "30 s", "5 min" or "2 h", but no more than a twentieth
            of the time is spent on writing them; or "never".
        keep: how many of a run are kept, the newest ones.
    """

    every: Annotated[int | str, Takes('versions, such as 10, or a time, such as "5 min", or "never"')] = "5 min"
    keep: Count = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cadence  # noqa: B018  # read now, so that a mistake is refused before anything runs

    @property
    def wanted(self) -> bool:
        """Whether there are any."""
        return self._cadence is not None

    def due(self, version: int, seconds: float, took: float = 0.0) -> bool:
        """Whether it is time for one.

        Args:
            version: that the server has just made.
            seconds: since the last one, or since the run began.
            took: seconds that the last one took to write.
        """
        if self._cadence is None:
            return False
        number, unit = self._cadence
        if unit:
            return seconds >= max(number * _UNITS[unit], _PATIENCE * took)
        return version > 0 and version % number == 0

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


def checkpoint(folder: Path, version: int) -> Path:
    """The file of a version's checkpoint."""
    return folder / f"checkpoint-{version:08d}.safetensors"


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run's folder, newest first, whole or not; what only has a like name is none."""
    found = (path for path in folder.glob("checkpoint-*.safetensors") if _NAME.fullmatch(path.name) and path.is_file())
    return sorted(found, key=version_of, reverse=True)


def version_of(path: Path) -> int:
    """The version that a checkpoint was written at."""
    return int(path.stem.rpartition("-")[2])


def reached(folder: Path) -> int:
    """The newest version of which a run's folder has a checkpoint that says so itself; -1 for none.

    Only its beginning is read: whether it is whole is another question.
    """
    return max((version_of(path) for path in checkpoints(folder) if _told(path)), default=-1)


def _told(path: Path) -> bool:
    try:
        check_file(path)
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            about = json.loads(file.read(min(size, path.stat().st_size)))["__metadata__"]
        return bool(about["run_id"] == path.parent.name and about["version"] == str(version_of(path)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, struct.error):
        return False
