"""`polyrhythm sweep` and `polyrhythm best`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import typer

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.sweeping.progress import SweepProgress
from polyrhythm.cli.sweeping.showing import how_to_go_on, print_sweep
from polyrhythm.config.overrides import put
from polyrhythm.config.written import toml_lines
from polyrhythm.studies.searches.definition import in_words
from polyrhythm.studies.searches.result import Swept
from polyrhythm.studies.searches.sweeping import carry_out
from polyrhythm.studies.searches.trials import Trial
from polyrhythm.studies.searches.written import written


def sweep_all(
    file: Path,
    options: Mapping[str, Any],
    settings: list[str],
    trust: Trust,
    *,
    workers: int | None,
    output: Path | None,
    theme: Literal["light", "dark"],
    as_json: bool,
) -> None:
    """Carries out a sweep, or what is left of it, and shows what came of it.

    Raises:
        UserError: something is wrong that can be known before the first run.
        RunFailed: no trial has finished.
        typer.Exit: it was stopped.
    """
    screen = Screen(stderr=as_json)
    told = written(file, options, settings, trust)
    with stopped_by_sigterm():
        try:
            progress = SweepProgress(screen)
            found = carry_out(told.sweep, Path(told.out), workers, told.tracking, progress, told.templates)
        except KeyboardInterrupt:
            screen.note(f"stopped; {how_to_go_on(file, options)}")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        for row in found.rows():
            print_json(row)
        print_json({"sweep": found.name, "headline": found.headline, "best": _chosen(found)})
    else:
        print_sweep(screen, found)
    if output is not None:
        from polyrhythm.figures import save

        for side in found.sides:
            path = output if len(found.sides) == 1 else output.with_stem(f"{output.stem}-{side}")
            save(found.plot(side, theme=theme), path)
            screen.print(f"drawn into {path}", highlight=False)
    if all(found.best(side) is None for side in found.sides):
        raise RunFailed(f"no trial of {found.name} has finished")


def print_best(reference: str, out: str, *, as_json: bool) -> None:
    """The best setting so far, as an experiment file.

    Raises:
        UserError: no such sweep or method, or none of its trials has finished.
    """
    name, _, side = reference.partition("/")
    found = Swept.open(name, out)
    if not side and len(found.sides) > 1:
        if as_json:
            print_json({"sweep": name, "headline": found.headline, "best": _chosen(found)})
            return
        raise UserError(
            f"{name} has a best setting for each of {len(found.sides)} methods",
            expected="one of " + ", ".join(f"{name}/{side}" for side in found.sides),
            why="each of them is an experiment file",
            fix=f"polyrhythm best {name}/{found.sides[0]}",
        )
    trial = found.best(side or found.sides[0])
    if as_json:
        print_json({"sweep": name, "headline": found.headline, "best": _chosen(found)})
        return
    if trial is None:
        raise UserError(
            f"no trial of {reference} has finished",
            expected="at least one",
            why="there is no best one yet",
            fix="wait, or look at what failed: polyrhythm sweep FILE",
        )
    for line in best_toml(found, trial):
        typer.echo(line)


def best_toml(found: Swept, trial: Trial) -> list[str]:
    """The lines of an experiment file that is the trial."""
    over = sum(other.over for other in found.record.of(trial.side))
    seeds = ", ".join(map(str, trial.scores))
    name, many = "/".join(part for part in (found.name, trial.side) if part), found.record.many[trial.side]
    lines = [
        f"# {name}: trial {trial.number}, the best of the {over} that are over, of {many}.",
        f"# {found.headline} on the validation data: {trial.score:.4f} (seeds {seeds}).",
    ]
    template = found.record.templates.get(trial.side)
    if not template:  # made in Python
        return [*lines, f"# {in_words(trial.setting)}"]
    values: dict[str, Any] = dict(template)
    for key, value in trial.setting.items():
        put(values, key, value)
    values["seeds"] = list(trial.scores)
    return [*lines, *toml_lines(values)]


def _chosen(found: Swept) -> list[dict[str, Any]]:
    """The best trial of each side; and on the test set, once the choice is made."""
    entries = []
    for side in found.sides:
        trial = found.best(side)
        entry: dict[str, Any] = {"method": side, "trial": None}
        if trial is not None:
            entry |= {"trial": trial.number, "setting": dict(trial.setting), "score": trial.score}
        if trial is not None and found.finished:
            runs = found.chosen(side)
            entry |= {"runs": [run.id for run in runs], "seeds": [run.seed for run in runs]}
            entry["test"] = [run.summary.get("final_accuracy") for run in runs]
        entries.append(entry)
    return entries
