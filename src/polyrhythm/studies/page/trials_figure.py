"""Parallel coordinates: a line for each trial, over an axis for each key and one for the score."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.theme import Theme, config
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.running.trials import Record, Trial, best

_HEIGHT, _AXIS = 280, 130  # pixels; of the drawing, and from one axis to the next
_TICKS = 5


def parallel(record: Record, arm: str, theme: Theme = "light") -> Any:
    """Parallel coordinates: the figure of an arm's trials with a score; pruned ones are dashed, the best one is thick.

    Args:
        record: of the study.
        arm: which of those that it tries settings for.
        theme: "light" or "dark".

    Raises:
        UserError: there is nothing to draw yet.
    """
    import altair as alt

    trials = [trial for trial in record.of(arm) if trial.score is not None]
    if not trials:
        raise UserError(
            f"no trial of {record.name} has a score yet",
            expected="at least one",
            why="there is nothing to draw",
            fix="wait for the first trial",
        )
    first = best(trials, arm)
    score = f"validation {in_words(record.headline)}"
    axes = [*dict.fromkeys(key for trial in trials for key in trial.setting), score]
    places = {axis: _axis(axis, axis == score, trials) for axis in axes}
    look = config(theme)
    ink, rule = look["title"]["color"], look["axis"]["gridColor"]
    lines = [
        {
            "axis": i,
            "place": places[axis][0][n],
            "trial": trial.number,
            "score": trial.score,
            "state": trial.state,
            "best": trial is first,
            **{key.replace(".", " "): str(value) for key, value in trial.setting.items()},
        }
        for i, axis in enumerate(axes)
        for n, trial in enumerate(trials)
    ]
    ticks = [{"axis": i, "place": y, "label": text} for i, axis in enumerate(axes) for y, text in places[axis][1]]
    heads = [{"axis": i, "label": axis, "low": 0.0, "high": 1.0, "place": 1.11} for i, axis in enumerate(axes)]
    x = alt.X("axis:Q", axis=None, scale=alt.Scale(domain=[-0.35, len(axes) - 0.4], nice=False))
    y = _y(alt, "place")
    extent = [0.0, 0.85] if theme == "light" else [0.25, 1.0]  # without what the background swallows
    colour = alt.Color(
        "score:Q",
        title=score,
        scale=alt.Scale(scheme=alt.SchemeParams(name="viridis", extent=extent), reverse=theme == "light"),
        legend=alt.Legend(format=".3f"),
    )
    rules = alt.Chart(alt.InlineData(values=heads)).mark_rule(color=rule, strokeWidth=2)
    drawn = (
        alt.Chart(alt.InlineData(values=lines))
        .mark_line(opacity=0.85)
        .encode(
            x=x,
            y=y,
            color=colour,
            detail="trial:N",
            strokeWidth=alt.StrokeWidth(
                "best:N", scale=alt.Scale(domain=[False, True], range=[1.6, 5]), legend=None, sort=[False, True]
            ),
            strokeDash=alt.StrokeDash(
                "state:N", scale=alt.Scale(domain=["finished", "pruned"], range=[[1, 0], [4, 3]]), title=None
            ),
            tooltip=[alt.Tooltip("trial:Q"), alt.Tooltip("score:Q", format=".4f"), alt.Tooltip("state:N")],
        )
    )
    # With a rim in the colour of the paper, so that a line behind a label leaves it legible.
    labels = alt.Chart(alt.InlineData(values=ticks)).encode(x=x, y=y, text="label:N")
    text: dict[str, Any] = {"align": "right", "dx": -6, "fontSize": 11}
    marks = labels.mark_text(stroke=look["background"], strokeWidth=4, strokeJoin="round", **text)
    marks += labels.mark_text(color=ink, **text)
    if first is not None:
        place = {
            "axis": len(axes) - 1,
            "place": places[score][0][trials.index(first)],
            "label": f"best: {first.number}",
        }
        best_one = alt.Chart(alt.InlineData(values=[place])).encode(x=x, y=y, text="label:N")
        marks += best_one.mark_text(align="left", dx=8, fontSize=11, fontWeight="bold", color=ink)
    top = (
        alt.Chart(alt.InlineData(values=heads))
        .mark_text(color=ink, fontWeight="bold", fontSize=12)
        .encode(x=x, y=y, text="label:N")
    )
    whole = alt.layer(rules.encode(x=x, y=_y(alt, "low"), y2="high:Q"), drawn, marks, top)
    title = alt.Title(
        f"{record.name}{f', {arm}' if arm else ''}: {len(record.of(arm))} trials", subtitle=_states(record, arm)
    )
    return whole.properties(width=_AXIS * len(axes), height=_HEIGHT, title=title).configure(**look)


def _states(record: Record, arm: str) -> list[str]:
    """How many trials are in which state, and what that means for their line."""
    of = collections.Counter[str](trial.state for trial in record.of(arm))
    told = [f"{of['finished']} finished; thick: the best of them"]
    if of["pruned"]:
        told.append(f"{of['pruned']} pruned, dashed: their score is of fewer rounds, or of fewer seeds")
    if of["failed"] or of["waiting"]:
        rest = [f"{of[state]} {words}" for state, words in (("failed", "failed"), ("waiting", "not over")) if of[state]]
        told.append(f"{' and '.join(rest)}: not drawn without a score")
    return told


def _y(alt: Any, name: str) -> Any:
    return alt.Y(f"{name}:Q", axis=None, scale=alt.Scale(domain=[-0.06, 1.14], nice=False))


def _axis(axis: str, is_score: bool, trials: Sequence[Trial]) -> tuple[list[float], list[tuple[float, str]]]:
    """Where each trial is on an axis, between 0 and 1; and its ticks."""
    values = [trial.score if is_score else trial.setting.get(axis) for trial in trials]
    numbers = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) < len(values) or len(set(numbers)) == 1:
        names = list(dict.fromkeys(map(_text, values)))
        step = {name: (i + 0.5) / len(names) for i, name in enumerate(names)}
        return [step[_text(v)] for v in values], [(y, name) for name, y in step.items()]
    low, high = min(numbers), max(numbers)
    log = not is_score and low > 0 and high / low >= 20  # where most trials would lie at one end
    scale = (lambda v: math.log(v)) if log else (lambda v: v)
    places = [(scale(v) - scale(low)) / (scale(high) - scale(low)) for v in numbers]
    distinct = sorted(set(numbers))
    shown = distinct if len(distinct) <= _TICKS else [_at(low, high, i / (_TICKS - 1), log) for i in range(_TICKS)]
    return places, [((scale(v) - scale(low)) / (scale(high) - scale(low)), f"{v:.3g}") for v in shown]


def _at(low: float, high: float, place: float, log: bool) -> float:
    return low * (high / low) ** place if log else low + (high - low) * place


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)
