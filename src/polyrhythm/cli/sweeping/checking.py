"""`polyrhythm check` for a sweep: how many trials, and what they will cost; or every mistake."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import UserError
from polyrhythm.cli.checking import duration, plain_mistake
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.results import print_rows
from polyrhythm.config.paths import check_folder
from polyrhythm.experiments.estimate import Estimate, estimate
from polyrhythm.experiments.prepared import what_and_how
from polyrhythm.studies.searches.definition import Sweep, in_words
from polyrhythm.studies.searches.space import Range, Setting, Space
from polyrhythm.studies.searches.written import Written, written


def check_sweep(
    file: Path,
    options: Mapping[str, Any],
    settings: list[str],
    trust: Trust,
    *,
    with_estimate: bool,
    as_json: bool,
) -> None:
    """Checks a sweep, and estimates its first trials. Nothing is written.

    Raises:
        UserError: something is wrong, if it is not printed as JSON.
        typer.Exit: with 2, after mistakes were printed as JSON.
    """
    try:
        told = written(file, options, settings, trust)
        check_folder(told.out)
        told.tracking.check()
    except UserError as error:
        if not as_json:
            raise
        print_json({"valid": False, "mistakes": [plain_mistake(mistake) for mistake in error.mistakes]})
        raise typer.Exit(2) from None
    sweep = told.sweep
    expected = {name: _estimates(sweep, name, told.out) for name in sweep.sides} if with_estimate else {}
    if as_json:
        trials = {name: {"trials": sweep.many(name), "runs": _runs(sweep, name)} for name in sweep.sides}
        estimates = {name: [dataclasses.asdict(e) for e in found] for name, found in expected.items()}
        print_json({"valid": True, "sweep": sweep.describe(), "methods": trials, "estimates": estimates})
        return
    _print(Screen(), told, expected)


def _estimates(sweep: Sweep, side: str, out: str) -> list[Estimate]:
    """Of one run of the first and of one of the last trial that are known."""
    own = sweep.sides[side]
    known = sweep.known(side) or [_ends(own.space, 0), _ends(own.space, -1)]
    ends = known if len(known) == 1 else [known[0], known[-1]]
    made = [what_and_how(own.make(setting, sweep.seeds[0])) for setting in ends]
    return [estimate(experiment, execution=execution, out=out) for experiment, execution in made]


def _ends(space: Space, place: int) -> Setting:
    return {key: ((v.low, v.high) if isinstance(v, Range) else v)[place] for key, v in space.items()}


def _runs(sweep: Sweep, side: str) -> int:
    return sweep.many(side) * len(sweep.seeds) + len(sweep.fresh)


def _print(screen: Screen, told: Written, expected: dict[str, list[Estimate]]) -> None:
    sweep = told.sweep
    for name, own in sweep.sides.items():
        keys = {key: _in_words(values) for key, values in own.space.items()}
        many, runs = sweep.many(name), _runs(sweep, name)
        fresh = f", and {len(sweep.fresh)} of the best with fresh seeds" if sweep.fresh else ""
        rows = {
            **({"method": name} if name else {}),
            **keys,
            **({f"trial {i + 1}": in_words(s) for i, s in enumerate(own.settings)}),
            "trials": f"{many:,}, by {sweep.search}",
            "runs": f"{runs:,}: each trial with {len(sweep.seeds)} seed{'s' * (len(sweep.seeds) > 1)}{fresh}",
        }
        if name in expected:
            rows |= _costs(expected[name], runs)
        print_rows(screen, rows)
        screen.print()
    if sweep.prune is not None:
        screen.note(f"less where runs are stopped early, after {sweep.prune} versions or more")


def _costs(found: Sequence[Estimate], runs: int) -> dict[str, str]:
    """What one run and all of them take; from the least to the most of those that were estimated."""
    seconds = sorted(e.seconds.expected for e in found)
    visits = sorted(e.visits for e in found)
    one = " to ".join(dict.fromkeys(duration(s) for s in (seconds[0], seconds[-1])))
    every = " to ".join(dict.fromkeys(duration(s * runs) for s in (seconds[0], seconds[-1])))
    several = f"{visits[0]:,}" if visits[0] == visits[-1] else f"{visits[0]:,} to {visits[-1]:,}"
    return {
        "a run": f"{several} visits, about {one} (estimated for the first and the last trial)",
        "time here": f"about {every} of one processor, for all runs",
    }


def _in_words(values: Range | tuple[object, ...]) -> str:
    if isinstance(values, Range):
        return f"{values.low:g} to {values.high:g}{', by its logarithm' if values.log else ''}"
    return ", ".join(map(str, values))
