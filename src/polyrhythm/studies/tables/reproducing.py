"""Reproduces a table or figure: makes its runs, judges them, and writes its page."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrhythm import figures
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.tables import numbers, page
from polyrhythm.studies.tables.carrying_out import Listener, Made, carry_out, check, folder_of
from polyrhythm.studies.tables.definition import Scaled, named
from polyrhythm.studies.tables.experts import with_expert
from polyrhythm.studies.tables.findings import Findings, Picture
from polyrhythm.studies.tables.judging import Results, outcomes, verdict
from polyrhythm.studies.tables.pictures import saved

_OF_VISITS = ("participation", "timeline", "buffer")  # with a mark for every visit: of the first column alone
_MOST_PICTURES = 4  # of one figure: columns beyond them are in the tables
_OVER_COLUMNS = ("budgets",)  # has axes of its own, along which columns lie


def reproduce(
    scaled: Scaled,
    *,
    out: Path | str = "runs",
    workers: int | None = None,
    output: Path | None = None,
    listener: Listener | None = None,
) -> tuple[Findings, Path]:
    """Makes what is missing of a reproduction, and writes its page; gives what was found, and where the page is.

    Args:
        scaled: what is run.
        out: the folder of all records.
        workers: runs at once.
        output: the page, or a folder for it; None for a page beside the runs.
        listener: whoever wants to know how it goes.

    Raises:
        UserError: something is wrong that can be known before the first run.
        RunFailed: no run has a result; the page says why.
        KeyboardInterrupt: it was stopped; called again it goes on.
    """
    path = _place(scaled, out, output)
    whole = scaled
    if not scaled.of.program:
        whole = with_expert(scaled, folder_of(scaled, out))
        check(whole)
    _make(path.parent)
    if scaled.of.program:
        found = _program(scaled, path, folder_of(scaled, out))
        how, cells, tuned = page.made(scaled, 0.0), [], {}
    else:
        made = carry_out(whole, out, workers, listener)
        results = Results.of(made)
        found = _findings(made, results, path)
        how = page.made(scaled, numbers.wall(results.versions))
        cells, tuned = list(_cells(made, results)), {named(*key): value for key, value in made.chosen.items()}
    path.write_text(page.markdown(scaled, found, how, tuned), encoding="utf-8")
    data = page.as_data(scaled, found, how, cells)
    text = json.dumps(json.loads(to_json(data)), indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    if not scaled.of.program and not cells:
        raise RunFailed(f"no run of {scaled.of.name} has a result; {path} says why")
    return found, path


def _place(scaled: Scaled, out: Path | str, output: Path | None) -> Path:
    """Where the page goes."""
    if output is not None and output.suffix not in ("", ".md"):
        raise UserError(
            f"a page called {output.name!r}",
            expected="a name that ends in .md, or a folder",
            why="the page is written in Markdown",
            fix=f"-o {output.with_suffix('.md')}",
        )
    own = f"{page.slug(scaled.of.name)}.md"
    return folder_of(scaled, out) / own if output is None else output if output.suffix else output / own


def _make(folder: Path) -> None:
    """Makes the folder of a page before its runs, which take longer."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror or error}",
            expected="a folder that exists, or can be made",
            why="the page is written there",
            fix="give another one with -o",
        ) from error


def _program(scaled: Scaled, path: Path, runs: Path) -> Findings:
    module = importlib.import_module(f"polyrhythm.studies.tables.programs.{scaled.of.program}")
    found: Findings = module.findings(scaled.scale, path.parent, runs)
    return found


def _findings(made: Made, results: Results, path: Path) -> Findings:
    judged = tuple(outcomes(results))
    tables = (numbers.beside(results), numbers.equal_costs(results), numbers.costs(results))
    return Findings(
        verdict=verdict(results, judged),
        tables=tuple(one for one in tables if one is not None),
        claims=judged,
        pictures=tuple(_pictures(made, path)),
        notes=tuple(_failures(made)),
    )


def _failures(made: Made) -> Iterator[str]:
    for (row, column, seed), why in made.failed.items():
        yield f"{named(row, column)}, seed {seed}, has no result: {why}."


def _pictures(made: Made, path: Path) -> Iterator[Picture]:
    """The file's figures, one for each column, or one over all columns."""
    for text in made.scaled.of.figures:
        name, _, against = text.partition(" against ")
        columns = made.scaled.columns
        for column in ("",) if name in _OVER_COLUMNS else columns[: 1 if name in _OF_VISITS else _MOST_PICTURES]:
            of = columns if name in _OVER_COLUMNS else (column,)
            runs = [run for c in of for row in made.scaled.rows for run in made.runs.get((row, c), {}).values()]
            if not runs or figures.why_not(name, runs):
                continue
            stem = page.slug(f"{path.stem}-{name}{f'-{against}' if against else ''}-{column}".strip("-"))
            chart = figures.draw(name, runs, against=against or "version")  # type: ignore[arg-type]  # as was read
            title = figures.find(name).title + (f", {column}" if column else "")
            yield saved(chart, path.parent, stem, title=title, about=figures.find(name).about)


def _cells(made: Made, results: Results) -> Iterator[dict[str, Any]]:
    for (row, column), runs in made.runs.items():
        paper = made.scaled.of.numbers.get((row, column))
        yield {
            "row": row,
            "column": column,
            "paper": None if paper is None else {"mean": paper.mean, "sd": paper.sd},
            "ours": results.values((row, column)),
            "tuned": dict(made.chosen.get((row, column), {})),
            "digests": {seed: run.summary.get("digest") for seed, run in runs.items()},
        }
