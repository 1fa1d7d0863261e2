"""Writes long.txt: the tests that took longer than a second, which the default suite leaves to `make test-long`.

make test-times      # runs both once, on a machine of one's own, and writes the list anew

A test that is not in the list belongs to the default suite, so a new one is tried at once, whatever it takes.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

TESTS = Path(__file__).parent
LIST = TESTS / "long.txt"
SECONDS = 1.0
ALWAYS = ("test_benchmarks.py::test_what_is_for_a_gpu_runs_in_its_small_form",)
"""Tried by default all the same: no machine of CI has a card, so nothing else says that the program still runs."""


def long_ones(report: Path, seconds: float = SECONDS) -> Iterator[str]:
    """The tests of a report of pytest's in JUnit's form that took longer, as pytest names them from `tests` on."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        place, name = case.attrib["classname"].split("."), case.attrib["name"]
        inside = place[0] == TESTS.name and (TESTS.parent / "/".join(place)).with_suffix(".py").is_file()
        if inside and float(case.attrib["time"]) > seconds and "\n" not in name:
            yield f"{'/'.join(place[1:])}.py::{name}"


def main(reports: Sequence[str]) -> None:
    """Writes the list of all that some reports find."""
    found = sorted({name for report in reports for name in long_ones(Path(report))} - {*ALWAYS})
    LIST.write_text("".join(f"{name}\n" for name in found), encoding="utf-8")
    print(f"{len(found)} tests take longer than {SECONDS:g} s")


if __name__ == "__main__":
    main(sys.argv[1:])
