"""The tables that answer: what may be said of clients' privacy?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrhythm.results import tables
from polyrhythm.results.tables import Table
from polyrhythm.runs.comparison import ComparedRuns
from polyrhythm.runs.recorded import RecordedRun

ANSWERS = (
    *("epsilon", "delta", "unit", "relation", "sampling"),
    *("mechanism", "released", "accountant", "guarantee", "outside"),
)
"""What a privacy statement answers, in order."""


def answers(statement: Mapping[str, Any]) -> dict[str, str]:
    """The answers of a recorded privacy statement, as texts."""
    found = {name: statement.get(name) for name in ANSWERS}
    epsilon = "infinite" if found["epsilon"] is None else f"{found['epsilon']:.4g}"
    outside = "; ".join(found["outside"] or ())
    return {**{k: str(v) for k, v in found.items()}, "epsilon": epsilon, "outside": outside}


def statements(found: ComparedRuns[RecordedRun]) -> Table | None:
    """The privacy statement of every method that hides clients, of the run that cost most; None if there is none."""
    columns: dict[str, dict[str, str]] = {}
    for name, members in found.methods.items():
        told = [statement for run in members if (statement := run.summary.get("privacy"))]
        if told:
            most = max(told, key=lambda one: float("inf") if one["epsilon"] is None else one["epsilon"])
            columns[name] = answers(most)
    if not columns:
        return None
    return Table(
        name="privacy",
        caption="What may be said of the privacy of clients; of several seeds, of the one that cost most.",
        head=("", *columns),
        rows=tables.rows((name, *(column[name] for column in columns.values())) for name in ANSWERS),
        numbers=False,
    )
