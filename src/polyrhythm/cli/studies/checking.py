"""`polyrhythm check` for a study: how many trials and runs, and what they will cost; or every mistake."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.base.consent import Trust
from polyrhythm.cli.checking import duration, mistakes_told
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.rows import print_rows
from polyrhythm.cli.studies.carrying_out import planned_as
from polyrhythm.config.paths import check_folder
from polyrhythm.experiments.estimate import Estimate, estimate
from polyrhythm.experiments.prepared import Planned, what_and_how
from polyrhythm.studies.checking import check
from polyrhythm.studies.planning import Arm, Plan, in_words
from polyrhythm.studies.space import Range, Setting, Space


def check_study(
    file: Path,
    options: Mapping[str, Any],
    settings: Sequence[str],
    trust: Trust,
    *,
    with_estimate: bool,
    as_json: bool,
) -> None:
    """Checks a study at its own scale, and estimates its first trials or runs. Nothing is written.

    Raises:
        UserError: something is wrong, if it is not printed as JSON.
        typer.Exit: with 2, after mistakes were printed as JSON.
    """
    with mistakes_told(as_json):
        chosen = {"seeds": None, "rows": (), "columns": (), "settings": settings}
        plan = planned_as(str(file), "paper", chosen, options, trust)
        check_folder(plan.of.out)
        plan.of.tracking.check()
        if plan.expert_training is None and not plan.of.program:
            check(plan)
    expected = dict(_estimates(plan)) if with_estimate and plan.expert_training is None else {}
    if as_json:
        arms = {name: {"trials": arm.many, "runs": _runs(plan, arm)} for name, arm in plan.arms.items()}
        told = {"valid": True, "study": {name: arm.describe() for name, arm in plan.arms.items()}, "rows": arms}
        estimates = {name: [dataclasses.asdict(e) for e in found] for name, found in expected.items()}
        print_json({**told, "compared": len(plan.cells) * len(plan.seeds), "estimates": estimates})
        return
    _print(Screen(), plan, expected)


def _estimates(plan: Plan) -> Iterator[tuple[str, list[Estimate]]]:
    """Of one run of the first and of one of the last trial that are known; without trials, of each row."""
    for name, arm in plan.arms.items():
        known = arm.known() or [_ends(arm.space, 0), _ends(arm.space, -1)]
        ends = known if len(known) == 1 else [known[0], known[-1]]
        yield name, [_estimate(plan, arm.make(setting, arm.search.seeds[0])) for setting in ends]
    for cell in plan.cells if not plan.of.program else ():
        if cell.arm is None and cell.column == plan.columns[0]:
            yield cell.name, [_estimate(plan, cell.make({}, plan.seeds[0]))]


def _estimate(plan: Plan, made: Planned) -> Estimate:
    experiment, execution = what_and_how(made)
    return estimate(experiment, execution=execution, out=plan.of.out)


def _ends(space: Space, place: int) -> Setting:
    return {key: ((v.low, v.high) if isinstance(v, Range) else v)[place] for key, v in space.items()}


def _runs(plan: Plan, arm: Arm) -> int:
    return arm.many * len(arm.search.seeds) + sum(cell.arm == arm.name for cell in plan.cells) * len(plan.seeds)


def _print(screen: Screen, plan: Plan, expected: dict[str, list[Estimate]]) -> None:
    for name, arm in plan.arms.items():
        many, runs, seeds = arm.many, _runs(plan, arm), len(arm.search.seeds)
        best = runs - many * seeds
        rows = {
            **({"row": name} if name else {}),
            **{key: _in_words(values) for key, values in arm.space.items()},
            **({f"trial {i + 1}": in_words(s) for i, s in enumerate(arm.settings)}),
            "trials": f"{many:,}, by {arm.search.kind}",
            "runs": f"{runs:,}: each trial with {seeds} seed{'s' * (seeds > 1)}"
            + (f", and {best} of the best with fresh seeds" if best else ""),
        }
        if name in expected:
            rows |= _costs(expected[name], runs)
        print_rows(screen, rows)
        screen.print()
    plain = [cell for cell in plan.cells if cell.arm is None]
    for cell in plain:
        rows = {"cell": cell.name, "runs": f"{len(plan.seeds):,}, one for each seed"}
        print_rows(screen, rows | (_costs(expected[cell.name], len(plan.seeds)) if cell.name in expected else {}))
        screen.print()
    if plan.search is not None and plan.search.prune is not None:
        screen.note(f"less where runs are stopped early, after {plan.search.prune} versions or more")


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
