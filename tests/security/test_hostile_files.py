"""Hostile files for every reader: refused in words, within a second of work and 200 MB, in a process of its own."""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from hostile_readers import CONTENTS, NOT_FROM_ELSEWHERE, PLACES, READERS, Reader, contents_of
from polyrhythm.base.errors import PolyrhythmError
from polyrhythm.runs.stored import Damaged
from security.test_sources import SOURCE, dotted, place

SECONDS, MEMORY, PATIENCE = 1.0, 200.0, 30
"""Of work; MB beyond what the process had; and seconds that pass until it is taken to wait for ever."""
LONGEST = 2_000
"""Characters of an error."""
OPENS = re.compile(
    r"(^|\.)(open|read_text|read_bytes|load_file|safe_open|ZipFile|ParquetFile|open_file|read_schema|urlopen)$"
    r"|^(content|opened|text_of|json_of|stored_arrays|read_csv|read_json|read_clients)$"
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


class Outcome(NamedTuple):
    """What came of reading a file: how that ended, in which words, seconds of work, and MB."""

    end: str
    words: str = ""
    seconds: float = 0.0
    memory: float = 0.0


def outcomes(reader: Reader, paths: Sequence[Path], patience: int = PATIENCE) -> Iterator[Outcome]:
    """What comes of reading files one after the other in a process beside this one.

    Whatever ends that process is the outcome of the file that it was at; the next ones are read in another. One for
    each file would spend more on copying the memory of this one than on reading.
    """
    done = 0
    while done < len(paths):
        found = _some(reader, paths[done:], patience)
        yield from found
        done += len(found)
        if done < len(paths):
            yield Outcome("waits for ever, or was killed")
            done += 1


def _some(reader: Reader, paths: Sequence[Path], patience: int) -> list[Outcome]:
    """What comes of the first of these files, up to one that ends the process."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        gc.freeze()  # what other tests left is not this reader's work: looking through all of it takes a second
        sys.setrecursionlimit(1000)  # Python's own: hypothesis raises it, and may leave it so
        with contextlib.suppress(BaseException):
            for path in paths:
                os.write(there, json.dumps(_read(reader, path, patience)).encode()[:60_000] + b"\n")
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    return [Outcome(*json.loads(line)) for line in lines]


def outcome(reader: Reader, path: Path, patience: int = PATIENCE) -> Outcome:
    """What comes of reading one file."""
    (found,) = outcomes(reader, [path], patience)
    return found


def _most() -> float:
    """The most memory that this process has had since it was last asked to forget, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _read(reader: Reader, path: Path, patience: int) -> Outcome:
    """In that process, which ends when it takes too long."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the most that it has had
    before, had = resource.getrusage(resource.RUSAGE_SELF), _most()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**32, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(patience)
    end, words = "read", ""
    try:
        reader.read(path)
    except (PolyrhythmError, Damaged) as error:
        end, words = "refused", str(error)
    except BaseException as error:
        end, words = "broken", f"{type(error).__name__}: {error}"
    after = resource.getrusage(resource.RUSAGE_SELF)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    signal.alarm(0)
    return Outcome(end, words[:20_000], worked, _most() - had)


HARMLESS = {
    *(("experiment", "nothing"), ("runs", "nothing")),  # an experiment of defaults, and a run that is just starting
    ("charges", "nothing"),  # of no version yet
    ("rows to predict", "terminal codes"),  # a table with an odd name, which no training data had
    *(("new texts", what) for what in ("brackets", "one long line", "terminal codes", "a long cell", "objects")),
}


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
    cases = [(name, what) for name in how.names for what in (*contents_of(name), *PLACES)]
    cases = [(name, what) for name, what in cases if not (how.pipes and what.startswith("a pipe"))]
    paths = [made(tmp_path / str(number), name, what, raw) for number, (name, what) in enumerate(cases)]
    for (name, what), found in zip(cases, outcomes(how, paths), strict=True):
        fine = found.end == "refused" or (found.end == "read" and (how.lenient or (reader, what) in HARMLESS))
        if not (fine and found.seconds <= SECONDS and found.memory <= MEMORY and len(found.words) <= LONGEST):
            wrong.append(
                f"{name}, {what}: {found.end}, {found.seconds:.2f} s, {found.memory:.0f} MB: {found.words[:300]}"
            )
    assert not wrong, "\n".join(wrong)


def test_an_error_shows_no_more_than_a_line(tmp_path: Path) -> None:
    """Whatever a file holds, in the place of another: of its lines one is shown at most, and of that not all."""
    secret = "".join(f"secret-{number},{'x' * 200}\n" for number in range(50))
    for number, how in enumerate(READERS.values()):
        paths = [tmp_path / f"{number}-{name.replace('/', '-')}" / name for name in how.names]
        for path in paths:
            path.parent.mkdir(parents=True)
            path.write_text(secret)
        for found in outcomes(how, paths):
            assert len(set(re.findall(r"secret-\d+", found.words))) <= 1, found.words
            assert len(found.words) <= LONGEST


def test_the_check_finds(tmp_path: Path) -> None:
    """What waits for ever, is broken, takes too much or too long."""
    path = tmp_path / "x"
    path.write_bytes(bytes(8))

    def spends(path: Path) -> None:
        while sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) < 1.5:
            pass

    def fills(path: Path) -> bytes:
        return b"x" * (300 * 2**20)

    assert outcome(Reader((), lambda path: path.unlink() or path.read_bytes(), ()), path).end == "broken"
    path.write_bytes(bytes(8))
    assert outcome(Reader((), spends, ()), path).seconds > SECONDS
    assert outcome(Reader((), fills, ()), path).memory > MEMORY
    assert outcome(Reader((), lambda path: signal.pause(), ()), path, patience=1).end.startswith("waits")
    works = iter((lambda: fills(path), lambda: None, signal.pause))
    several = list(outcomes(Reader((), lambda path: next(works)(), ()), [path] * 3, patience=1))
    assert [found.end.split()[0] for found in several] == ["read", "read", "waits"]
    assert several[0].memory > MEMORY > several[1].memory  # of each alone
