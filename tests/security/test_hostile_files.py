"""Hostile files for every reader: refused in words, within a second of work and 200 MB, in a process of its own."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import resource
import select
import signal
from pathlib import Path

import pytest

from hostile_readers import CONTENTS, NOT_FROM_ELSEWHERE, PLACES, READERS, Reader
from polyrhythm.base.errors import PolyrhythmError
from polyrhythm.runs.stored import Damaged
from security.test_sources import SOURCE, dotted, place

SECONDS, MEMORY, PATIENCE = 1.0, 200.0, 30.0
"""Of work; MB beyond what the process had; and seconds that pass until it is taken to wait for ever."""
LONGEST = 2_000
"""Characters of an error."""
OPENS = re.compile(
    r"(^|\.)(open|read_text|read_bytes|load_file|safe_open|ZipFile|ParquetFile|open_file|read_schema|urlopen)$"
    r"|^(np|numpy|torch)\.(load|loadtxt|fromfile|memmap)$|^sqlite3\.connect$|^(pd|pandas)\.read_\w+$"
)


def opens_files(file: Path) -> bool:
    tree = ast.parse(file.read_text())
    return any(
        isinstance(node, ast.Call)
        and OPENS.search(dotted(node.func))
        and dotted(node.func) not in ("webbrowser.open", "Run.open", "StudyResult.open")
        for node in ast.walk(tree)
    )


def test_every_module_that_opens_files_has_hostile_ones() -> None:
    """A new one stands in a table of `hostile_readers`: how it reads, or why nobody else can give it a file."""
    opening = {place(file) for file in SOURCE.rglob("*.py") if opens_files(file)}
    read = {module for reader in READERS.values() for module in reader.modules}
    assert opening - {*read} == {*NOT_FROM_ELSEWHERE}
    assert all((SOURCE / module).exists() for module in read)


def outcome(reader: Reader, path: Path) -> dict[str, object]:
    """What comes of reading a file in a process of its own."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.close(here)
        said: dict[str, object] = {}
        before = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2**32
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.alarm(int(PATIENCE))
        try:
            reader.read(path)
            said = {"end": "read"}
        except (PolyrhythmError, Damaged) as error:
            said = {"end": "refused", "words": str(error)}
        except BaseException as error:
            said = {"end": "broken", "words": f"{type(error).__name__}: {error}"[:500]}
        after = resource.getrusage(resource.RUSAGE_SELF)
        said["seconds"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        said["memory"] = (after.ru_maxrss - before.ru_maxrss) / 1024
        with contextlib.suppress(BaseException):
            os.write(there, json.dumps(said).encode()[:60_000])
        os._exit(0)
    os.close(there)
    ready, _, _ = select.select([here], [], [], PATIENCE + 10)
    raw = os.read(here, 2**16) if ready else b""
    os.close(here)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(raw) if raw else {"end": "waits for ever, or was killed"}


CASES = [
    (reader, name, what)
    for reader, how in READERS.items()
    for name in how.names
    for what in (*CONTENTS, *PLACES)
    if not (how.pipes and what == "a pipe that nobody writes into")
]
FAST = [case for place, case in enumerate(CASES)]


def made(folder: Path, name: str, what: str, raw: dict[str, bytes]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if what in PLACES:
        PLACES[what](path)
    else:
        path.write_bytes(raw.setdefault(what, CONTENTS[what]()))
    return path


@pytest.fixture(scope="module")
def raw() -> dict[str, bytes]:
    return {}


@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_is_refused_in_words(tmp_path: Path, raw: dict[str, bytes], reader: str) -> None:
    how, wrong = READERS[reader], list[str]()
    for number, (_, name, what) in enumerate(case for case in FAST if case[0] == reader):
        found = outcome(how, made(tmp_path / str(number), name, what, raw))
        fine = found["end"] in (("refused", "read") if how.lenient else ("refused",))
        if what in ("terminal codes", "a folder", "nothing") and found["end"] == "read":
            fine = True
        quick = float(str(found.get("seconds", 99))) <= SECONDS
        small = float(str(found.get("memory", 9e9))) <= MEMORY
        short = len(str(found.get("words", ""))) <= LONGEST
        if not (fine and quick and small and short):
            wrong.append(f"{name} of {what}: { ({**found, 'words': str(found.get('words', ''))[:160]}) }")
    assert not wrong, "\n".join(wrong)
