"""`polyrhythm study` and `polyrhythm best`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import typer

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import Mistakes, RunFailed, UserError
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.studies.progress import StudyProgress
from polyrhythm.cli.studies.showing import print_study
from polyrhythm.config.expressions import parse_value
from polyrhythm.config.keys import TAKES
from polyrhythm.config.layers import key_and_text, layered, seeds_of
from polyrhythm.config.overrides import names_something, put
from polyrhythm.config.written import toml_lines
from polyrhythm.figures import check_file, save
from polyrhythm.studies.files.catalogue import find
from polyrhythm.studies.files.reading import NOT_OURS
from polyrhythm.studies.files.spaces import leaves
from polyrhythm.studies.planning import Plan, in_words, planned
from polyrhythm.studies.result import StudyResult
from polyrhythm.studies.running.trials import Trial
from polyrhythm.studies.studying import study

_NO_FILE = r"[/\\:]+"  # what no file can be called
_PICTURES = (".png", ".svg", ".pdf", ".html")


def carry_out(
    reference: str,
    scale: str,
    chosen: Mapping[str, Any],
    options: Mapping[str, Any],
    trust: Trust,
    *,
    workers: int | None,
    output: Path | None,
    theme: Literal["light", "dark"],
    so_far: bool,
    as_json: bool,
) -> None:
    """Carries out a study, or what is left of it, and shows what came out.

    Args:
        reference: its name or file.
        scale: at which; "" for its own.
        chosen: seeds, rows, columns and settings that were asked for.
        options: keys of the experiment that win over the file; None means not given.
        trust: the modules that the user has named.
        workers: runs at once.
        output: the page, a folder for it, or a picture of the trials.
        theme: of that.
        so_far: whether only the page of what there is is written.
        as_json: whether to print lines of JSON instead.

    Raises:
        UserError: something is wrong that can be known before the first run, such as data that are not there.
        RunFailed: no run has a result.
        typer.Exit: it was stopped.
    """
    screen = Screen(stderr=as_json)
    plan = planned_as(reference, scale, chosen, options, trust)
    picture = output if output is not None and output.suffix in _PICTURES and plan.arms else None
    page = None if picture is not None else output
    if picture is not None:
        check_file(picture)
    with stopped_by_sigterm():
        try:
            found = study(plan, workers=workers, output=page, listener=StudyProgress(screen), so_far=so_far)
        except KeyboardInterrupt:
            screen.note("stopped; the same command goes on from here")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        for row in found.rows() if not plan.of.apart else ():
            print_json(row)
        print_json(_summary(plan, found))
    else:
        print_study(screen, plan, found)
    if picture is not None:
        for arm in found.arms:
            own = "" if len(found.arms) == 1 else f"-{re.sub(_NO_FILE, '-', arm)}"
            path = picture.with_stem(picture.stem + own)
            save(found.plot(arm, theme=theme), path)
            screen.print(f"drawn into {path}", highlight=False)
    if found.arms and all(found.best(arm) is None for arm in found.arms):
        raise RunFailed(f"no trial of {found.name} has finished")


def planned_as(reference: str, scale: str, chosen: Mapping[str, Any], options: Mapping[str, Any], trust: Trust) -> Plan:
    """What is asked for on the command line.

    Raises:
        UserError: something is wrong.
    """
    of_cells, of_file = _settings(chosen["settings"])
    return planned(
        find(reference, trust, options, of_file),
        scale,
        seeds=seeds_of(chosen["seeds"]) if chosen["seeds"] else (),
        rows=chosen["rows"],
        columns=chosen["columns"],
        settings=of_cells,
    )


def _settings(texts: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What `--set` says of all cells, by keys with dots; and of the file itself, such as `sweep.trials=20`."""
    wrong, found, others = Mistakes(), dict[str, Any](), list[str]()
    for text in texts:
        with wrong.noted():
            key, value = key_and_text(text)
            head = key.partition(".")[0]
            if head not in TAKES or head in NOT_OURS:
                others.append(text)
            elif "." in key and names_something(head):  # of a text that only the file has
                found |= {key: parse_value(value)}
            else:
                found |= leaves(layered(None, {}, [text], wrong, TAKES).values)
    wrong.refuse()
    return found, others


def _summary(plan: Plan, found: StudyResult) -> dict[str, Any]:
    """What came out, as plain data."""
    of = found.findings
    claims = [{"says": c.says, "verdict": c.verdict, "evidence": c.evidence} for c in of.claims]
    told: dict[str, Any] = {"study": found.name, "scale": plan.scale, "verdict": of.verdict, "claims": claims}
    return {**told, "page": str(found.page), "headline": found.headline, "best": _chosen(found)}


def print_best(reference: str, out: str, *, as_json: bool) -> None:
    """The best setting so far, as an experiment file.

    Raises:
        UserError: no such study or row, or none of its trials has finished.
    """
    name, _, arm = reference.partition("/")
    found = StudyResult.open(name, out)
    if as_json:
        print_json({"study": name, "headline": found.headline, "best": _chosen(found)})
        return
    if not arm and len(found.arms) != 1:
        raise UserError(
            f"{name} has a best setting for each of {len(found.arms)} rows",
            expected="one of " + ", ".join(f"{name}/{arm}" for arm in found.arms),
            why="each of them is an experiment file",
            fix=f"polyrhythm best {name}/{found.arms[0]}" if found.arms else "polyrhythm compare",
        )
    trial = found.best(arm or found.arms[0])
    if trial is None:
        raise UserError(
            f"no trial of {reference} has finished",
            expected="at least one",
            why="there is no best one yet",
            fix="wait, or look at what failed: polyrhythm study FILE",
        )
    for line in best_toml(found, trial):
        typer.echo(line)


def best_toml(found: StudyResult, trial: Trial) -> list[str]:
    """The lines of an experiment file that is the trial."""
    over = sum(other.over for other in found.record.of(trial.arm))
    seeds, of = ", ".join(map(str, trial.scores)), found.record.arms[trial.arm]
    lines = [
        f"# {' '.join(of.called.split())}: trial {trial.number}, the best of the {over} that are over, of {of.many}.",
        f"# {found.headline} on the validation data: {trial.score:.4f} (seeds {seeds}).",
    ]
    if of.template is None:  # made in Python
        return [*lines, f"# {in_words(trial.setting)}"]
    values: dict[str, Any] = dict(of.template)
    for key, value in trial.setting.items():
        put(values, key, value)
    values["seeds"] = list(trial.scores)
    return [*lines, *toml_lines(values)]


def _chosen(found: StudyResult) -> list[dict[str, Any]]:
    """The best trial of each arm; and on the test set, once the choice is made."""
    entries = []
    for arm in found.arms:
        trial = found.best(arm)
        entry: dict[str, Any] = {"row": arm, "trial": None}
        if trial is not None:
            entry |= {"trial": trial.number, "setting": dict(trial.setting), "score": trial.score}
        if trial is not None and found.finished:
            runs = found.runs(arm)
            entry |= {"runs": [run.id for run in runs], "seeds": [run.seed for run in runs]}
            entry["test"] = [run.summary.get("final_accuracy") for run in runs]
        entries.append(entry)
    return entries
