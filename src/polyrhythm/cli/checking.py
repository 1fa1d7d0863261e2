"""`polyrhythm check`: what an experiment means in full and what it will cost, or every mistake in it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import typer

from polyrhythm.base.errors import UserError
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.rows import print_rows
from polyrhythm.cli.run_display import print_plan
from polyrhythm.config.assembly import assemble
from polyrhythm.config.keys import Configuration
from polyrhythm.config.paths import check_folder
from polyrhythm.config.written import as_toml
from polyrhythm.experiments.estimate import Estimate, estimate
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.runs.costs import amount, seconds


def check_all(configure: Callable[[], Configuration], *, with_estimate: bool, as_json: bool) -> None:
    """Checks an experiment; with several seeds, all of them, and estimates the first. Nothing is written.

    Raises:
        UserError: something is wrong, if it is not printed as JSON.
        typer.Exit: with 2, after mistakes were printed as JSON.
    """
    with mistakes_told(as_json):
        configuration = configure()
        check_folder(configuration.out)
        configuration.tracking.check()
        experiments, how = list(assemble(configuration)), configuration.execution
        first, *_ = [prepare(experiment, how) for experiment in experiments]  # the model is checked against the data
        expected = estimate(experiments[0], execution=how, out=configuration.out) if with_estimate else None
    notices = (*first.notices(), *(expected.notes if expected else ()))
    if as_json:
        print_json(
            {
                "valid": True,
                "configuration": configuration.written(),
                "resolved": first.experiment.describe().get("resolved"),
                "task": {"name": first.federation.task, "outputs": first.federation.outputs},
                "seeds": [experiment.seed for experiment in experiments],
                "estimate": None if expected is None else dataclasses.asdict(expected),
                "notices": notices,
            }
        )
        return
    _print(configuration, first, len(experiments), expected, notices)


def _print(
    configuration: Configuration, first: Prepared, many: int, expected: Estimate | None, notices: tuple[str, ...]
) -> None:
    screen = Screen()
    for line in as_toml(configuration):
        screen.print(line, markup=False, highlight=False, soft_wrap=True)
    screen.print()
    print_plan(screen, first)
    if expected is not None:
        screen.print()
        print_rows(screen, dict(_costs(expected, many)))
    for notice in notices:
        screen.note(notice)


def _costs(found: Estimate, runs: int) -> Iterator[tuple[str, str]]:
    """What a run will cost, in words."""
    spread = (
        "" if found.seconds.low is None else f" ({duration(found.seconds.low)} to {duration(found.seconds.high or 0)})"
    )
    yield "versions", f"{found.versions or found.counted:,}"
    yield "visits", f"{found.visits:,}: {found.steps:,} local steps, {found.samples:,} samples"
    yield "computing", amount(found.flops, "FLOPs")
    yield "traffic", f"{amount(found.bytes_up, 'B')} up, {amount(found.bytes_down, 'B')} down"
    yield "virtual time", seconds(found.virtual_seconds)
    yield "memory", f"about {amount(found.memory, 'B')}"
    yield "time here", f"about {duration(found.seconds.expected)}{spread}, by {found.seconds.source}"
    if runs > 1:
        yield "seeds", f"{runs}; all of this for each of them"


def duration(value: float) -> str:
    """A duration in words; minutes and hours where they read better."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


@contextlib.contextmanager
def mistakes_told(as_json: bool) -> Iterator[None]:
    """Prints mistakes as JSON where that is asked for.

    Raises:
        typer.Exit: with 2, after it has.
    """
    try:
        yield
    except UserError as error:
        if not as_json:
            raise
        mistakes = [{key: getattr(one, key) for key in ("found", "expected", "why", "fix")} for one in error.mistakes]
        print_json({"valid": False, "mistakes": mistakes})
        raise typer.Exit(2) from None
