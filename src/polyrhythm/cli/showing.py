"""The commands that only look: runs, names, and who holds what."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polyrhythm.base.errors import UserError
from polyrhythm.cli.comparing import goal_lines
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.run_display import draw_scores, line_of
from polyrhythm.config import names
from polyrhythm.config.assembly import federations
from polyrhythm.config.keys import Configuration
from polyrhythm.data import PARTITIONS, SOURCES
from polyrhythm.data.picture import summary, summary_table
from polyrhythm.figures import check_file
from polyrhythm.figures.labels import draw_labels
from polyrhythm.methods.papers import Common
from polyrhythm.models.catalogue import MODELS
from polyrhythm.models.projection import with_projection
from polyrhythm.results import Run
from polyrhythm.runs.costs import CostToGoal, On, decimals
from polyrhythm.runs.database import damaged_runs, suspects


def show_run(reference: str | None, out: str, *, to: float | None = None, on: On = "test", as_json: bool) -> None:
    """One run of a folder, the newest if none is named; with `to`, also what it took to get there on that set.

    Raises:
        UserError: there is no such run, or none at all.
    """
    run = _newest(out) if reference is None else Run.open(reference, out)
    took = None if to is None else run.costs_to(to, on=on)
    if as_json:
        goal = (
            {} if to is None else {"to": {"goal": to, "on": on, **(took or dict.fromkeys(CostToGoal.__annotations__))}}
        )
        print_json({**line_of(run), **goal})
        return
    screen = Screen()
    screen.print(run)
    for label, text in ({} if to is None else goal_lines(to, took)).items():
        screen.print(f"{label}: {text}", highlight=False)
    for notice in run.notices:
        screen.note(notice)
    draw_scores(screen, run)


def _newest(out: str) -> Run:
    if not (found := Run.all(out)):
        raise UserError(
            f"no run in {out}",
            expected="one at least",
            why="there is nothing to show",
            fix="polyrhythm run, or give the output folder of your runs (--out FOLDER)",
        )
    return found[-1]


def list_runs(out: str, *, as_json: bool) -> None:
    """All runs of a folder."""
    found, screen = Run.all(out), Screen(stderr=as_json)
    damaged, odd = damaged_runs(Path(out)), suspects(Path(out))
    damaged |= {run.id: damage for run in found if run.number in odd and (damage := run.checked())}
    whole = [run for run in found if run.id not in damaged]
    for run_id, damage in damaged.items():
        screen.note(f"the record of the run {run_id} is damaged ({damage})")
    if as_json:
        for run in whole:
            print_json({**line_of(run), "name": run.name})
        for run_id, damage in damaged.items():
            print_json({"run_id": run_id, "status": "damaged", "reason": damage})
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        number = column in ("rounds", "final", "last 20")
        table.add_column(
            column, overflow="fold", no_wrap=column in ("run", "status"), justify="right" if number else "left"
        )
    for run in whole:
        cells = _cells(run)
        table.add_row(*(Text(cells[column]) for column in _COLUMNS))
    for run_id in damaged:
        table.add_row(*(Text({"run": run_id, "status": "damaged"}.get(column, "–")) for column in _COLUMNS))
    screen.print_table(table)


_COLUMNS = ("run", "name", "method", "status", "rounds", "final", "last 20")


def _cells(run: Run) -> dict[str, str]:
    view = run.view
    return {
        "run": run.id,
        "name": run.name,
        "method": run.recipe,
        "status": view.standing,
        "rounds": str(view.summary.get("rounds", "–")),
        "final": _number(view.numbers["final_accuracy"]),
        "last 20": _number(view.numbers["last20_mean"]),
    }


def list_methods() -> None:
    """Recipes, and the parts that can be piped onto them."""
    console = Screen()
    _list(console, "Recipes", ((name, _settings(make), make) for name, make in sorted(names.RECIPES.items())))
    console.print("[bold]Settings of every recipe[/]")
    for line in (inspect.getdoc(Common) or "").splitlines()[2:]:
        name, _, text = line.partition(": ")
        console.print(Padding(Text.assemble((name, "bold cyan"), f": {text}"), (0, 0, 0, 2)))
    console.print()
    _list(console, "Parts", ((name, _settings(made), made) for name, made in sorted(names.PARTS.items())))
    console.print('For example: --method "fedprox(mu=0.01, cohort=10) | server_adam(lr=0.03)"', highlight=False)


def list_models() -> None:
    """Models by name."""
    console = Screen()
    _list(console, "Models", ((name, _settings(make), make) for name, make in MODELS.items()))
    _list(console, "Around a model", [("with-projection", "model, hidden=none, size=256", with_projection)])
    console.print("Or your own, by import path: --model my_package.my_module:MyModel", highlight=False)


def list_partitions() -> None:
    """Partitions by name."""
    list_named(Screen(), "Partitions", PARTITIONS.items())


def list_named(console: Console, title: str, named: Iterable[tuple[str, Callable[..., Any]]]) -> None:
    """ResolvedParts by name, with their settings and a line of help."""
    _list(console, title, ((name, _settings(made), made) for name, made in named))


def list_sources() -> None:
    """Data sets by name."""
    console = Screen()
    _list(console, "Data sets", ((name, _settings(make), make) for name, make in SOURCES.items()))
    console.print('For example: --data "fashion-mnist(pad=2)"; see `polyrhythm data show --help`.', highlight=False)


def show_data(configuration: Configuration, output: Path | None) -> None:
    """A data set split over clients."""
    if output is not None:
        check_file(output)
    _, federation, _ = next(federations(configuration))
    console = Screen()
    console.print_table(summary_table(summary(federation)))
    if output is not None:
        console.print(f"drawn into {draw_labels(federation, output)}", highlight=False)


def _list(console: Console, title: str, entries: Iterable[tuple[str, str, Callable[..., Any]]]) -> None:
    console.print(f"[bold]{title}[/]")
    for name, settings, thing in entries:
        heading = Text(f"  {name}", style="bold cyan").append(f"({settings})" if settings else "", style="not bold")
        console.print(heading, soft_wrap=False)
        console.print(Padding(Text(_help(thing)), (0, 0, 0, 6)))
        if reference := _reference(thing):
            console.print(Padding(Text(reference, style="dim"), (0, 0, 0, 6)))
    console.print()


def _help(thing: Callable[..., Any]) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


def _reference(thing: Callable[..., Any]) -> str:
    for paragraph in (inspect.getdoc(thing) or "").split("\n\n"):
        if paragraph.startswith("Reference: "):
            return " ".join(paragraph.removeprefix("Reference: ").split())
    return ""


def _settings(make: Callable[..., Any]) -> str:
    """What something takes, with defaults, beyond what the data decide or all recipes share."""
    parameters = inspect.signature(make).parameters.values()
    shown = [p for p in parameters if p.name not in ("shape", "outputs") and p.kind is not p.VAR_KEYWORD]
    needed = [p.name for p in shown if p.default is p.empty]
    return ", ".join(needed + [f"{p.name}={_text(p.default)}" for p in shown if p.default is not p.empty])


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_text(v) for v in value)}]"
    if value == "":
        return '""'
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _number(value: object) -> str:
    return decimals(value) if isinstance(value, float) else "–"
