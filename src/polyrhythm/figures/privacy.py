"""What a run has cost its clients in privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.curves import curves
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import Range
from polyrhythm.figures.subject import Subject


def epsilon(row: Mapping[str, Any]) -> float | None:
    """Epsilon of all versions up to this one, by Renyi divergences."""
    value = (row["measures"] or {}).get("epsilon")
    return None if value is None else float(value)


def _epsilon(subject: Subject, options: Options) -> Chart:
    return curves(subject, epsilon, options, "epsilon", Range(least=0, zero=True))


FIGURES: Sequence[Figure] = (
    Figure(
        name="epsilon",
        title="Privacy spent",
        about="Epsilon of all versions so far, by Renyi divergences; the statement of a run may be closer, and less.",
        lacks=needs(
            "versions",
            "json_extract(measures, '$.epsilon') IS NOT NULL",
            "nobody is hidden in these runs; pipe dp(noise=1) onto a recipe",
        ),
        drawn=_epsilon,
        along=True,
        curved=True,
    ),
)
