"""What a run has cost, and what it had cost by the time it reached a goal, read from its recorded versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from polyrhythm.base.errors import UserError
from polyrhythm.base.faults import told

On = Literal["test", "validation"]
"""The set on which the headline metric is judged."""

Row = Mapping[str, Any]
"""A recorded version, by column."""


class Took(TypedDict):
    """What it took to reach a goal: as in the summary, `bytes` both ways, and `reached`, the metric then."""

    rounds: int
    virtual_seconds: float
    joules: float | None
    bytes: int
    client_updates: int
    mean_cohort: float | None
    flops: int
    reached: float


GOALS = tuple(name for name in Took.__annotations__ if name != "reached")
"""What it takes to reach a goal, by name."""

UNITS: Mapping[str, str] = {
    "virtual_seconds": "s",
    "compute_seconds": "s",
    "link_seconds": "s",
    "waiting_seconds": "s",
    "utilisation": "share",
    "fairness": "share",
    "joules": "J",
    "flops": "FLOPs",
    "forward_flops": "FLOPs",
    "backward_flops": "FLOPs",
    "bytes_up": "B",
    "bytes_down": "B",
    "client_updates": "visits",
    "visits": "visits",
    "dropped_visits": "visits",
    "late_visits": "visits",
    "lost_visits": "visits",
    "local_steps": "steps",
    "samples": "samples",
}
"""The unit of each total, by its name in the summary."""


def totals(row: Row) -> dict[str, Any]:
    """A version's cumulative costs, by their names in the summary; None where an older record does not say."""
    return {name: row["time"] if name == "virtual_seconds" else row[name] for name in UNITS}


def bytes_of(row: Row) -> int:
    """Bytes both ways, since the start."""
    return int(row["bytes_up"] + row["bytes_down"])


def score(row: Row, headline: str, on: On = "test") -> float | None:
    """The headline metric of a version on a set; None if it was not evaluated, or gave no finite number."""
    value = (row[on] or {}).get(headline)
    return float(value) if value is not None and math.isfinite(value) else None


def reached(rows: Sequence[Row], headline: str, goal: float, on: On = "test") -> Took | None:
    """What it took until the first evaluated version that is at least as good as the goal; None if none is.

    Nothing is interpolated: a version that was not evaluated has reached nothing.

    Raises:
        UserError: a goal that is no number, or the run was never judged on that set.
    """
    if isinstance(goal, bool) or not isinstance(goal, (int, float)) or not math.isfinite(goal):
        raise UserError(
            f"goal = {goal!r}",
            expected=f"a number, such as 0.8: the {headline} to be reached",
            why="versions are compared with it",
            fix="give a number; one that is out of reach is answered with None",
        )
    if on == "validation" and rows and not any(row["validation"] for row in rows):
        raise UserError(
            "no version was judged on validation data",
            expected="a run with samples held out for that",
            why="the goal is looked for among the results on them",
            fix='on="test", or run it with validation=0.1',
        )
    for place, row in enumerate(rows):
        value = score(row, headline, on)
        if value is not None and value >= goal:
            cohorts = [earlier["cohort"] for earlier in rows[: place + 1] if earlier["version"] > 0]
            return {
                "rounds": row["version"],
                "virtual_seconds": row["time"],
                "joules": row["joules"],
                "bytes": bytes_of(row),
                "client_updates": row["client_updates"],
                "mean_cohort": sum(cohorts) / len(cohorts) if cohorts else None,
                "flops": row["flops"],
                "reached": value,
            }
    return None


def score_at(rows: Sequence[Row], headline: str, seconds: float, on: On = "test") -> float | None:
    """The headline metric of the last version evaluated by a virtual time; None if the run ended before."""
    if not rows or rows[-1]["time"] < seconds:
        return None
    known = [value for row in rows if row["time"] <= seconds if (value := score(row, headline, on)) is not None]
    return known[-1] if known else None


def lines(costs: Mapping[str, Any]) -> dict[str, str]:
    """Costs in words, a line for each kind; what an older record does not say is left out."""
    if costs.get("bytes_up") is None:
        return {}
    traffic = {"traffic": f"{amount(costs['bytes_up'], 'B')} up, {amount(costs['bytes_down'], 'B')} down"}
    if costs.get("compute_seconds") is None:
        return traffic
    work, links, waiting = (seconds(costs[f"{what}_seconds"]) for what in ("compute", "link", "waiting"))
    over = ", ".join(f"{costs[f'{status}_visits']:,} {status}" for status in ("lost", "late", "dropped"))
    busy, fairness = costs["utilisation"], costs["fairness"]
    return {
        "virtual time": seconds(costs["virtual_seconds"]),
        "clients' time": f"{work} computing, {links} on links, {waiting} waiting",
        "fleet": f"busy {'none' if busy is None else f'{busy:.1%}'} of its time; fairness "
        + ("none" if fairness is None else f"{fairness:.3f}"),
        "visits": f"{costs['visits']:,}: {over}",
        **({"faults": words} if (words := told(costs.get("faults") or {})) else {}),
        **({"workers": f"{dead:,} died and were replaced"} if (dead := costs.get("worker_deaths")) else {}),
        "computing": f"{amount(costs['flops'], 'FLOPs')}: {amount(costs['forward_flops'])} forward, "
        f"{amount(costs['backward_flops'])} backward",
        **traffic,
        "energy": amount(costs["joules"], "J"),
    }


def seconds(value: float) -> str:
    """A span of virtual time; hours from 10,000 s on."""
    return f"{value:.3g} s" if value < 1e4 else f"{value / 3600:.4g} h"


def amount(value: float, unit: str = "") -> str:
    """A number of three digits with a prefix for its size, and its unit.

    >>> amount(88_336_000, "B"), amount(0.00123, "J"), amount(0, "J")
    ('88.3 MB', '1.23 mJ', '0 J')
    """
    size = abs(value)
    step = 0 if not size else max(-3, min(6, math.floor(math.log10(size) / 3)))
    if size and float(f"{size / 1000.0**step:.3g}") >= 1000 and step < 6:
        step += 1  # 999.9 is 1 of the next
    prefix = ("n", "µ", "m", "", "k", "M", "G", "T", "P", "E")[step + 3]
    return f"{value / 1000.0**step:.3g} {prefix}{unit}".rstrip()
