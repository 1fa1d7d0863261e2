"""How a run goes at this moment, in two files of its folder: a log for people, and who is at work, with the load.

Nothing is computed from them, and where they cannot be written the run goes on without.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from polyrhythm.base.input_file import json_of
from polyrhythm.base.metric_names import in_words
from polyrhythm.runs.at_work import AtWork
from polyrhythm.runs.files import write_whole
from polyrhythm.runs.json_text import to_json
from polyrhythm.runs.load import Load, load
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord, VisitRecord, about_loss

LOG, NOW = "log.txt", "now.json"
SHOWN = 60
"""Clients at work that are named; the others are counted."""
SAMPLES = 720
"""Of the load, at most; then every other one is left out."""
_PAUSE = 0.25  # seconds between two looks at who is at work; each takes a tenth of a millisecond
_SAMPLE = 5.0  # seconds between two looks at the load, or more
_LINE = 2.0  # seconds between two lines of the log on versions, or more
_SHARE = 500  # a line of the log for each such part of the time so far, so that a long run's log stays short
_LONGEST = 4_000_000  # bytes of a log


@final
class Live(Observer):
    """Live: the observer that says how a run goes.

    Args:
        folder: gives the folder of the run, when it has one.
        clock: gives seconds.
    """

    def __init__(self, folder: Callable[[], Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._path = Path()
        self._headline = ""
        self._began = self._sampled = self._before = 0.0
        self._next_look = self._next_line = self._next_sample = 0.0
        self._faults = Counter[str]()
        self._last: Load | None = None
        self._samples: list[list[float]] = []
        self._said = False
        self._unsaid: VersionRecord | None = None

    def begin(self, plan: Plan) -> None:
        """Says what begins."""
        self._path, self._headline = self._folder(), plan.headline
        self._began = self._sampled = self._clock()
        self._samples = _earlier(self._path / NOW)
        self._before = self._samples[-1][0] if self._samples else 0.0
        name = f"{plan.name}: " if plan.name else ""
        data = plan.config.get("data")
        of = f" on {data}" if isinstance(data, str) else ""
        self._say("start", f"{name}{plan.recipe}{of}, {plan.clients:,} clients, seed {plan.seed}, {plan.driver}")
        for notice in plan.notices:
            self._say("notice", notice)
        self._last = load()
        self._next_sample = self._began + _SAMPLE

    def goes_on(self, version: int, model: ModelView) -> None:
        """Says from where it goes on."""
        self._say("start", f"goes on from version {version:,}")

    def visit(self, record: VisitRecord) -> None:
        """Counts what went wrong, to be said with the next version."""
        if record.fault:
            self._faults[record.fault] += 1

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Says how good an evaluated version is, if the last line was some time ago."""
        if not self._said and (said := about_loss(record)):
            self._said = True
            self._say("notice", said)
        self._unsaid = record
        now = self._clock()
        if record.test is None or now < self._next_line:
            return
        self._next_line = now + max(_LINE, (now - self._began) / _SHARE)
        self._tell()

    def at_work(self, time: float, visits: Callable[[], Sequence[AtWork]]) -> None:
        """Says who is at work, and looks at the load, if the last look was some time ago."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + _PAUSE
        if now >= self._next_sample:
            self._sample(now)
        self._write(time, visits())

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Says how it ended, and that nobody is at work any more."""
        self._tell()
        self._say("end", f"{status}: {reason}", always=True)
        if self._samples:
            self._write(None, ())
        else:
            with contextlib.suppress(OSError):
                (self._path / NOW).unlink(missing_ok=True)

    def _tell(self) -> None:
        """The newest version that was not told of, and what went wrong until then."""
        record, self._unsaid = self._unsaid, None
        if self._faults:
            many = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self._faults.items()))
            self._faults.clear()
            self._say("fault", many)
        if record is None:
            return
        value = (record.test or {}).get(self._headline)
        score = "not evaluated" if value is None else f"{in_words(self._headline)} {value:.4f}"
        loss = "" if record.train_loss is None else f", training loss {record.train_loss:.4g}"
        self._say(
            "version",
            f"{record.version:,}: {score}{loss}, {record.client_updates:,} client updates, {record.time:.4g} virtual s",
        )

    def _say(self, kind: str, text: str, *, always: bool = False) -> None:
        """One line, if the log is not too long already."""
        moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        line = "".join(sign if sign.isprintable() else " " for sign in text)
        with contextlib.suppress(OSError), open(self._path / LOG, "a", encoding="utf-8", opener=_own) as log:
            if always or log.tell() < _LONGEST:
                log.write(f"{moment}  {kind:<7}  {line}\n")

    def _sample(self, now: float) -> None:
        """Keeps how many cores were busy since the last sample, and how much memory is in use."""
        found, before = load(), self._last
        if found is not None and before is not None:
            busy = max(0.0, found.seconds - before.seconds) / (now - self._sampled)
            self._samples.append([round(self._before + now - self._began, 1), round(busy, 3), found.bytes])
            if len(self._samples) > SAMPLES:
                del self._samples[:-1:2]
        self._last, self._sampled = found, now
        # Further apart the longer it runs, so that those which are kept lie evenly.
        self._next_sample = now + max(_SAMPLE, (now - self._began) / SAMPLES)

    def _write(self, at: float | None, there: Sequence[AtWork]) -> None:
        clients = [[visit.client, visit.dispatch, visit.version, visit.since] for visit in there[:SHOWN]]
        told = {"wall": time.time(), "time": at, "many": len(there), "clients": clients, "load": self._samples}
        with contextlib.suppress(OSError):
            write_whole(self._path / NOW, to_json(told).encode(), durable=False)


def _own(path: str, flags: int) -> int:
    """Opens a file of the run's own: in a folder from elsewhere its name may be a link to one of yours, or a pipe."""
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no file of its own", path)
    return handle


def _earlier(path: Path) -> list[list[float]]:
    """The load of an earlier part of a run that goes on."""
    with contextlib.suppress(OSError, ValueError):
        return list(samples_in(json_of(path)))[-SAMPLES:]
    return []


def samples_in(told: Any) -> Iterator[list[float]]:
    """The samples of the load in such a file: seconds since the run began, cores in use, bytes of memory."""
    for sample in told.get("load", ()) if isinstance(told, dict) and isinstance(told.get("load"), list) else ():
        if isinstance(sample, list) and len(sample) == 3 and all(_is_number(value) for value in sample):
            yield [float(value) for value in sample]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18
