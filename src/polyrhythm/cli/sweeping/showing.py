"""How a sweep looks once it is over."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyrhythm.cli.results import print_rows
from polyrhythm.runs.paired import mean_and_spread
from polyrhythm.studies.searches.definition import in_words
from polyrhythm.studies.searches.result import Swept
from polyrhythm.studies.searches.trials import Trial

_MOST = 40  # trials in a table


def print_sweep(console: Console, found: Swept) -> None:
    """The trials, the best first; the chosen settings; and those on the test set."""
    for side in found.sides:
        trials = found.record.of(side)
        console.print(_table(side, trials, found.headline))
        if len(trials) > _MOST:
            console.print(f"and {len(trials) - _MOST:,} more; --json has all of them", style="dim")
        for reason, several in _by_reason(trials).items():
            console.print(f"{several}: {reason}", style="dim", markup=False, highlight=False, soft_wrap=True)
    print_rows(console, dict(_chosen(found)))
    console.print()


def _table(side: str, trials: Sequence[Trial], headline: str) -> Table:
    keys = list(dict.fromkeys(key for trial in trials for key in trial.setting))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=side or None, title_justify="left")
    table.add_column("trial", justify="right")
    for key in keys:
        table.add_column(key, overflow="fold")
    table.add_column(f"validation {headline.replace('_', ' ')}", justify="right", overflow="fold")
    table.add_column("", overflow="fold")
    for trial in sorted(trials, key=_rank)[:_MOST]:
        cells = [str(trial.number), *(_value(trial.setting.get(key)) for key in keys), _score(trial)]
        table.add_row(*map(Text, cells), Text("" if trial.state == "finished" else trial.state))
    return table


def _rank(trial: Trial) -> tuple[int, float, int]:
    order = ("finished", "pruned", "failed", "waiting").index(trial.state)
    return order, -(trial.score if trial.score is not None else -math.inf), trial.number


def _score(trial: Trial) -> str:
    return "–" if trial.score is None else mean_sd([trial.score] if not trial.scores else list(trial.scores.values()))


def mean_sd(values: Sequence[float]) -> str:
    """Mean and sample standard deviation, as far as there is one."""
    mean, spread = mean_and_spread(values)
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"


def _value(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _by_reason(trials: Sequence[Trial]) -> dict[str, str]:
    """Why trials failed: each reason once, with their numbers."""
    found: dict[str, list[int]] = {}
    for trial in trials:
        if trial.state == "failed":
            found.setdefault(trial.reason.partition("\n")[0], []).append(trial.number)
    return {
        reason: f"trial{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))} failed"
        for reason, numbers in found.items()
    }


def _chosen(found: Swept) -> list[tuple[str, str]]:
    rows = []
    for side in found.sides:
        label, trial = side or "best", found.best(side)
        if trial is None:
            rows.append((label, "no trial has finished"))
            continue
        rows.append((label, f"trial {trial.number}: {in_words(trial.setting)}"))
        if found.finished and (runs := found.chosen(side)):
            finals = [run.summary.get("final_accuracy") for run in runs]
            known = [value for value in finals if value is not None]
            seeds = ", ".join(str(run.seed) for run in runs)
            which = "fresh seeds" if found.record.chosen.get(side) else "the seeds of the trials"
            told = mean_sd(known) if known else "none"
            rows.append((f"{label}, on test", f"{told} ({which} {seeds})"))
    where = "" if str(found.out) == "runs" else f" --out {found.out}"
    name = found.name if len(found.sides) == 1 else f"{found.name}/{found.sides[0]}"
    rows.append(("as a file", f"polyrhythm best {name}{where}"))
    return rows


def how_to_go_on(file: Path, options: Mapping[str, Any]) -> str:
    """The command that goes on with it."""
    given = " ".join(f"--{key} {value}" for key, value in options.items() if value is not None)
    return f"go on with: polyrhythm sweep {file} {given}".rstrip()
