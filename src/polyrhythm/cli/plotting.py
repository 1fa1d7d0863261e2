"""`polyrhythm plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from polyrhythm import figures
from polyrhythm.base.errors import UserError
from polyrhythm.cli.named_runs import runs_of
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.results import Comparison, Run


def plot_runs(
    references: Sequence[str],
    out: str,
    *,
    figure: str | None,
    output: Path | None,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """Draws a figure into a file; without a figure, says which ones apply."""
    try:
        runs = runs_of(references, out, Screen(stderr=True))
    except UserError as error:
        if named := [reference for reference in references if reference in figures.CATALOGUE]:
            raise _a_figure(named[0], error) from None
        raise
    if figure is None:
        if output is not None:
            raise UserError(
                f"a file, {output}, and no figure",
                expected="the name of one: --figure accuracy",
                why="there is more than one that could be drawn into it",
                fix="add --figure; without --output, those that apply are listed",
            )
        _list(runs, as_json=as_json)
        return
    path = Path(f"{figures.find(figure).name}.png") if output is None else output
    figures.check_file(path)
    for note in Comparison(runs, group_by=options.get("group_by")).notes:
        Screen(stderr=True).note(note)
    live = path.suffix.lower() == ".html"
    figures.save(figures.draw(figure, runs, **options, live=live), path)
    if as_json:
        print_json({"figure": figure, "file": str(path), "runs": [run.id for run in runs]})
        return
    Screen(stderr=False).print(f"drawn into {path}", highlight=False)


def _a_figure(name: str, error: UserError) -> UserError:
    """The error for the name of a figure in the place of a run's."""
    fix = f"polyrhythm plot --figure {name}, and then the runs; without any, all are drawn"
    return UserError(error.found, expected=error.expected, why=f"{name} is the name of a figure", fix=fix)


def _list(runs: Sequence[Run], *, as_json: bool) -> None:
    """What can be drawn of some runs, and why the rest cannot."""
    missing = {name: figures.why_not(name, runs) for name in figures.CATALOGUE}
    flat = {figure.name: f"{why}, so it says nothing else" for figure, why in figures.flat(runs).items()}
    if as_json:
        for name, why in missing.items():
            said = {"applies": not why, "why_not": why, "flat": flat.get(name, "")}
            print_json({"figure": name, **said, "about": figures.CATALOGUE[name].about})
        return
    screen = Screen(stderr=False)
    for title, names in (
        ("these figures apply", [name for name, why in missing.items() if not why and name not in flat]),
        ("these are of one value", list(flat)),
        ("these do not", [name for name, why in missing.items() if why]),
    ):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=False, title_justify="left")
        table.title = Text(title)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name in names:
            table.add_row(Text(name), Text(missing[name] or flat.get(name) or figures.CATALOGUE[name].about))
        if names:
            screen.print_table(table)
