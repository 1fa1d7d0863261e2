"""The page of a study: its numbers, beside the paper's if it has any, what holds, what it cost, how it was made."""

from __future__ import annotations

import datetime
import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm import __version__
from polyrhythm.base.origin import commit
from polyrhythm.report.markdown import escaped, table
from polyrhythm.results.tables import Table, rows
from polyrhythm.runs.environment import library_versions, machine
from polyrhythm.studies.claims import MEASURES, OF_CLIENTS
from polyrhythm.studies.definition import PAPERS, SHORT, Search
from polyrhythm.studies.page.findings import Findings
from polyrhythm.studies.planning import Plan, planned
from polyrhythm.studies.space import Range, Setting


def made(plan: Plan, seconds: float, *, so_far: bool = False) -> dict[str, Any]:
    """How a page comes about, here and now: the command (of a file), commit, date, versions, machine, and seconds."""
    where = machine()
    return {
        "command": command(plan) + " --so-far" * so_far,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {**library_versions(), "polyrhythm": __version__},
        "machine": f"{where['cores']} cores of {where['cpu']}, {where['instructions']}, {where['system']}",
        "seconds": round(seconds, 1),
    }


def command(plan: Plan) -> str:
    """What makes a page again; "" of a study that was defined in Python."""
    of = plan.of
    if of.file is None:
        return ""
    parts = ["polyrhythm", "study", of.name if of.paper and "/" in of.name else str(of.file)]
    own = planned(of, plan.scale)
    parts += ["--scale", plan.scale] if of.scales else []
    if plan.seeds and (plan.seeds != own.seeds or of.scales):
        parts += ["--seeds", ",".join(map(str, plan.seeds))]
    for option, asked, all_of_them in (("--row", plan.rows, own.rows), ("--column", plan.columns, own.columns)):
        if asked != all_of_them:
            parts += [part for name in asked for part in (option, name)]
    parts += of.given
    for key, value in plan.asked.items():
        local = key in _PLACES and Path(str(value)).is_absolute()  # where it lies here tells nobody else anything
        parts += ["--set", f"{key}={Path(str(value)).name if local else value}"]
    return shlex.join(parts)


def markdown(plan: Plan, findings: Findings, how: Mapping[str, Any], tuned: Mapping[str, Setting]) -> str:
    """The whole page.

    Args:
        plan: what was run.
        findings: what came out.
        how: the page came about.
        tuned: the values that were chosen, by cell.
    """
    return "\n".join(_lines(plan, findings, how, tuned)).rstrip("\n") + "\n"


def _lines(plan: Plan, findings: Findings, how: Mapping[str, Any], tuned: Mapping[str, Setting]) -> Iterator[str]:
    of = plan.of
    yield f"# {escaped(_heading(plan))}"
    yield ""
    if of.paper:
        yield f"*{escaped(PAPERS[of.paper])}*" + (f", {escaped(of.source)}." if of.source else ".")
        yield ""
    if of.says:
        yield f"**The {'paper' if of.of_paper else 'question'}:** {escaped(of.says)}"
        yield ""
    if findings.verdict or of.paper:
        yield f"**Verdict:** {escaped(findings.verdict or 'none')}." + _scaled_how(plan, findings.so_far)
        yield ""
    for one in findings.tables:
        if one.name not in BELOW and not one.name.startswith("trials"):
            yield from table(one)
    if findings.claims:
        yield "## What is claimed, and what came out"
        yield ""
        yield from table(_claims(findings, computed=bool(of.program)))
    for title, mine in (("At equal costs", BELOW), ("What was tried", ("trials",))):
        several = [one for one in findings.tables if one.name.partition(" ")[0] in mine]
        if several:
            yield f"## {title}"
            yield ""
        for one in several:
            yield from table(one)
    for picture in findings.pictures:
        yield f"![{escaped(picture.title)}]({picture.file.as_posix()})"
        yield ""
    for title, about in {picture.title.partition(",")[0]: picture.about for picture in findings.pictures}.items():
        yield f"*{escaped(title)}:* {escaped(about)}"
        yield ""
    yield "## How it was made"
    yield ""
    yield from (f"- {line}" for line in _how(plan, tuned, findings.so_far))
    yield from (f"- {escaped(note)}" for note in (*of.notes, *findings.notes))
    yield ""
    if how["command"]:
        yield from ("```console", f"$ {how['command']}", "```", "")
    of_commit, versions = f" (commit {how['commit']})" if how["commit"] else "", how["versions"]
    took = f"; {_duration(how['seconds'])} of one processor for all runs" if how["seconds"] else ""
    yield (
        f"{how['date']}, polyrhythm {versions['polyrhythm']}{of_commit}, Python {versions['python']}, torch "
        f"{versions['torch']}; {escaped(how['machine'])}{took}."
    )


OURS = " (ours)"
"""Stands behind a claim that is not the paper's."""
BELOW = ("equal", "costs")
"""The tables of what it cost."""


def _heading(plan: Plan) -> str:
    of = plan.of
    title = of.title or of.name
    if not of.paper:
        return title
    return f"{SHORT[of.paper]}, {', '.join(plan.items[:4])}{' …' if len(plan.items) > 4 else ''}: {title}"


_PLACES = {"data.path", "data.folder"}
"""Settings that say where something lies, and change nothing about it."""


def _scaled_how(plan: Plan, so_far: Sequence[str]) -> str:
    if not plan.of.scales:
        return ""
    less = ", ".join(filter(None, (_asked(plan), *map(escaped, so_far))))
    if plan.scale == "paper":
        own = f" but for {less}" if less else ", the size of the paper's own"
        return " Scale: paper" + (f"{own}." if less or plan.of.of_paper else ".")
    why = plan.of.scales[plan.scale].why
    return f" Scale: {plan.scale}" + (f" ({escaped(why)})" if why else "") + (f"; here {less}." if less else ".")


def _asked(plan: Plan) -> str:
    """What was asked for in place of the scale's own."""
    own = planned(plan.of, plan.scale)
    texts = [f"`{key} = {value}`" for key, value in plan.asked.items() if key not in _PLACES]
    for what, mine, all_of_them in (("columns", plan.columns, own.columns), ("rows", plan.rows, own.rows)):
        texts += [f"{len(mine)} of {len(all_of_them)} {what}"] if len(mine) < len(all_of_them) else []
    return ", ".join(texts)


_JUDGED = (
    "Differences are means over seeds, paired by seed, with their 95 % confidence interval (Student's t). A claim "
    "holds, or differs, where the intervals say so in every column; it holds on average where only the means do, and "
    "is not decided where a mean does not and its interval leaves both open. A growth is that from its first "
    "column to its last. Ratios and ranges are judged by means."
)


def _claims(findings: Findings, *, computed: bool) -> Table:
    lines = [(one.says + OURS * one.ours, one.verdict, one.evidence or "–") for one in findings.claims]
    return Table(
        name="claims",
        caption="Each is looked at in the numbers above." if computed else _JUDGED,
        head=("claim", "verdict", "evidence"),
        rows=rows(lines),
        numbers=False,
    )


def _how(plan: Plan, tuned: Mapping[str, Setting], so_far: Sequence[str]) -> Iterator[str]:
    of = plan.of
    if of.program:
        return
    where = "clients' own tests" if of.measure in OF_CLIENTS else "the test set"
    yield (
        f"Result: {MEASURES[of.measure]}, on {where}. Our spread is over seeds, which share partition, initial "
        "model and draws across rows: differences are paired."
    )
    if of.columns_are:
        yield f"Columns: {escaped(of.columns_are)}."
    if changed := ", ".join(filter(None, (_changed(plan), *map(escaped, so_far)))):
        yield f"Scaled: {changed}."
    if plan.expert_training is not None:
        yield f"An expert was trained first, on all training data in one place: {_plain(plan.expert_training)}."
    if plan.search is not None:
        yield from _tried_where(plan, plan.search)
        for cell, setting in tuned.items():
            where = f" for {escaped(cell)}" if cell else ""
            yield f"Chosen{where}: {escaped(_plain(setting))}.{_at_the_end(plan, cell, setting)}"


def _tried_where(plan: Plan, search: Search) -> Iterator[str]:
    """What was tried, apart for columns that have a search of their own."""
    own = [column for column in plan.columns if column in search.columns and not search.column]
    for column in own:
        yield f"{escaped(column)}: {_tried(search.in_column(column))}"
    if others := [column for column in plan.columns if column not in own]:
        yield (f"{escaped(', '.join(others))}: " if own else "") + _tried(search)


def _at_the_end(plan: Plan, cell: str, setting: Setting) -> str:
    """A warning where the highest or the lowest of three or more numbers was chosen: a better one may lie beyond."""
    arm = next((plan.arms[c.arm] for c in plan.cells if c.name == cell and c.arm in plan.arms), None)
    ends = []
    for key, values in () if arm is None else arm.space.items():
        if isinstance(values, Range) or len(values) < 3 or not all(type(value) in (int, float) for value in values):
            continue
        if setting.get(key) in (min(values), max(values)):
            ends.append(f"{key} the {'highest' if setting[key] == max(values) else 'lowest'}")
    return f" Of what was tried, {escaped(' and '.join(ends))}: a better one may lie beyond." if ends else ""


def _tried(search: Search) -> str:
    seeds = ", ".join(map(str, search.seeds))
    if search.kind == "grid" and not any(isinstance(values, Range) for values in search.space.values()):
        grid = "; ".join(f"{key} of {', '.join(map(str, values))}" for key, values in search.space.items())
        what = f"(seeds {seeds}; {escaped(grid or 'a grid of its own for each')})"
    else:
        what = f"(seeds {seeds}; search: {search.kind})"
    if search.by == "clients":
        return (
            "Settings were chosen by the mean over clients on their own tests, in other draws of the federation than "
            f"those compared, with as many trials for each row {what}."
        )
    return f"Rates were chosen on held-out validation data, with as many trials for each row {what}."


def _changed(plan: Plan) -> str:
    texts = [f"`{key} = {value}`" for key, value in plan.over.items() if key not in _PLACES]
    if len(plan.columns) < len(plan.of.columns):
        texts.append(f"{len(plan.columns)} of {len(plan.of.columns)} columns")
    if len(plan.rows) < len(plan.of.rows):
        texts.append(f"{len(plan.rows)} of {len(plan.of.rows)} rows")
    return ", ".join(texts)


def _plain(setting: Setting) -> str:
    return ", ".join(f"{key} = {value}" for key, value in setting.items())


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _commit() -> str:
    """The commit of this code in eight digits, with "-dirty" if files were changed since; "" if nobody knows."""
    digits, mark, changed = commit().partition("-")
    return digits[:8] + mark + changed


def slug(text: str) -> str:
    """A text as a file is called: its Latin letters and digits, or a digest of a text without any."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or hashlib.sha256(text.encode()).hexdigest()[:8]


def as_data(
    plan: Plan, findings: Findings, how: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The same as plain data, for programs."""
    of = plan.of
    return {
        "name": of.name,
        "paper": of.paper,
        "items": list(plan.items),
        "title": of.title,
        "scale": plan.scale,
        "measure": of.measure,
        "seeds": list(plan.seeds),
        "verdict": findings.verdict,
        "claims": [
            {"says": one.says, "verdict": one.verdict, "evidence": one.evidence, **({"ours": True} if one.ours else {})}
            for one in findings.claims
        ],
        "cells": list(cells),
        **how,
    }
