"""Curricula: how quickly samples come into use, how hard they are, and what the easy and the hard ones look like."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.figure import Chart, Figure, Options
from polyrhythm.figures.groups import settings
from polyrhythm.figures.labels import bubbles
from polyrhythm.figures.marks import along, chart, methods, named, panelled, wide
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.runs.portrait import HARDNESS, QUANTILES, labels_of, samples_of

SAMPLES = 1000
STEPS = 200


def pacing(config: Mapping[str, Any]) -> tuple[Pacing, str] | None:
    """The pacing function in a configuration and the order that it is used with; None without a curriculum."""
    for found in settings(config, "Curriculum"):
        if found["order"] != "vanilla":
            names = {field.name for field in dataclasses.fields(Pacing)}
            return Pacing(**{k: v for k, v in found["pacing"].items() if k in names}), str(found["order"])
    return None


def in_use(rule: Pacing) -> list[dict[str, float]]:
    """The share of the samples in use, `y`, after a share of the steps of a visit, `x`."""
    return [{"x": step / STEPS, "y": rule.count(SAMPLES, step, STEPS) / SAMPLES} for step in range(STEPS + 1)]


def _pacing(subject: Subject, options: Options) -> Chart:
    import altair as alt

    rows = [
        {"method": name, **point}
        for name, (first, *_) in subject.methods.items()
        if (found := pacing(first.config)) is not None
        for point in in_use(found[0])
    ]
    color, dash = methods(subject.styles(options.theme), shown=len(subject.methods) > 1)
    lines: Any = chart(rows, options.width, 260).mark_line().encode(
        x=alt.X("x:Q", title="share of the visit's steps", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("y:Q", title="share of the samples in use", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        color=color,
        strokeDash=dash,
    )  # fmt: skip
    return lines


def _hardness(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels = []
    for name, members in subject.methods.items():
        run = next((run for run in members if samples_of(run.path)), None)
        found = None if run is None else samples_of(run.path)
        if run is None or found is None:
            continue
        look = subject.styles(options.theme)[name]
        rows = [
            {"x": row["version"], **{f"q{100 * q:g}": value for q, value in zip(QUANTILES, row["losses"], strict=True)}}
            for row in found["versions"]
        ]
        x, title = along("version"), "loss of a training sample"
        marks = chart(rows, wide(len(subject.methods), options.width), 220, named(name, run, subject))
        fans = [
            marks.mark_area(color=look.colour, opacity=0.2).encode(
                x=x, y=alt.Y(f"q{low}:Q", title=title), y2=f"q{high}:Q"
            )
            for low, high in ((5, 95), (25, 75))
        ]
        middle = marks.mark_line(color=look.colour).encode(x=x, y=alt.Y("q50:Q", title=title))
        panels.append(alt.layer(*fans, middle))
    return panelled(panels)


def _samples(subject: Subject, options: Options) -> Chart:
    import altair as alt

    rows_of_panels = []
    for name, members in subject.methods.items():
        run = next((run for run in members if (samples_of(run.path) or {}).get("images")), None)
        if run is None or (found := samples_of(run.path)) is None:
            continue
        for place, kind in enumerate(HARDNESS):
            rows = [{"place": i, **image} for i, image in enumerate(found["images"][kind])]
            side = options.width / max(1, len(rows))
            x = alt.X("place:O", axis=None, scale=alt.Scale(paddingInner=0.0))
            heading = ": ".join(part for part in (named(name, run, subject), f"{kind} samples") if part)
            marks = chart(rows, options.width, side, heading if place == 0 else f"{kind} samples")
            image = marks.mark_image(width=side - 6, height=side - 6).encode(
                x=x, y=alt.value(side / 2), url="url:N", tooltip=["class:N", alt.Tooltip("loss:Q", format=".3g")]
            )
            ink = HUES["ink"][options.theme]
            words = chart([{**row, "said": f"{row['class']}\n{row['loss']:.2g}"} for row in rows], options.width, side)
            text = words.mark_text(fontSize=10, color=ink, lineBreak="\n").encode(
                x=x, y=alt.value(side + 7), text="said:N"
            )
            rows_of_panels.append(alt.layer(image, text))
    return alt.vconcat(*rows_of_panels, spacing=36)


def _labels(subject: Subject, options: Options) -> Chart:
    import altair as alt

    found: dict[str, Any] = {}
    for run in subject.runs:
        if (counts := labels_of(run.path)) is not None:
            found.setdefault(repr(counts), (run, counts))
    several = len(found) > 1
    panels = []
    for run, counts in list(found.values())[:4]:
        picture: Any = bubbles(counts, colour=HUES["blue"][options.theme], width=options.width)
        title = f"{counts['title']}, seed {run.seed}" if several else counts["title"]
        panels.append(picture.properties(title=alt.Title(title, fontSize=12, fontWeight="normal")))
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _no_pacing(subject: Subject) -> str:
    if any(pacing(first.config) for first, *_ in subject.methods.values()):
        return ""
    return "no method paces its samples; use curriculum_fl, or pipe curriculum onto a recipe"


def _no_losses(subject: Subject) -> str:
    if any(samples_of(run.path) for run in subject.runs):
        return ""
    return "losses of single samples were not measured; run it to its end with evaluation.measure=sample_losses"


def _no_images(subject: Subject) -> str:
    if missing := _no_losses(subject):
        return missing
    if any((samples_of(run.path) or {}).get("images") for run in subject.runs):
        return ""
    return "the samples are no images; draw sample_losses"


def _no_labels(subject: Subject) -> str:
    if any(labels_of(run.path) for run in subject.runs):
        return ""
    return "these runs have no record of who held which labels; run them again, or use polyrhythm data show -o FILE"


FIGURES: Sequence[Figure] = (
    Figure(
        name="pacing",
        title="Pacing",
        about="How many of its samples a client has in use as a visit goes on, easiest first.",
        lacks=_no_pacing,
        drawn=_pacing,
    ),
    Figure(
        name="sample_losses",
        title="How hard the samples are",
        about="The losses of training samples under the server's model: their median, the middle half, and 90%.",
        lacks=_no_losses,
        drawn=_hardness,
    ),
    Figure(
        name="samples",
        title="Easiest and hardest samples",
        about="The training samples with the smallest and the largest loss under the final model, with their labels.",
        lacks=_no_images,
        drawn=_samples,
    ),
    Figure(
        name="labels",
        title="Labels of each client",
        about="How many samples of each class each client holds: the area of a bubble.",
        lacks=_no_labels,
        drawn=_labels,
    ),
)
