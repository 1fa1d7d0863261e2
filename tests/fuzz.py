"""Tries experiment files: each is refused in four parts, with nothing written, or runs.

    python tests/fuzz.py --tries 2000

prints how many were tried, refused and run, and each that did neither. What is tried is drawn in `texts.py`. Of each,
`polyrhythm check` must know beforehand whether it is refused and, where nothing decides by what training gives, count
what the run then does; and the schema must mark nothing that runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import signal
import sys
import tempfile
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from jsonschema import Draft7Validator

from polyrhythm.cli import main as polyrhythm
from polyrhythm.experiments import estimate
from polyrhythm.studies.files.language import file_schema
from texts import experiments

PATIENCE = 60  # seconds until a file that is neither refused nor run to its end counts as hanging
PARTS = ("error: ", "\n  expected: ", "\n  because:  ", "\n  do:       ")


class Outcome(NamedTuple):
    """What became of a file."""

    kind: Literal["refused", "ran", "failed in words", "wrong"]
    told: str = ""


def write_data(folder: Path) -> None:
    """The little data sets that the files name."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 4)).astype(np.float32), np.arange(40) % 3
    np.savez(folder / "labels.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9], x=np.arange(40) % 5)
    np.savez(folder / "numbers.npz", x=x, y=x.sum(axis=1))
    np.savez(folder / "tags.npz", x=x, y=(random.random((40, 5)) < 0.4).astype(int))
    np.savez(folder / "images.npz", x=random.integers(0, 255, (40, 6, 6)).astype(np.uint8), y=y)
    np.savez(folder / "single.npz", x=x, y=np.full(40, 7))
    np.savez(folder / "odd.npz", x=x[:, 0], y=y[:3])
    rows = [f"{a:.3f},{b},{c}" for (a, *_), b, c in zip(x, y, np.arange(40) % 5, strict=True)]
    (folder / "table.csv").write_text("\n".join(["a,label,x", *rows]))
    (folder / "empty.csv").write_text("")
    plays = {role: {"train": [f"{role} spoke " * 20], "test": [f"{role} said " * 20]} for role in ("one", "other")}
    (folder / "plays.json").write_text(json.dumps(plays))
    posts = [{"title": f"word{i % 7} there", "tags": [f"t{i % 3}"], "user": i % 4} for i in range(40)]
    (folder / "posts.jsonl").write_text("\n".join(map(json.dumps, posts)))


def attempt(text: str, folder: Path, validator: Draft7Validator) -> Outcome:
    """Checks and runs a file on the command line, in this process and in a folder with the data."""
    (folder / "experiment.toml").write_text(text, encoding="utf-8")
    before = _files(folder)
    checked, told, _ = _called("check", "experiment.toml", "--json")
    if _files(folder) != before:
        return Outcome("wrong", "checking wrote something")
    code, out, err = _called("run", "experiment.toml", "--json")
    said = f"code {code}\n{out}\n{err}"
    if "Traceback" in said or code not in (0, 1, 2):
        return Outcome("wrong", said)
    if (checked == 2) != (code == 2) or checked not in (0, 2):
        return Outcome("wrong", f"{said}\nchecking it ends with {checked}\n{told}")
    if code == 2:
        refusal = err[max(0, f"\n{err}".find("\nerror: ")) :]
        if _files(folder) != before:
            return Outcome("wrong", f"something was written\n{said}")
        return Outcome("refused" if all(part in refusal for part in PARTS) and not out else "wrong", said)
    if marked := list(validator.iter_errors(tomllib.loads(text))):
        return Outcome("wrong", f"the schema marks what runs: {marked[0].message}")
    if code == 0 and (odd := _miscounted(json.loads(told), json.loads(out.splitlines()[0]))):
        return Outcome("wrong", f"{said}\n{told}\nit was counted otherwise: {odd}")
    return Outcome("ran" if code == 0 else "failed in words", err)


def _files(folder: Path) -> list[Path]:
    """What is there, beside what SQLite puts next to a database while somebody reads it."""
    return sorted(path for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm")))


def _miscounted(told: Any, summary: Any) -> list[str]:
    """What a check counted otherwise than the run, where nothing decides by what training gives."""
    found = told["estimate"]
    if found["notes"] or summary["dropped_visits"]:
        return []
    names = ("visits", "samples", "flops", "bytes_up", "bytes_down", "virtual_seconds")
    return [f"{name} {found[name]} and {summary[name]}" for name in names if found[name] != summary[name]]


def _called(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["polyrhythm", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _limited():
            polyrhythm()
        code: object = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        code = -1
        traceback.print_exc(file=err)
    finally:
        sys.argv = before
    return code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Whoever hangs is told so."""

    def hangs(*_: object) -> NoReturn:
        raise TimeoutError(f"no end after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Tally:
    """Counts what became of files, and keeps those that did neither of what they should."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kinds, self.wrong = folder, Counter[str](), dict[str, str]()
        self.validator = Draft7Validator(file_schema())
        write_data(folder)

    def add(self, text: str) -> None:
        """Tries a file."""
        with contextlib.chdir(self.folder):
            outcome = attempt(text, self.folder, self.validator)
        self.kinds[outcome.kind] += 1
        if outcome.kind == "wrong":
            self.wrong.setdefault(outcome.told.strip().splitlines()[-1], f"{text}\n----\n{outcome.told}")

    def __str__(self) -> str:
        told = ", ".join(f"{self.kinds[kind]:,} {kind}" for kind in ("refused", "ran", "failed in words", "wrong"))
        return f"{sum(self.kinds.values()):,} tried: {told}"


def tally(tries: int, number: int, folder: Path, patch: pytest.MonkeyPatch) -> Tally:
    """Tries so many files, the same for the same number."""
    found = Tally(folder)
    patch.setenv("POLYRHYTHM_CACHE", str(folder))
    patch.setattr(estimate, "MEASURED", 0.02)
    patch.setattr(estimate, "DRY_RUN_SECONDS", 1.0)

    @seed(number)
    @settings(
        max_examples=tries,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(experiments())
    def every(text: str) -> None:
        found.add(text)

    every()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "'click")  # typer 0.20 beside the newest Click
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        found = tally(asked.tries, asked.seed, Path(folder), patch)
    for text in found.wrong.values():
        print(text, end="\n========\n")
    print(found)
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
