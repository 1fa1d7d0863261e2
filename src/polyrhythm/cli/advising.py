"""`polyrhythm advise`: which recipes are worth trying for an experiment, and the best of them, tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from polyrhythm.base.output_file import check_output
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.rows import print_rows
from polyrhythm.cli.studies.progress import StudyProgress
from polyrhythm.config.assembly import assemble
from polyrhythm.config.keys import Configuration
from polyrhythm.config.paths import check_folder
from polyrhythm.config.written import toml_lines
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.results.tables import HOLDS_ZERO, signed
from polyrhythm.runs.files import write_whole
from polyrhythm.studies.advice.advising import Advice, advise
from polyrhythm.studies.advice.evidence import Standing
from polyrhythm.studies.advice.trying import Choice, attempt, check_validation, told
from polyrhythm.studies.files.maker import Maker

_PAGE = "docs/results/heterogeneity-pays.md"


def advise_on(
    configure: Callable[[], Configuration],
    *,
    name: str,
    budget: str | None,
    attempted: bool,
    workers: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Prints advice on an experiment; with several seeds, on the first; and tries it, if that is asked for.

    Args:
        configure: puts the experiment together.
        name: of its file, after which tries and the chosen file are called.
        budget: what a run may spend.
        attempted: whether to try.
        workers: runs at once.
        output: the file of what was chosen.
        as_json: whether to print a line of JSON instead.

    Raises:
        UserError: something is wrong that can be known before the first run.
        typer.Exit: it was stopped.
    """
    configuration = configure()
    path = output or Path(f"{name}-advised.toml")
    if attempted:
        check_folder(configuration.out)
        check_output(path, "the chosen experiment")
    experiment = next(iter(assemble(configuration)))
    if attempted:
        check_validation(experiment)
    found = advise(experiment, budget, execution=configuration.execution)
    screen = Screen(stderr=as_json)
    if not as_json:
        _print(screen, found)
    choice = None
    if attempted:
        choice = _attempt(found, experiment, configuration, name, workers, screen)
        lines = [
            f"# Chosen by `polyrhythm advise` for {found.budget}: {choice.score:.4f} on the validation data.",
            *toml_lines(_values(configuration) | {"method": choice.method, "rounds": choice.rounds}),
        ]
        write_whole(path, ("\n".join(lines) + "\n").encode())
    if as_json:
        tries = (
            None
            if choice is None
            else {
                **{key: getattr(choice, key) for key in ("method", "rounds", "score", "spent")},
                "rungs": told(choice.rungs),
                "file": str(path),
            }
        )
        print_json({**found.plain(), "page": _PAGE, "tried": tries})
    elif choice is not None:
        _print_choice(screen, found, choice, path)


def _attempt(
    found: Advice,
    experiment: Experiment,
    configuration: Configuration,
    name: str,
    workers: int | None,
    screen: Screen,
) -> Choice:
    maker = Maker(values=_values(configuration), trust=configuration.trust)
    with stopped_by_sigterm():
        try:
            return attempt(
                found,
                experiment,
                make=maker,
                name=configuration.name or name,
                out=configuration.out,
                workers=workers,
                execution=configuration.execution,
                listener=StudyProgress(screen),
            )
        except KeyboardInterrupt:
            screen.note("stopped; the same command goes on from here")
            raise typer.Exit(INTERRUPTED) from None


def _values(configuration: Configuration) -> dict[str, Any]:
    """What is written of the experiment, without its end, its seeds, and where it is kept."""
    left = ("until", "seeds", "name", "out", "track", "tracking", "method", "rounds")
    values = {key: value for key, value in configuration.written().items() if key not in left and value is not None}
    return values | {"seed": (configuration.seeds or (configuration.seed,))[0]}


def _print(screen: Screen, found: Advice) -> None:
    of = found.situation
    print_rows(
        screen,
        {
            "data": f"skew {_number(of.skew)}, sizes {of.sizes:.2f} (0: all clients alike)",
            "devices": f"the slowest {of.speeds:.3g} times slower than the fastest, there {of.there:.0%} of the time; "
            f"{of.met:.0%} of the clients at some time of the budget",
            "cohort": f"{of.cohort:.0%} of the clients at a time",
            "budget": f"{found.budget}: {of.rounds:,.0f} rounds of FedAvg",
            **{
                f"near {place}": f"{one.setting.words} (distance {one.distance:.2f}, counts {one.share:.0%})"
                for place, one in enumerate(found.near, start=1)
            },
        },
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head, justify in (("try", "right"), ("recipe", "left"), ("points over FedAvg", "right"), ("best", "right")):
        table.add_column(head, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # as rich has it
    table.add_column("method")
    for place, one in enumerate(found.suggestions, start=1):
        shares = f"{one.standing.best:.0%}"
        table.add_row(str(place), one.recipe, _gain(one.standing), shares, Text(one.method))
    screen.print_table(table)
    screen.print(
        f"Gain with its 95 % interval over seeds, mean of settings by what they count; {HOLDS_ZERO}: it holds 0; *: it "
        "does not, also after Holm's correction for all recipes. Best: the share of them where it is highest.",
        highlight=False,
    )
    screen.print(f"Evidence of {found.made['date']}, polyrhythm {found.made['polyrhythm']}: {_PAGE}", highlight=False)
    for note in found.notes:
        screen.note(note)


def _gain(standing: Standing) -> str:
    """In points of percent."""
    one = standing.gain
    mean = signed(100.0 * (one.mean or 0.0), digits=1)
    if one.low is None or one.high is None:
        return mean
    interval = f"[{signed(100.0 * one.low, digits=1)}, {signed(100.0 * one.high, digits=1)}]"
    return f"{mean} {interval}{HOLDS_ZERO if one.holds_zero else '*' if one.shown else ''}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def _print_choice(screen: Screen, found: Advice, choice: Choice, path: Path) -> None:
    screen.print()
    for number, rung in enumerate(choice.rungs, start=1):
        screen.print(
            f"rung {number}: {len(rung.trials)} tried, {found.budget.resource}={rung.spent:,.4g} spent", highlight=False
        )
        for trial in rung.trials:
            score = "failed" if trial.score is None else f"{trial.score:.4f}"
            text = f"  {score}  {trial.setting['rounds']} rounds  {trial.setting['method']}"
            screen.print(text, markup=False, highlight=False, soft_wrap=True)
    print_rows(
        screen,
        {
            "chosen": choice.method,
            "validation": f"{choice.score:.4f} in the last rung",
            "spent": f"{choice.spent:,.4g} of {found.budget}, by all tries",
            "as a file": f"{path}: {choice.rounds:,} rounds, which the whole budget pays for",
        },
    )
