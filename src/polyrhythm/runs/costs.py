"""What a run has cost, and what it had cost by the time it reached a goal, read from its recorded versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, cast, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.faults import told

On = Literal["test", "validation"]
"""The set on which the headline metric is judged."""

Row = Mapping[str, Any]
"""A recorded version, by column."""


class CostToGoal(TypedDict):
    """What it took to reach a goal: as in the summary, `bytes` both ways, and `reached`, the metric then."""

    rounds: int
    virtual_seconds: float
    joules: float
    bytes: int
    client_updates: int
    mean_cohort: float | None
    flops: int
    reached: float


GOALS = tuple(name for name in CostToGoal.__annotations__ if name != "reached")
"""What it takes to reach a goal, by name."""


MEASURED = ("s", "J", "B", "FLOPs")
"""Units that are said; all else is counted, and the words say what."""


@final
class Cost(NamedTuple):
    """Something that a run spends, as it grows from version to version.

    Args:
        name: in the summary, and wherever else it is asked for.
        unit: of its number.
        words: what people call it.
        column: of a version's record, where that has another name.
        percent: whether people read it in percent.
    """

    name: str
    unit: str
    words: str
    column: str = ""
    percent: bool = False

    @property
    def title(self) -> str:
        """With its unit, where that is not in the words."""
        return f"{self.words} ({self.unit})" if self.unit in MEASURED else self.words

    def of(self, row: Row) -> Any:
        """How much a version and those before it took."""
        return bytes_of(row) if self.name == "bytes" else row[self.column or self.name]


TOTALS = (
    Cost("client_updates", "visits", "client updates"),
    Cost("local_steps", "steps", "local steps"),
    Cost("samples", "samples", "samples trained on"),
    Cost("flops", "FLOPs", "computing"),
    Cost("forward_flops", "FLOPs", "of it forward"),
    Cost("backward_flops", "FLOPs", "of it backward"),
    Cost("bytes_up", "B", "traffic up"),
    Cost("bytes_down", "B", "traffic down"),
    Cost("joules", "J", "energy"),
    Cost("virtual_seconds", "s", "virtual time", column="time"),
    Cost("compute_seconds", "s", "clients computing"),
    Cost("link_seconds", "s", "clients on links"),
    Cost("waiting_seconds", "s", "clients waiting"),
    Cost("utilisation", "share", "fleet busy", percent=True),
    Cost("fairness", "share", "fairness of participation"),
    Cost("visits", "visits", "visits"),
    Cost("dropped_visits", "visits", "of them refused"),
    Cost("late_visits", "visits", "of them late"),
    Cost("lost_visits", "visits", "of them lost"),
)
"""What a run costs in all, in the order of its summary."""

COSTS: Mapping[str, Cost] = {
    cost.name: cost
    for cost in (
        Cost("rounds", "", "rounds", column="version"),
        *TOTALS,
        Cost("bytes", "B", "traffic"),
        Cost("wall_seconds", "s", "time here", column="wall"),
    )
}
"""And all else that can be asked for, by name."""


def totals(row: Row) -> dict[str, Any]:
    """A version's cumulative costs, by their names in the summary."""
    return {cost.name: cost.of(row) for cost in TOTALS}


def bytes_of(row: Row) -> int:
    """Bytes both ways, since the start."""
    return int(row["bytes_up"] + row["bytes_down"])


def score(row: Row, headline: str, on: On = "test") -> float | None:
    """The headline metric of a version on a set; None if it was not evaluated, or gave no finite number."""
    value = (row[on] or {}).get(headline)
    return float(value) if value is not None and math.isfinite(value) else None


def reached(rows: Sequence[Row], headline: str, goal: float, on: On = "test") -> CostToGoal | None:
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
            mean = sum(cohorts) / len(cohorts) if cohorts else None
            spent = {name: mean if name == "mean_cohort" else COSTS[name].of(row) for name in GOALS}
            return cast(CostToGoal, {**spent, "reached": value})
    return None


def score_at(rows: Sequence[Row], headline: str, seconds: float, on: On = "test") -> float | None:
    """The headline metric of the last version evaluated by a virtual time; None if the run ended before."""
    if not rows or rows[-1]["time"] < seconds:
        return None
    known = [value for row in rows if row["time"] <= seconds if (value := score(row, headline, on)) is not None]
    return known[-1] if known else None


def lines(costs: Mapping[str, Any]) -> dict[str, str]:
    """Costs in words, a line for each kind; none before there is a version."""
    if not costs:
        return {}
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
        "traffic": f"{amount(costs['bytes_up'], 'B')} up, {amount(costs['bytes_down'], 'B')} down",
        "energy": amount(costs["joules"], "J"),
    }


def decimals(value: float) -> str:
    """A metric in four decimals; what is too large or too small for them, in powers of ten.

    >>> decimals(0.98765), decimals(2.9412556e33), decimals(0.0)
    ('0.9877', '2.94e+33', '0.0000')
    """
    return f"{value:.2e}" if abs(value) >= 1e5 or 0 < abs(value) < 5e-5 else f"{value:.4f}"


def seconds(value: float) -> str:
    """A span of virtual time; hours from 10,000 s on."""
    if value < 999.5:
        return f"{value:.3g} s"
    return f"{value:,.0f} s" if value < 1e4 else f"{value / 3600:,.4g} h"


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
