"""What the clients' updates are like: how far they agree, and how well earlier ones foretell them."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.bands import band
from polyrhythm.figures.curves import curves
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import COUNT, Range, along, chart, grouped, named, told, upright
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES

STRATEGIES: Mapping[str, str] = {
    "model": "Strategy 2: its last model",
    "movement": "Strategy 3: its last movement",
}
_COSINE = Range(least=-1, most=1)
_PANELS: Mapping[str, str] = {"error": "squared distance of the estimate", "cosine": "cosine of the movements"}


def similarity(row: Mapping[str, Any]) -> float | None:
    """The mean cosine between the updates of a version."""
    value = (row["measures"] or {}).get("update_similarity")
    return None if value is None else float(value)


def errors(visits: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Of each round, the mean over its visits of every measure of CCFL's figure 2."""
    of: dict[int, dict[str, list[float]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for visit in visits:
        for key, value in (visit["measures"] or {}).items():
            if key.startswith("estimate_"):
                of[visit["version"] + 1][key].append(value)
    return [
        {"version": number} | {key: math.fsum(values) / len(values) for key, values in of[number].items()}
        for number in sorted(of)
    ]


def _similarity(subject: Subject, options: Options) -> Chart:
    return curves(subject, similarity, options, "mean cosine between two updates", _COSINE)


def _errors(subject: Subject, options: Options) -> Chart:
    import altair as alt

    half = dataclasses.replace(options, width=(options.width - 60) // 2)
    colours = [HUES[hue][options.theme] for hue in ("vermilion", "blue")]
    rows_of_panels = []
    for name, members in subject.methods.items():
        rounds = [errors(subject.visits(run, "version", "measures")) for run in members]
        if not any(rounds):
            continue
        panels = []
        for panel, title in _PANELS.items():
            rows = [
                {"strategy": words, **point}
                for which, words in STRATEGIES.items()
                for point in band(rounds, lambda row, key=f"estimate_{which}_{panel}": row.get(key), "version")  # type: ignore[misc]
            ]
            x = along("version").title("round")
            y = upright(title, rows, COUNT if panel == "error" else _COSINE).axis
            color = grouped("strategy", list(STRATEGIES.values()), colours)
            heading = named(name, members[0], subject) if len(subject.methods) > 1 and panel == "error" else ""
            marks = chart(rows, half.width, 220, heading)
            line = marks.mark_line().encode(x=x, y=y, color=color, tooltip=["strategy:N", *told("round", title)])
            area = marks.mark_area(opacity=0.18, clip=True).encode(
                x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=color
            )
            panels.append(alt.layer(area, line) if len(members) > 1 else line)
        rows_of_panels.append(alt.hconcat(*panels))
    return rows_of_panels[0] if len(rows_of_panels) == 1 else alt.vconcat(*rows_of_panels)


FIGURES: Sequence[Figure] = (
    Figure(
        name="update_similarity",
        title="Agreement of updates",
        about="The mean cosine between two updates of one version: 1 where all clients pull in one direction.",
        lacks=needs(
            "versions",
            "json_extract(measures, '$.update_similarity') IS NOT NULL",
            "updates were not compared; run it with evaluation.measure=update_similarity",
        ),
        drawn=_similarity,
        along=True,
        curved=True,
    ),
    Figure(
        name="estimation_error",
        title="How well a client's past foretells its update",
        about="How far the last model and the last movement of a client are from the true ones. CCFL, figure 2.",
        lacks=needs(
            "visits",
            "json_extract(measures, '$.estimate_movement_error') IS NOT NULL",
            "updates were not compared with earlier ones; run it with evaluation.measure=estimation_error",
        ),
        drawn=_errors,
    ),
)
