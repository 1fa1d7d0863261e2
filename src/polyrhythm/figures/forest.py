"""Paired differences between methods: what each gives more than one of them, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.axes import SETS
from polyrhythm.figures.figure import Chart, Figure, Options
from polyrhythm.figures.marks import chart
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import PAPER, WORDS
from polyrhythm.runs import match
from polyrhythm.runs.comparison import ComparedRuns
from polyrhythm.runs.costs import On
from polyrhythm.runs.paired import Difference

ROW = 80  # pixels of a method: its name, its interval, its numbers in two lines
STATES: Mapping[str, tuple[str, bool]] = {
    "0 left out, also after Holm's correction": ("circle", True),
    "0 left out, but not after the correction": ("diamond", False),
    "the interval holds 0": ("circle", False),
    "no interval": ("cross", False),
}
"""How a difference stands: its shape, and whether that is filled."""


def found_differences(
    subject: Subject, on: On, baseline: str | None = None
) -> tuple[str, list[dict[str, Any]], Mapping[str, Difference]]:
    """The baseline, a row for each other method, and the differences themselves.

    Args:
        subject: the runs.
        on: the set that they are judged on.
        baseline: the method that the others are compared with; None for the first.
    """
    compared = ComparedRuns(subject.runs, group_by=subject.group_by, baseline=baseline)
    found = compared.differences(on=on)
    rows = [
        {
            "method": name,
            "place": place,
            "at": place - 0.14,
            **{key: getattr(one, key) for key in ("mean", "low", "high", "n", "p", "holm")},
            "state": state(one),
            "said": words[0],
            "how": words[1],
        }
        for place, (name, one, words) in enumerate((name, one, said(one)) for name, one in found.items())
    ]
    return compared.baseline, rows, found


def state(one: Difference) -> str:
    """Which of `STATES` a difference is in."""
    after, before, holds, none = STATES
    if one.holds_zero is None:
        return none
    return holds if one.holds_zero else after if one.shown else before


def said(one: Difference) -> tuple[str, str]:
    """A difference in numbers, and how sure it is, in a line each."""
    if one.mean is None:
        return "no pair: no seed in common,", "or other data or another fleet"
    pairs = f"{one.n} pair{'s' if one.n != 1 else ''}"
    mean = f"{one.mean:+.4f}".replace("-", "−")
    if one.low is None or one.high is None:
        return mean, pairs + ("" if one.n == 1 else " that all differ by the same") + ": no interval"
    chance = "" if one.p is None or one.holm is None else f", p {_chance(one.p)}, Holm {_chance(one.holm)}"
    return f"{mean} [{one.low:+.4f}, {one.high:+.4f}]".replace("-", "−"), pairs + chance


def _chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _drawn(subject: Subject, options: Options) -> Chart:
    import altair as alt

    base, rows, found = found_differences(subject, options.on, options.baseline)
    tests = sum(one.p is not None for one in found.values())
    holm = f"; Holm for {tests} tests" if tests > 1 else ""
    styles = subject.styles(options.theme)
    names = [row["method"] for row in rows]
    hues = alt.Scale(domain=names, range=[styles[name].colour for name in names])
    color: dict[str, Any] = {"field": "method", "type": "nominal", "scale": hues, "legend": None}
    height = ROW * len(rows)
    y = alt.Y("place:Q", axis=None, scale=alt.Scale(domain=[-0.5, len(rows) - 0.5], reverse=True, nice=False))
    title = f"difference in {in_words(subject.headline)}, {SETS[options.on]}"
    scale = alt.Scale(zero=True, nice=True, padding=12)
    axis = alt.Axis(labelExpr="datum.value === 0 ? '0' : format(datum.value, '+~g')", tickCount=5, grid=False)
    note = [f"to {base}", f"95 % intervals, paired by seed{holm}"]
    marks = chart(rows, options.width, height)
    tips = [
        "method:N",
        *(alt.Tooltip(f"{key}:Q", format="+.4f") for key in ("mean", "low", "high")),
        "n:Q",
        *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("p", "holm")),
        "state:N",
    ]
    known = [row for row in rows if row["mean"] is not None]
    states = [one for one in STATES if any(row["state"] == one for row in known)]
    ink, paper = WORDS[options.theme], PAPER[options.theme]
    legend = alt.Legend(columns=1, symbolStrokeWidth=2, symbolOpacity=1) if states else None
    looks = [STATES[one] for one in states]
    shape = alt.Scale(domain=states, range=[shape for shape, _ in looks])
    fill = alt.Scale(domain=states, range=[ink if filled else paper for _, filled in looks])
    ring = alt.Scale(domain=states, range=[ink for _ in states])
    up = alt.Y("at:Q", axis=None, scale=alt.Scale(domain=[-0.5, len(rows) - 0.5], reverse=True, nice=False))
    x, place = alt.X("mean:Q", title=title, scale=scale, axis=axis), alt.value(4)
    # Clipped, so that on a narrow page no long name takes the room of the intervals.
    text: dict[str, Any] = {"align": "left", "baseline": "middle", "color": ink, "clip": True}
    spans = [row for row in known if row["low"] is not None]
    lines = chart(spans, options.width, height).mark_rule(strokeWidth=2.5)
    points = chart(known, options.width, height)
    layers = [
        chart([{"zero": 0.0}], options.width, height, note).mark_rule(strokeDash=[3, 3], color=ink).encode(x="zero:Q"),
        marks.mark_text(dy=-26, fontWeight="bold", **text).encode(x=place, y=y, text="method:N"),
        marks.mark_text(dy=11, **text).encode(x=place, y=y, text="said:N"),
        marks.mark_text(dy=25, **text).encode(x=place, y=y, text="how:N"),
    ]
    if spans:
        layers.append(
            lines.encode(
                x=alt.X("low:Q", title=title, scale=scale, axis=axis),
                x2="high:Q",
                y=up,
                color=alt.Color(**color),
                tooltip=tips,
            )
        )
    if known:
        layers.append(
            points.mark_point(size=80, strokeWidth=2, opacity=1).encode(
                x=x,
                y=up,
                stroke=alt.Stroke("state:N", title=None, scale=ring, legend=legend),
                fill=alt.Fill("state:N", title=None, scale=fill, legend=legend),
                shape=alt.Shape("state:N", title=None, scale=shape, legend=legend),
                tooltip=tips,
            )
        )
    return alt.layer(*layers)


def _lacks(subject: Subject) -> str:
    names = list(subject.methods)
    if len(names) < 2:
        return "there is one method; choose runs of another one, too"
    if not subject.has("versions", "test IS NOT NULL OR validation IS NOT NULL"):
        return "no version has been evaluated yet; wait for the first one"
    base = subject.methods[names[0]]
    seeds = {run.seed for run in base}
    if any(
        match.paired(members[0].config, base[0].config) and seeds & {run.seed for run in members}
        for members in (subject.methods[name] for name in names[1:])
    ):
        return ""
    return f"no other method has a run with a seed, the data and the fleet of {names[0]}; run it with --seeds 0-2"


FIGURES: Sequence[Figure] = (
    Figure(
        name="differences",
        title="Differences, paired by seed",
        about="What each method ends with more than the first, or the one that is chosen: mean and 95 % interval. "
        "Filled: the interval leaves out 0, also after Holm's correction for as many tests.",
        lacks=_lacks,
        drawn=_drawn,
        judged=True,
    ),
)
