"""Numbers of a run: its result, what it cost, and what it had reached when it had spent a budget."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from polyrhythm.results import Run
from polyrhythm.runs.comparison import last_spread
from polyrhythm.runs.costs import COSTS, Row, reached, score
from polyrhythm.runs.result_rule import read
from polyrhythm.studies.claims import MEASURES, OF_CLIENTS

_WINDOWS = {"final": 1, "last10": 10, "last20": 20}
_OF_THE_FLEET = ("virtual_seconds", "joules")
_TOTALS = {name: COSTS[name] for name in ("client_updates", "local_steps", "samples", "flops", "bytes", *_OF_THE_FLEET)}
_CRITICAL: Mapping[str, Callable[[Sequence[int]], int]] = {
    "critical_rounds": len,
    "critical_until": lambda versions: max(versions, default=0),
}
_TO: Mapping[str, str] = {"rounds_to": "rounds", "updates_to": "client_updates", "cohort_to": "mean_cohort"}


def result(rows: Sequence[Row], headline: str, measure: str) -> float | None:
    """The result of a run as one of `MEASURES`; None if it has none.

    Args:
        rows: its versions.
        headline: the metric.
        measure: which number.
    """
    if measure in OF_CLIENTS:
        return of_clients(rows, measure)
    if measure == "best":
        return read(rows, headline, "best")
    return _last(rows, headline, _WINDOWS[measure])


def of_clients(rows: Sequence[Row], measure: str) -> float | None:
    """A number on clients' own tests, of the model that each uses: the global one where it has none of its own.

    Args:
        rows: the versions of a run.
        measure: one of `OF_CLIENTS`.
    """
    last = last_spread([row for row in rows if row["version"] > 0])  # the initial model is no result
    own, common = (OF_CLIENTS[measure].format(which) for which in ("personal", "global"))
    return last.get(own, last.get(common))


def _last(rows: Sequence[Row], headline: str, window: int) -> float | None:
    """The mean over the last evaluated versions, the initial model apart; None if one of them is not finite."""
    last = [row for row in rows if row["test"] and row["version"] > 0][-window:]
    scores = [value for row in last if (value := score(row, headline)) is not None]
    return math.fsum(scores) / len(scores) if scores and len(scores) == len(last) else None


def jitter(rows: Sequence[Row], headline: str) -> float | None:
    """The population standard deviation over the last 20 evaluated versions."""
    last = [row for row in rows if row["test"] and row["version"] > 0][-_WINDOWS["last20"] :]
    scores = [value for row in last if (value := score(row, headline)) is not None]
    return statistics.pstdev(scores) if scores and len(scores) == len(last) else None


def result_at(rows: Sequence[Row], headline: str, measure: str, cost: str, budget: float) -> float | None:
    """The same of a run that ends when it would spend more than a budget; None if it had no result by then.

    Args:
        rows: its versions.
        headline: the metric.
        measure: which number.
        cost: one of `BUDGETS`.
        budget: of it.
    """
    return result([row for row in rows if (_TOTALS[cost].of(row) or 0) <= budget], headline, measure)


def total(rows: Sequence[Row], cost: str) -> float | None:
    """What a run has spent in all."""
    return float(_TOTALS[cost].of(rows[-1]) or 0) if rows else None


def value(
    run: Run, rows: Sequence[Row], measure: str, goal: float | None = None, end: int | None = None
) -> float | None:
    """Any number of a run: a result, in shares, or a cost in its own unit.

    Args:
        run: it.
        rows: its versions.
        measure: one of `MEASURES`, `SERVED` or `COSTS`.
        goal: for what it takes to reach one.
        end: the version as far as the run is read; None for all of it.
    """
    if measure in MEASURES:
        return result(rows, run.headline, measure)
    if measure == "rarest_quarter":
        return run.bias["score_rare"] if last_spread(rows) and end is None else None
    if measure in _TOTALS:
        return total(rows, measure)
    if measure in _TO:
        took = None if goal is None else reached(rows, run.headline, goal)
        return None if took is None else took[_TO[measure]]  # type: ignore[literal-required]
    if measure == "cohort":
        rounds = [row["cohort"] for row in rows if row["version"] > 0]
        return math.fsum(rounds) / len(rounds) if rounds else None
    if measure in _CRITICAL:
        return _critical(run, _CRITICAL[measure], end)
    return _epochs(run, end)


def _critical(run: Run, told: Callable[[Sequence[int]], int], end: int | None) -> float | None:
    """Of the rounds that were found critical, the start apart; None if nobody looked for them."""
    history = run.history
    if "measures_critical" not in history:
        return None
    found = history.index[history["measures_critical"] == 1.0]
    return float(told([version for version in found if version > 0 and (end is None or version <= end)]))


def _epochs(run: Run, end: int | None) -> float | None:
    """Of the visits that trained."""
    visits = run.visits if end is None else run.visits[run.visits["version"] < end]
    trained = visits[visits["steps"] > 0]["epochs"]
    return float(trained.mean()) if len(trained) else None
