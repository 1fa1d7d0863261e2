"""Results class by class on the test set: how often each is recognised, and what it is taken for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import chart, methods, named
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.thinning import evenly
from polyrhythm.runs.records import ClassResultsRecord

COLUMNS = 60
MOST_CLASSES = 100
"""Classes that a picture shows."""


def accuracies(row: ClassResultsRecord) -> list[float | None]:
    """The share of each class's test samples that are put into it; None where there are none."""
    return [right / present if present else None for right, present in zip(row.right, row.present, strict=True)]


def shares(row: ClassResultsRecord) -> list[list[float | None]]:
    """Of each class the share of its test samples that is put into each; None where there are none."""
    size, cells = len(row.present), row.confusion or ()
    return [
        [cells[i * size + j] / row.present[i] if row.present[i] else None for j in range(size)] for i in range(size)
    ]


def _title(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"


def _names(subject: Subject) -> list[str]:
    """What classes are called in pictures: each once, since two may begin alike."""
    names = next((run.classes for run in subject.runs if run.classes), ())
    short = [_title(name) for name in names]
    return [s if short.count(s) == 1 else f"{s} ({i})" for i, s in enumerate(short)]


def _by_class(subject: Subject, options: Options) -> Chart:
    import altair as alt

    names = _names(subject)
    rows: list[dict[str, Any]] = []
    for method, runs in subject.methods.items():
        last = [found[-1] for run in runs if (found := subject.class_results(run))]
        for i in evenly(range(len(names)), MOST_CLASSES):
            known = [value for row in last if i < len(row.present) and (value := accuracies(row)[i]) is not None]
            if known:
                mean = math.fsum(known) / len(known)
                rows.append({"method": method, "class": names[i], "accuracy": mean, "runs": len(known)})
    shown = [names[i] for i in evenly(range(len(names)), MOST_CLASSES)]
    color, _ = methods(subject.styles(options.theme), shown=len(subject.methods) > 1, stroke=False)
    order = list(subject.methods)
    step = max(14.0, 11.0 * len(order))
    places = {name: i for i, name in enumerate(order)}
    rows = [{**row, "place": places[row["method"]]} for row in rows]
    extra = {"yOffset": alt.YOffset("place:O", scale=alt.Scale(domain=list(range(len(order)))))}
    return (
        chart(rows, options.width, step * len(shown))
        .mark_bar()
        .encode(
            x=alt.X("accuracy:Q", title="share of its test samples that are recognised", axis=alt.Axis(format="%")),
            y=alt.Y("class:N", title="class", scale=alt.Scale(domain=shown)),
            color=color,
            tooltip=["method:N", "class:N", alt.Tooltip("accuracy:Q", format=".1%"), "runs:Q"],
            **(extra if len(order) > 1 else {}),
        )
    )


def _map(subject: Subject, options: Options) -> Chart:
    import altair as alt

    names, panels = _names(subject), []
    chosen = evenly(range(len(names)), MOST_CLASSES)
    shown = [names[i] for i in chosen]
    for method, runs in subject.methods.items():
        results = subject.class_results(runs[0])
        if not results:
            continue
        picked = evenly(results, COLUMNS)
        picked = picked if picked[-1] is results[-1] else [*picked[:-1], results[-1]]
        cells = [
            {"class": names[i], "version": row.version, "accuracy": known[i]}
            for row in picked
            for known in [accuracies(row)]
            for i in chosen
        ]
        note = f"{len(picked)} of {len(results)} versions" if len(picked) < len(results) else ""
        panel = chart(
            cells, options.width, min(420, 16 * len(chosen)), named(method, runs[0], subject, note=note)
        ).mark_rect()
        panels.append(
            panel.encode(
                x=alt.X("version:O", title="server version", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
                y=alt.Y("class:N", title="class", scale=alt.Scale(domain=shown), axis=alt.Axis(labelOverlap=True)),
                color=alt.Color(
                    "accuracy:Q",
                    title="recognised",
                    scale=alt.Scale(scheme="viridis", domain=[0, 1]),
                    legend=alt.Legend(format="%", gradientLength=220),
                ),
                tooltip=["class:N", "version:O", alt.Tooltip("accuracy:Q", format=".1%")],
            )
        )
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _confusion(subject: Subject, options: Options) -> Chart:
    import altair as alt

    names, panels = _names(subject), []
    every = alt.Scale(domain=names)
    size = max(10.0, min(30.0, (options.width - 60) / max(1, len(names))))
    for method, runs in subject.methods.items():
        kept = [row for row in subject.class_results(runs[0]) if row.confusion]
        if not kept:
            continue
        row = kept[-1]
        assert row.confusion is not None
        of_class = shares(row)
        cells = [
            {
                **{"class": names[i], "put": names[j], "share": of_class[i][j]},
                "samples": row.confusion[i * len(names) + j],
            }
            for i in range(len(names))
            for j in range(len(names))
        ]
        heading = named(method, runs[0], subject, note=f"version {row.version:,}")
        panel = chart(cells, size * len(names), size * len(names), heading)
        x = alt.X("put:N", title="is put into", scale=every, axis=alt.Axis(labelOverlap=True))
        y = alt.Y("class:N", title="class", scale=every, axis=alt.Axis(labelOverlap=True))
        color = alt.Color(
            "share:Q",
            title="share of a class",
            scale=alt.Scale(scheme="blues" if options.theme == "light" else "viridis", domain=[0, 1]),
            legend=alt.Legend(format="%", gradientLength=220),
        )
        tips = ["class:N", alt.Tooltip("put:N", title="is put into"), alt.Tooltip("share:Q", format=".1%"), "samples:Q"]
        square = panel.mark_rect().encode(x=x, y=y, color=color, tooltip=tips)
        if size < 22:
            panels.append(square)
            continue
        dark = "datum.share > 0.55" if options.theme == "light" else "datum.share < 0.6"
        text = panel.transform_filter("datum.samples > 0").mark_text(fontSize=10)
        inked = alt.condition(dark, alt.value("#FFFFFF"), alt.value("#1A1A1A"))
        panels.append(alt.layer(square, text.encode(x=x, y=y, text="samples:Q", color=inked)))
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


_results = needs(
    "class_results",
    "1",
    "no result by class is on record; it is of classification, and of runs that were recorded with it",
)
FIGURES: Sequence[Figure] = (
    Figure(
        name="classes",
        title="Results by class",
        about="How many of each class's test samples the newest version recognises; the mean over seeds.",
        lacks=_results,
        drawn=_by_class,
    ),
    Figure(
        name="class_map",
        title="Each class over the run",
        about="How many of each class's test samples every version recognises; the first seed of each method.",
        lacks=_results,
        drawn=_map,
    ),
    Figure(
        name="confusion",
        title="Confusion matrix",
        about="What test samples of each class (rows) are put into (columns), by the newest version of which it was "
        "kept; the first seed of each method.",
        lacks=needs(
            "class_results",
            "confusion IS NOT NULL",
            "no confusion matrix is on record; it is kept of each version with up to 20 classes, else of the last "
            "one, up to 500 classes; wait for the end of the run",
        ),
        drawn=_confusion,
    ),
)
