"""How much clients train: epochs per round, in all, and per client."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.bands import band
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.lines import lines
from polyrhythm.figures.marks import COUNT, chart, methods, named, shaped
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES
from polyrhythm.figures.thinning import evenly, thin

MOST_CLIENTS = 100
MOST_DOTS = 1000


def per_round(visits: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Of each round: the mean epochs of the visits that trained, and the epochs of all visits up to it.

    A visit belongs to the round after the version that it was sent. One that broke off counts with what it did.
    """
    trained: dict[int, list[float]] = collections.defaultdict(list)
    for visit in visits:
        if visit["steps"]:
            trained[visit["version"] + 1].append(visit["epochs"])
    found, total = [], 0.0
    for number in sorted(trained):
        total += math.fsum(trained[number])
        mean = math.fsum(trained[number]) / len(trained[number])
        found.append({"version": number, "mean": mean, "total": total})
    return found


def per_client(visits: Sequence[Mapping[str, Any]], clients: int) -> list[float]:
    """The epochs that each client made in all, by client; none by one that was never heard of."""
    total = [0.0] * clients
    for visit in visits:
        total[visit["client"]] += visit["epochs"] if visit["steps"] else 0.0
    return total


def _epochs(subject: Subject, options: Options) -> Chart:
    import altair as alt

    half = dataclasses.replace(options, width=(options.width - 60) // 2)
    rounds = {
        name: [per_round(subject.visits(run, "version", "steps", "epochs")) for run in members]
        for name, members in subject.methods.items()
    }

    def panel(key: str, measure: str) -> Chart:
        rows = [
            {"method": name, **point}
            for name, runs in rounds.items()
            for point in band(runs, lambda row: float(row[key]), "version")
        ]
        return lines(subject, rows, half, measure, "version", COUNT, height=220, axis="round", turns=False)

    rows, most = [], max(members[0].clients for members in subject.methods.values())
    for name, members in subject.methods.items():
        made = per_client(subject.visits(members[0], "client", "steps", "epochs"), members[0].clients)
        few = evenly(range(len(made)), MOST_CLIENTS)
        rows += [{"method": name, "client": client, "epochs": made[client]} for client in few]
    shown = f"client ({MOST_CLIENTS} of {most:,} shown)" if most > MOST_CLIENTS else "client"
    styles = subject.styles(options.theme)
    color, _ = methods(styles, shown=len(subject.methods) > 1)
    marks = chart(rows, options.width, 150)
    dots = marks.mark_point(size=45, opacity=0.9, filled=True).encode(
        x=alt.X(
            "client:Q",
            title=shown,
            axis=alt.Axis(tickMinStep=1),
            scale=alt.Scale(zero=False, nice=False, padding=8),
        ),
        y=alt.Y("epochs:Q", title="epochs in all (one seed)"),
        color=color,
        **shaped(styles, color),
        tooltip=["method:N", "client:Q", alt.Tooltip("epochs:Q", format=".4~g")],
    )
    upper = alt.hconcat(panel("mean", "epochs of a visit"), panel("total", "epochs of all clients so far"))
    return alt.vconcat(upper, dots)


def drift(visits: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Of each visit that was watched for drift: its `round`, `epochs`, `similarity` at its end, and `threshold`."""
    return [
        {
            "round": visit["version"] + 1,
            "epochs": visit["epochs"],
            "similarity": measures["similarity"],
            "threshold": measures["threshold"],
        }
        for visit in visits
        if visit["steps"] and "similarity" in (measures := visit["measures"] or {}) and "threshold" in measures
    ]


def _drift(subject: Subject, options: Options) -> Chart:
    import altair as alt

    half, panels = (options.width - 60) // 2, []
    for name, members in subject.methods.items():
        found = drift(subject.visits(members[0], "version", "steps", "epochs", "measures"))
        if not found:
            continue
        look = subject.styles(options.theme)[name]
        by_round: dict[float, list[dict[str, float]]] = collections.defaultdict(list)
        for row in found:
            by_round[row["round"]].append(row)
        means = [
            {"round": n, **{key: math.fsum(r[key] for r in rows) / len(rows) for key in ("similarity", "threshold")}}
            for n, rows in sorted(by_round.items())
        ]
        means = thin(means, ("similarity",))
        left = chart(means, half, 200, named(name, members[0], subject))
        x = alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1))
        told = [alt.Tooltip(f"{key}:Q", format=".4~g") for key in ("round", "similarity", "threshold")]
        line = left.mark_line(color=look.colour).encode(
            x=x, y=alt.Y("similarity:Q", title="similarity to the global model's"), tooltip=told
        )
        limit = left.mark_line(color=HUES["vermilion"][options.theme], strokeDash=[4, 3]).encode(x=x, y="threshold:Q")
        dots = chart(evenly(found, MOST_DOTS), half, 200).mark_circle(color=look.colour, size=18, opacity=0.5)
        right = dots.encode(
            x=alt.X("epochs:Q", title="epochs of the visit", axis=alt.Axis(tickCount=5)),
            y=alt.Y("similarity:Q", title="similarity at its end", scale=alt.Scale(zero=False)),
            tooltip=[alt.Tooltip(f"{key}:Q", format=".4~g") for key in ("round", "epochs", "similarity", "threshold")],
        )
        panels.append(alt.hconcat(alt.layer(line, limit), right))
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


FIGURES: Sequence[Figure] = (
    Figure(
        name="drift",
        title="Drift and epochs",
        about="How like the global model's the representations of local models are when their visits end, over rounds "
        "with the limit (dashed) at which they stop, and against the epochs that the visit took. ALT, section IV.",
        lacks=needs(
            "visits",
            "json_extract(measures, '$.similarity') IS NOT NULL AND json_extract(measures, '$.threshold') IS NOT NULL",
            "no visit was watched for drift; run alt, or stop_on_drift",
        ),
        drawn=_drift,
    ),
    Figure(
        name="epochs",
        title="Local epochs",
        about="Passes over their data that clients made: per visit, in all so far, and of each client. "
        "ALT, panels c and d.",
        lacks=needs("visits", "steps > 0", "no visit has trained yet; wait for the first one"),
        drawn=_epochs,
    ),
)
