"""Gives what people give: tables, arrays, data sets and files, as they come and as they break.

    python tests/fuzz_inputs.py --tries 3000

Whoever draws an input says what must come out of it: features, labels and clients. An input is taken and is exactly
that, or is refused in four parts. Prints how many were, and each that was neither.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from drawn.arrays import drawn_arrays
from drawn.case import Case, Draw
from drawn.files import drawn_file
from drawn.runs import drawn_run
from drawn.sets import drawn_set
from drawn.tables import drawn_table
from polyrhythm.base.errors import PolyrhythmError, UserError

SLOW, LARGE = 5.0, 300  # seconds of computing and MB that nothing small may take
BAD = ("traceback", "silently wrong", "refused though right", "refused without words", "slow", "large")
KINDS: Mapping[str, Callable[[Draw, Path], Case]] = {
    "table": drawn_table,
    "arrays": drawn_arrays,
    "set": drawn_set,
    "file": drawn_file,
    "run": drawn_run,
}
SHARES = {"table": 44, "arrays": 20, "set": 15, "file": 20, "run": 1}


@final
@dataclass
class Tally:
    """What became of inputs: how many of each kind, by outcome, and those that are neither right nor refused."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        outcomes = [o for o in ("taken", "taken and said", "refused", *BAD) if any(c[o] for c in self.counts.values())]
        lines = [
            f"{kind}: {counts.total():,} tried, " + ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in outcomes)
            for kind, counts in sorted(self.counts.items())
        ]
        return "\n".join([*lines, f"{len(self.wrong)} wrong"])


def drawn(number: int, seed: int, folder: Path, kinds: Sequence[str] = tuple(SHARES)) -> tuple[str, Case]:
    """An input, the same for the same numbers."""
    draw = random.Random(f"{seed}/{number}")
    kind = draw.choices(kinds, [SHARES[kind] for kind in kinds])[0]
    return kind, KINDS[kind](draw, folder)


def attempt(case: Case) -> tuple[str, str]:
    """Reads an input.

    Returns:
        What became of it, and what there is to say.
    """
    _forget_peak()
    begun, before = time.process_time(), _peak()
    try:
        found = case.read()
        wrong = case.judge(found)
    except UserError as error:
        parts = (error.found, error.expected, error.why, error.fix)
        if not all(isinstance(part, str) and part.strip() for part in parts):
            return "refused without words", repr(parts)
        if case.must == "take":
            return "refused though right", str(error)
        outcome = "refused", error.found
    except PolyrhythmError as error:
        outcome = "refused", str(error)
    except Exception:
        return "traceback", traceback.format_exc()
    else:
        notes = tuple(getattr(found, "notes", ()))
        if case.must == "refuse":
            return "silently wrong", "taken, and should have been refused"
        if wrong:
            return "silently wrong", wrong
        if unsaid := [words for words in case.say if not any(words in note for note in notes)]:
            return "silently wrong", f"no note says {unsaid}; there are {notes}"
        outcome = ("taken and said" if case.say else "taken"), ""
    if (taken := time.process_time() - begun) > SLOW and not case.runs:
        return "slow", f"{taken:.1f} s"
    return ("large", f"{_peak() - before:.0f} MB") if _peak() - before > LARGE else outcome


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """MB that this process held at most."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def tally(numbers: Iterable[int], seed: int, kinds: Sequence[str] = tuple(SHARES)) -> Tally:
    """Tries inputs of some kinds."""
    found = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in numbers:
            with tempfile.TemporaryDirectory() as folder:
                kind, case = drawn(number, seed, Path(folder), kinds)
                outcome, said = attempt(case)
            found.counts.setdefault(kind, Counter())[outcome] += 1
            if outcome in BAD:
                found.wrong[f"{kind} {number}"] = f"{outcome}: {said}\n{case.told}"
    return found


def main() -> int:
    """Tries as many as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(SHARES))
    asked = parser.parse_args()
    found = tally(range(asked.first, asked.first + asked.tries), asked.seed, asked.kinds.split(","))
    for which, told in found.wrong.items():
        print(f"{which}: {told}", end="\n========\n")
    print(found)
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
