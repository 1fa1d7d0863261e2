"""Programs that were started, written down so that they, and no others, can be stopped later."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from polyrhythm.runs.files import write_whole

_PATIENCE = 20.0  # seconds that a program may take to end by itself


@final
@dataclass(frozen=True, kw_only=True)
class Started:
    """One program.

    Args:
        name: "superlink", or "node 3".
        pid: its process number.
        born: when that process began, as the system counts; a later one may have the same number.
        log: where its output goes.
    """

    name: str
    pid: int
    born: str
    log: str

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return _born(self.pid) == self.born != ""


@final
class Processes:
    """Programs of one folder.

    Args:
        folder: where they are written down, and their logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "processes.json"
        self._children: set[int] = set()

    def known(self) -> list[Started]:
        """All that were started and not yet stopped, in the order of their start."""
        try:
            return [Started(**entry) for entry in json.loads(self._file.read_text())]
        except FileNotFoundError:
            return []

    def alive(self) -> list[Started]:
        """Those that run."""
        self._reap()
        return [started for started in self.known() if started.alive]

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Started:
        """Starts a program, the full path of which comes first, in place of one of the same name that has ended."""
        log = self._folder / "logs" / f"{name.replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        # Of its own session: Ctrl-C in a terminal must not end it before the nodes have signed off.
        usual = os.umask(0o077)  # what it writes, such as what clients remember, is nobody else's to read
        try:
            pid = os.posix_spawn(
                command[0],
                [*command],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        finally:
            os.umask(usual)
        self._children.add(pid)
        started = Started(name=name, pid=pid, born=_born(pid), log=str(log))
        self._write([*(other for other in self.known() if other.name != name), started])
        return started

    def ended(self, started: Started) -> bool:
        """Whether a program has ended."""
        self._reap()
        return not started.alive

    def stop(self, started: Started) -> bool:
        """Ends a program and what it has started; false if it had to be killed."""
        gently = True
        if started.alive:
            _signal(started.pid, signal.SIGTERM)
            end = time.monotonic() + _PATIENCE
            while not self.ended(started):
                if time.monotonic() > end:
                    gently = False
                    _signal_group(started.pid, signal.SIGKILL)
                    break
                time.sleep(0.1)
        # What it had started is in its session. No process gets that number as long as somebody is in there; so if
        # there is one with it, that is another session.
        if _born(started.pid) in ("", started.born):
            _signal_group(started.pid, signal.SIGTERM)
        self._reap()
        self._write([other for other in self.known() if other != started])
        return gently

    def bury(self, started: Started, belongs: Callable[[int], bool] = lambda process: False) -> None:
        """Kills what a program that has ended had started, and waits until it is gone, for 20 s at most.

        Args:
            started: the program.
            belongs: tells of a process whether it is the program's though it is in another group. It goes with that
                group, unless the group is that of another process that lives.
        """
        self._reap()
        end = time.monotonic() + _PATIENCE
        doomed: set[int] = set()  # kept, since one that is about to end tells no more whose it is
        # As in `stop`: without a process of that number, those of its group are what it has left.
        while _born(started.pid) == "" and time.monotonic() < end:
            groups = _groups()
            for process, group in groups.items():
                if group != started.pid and not belongs(process):
                    continue
                whole = group == process or group not in groups  # else it is the group of somebody who lives
                doomed |= {other for other, its in groups.items() if its == group} if whole else {process}
            doomed &= groups.keys()
            if not doomed:
                return
            for process in doomed:
                _signal(process, signal.SIGKILL)
            time.sleep(0.05)

    def _reap(self) -> None:
        """Takes away what is left of children that have ended."""
        for pid in list(self._children):
            try:
                over = os.waitpid(pid, os.WNOHANG)[0] == pid
            except ChildProcessError:
                over = True
            if over:
                self._children.discard(pid)

    def _write(self, entries: Sequence[Started]) -> None:
        if entries:
            write_whole(self._file, json.dumps([asdict(entry) for entry in entries], indent=1).encode(), durable=False)
        else:
            self._file.unlink(missing_ok=True)


def is_there(pid: int) -> bool:
    """Whether a process runs."""
    return _born(pid) != ""


def _born(pid: int) -> str:
    """When a process began, in ticks since the system did; empty if there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() or not _answers(pid) else "unknown"
    return "" if fields[0] in ("Z", "X") else fields[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _groups() -> dict[int, int]:
    """The group of each process, beside those that are over."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            threads = list((stat.parent / "task").iterdir())
            if fields[0] not in ("Z", "X") or len(threads) > 1:  # which hold files that only look closed
                found[int(stat.parent.name)] = int(fields[2])
    return found


def _signal_group(pid: int, number: int) -> None:
    """To all of the session that a program began, as far as they are its own still."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
