"""Parallel coordinates: a line for each trial, over an axis for each key and one for the score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.figures.theme import HUES, Theme, config
from polyrhythm.figures.trial_marks import settings_of, told
from polyrhythm.figures.trials import Trials, Tried, as_text, is_number, is_spread

_HEIGHT, _AXIS = 280, 130  # pixels; of the drawing, and from one axis to the next
_TICKS = 5
_DASHES: Mapping[str, list[int]] = {"finished": [1, 0], "pruned": [4, 3], "failed": [1, 3]}


def parallel(trials: Trials, theme: Theme = "light") -> Any:
    """Parallel coordinates of trials that are over: pruned and failed ones dashed, the best thick.

    Args:
        trials: of one arm.
        theme: "light" or "dark".

    Raises:
        UserError: there is nothing to draw yet.
    """
    import altair as alt

    there = [trial for trial in trials.tried if trial.state != "waiting"]
    if not any(trial.score is not None for trial in there):
        raise UserError(
            f"no trial of {trials.name} has a score yet",
            expected="at least one",
            why="there is nothing to draw",
            fix="wait for the first trial",
        )
    score = trials.judged
    axes = [*trials.keys, score]
    places = {axis: _axis(axis, axis == score, there) for axis in axes}
    look = config(theme)
    ink, rule, paper = look["title"]["color"], look["axis"]["gridColor"], look["background"]
    best = None if trials.best is None else trials.best.number
    lines = [
        {
            "axis": i,
            "place": place,
            "trial": trial.number,
            "score": trial.score,
            "state": trial.state,
            **settings_of(trial),
        }
        for i, axis in enumerate(axes)
        for trial, place in zip(there, places[axis][0], strict=True)
        if place is not None
    ]
    ticks = [{"axis": i, "place": y, "label": text} for i, axis in enumerate(axes) for y, text in places[axis][1]]
    heads = [
        {"axis": i, "label": axis, "low": 0.0, "high": 1.0, "place": 1.1 + 0.09 * (i % 2)}  # so that none meet
        for i, axis in enumerate(axes)
    ]
    x = alt.X("axis:Q", axis=None, scale=alt.Scale(domain=[-0.35, len(axes) - 0.4], nice=False))
    y = _y(alt, "place")
    extent = [0.0, 0.85] if theme == "light" else [0.25, 1.0]  # without what the background swallows
    colour = alt.Color(
        "score:Q",
        title=score,
        scale=alt.Scale(scheme=alt.SchemeParams(name="viridis", extent=extent), reverse=theme == "light"),
        legend=alt.Legend(format=".3f"),
    )
    scored = [line for line in lines if line["score"] is not None]
    states = [state for state in _DASHES if any(line["state"] == state for line in lines)]
    dash = alt.Scale(domain=states, range=[_DASHES[state] for state in states])
    dashed = alt.StrokeDash("state:N", scale=dash, title=None, legend=alt.Legend(symbolStrokeColor=ink))
    rules = alt.Chart(alt.InlineData(values=heads)).mark_rule(color=rule, strokeWidth=2)
    of_trials = {"x": x, "y": y, "detail": "trial:N", "tooltip": told(trials)}

    def drawn(rows: Iterable[Any], **about: Any) -> Any:
        return alt.Chart(alt.InlineData(values=list(rows))).mark_line(**about).encode(**of_trials)

    failed = drawn((line for line in lines if line["score"] is None), color=HUES["vermilion"][theme], strokeWidth=1.5)
    of_best = [line for line in scored if line["trial"] == best]
    end = alt.Chart(alt.InlineData(values=of_best[-1:])).mark_text(align="left", dx=8, color=ink, fontSize=11)
    layers = [
        drawn(of_best, color=ink, strokeWidth=7),
        failed.encode(strokeDash=dashed),
        drawn(scored, opacity=0.9, strokeWidth=2).encode(color=colour, strokeDash=dashed),
        drawn(of_best, strokeWidth=3.5).encode(color=colour),
        end.encode(x=x, y=y, text=alt.value(f"best: {best}")),
    ]
    # With a rim of the paper, else lines would run through the words.
    words = alt.Chart(alt.InlineData(values=ticks)).encode(x=x, y=y, text="label:N")
    rim = words.mark_text(align="right", dx=-6, fontSize=11, stroke=paper, strokeWidth=4, strokeJoin="round")
    marks = words.mark_text(align="right", dx=-6, color=ink, fontSize=11)
    top = (
        alt.Chart(alt.InlineData(values=heads))
        .mark_text(color=ink, fontWeight="bold", fontSize=12)
        .encode(x=x, y=y, text="label:N")
    )
    whole = alt.layer(rules.encode(x=x, y=_y(alt, "low"), y2="high:Q"), *layers, rim, marks, top)
    title = alt.Title(f"{trials.name}: {trials.counted}")
    return whole.properties(width=_AXIS * len(axes), height=_HEIGHT, title=title).configure(**look)


def _y(alt: Any, name: str) -> Any:
    return alt.Y(f"{name}:Q", axis=None, scale=alt.Scale(domain=[-0.06, 1.24], nice=False))


def _axis(axis: str, is_score: bool, trials: Sequence[Tried]) -> tuple[list[float | None], list[tuple[float, str]]]:
    """Where each trial is on an axis, between 0 and 1, or nowhere; and its ticks."""
    values = [trial.score if is_score else trial.setting.get(axis) for trial in trials]
    known: list[Any] = [value for value in values if value is not None or not is_score]
    if not is_number(known):
        names = list(dict.fromkeys(map(as_text, known)))
        step = {name: (i + 0.5) / len(names) for i, name in enumerate(names)}
        return [step.get(as_text(value)) for value in values], [(y, name) for name, y in step.items()]
    low, high = min(known), max(known)
    log = not is_score and is_spread(known)
    scale = (lambda v: math.log(v)) if log else (lambda v: v)
    places = [None if v is None else (scale(v) - scale(low)) / (scale(high) - scale(low)) for v in values]
    distinct = sorted(set(known))
    shown = distinct if len(distinct) <= _TICKS else [_at(low, high, i / (_TICKS - 1), log) for i in range(_TICKS)]
    return places, [((scale(v) - scale(low)) / (scale(high) - scale(low)), f"{v:.3g}") for v in shown]


def _at(low: float, high: float, place: float, log: bool) -> float:
    return low * (high / low) ** place if log else low + (high - low) * place
