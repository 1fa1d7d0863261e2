"""Which accuracy is meant: that of the last version, of the best one, or the mean over the last twenty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from polyrhythm.base.errors import unknown
from polyrhythm.runs.costs import On, Row, score

Reading = Literal["final", "best", "last20"]
"""One number for a run: of its last evaluated version, of its best one, or the mean over its last 20."""

READINGS: tuple[Reading, ...] = get_args(Reading)
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
        judge = chosen_by(rows, headline)
        scored = [(value, row) for row in rows if (value := score(row, headline, judge)) is not None]
        return score(max(scored, key=lambda pair: pair[0])[1], headline, on) if scored else None  # the first of equals
    evaluated = [row for row in rows if row[on]]
    if reading == "final":
        return score(evaluated[-1], headline, on) if evaluated else None
    last = [score(row, headline, on) for row in evaluated if row["version"] > 0][-_WINDOW:]
    known = [value for value in last if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(last) else None


def chosen_by(rows: Sequence[Row], headline: str) -> On:
    """The set that chooses a run's best version: validation data if it has any, else the test set."""
    return "validation" if any(score(row, headline, "validation") is not None for row in rows) else "test"
