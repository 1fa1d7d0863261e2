"""Carries out a study, or what is left of it: makes its runs, judges them, and writes its page."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from polyrhythm import figures
from polyrhythm.base.consent import in_python
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.base.output_file import check_output
from polyrhythm.results.tables import Table
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.checking import check
from polyrhythm.studies.definition import Study
from polyrhythm.studies.files.catalogue import find
from polyrhythm.studies.page import numbers, page, standings
from polyrhythm.studies.page.findings import Findings, Picture
from polyrhythm.studies.page.judging import Results, outcomes, verdict
from polyrhythm.studies.page.pictures import saved
from polyrhythm.studies.planning import Plan, planned
from polyrhythm.studies.result import StudyResult
from polyrhythm.studies.running.executing import Listener, carry_out
from polyrhythm.studies.running.experts import with_expert
from polyrhythm.studies.running.standing import as_it_stands
from polyrhythm.studies.running.trials import Record
from polyrhythm.trackers import Tracking

_OF_VISITS = ("participation", "timeline", "buffer")  # with a mark for every visit: of the first column alone
_MOST_PICTURES = 4  # of one figure: columns beyond them are in the tables
_OVER_COLUMNS = ("budgets", "results_by_epsilon")  # have axes of their own, along which columns lie


def study(
    what: Study | Plan | Path | str,
    *,
    scale: str = "",
    out: Path | str | None = None,
    workers: int | None = None,
    output: Path | str | None = None,
    tracking: Tracking | None = None,
    listener: Listener | None = None,
    trust: Sequence[str] = (),
    so_far: bool = False,
) -> StudyResult:
    """Carries out a study, or what is left of it, and writes its page.

    Ctrl-C stops it; called again it goes on: trials that are over are not repeated, and runs go on from their last
    checkpoint. Trials, scores and choice do not depend on the number of workers, nor on how often it was stopped.

    Args:
        what: the study; the path of a file that `polyrhythm study` takes; or a name that `polyrhythm study list` shows.
        scale: "smoke", "quick" or "paper", for a study that has scales; "" for "quick" if it has that.
        out: the folder of all records; None for the file's, or "runs".
        workers: how many runs go on at once, each in a process of its own with one thread; None for as many as there
            are processors. With 1 it is this process.
        output: the page (`.md`), or a folder for it; None for `studies/NAME` in the folder of all records.
        tracking: trackers that are told of every run; None for the file's.
        listener: whoever wants to know how it goes.
        trust: modules of yours that a file may name, as with `--trust` on the command line: they are imported and run.
        so_far: whether only the page is written, of the runs that there are. Where one is not over, all of its column
            are read as far as the shortest of them. Another process may be making them meanwhile.

    Raises:
        UserError: something is wrong that can be known before the first run, such as no validation data to choose by;
            all settings of a grid, of a list and of a random search are looked at. Or another study of this name is in
            the folder.
        RunFailed: no run has a result; the page says why.
    """
    if isinstance(what, Plan):
        plan = what
    else:
        plan = planned(what if isinstance(what, Study) else find(str(what), in_python(trust)), scale)
    out = plan.of.out if out is None else out
    output = None if output is None else Path(output)
    if workers is not None and (type(workers) is not int or workers < 1):
        raise UserError(
            f"workers={workers!r}",
            expected="a whole number, 1 or more; or None for as many as there are processors",
            why="so many runs go on at once",
            fix="workers=1",
        )
    path = _place(plan, out, output)
    if plan.of.program:
        _check_program(plan, so_far)
        _make(path)
        return _program(plan, path, out)
    whole = with_expert(plan, plan.runs_folder(out), train=not so_far)
    check(whole)
    _make(path)
    if so_far:
        record = as_it_stands(whole, out)
    else:
        record = carry_out(whole, out, workers, plan.of.tracking if tracking is None else tracking, listener)
    found = StudyResult(record, plan.trials_folder(out), plan.runs_folder(out), page=path)
    results = Results.of(whole, found, so_far=so_far)
    found.findings = _findings(whole, found, results, path)
    cells = list(_cells(found, results))
    tuned = {c.name: t.setting for c in whole.cells if c.arm is not None and (t := found.best(c.arm)) is not None}
    _write(plan, found.findings, path, numbers.wall(results.versions), cells, tuned)
    if not cells:
        raise RunFailed(f"no run of {plan.of.name} has a result; {path} says why")
    return found


def _write(
    plan: Plan,
    found: Findings,
    path: Path,
    seconds: float,
    cells: Sequence[dict[str, Any]] = (),
    tuned: dict[str, Any] | None = None,
) -> None:
    """Writes the page, and the same for programs."""
    how = page.made(plan, seconds, so_far=bool(found.so_far))
    path.write_text(page.markdown(plan, found, how, tuned or {}), encoding="utf-8")
    data = json.loads(to_json(page.as_data(plan, found, how, cells)))
    path.with_suffix(".json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _place(plan: Plan, out: Path | str, output: Path | None) -> Path:
    """Where the page goes."""
    if output is not None and output.suffix not in ("", ".md"):
        raise UserError(
            f"a page called {output.name!r}",
            expected="a name that ends in .md, or a folder",
            why="the page is written in Markdown",
            fix=f"-o {output.with_suffix('.md')}",
        )
    own = f"{page.slug(plan.of.name)}.md"
    return plan.folder(out) / own if output is None else output if output.suffix else output / own


def _make(path: Path) -> None:
    """Makes the folder of a page, and looks whether it can be written there, before its runs, which take longer."""
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror or error}",
            expected="a folder that exists, or can be made",
            why="the page is written there",
            fix="give another one with -o",
        ) from error
    check_output(path, "the page")
    check_output(path.with_suffix(".json"), "the page's data")


def _check_program(plan: Plan, so_far: bool) -> None:
    """Goes on if nothing was asked for that a program does not do."""
    own = planned(plan.of, plan.scale)
    asked = {
        "--seeds": plan.seeds != own.seeds,
        "--row": plan.rows != own.rows,
        "--column": plan.columns != own.columns,
        "--set": bool(plan.asked or plan.of.given),
        "--so-far": so_far,
    }
    if names := [name for name, there in asked.items() if there]:
        raise UserError(
            f"{plan.of.name} with {', '.join(names)}",
            expected="--scale and --out at most",
            why="it is computed by a program that trains nothing, whose settings stand in it",
            fix="leave them out",
        )


def _program(plan: Plan, path: Path, out: Path | str) -> StudyResult:
    """What a program finds, for what is no training."""
    runs = plan.runs_folder(out)
    module = importlib.import_module(f"polyrhythm.studies.programs.{plan.of.program}")
    found: Findings = module.findings(plan.scale, path.parent, runs)
    _write(plan, found, path, 0.0)
    return StudyResult(Record(name=plan.of.name), runs, runs, found, path)


def _findings(plan: Plan, found: StudyResult, results: Results, path: Path) -> Findings:
    judged = tuple(outcomes(results))
    tables: list[Table | None] = [numbers.beside(results), numbers.other_metrics(results)]
    tables += standings.tables_of(results)
    tables += [numbers.equal_costs(results), numbers.costs(results)]
    pictures = [*_pictures(plan, results, path)]
    if not plan.of.apart:  # else the page lists what was chosen, and the record has the trials
        tables += [numbers.trials(found.record, arm) for arm in found.arms]
        pictures += _of_trials(found, path)
    return Findings(
        verdict=verdict(results, judged),
        tables=tuple(one for one in tables if one is not None),
        claims=judged,
        pictures=tuple(pictures),
        notes=(*_failed_trials(found), *_failed_runs(found), *_not_over(results)),
        so_far=results.so_far,
    )


def _not_over(results: Results) -> Iterator[str]:
    """How far each run is, where one of its column is not over."""
    far = [
        f"{cell.name}, seed {seed}: {version:,}"
        for cell in results.plan.cells
        if cell.column in results.ends
        for seed, version in results.reached.get((cell.row, cell.column), {}).items()
    ]
    if far:
        yield (
            f"Not all runs were over: {'; '.join(far)} rounds. Numbers and claims are of as many rounds of each as the "
            "shortest run of its column has, pictures of all that there are."
        )


def _failed_trials(found: StudyResult) -> Iterator[str]:
    """Why trials failed: each reason once, with their numbers."""
    for arm in found.arms:
        reasons: dict[str, list[str]] = {}
        for trial in found.record.of(arm):
            if trial.state == "failed":
                reasons.setdefault(trial.reason.partition("\n")[0], []).append(str(trial.number))
        for reason, several in reasons.items():
            yield f"{arm}{', ' if arm else ''}trial{'s' * (len(several) > 1)} {', '.join(several)} failed: {reason}"


def _failed_runs(found: StudyResult) -> Iterator[str]:
    for cell, of in found.record.failed.items():
        yield from (f"{cell or found.name}, seed {seed}, has no result: {why}." for seed, why in of.items())


def _pictures(plan: Plan, results: Results, path: Path) -> Iterator[Picture]:
    """The study's figures, one for each column, or one over all columns."""
    for text in plan.of.figures:
        name, _, against = text.partition(" against ")
        columns = plan.columns
        for column in ("",) if name in _OVER_COLUMNS else columns[: 1 if name in _OF_VISITS else _MOST_PICTURES]:
            of = columns if name in _OVER_COLUMNS else (column,)
            runs = [run for c in of for row in plan.rows for run in results.runs.get((row, c), {}).values()]
            if not runs or figures.why_not(name, runs):
                continue
            stem = _stem(f"{path.stem}-{name}{f'-{against}' if against else ''}", column, columns)
            chart = figures.draw(name, runs, against=against or "version")  # type: ignore[arg-type]  # as was read
            title = figures.find(name).title + (f", {column}" if column else "")
            yield saved(chart, path.parent, stem, title=title, about=figures.find(name).about)


def _stem(what: str, name: str, names: Sequence[str]) -> str:
    """What the file of one of several names is called, with its number where another one would be called so, too."""
    stem, *several = (page.slug(f"{what}-{one}".strip("-")) for one in (name, *names))
    return f"{stem}-{names.index(name) + 1}" if name in names and several.count(stem) > 1 else stem


def _of_trials(found: StudyResult, path: Path) -> Iterator[Picture]:
    about = "a line for each trial, over an axis for each key and one for the score; dashed where it was stopped early."
    for arm in found.arms:
        if any(trial.score is not None for trial in found.record.of(arm)):
            stem = _stem(f"{path.stem}-trials", arm, found.arms)
            yield saved(found.plot(arm), path.parent, stem, title="Trials" + (f", {arm}" if arm else ""), about=about)


def _cells(found: StudyResult, results: Results) -> Iterator[dict[str, Any]]:
    for cell in results.plan.cells:
        key = (cell.row, cell.column)
        if key not in results.runs:
            continue
        paper, trial = results.plan.of.numbers.get(key), None if cell.arm is None else found.best(cell.arm)
        yield {
            "row": cell.row,
            "column": cell.column,
            "paper": None if paper is None else {"mean": paper.mean, "sd": paper.sd},
            "ours": results.values(key),
            "tuned": {} if trial is None else dict(trial.setting),
            "digests": {seed: run.summary.get("digest") for seed, run in results.runs[key].items()},
        }
