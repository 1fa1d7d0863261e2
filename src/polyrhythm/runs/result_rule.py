"""Which accuracy is meant: that of the last version, of the best one, or the mean over the last twenty."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, Literal, get_args

from polyrhythm.base.errors import unknown
from polyrhythm.runs.costs import On, Row, score

Reading = Literal["final", "best", "last20"]
"""One number for a run: of its last evaluated version, of its best one, or the mean over its last 20."""

READINGS: tuple[Reading, ...] = get_args(Reading)
NUMBERS = ("final_accuracy", "best_accuracy", "best_by", "best_version", "last20_mean", "last20_sd")
"""What a run comes to, by the names of its summary."""
_WINDOW = 20


def read(rows: Sequence[Row], headline: str, reading: Reading, on: On = "test") -> float | None:
    """The headline metric of a run as one number; None if there is nothing to read it from.

    `final` is that of the last evaluated version. `best` is that of the version that `chosen_by` says: a version chosen
    by the set that it is judged on looks better than it is. `last20` is the mean over the last 20 evaluated versions,
    or as many as there are, the initial model apart.

    Args:
        rows: the run's versions, in order.
        headline: the metric.
        reading: which of the three.
        on: the set that it is judged on.

    Raises:
        UserError: another reading.
    """
    if reading not in READINGS:
        raise unknown("accuracy", reading, READINGS)
    if reading == "best":
        row = best_of(rows, headline)
        return None if row is None else score(row, headline, on)
    if reading == "final":
        evaluated = [row for row in rows if row[on]]
        return score(evaluated[-1], headline, on) if evaluated else None
    last = _last(rows, headline, on)
    return math.fsum(last) / len(last) if last else None


def numbers(rows: Sequence[Row], headline: str) -> dict[str, Any]:
    """All `NUMBERS` of a run on the test set; None for what there is nothing to read from."""
    best, last = best_of(rows, headline), _last(rows, headline, "test")
    return {
        "final_accuracy": read(rows, headline, "final"),
        "best_accuracy": read(rows, headline, "best"),
        "best_by": None if best is None else chosen_by(rows, headline),
        "best_version": None if best is None else best["version"],
        "last20_mean": read(rows, headline, "last20"),
        "last20_sd": statistics.pstdev(last) if last else None,
    }


def kept(rows: Sequence[Row], headline: str) -> list[Row]:
    """The few versions that `numbers` are read from, and the newest: with those that come later they give the same."""
    evaluated = [row for row in rows if row["test"]][-_WINDOW - 1 :]  # one more, as the initial model may be among them
    best = [_best_by(rows, headline, on) for on in ("test", "validation")]
    judged = next((row for row in rows if score(row, headline, "validation") is not None), None)
    among = {row["version"] for row in (*best, judged, *evaluated, *rows[-1:]) if row is not None}
    return [row for row in rows if row["version"] in among]


def best_of(rows: Sequence[Row], headline: str) -> Row | None:
    """The best version of a run, by the set that `chosen_by` says; the first of equals, and one that trained."""
    return _best_by(rows, headline, chosen_by(rows, headline))


def _best_by(rows: Sequence[Row], headline: str, judge: On) -> Row | None:
    scored = [
        (value, row) for row in rows if row["client_updates"] and (value := score(row, headline, judge)) is not None
    ]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _last(rows: Sequence[Row], headline: str, on: On) -> list[float]:
    """The last 20 evaluated versions, the initial model apart; none if one of them is not finite."""
    last = [score(row, headline, on) for row in rows if row[on] and row["version"] > 0][-_WINDOW:]
    known = [value for value in last if value is not None]
    return known if len(known) == len(last) else []


def chosen_by(rows: Sequence[Row], headline: str) -> On:
    """The set that chooses a run's best version: validation data if it has any, else the test set."""
    return "validation" if any(score(row, headline, "validation") is not None for row in rows) else "test"
