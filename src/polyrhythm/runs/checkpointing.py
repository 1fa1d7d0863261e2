"""Writes checkpoints, and finds the one to go on from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from polyrhythm.runs.checkpoints import Checkpoint, checkpoint, checkpoints, version_of
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.stored import Damaged, load, store


@final
class Keeper:
    """Writes the checkpoints of one run.

    Args:
        settings: how often, and how many.
        codec: knows what is in them.
    """

    def __init__(self, settings: Checkpoint, codec: Codec) -> None:
        self._settings, self._codec = settings, codec
        self._last, self._took = time.monotonic(), 0.0

    def due(self, version: int, *, surely: bool) -> bool:
        """Whether it is time for one."""
        since = time.monotonic() - self._last
        return (surely and self._settings.wanted) or self._settings.due(version, since, self._took)

    def write(self, folder: Path, version: int, value: Callable[[], object]) -> int:
        """Writes one, and removes those that are no longer kept; gives its bytes.

        Raises:
            OSError: it cannot be written. Those before it are as they were.
        """
        begun = time.monotonic()
        size = store(
            checkpoint(folder, version), self._codec, value(), {"run_id": folder.name, "version": str(version)}
        )
        for old in checkpoints(folder)[self._settings.keep :]:
            old.unlink(missing_ok=True)
        self._last = time.monotonic()
        self._took = self._last - begun
        return size


class Unfit(Exception):
    """A checkpoint that is whole and cannot be gone on from; says why."""


def newest(
    folder: Path, codec: Codec, *, before: int | None = None, look: Callable[[Any, Path], Any] = lambda value, _: value
) -> tuple[Any, list[str]]:
    """What the newest whole checkpoint holds, None if there is none; and what is to be said about others.

    Args:
        folder: the run's.
        codec: knows what is in it.
        before: a version that it must be earlier than.
        look: makes of what it holds, and of the run's folder, what is given; raises `Damaged` or `Unfit` if it cannot
            be used.
    """
    notes: list[str] = []
    for path in checkpoints(folder):
        if before is not None and version_of(path) >= before:
            continue
        try:
            value, about = load(path, codec)
            _check_place(path, about)
            return look(value, folder), notes
        except Damaged as damage:
            notes.append(f"{path.name} is damaged ({damage}), so the one before it is used")
        except Unfit as reason:
            notes.append(f"{path.name} {reason}, so the one before it is used")
    return None, notes


def _check_place(path: Path, about: Mapping[str, str]) -> None:
    """Refuses a checkpoint that lies where another one should."""
    if about.get("run_id") != path.parent.name:
        raise Unfit(f"is one of the run {about.get('run_id')}")
    if about.get("version") != str(version_of(path)):
        raise Unfit(f"is the one of version {about.get('version')}")
