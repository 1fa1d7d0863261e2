"""The page of a reproduction: the paper's numbers beside ours, what holds, what it cost, and how it was made."""

from __future__ import annotations

import datetime
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from polyrhythm import __version__
from polyrhythm.report.markdown import escaped, table
from polyrhythm.results.tables import Table, rows
from polyrhythm.runs.environment import library_versions, machine
from polyrhythm.studies.searches.space import Setting
from polyrhythm.studies.tables.definition import MEASURES, PAPERS, SHORT, Scaled
from polyrhythm.studies.tables.findings import Findings


@final
@dataclass(frozen=True, kw_only=True)
class Made:
    """How a page came about.

    Args:
        command: what made it.
        commit: of the program; "" outside of its repository.
        date: ISO 8601.
        versions: of libraries.
        machine: in words.
        seconds: that all runs took, added up.
    """

    command: str
    commit: str
    date: str
    versions: Mapping[str, str]
    machine: str
    seconds: float


def made(scaled: Scaled, seconds: float) -> Made:
    """How this is being made, here and now."""
    where = machine()
    return Made(
        command=command(scaled),
        commit=_commit(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        versions={**library_versions(), "polyrhythm": __version__},
        machine=f"{where['cores']} cores of {where['cpu']}, {where['instructions']}, {where['system']}",
        seconds=seconds,
    )


def command(scaled: Scaled) -> str:
    """What reproduces a page."""
    parts = ["polyrhythm", "reproduce", scaled.of.name, "--scale", scaled.scale]
    parts += ["--seeds", ",".join(map(str, scaled.seeds))]
    own = scaled.of.at(scaled.scale)
    for option, asked, all_of_them in (("--row", scaled.rows, own.rows), ("--column", scaled.columns, own.columns)):
        if asked != all_of_them:
            parts += [part for name in asked for part in (option, name)]
    parts += [part for key, value in scaled.asked.items() for part in ("--set", f"{key}={value}")]
    return shlex.join(parts)


def markdown(scaled: Scaled, findings: Findings, how: Made, tuned: Mapping[str, Setting]) -> str:
    """The whole page.

    Args:
        scaled: what was run.
        findings: what came out.
        how: the page came about.
        tuned: the values that were chosen, by cell.
    """
    return "\n".join(_lines(scaled, findings, how, tuned)).rstrip("\n") + "\n"


def _lines(scaled: Scaled, findings: Findings, how: Made, tuned: Mapping[str, Setting]) -> Iterator[str]:
    of = scaled.of
    yield f"# {escaped(_heading(of.paper, of.items))}: {escaped(of.title)}"
    yield ""
    yield f"*{escaped(PAPERS[of.paper])}*" + (f", {escaped(of.source)}." if of.source else ".")
    yield ""
    if of.says:
        yield f"**The {'question' if of.paper == 'combinations' else 'paper'}:** {escaped(of.says)}"
        yield ""
    yield f"**Verdict:** {escaped(findings.verdict or 'none')}. Scale: {scaled.scale}" + _scaled_how(scaled)
    yield ""
    numbers = [one for one in findings.tables if one.name not in ("equal", "costs")]
    for one in numbers:
        yield from table(one)
    if findings.claims:
        yield "## What is claimed, and what came out"
        yield ""
        yield from table(_claims(findings, computed=bool(of.program)))
    costs = [one for one in findings.tables if one.name in ("equal", "costs")]
    if costs:
        yield "## At equal costs"
        yield ""
    for one in costs:
        yield from table(one)
    for picture in findings.pictures:
        yield f"![{escaped(picture.title)}]({picture.file.as_posix()})"
        yield ""
    for title, about in {picture.title.partition(",")[0]: picture.about for picture in findings.pictures}.items():
        yield f"*{escaped(title)}:* {escaped(about)}"
        yield ""
    yield "## How it was made"
    yield ""
    yield from (f"- {line}" for line in _how(scaled, tuned))
    yield from (f"- {escaped(note)}" for note in (*of.notes, *findings.notes))
    yield ""
    yield from ("```console", f"$ {how.command}", "```", "")
    commit = f" (commit {how.commit})" if how.commit else ""
    took = f"; {_duration(how.seconds)} of one processor for all runs" if how.seconds else ""
    yield (
        f"{how.date}, polyrhythm {how.versions['polyrhythm']}{commit}, Python {how.versions['python']}, torch "
        f"{how.versions['torch']}; {escaped(how.machine)}{took}."
    )


def _heading(paper: str, items: tuple[str, ...]) -> str:
    return f"{SHORT[paper]}, {', '.join(items[:4])}{' …' if len(items) > 4 else ''}"


def _scaled_how(scaled: Scaled) -> str:
    if scaled.scale == "paper":
        return ", the size of the paper's own." if scaled.of.paper != "combinations" else "."
    why = scaled.of.scales[scaled.scale].why
    return f" ({escaped(why)})." if why else "."


_JUDGED = (
    "Differences are means over seeds, paired by seed, with their 95 % confidence interval (Student's t). A claim "
    "holds, or differs, where the intervals say so in every column; it holds on average where only the means do, and "
    "is not decided where a mean does not and its interval leaves both open. A growth is that from its first "
    "column to its last. Ratios and ranges are judged by means."
)


def _claims(findings: Findings, *, computed: bool) -> Table:
    lines = [(one.says, one.verdict, one.evidence or "–") for one in findings.claims]
    return Table(
        name="claims",
        caption="Each is looked at in the numbers above." if computed else _JUDGED,
        head=("claim", "verdict", "evidence"),
        rows=rows(lines),
        numbers=False,
    )


def _how(scaled: Scaled, tuned: Mapping[str, Setting]) -> Iterator[str]:
    of = scaled.of
    if of.program:
        return
    yield (
        f"Result: {MEASURES[of.measure]}, on the test set. Our spread is over seeds, which share partition, initial "
        "model and draws across rows: differences are paired."
    )
    if of.columns_are:
        yield f"Columns: {escaped(of.columns_are)}."
    if changed := _changed(scaled):
        yield f"Scaled: {changed}"
    if scaled.expert_training is not None:
        yield f"An expert was trained first, on all training data in one place: {_in_words(scaled.expert_training)}."
    if scaled.tuning is not None:
        plan = scaled.tuning
        grid = "; ".join(f"{key} of {', '.join(map(str, values))}" for key, values in plan.space.items())  # type: ignore[arg-type]
        yield (
            f"Rates were chosen on held-out validation data, with as many trials for each row (seeds "
            f"{', '.join(map(str, plan.seeds))}; {escaped(grid or 'a grid of its own for each')})."
        )
        yield from (f"Chosen for {escaped(cell)}: {escaped(_in_words(setting))}." for cell, setting in tuned.items())


def _changed(scaled: Scaled) -> str:
    texts = [f"`{key} = {value}`" for key, value in scaled.over.items()]
    if len(scaled.columns) < len(scaled.of.columns):
        texts.append(f"{len(scaled.columns)} of {len(scaled.of.columns)} columns")
    if len(scaled.rows) < len(scaled.of.rows):
        texts.append(f"{len(scaled.rows)} of {len(scaled.of.rows)} rows")
    return f"{', '.join(texts)}." if texts else ""


def _in_words(setting: Setting) -> str:
    return ", ".join(f"{key} = {value}" for key, value in setting.items())


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _commit() -> str:
    """The commit of the repository that this file is part of; "" if it is in none, or was installed."""

    def git(*arguments: str) -> str:
        found = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
        return found.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") if git("ls-files", Path(__file__).name) else ""
    except (OSError, subprocess.CalledProcessError):
        return ""


def slug(text: str) -> str:
    """A text as a file is called."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def as_data(scaled: Scaled, findings: Findings, how: Made, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The same as plain data, for programs."""
    of = scaled.of
    return {
        "name": of.name,
        "paper": of.paper,
        "items": list(of.items),
        "title": of.title,
        "scale": scaled.scale,
        "measure": of.measure,
        "seeds": list(scaled.seeds),
        "verdict": findings.verdict,
        "claims": [{"says": one.says, "verdict": one.verdict, "evidence": one.evidence} for one in findings.claims],
        "cells": cells,
        "command": how.command,
        "commit": how.commit,
        "date": how.date,
        "versions": dict(how.versions),
        "machine": how.machine,
        "seconds": round(how.seconds, 1),
    }
