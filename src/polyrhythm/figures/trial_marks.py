"""What figures of trials share: rows, axes of keys, marks by how a trial ended, a ring around the best."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from polyrhythm.base.errors import UserError
from polyrhythm.figures.figure import Chart
from polyrhythm.figures.theme import HUES, Theme, config
from polyrhythm.figures.trials import Trials, Tried, as_text, is_number, is_spread

WIDTH, HEIGHT = 420, 260
LISTED = 6
"""Values of a key, up to which each has a place of its own."""
STATES = ("finished", "pruned", "failed")
_HUES = ("sky", "orange", "vermilion")
_SHAPES = ("circle", "triangle-down", "cross")


def points(there: Sequence[Tried]) -> list[dict[str, Any]]:
    """A row for each trial: its number, score, state and setting."""
    return [
        {
            "trial": t.number,
            "score": t.score,
            "state": t.state,
            "reason": t.reason.partition("\n")[0][:120],
            **settings_of(t),
        }
        for t in there
    ]


def settings_of(trial: Tried) -> dict[str, str]:
    """A trial's setting as columns of a row, which no other column is called like."""
    return {f"set {key}": as_text(value) for key, value in trial.setting.items()}


def marks(rows: Sequence[Mapping[str, Any]], trials: Trials, x: alt.X, theme: Theme) -> list[Any]:
    """Trials with a score where it is, failed ones at the foot, a ring around the best."""
    tooltip, found = told(trials), []
    scored = [row for row in rows if row["score"] is not None]
    failed = [row for row in rows if row["score"] is None]
    colour = alt.Color("state:N", title=None, scale=alt.Scale(domain=list(STATES), range=_colours(theme)))
    if scored:
        dots = alt.Chart(alt.InlineData(values=scored)).mark_point(filled=True, size=55, opacity=0.9)
        found.append(dots.encode(x=x, y=score_axis(trials, "score"), color=colour, shape=shape(), tooltip=tooltip))
    if failed:
        crosses = alt.Chart(alt.InlineData(values=failed)).mark_point(filled=False, size=55, strokeWidth=2)
        found.append(crosses.encode(x=x, y=alt.value(HEIGHT - 6), color=colour, shape=shape(), tooltip=tooltip))
    if trials.best is not None:
        best = [row for row in scored if row["trial"] == trials.best.number]
        found.append(ring(best, x, score_axis(trials, "score"), config(theme)["title"]["color"]))
    return found


def ring(rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, colour: str) -> Any:
    """The best trial: a ring, and its number."""
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y)
    circle = base.mark_point(filled=False, size=240, strokeWidth=2, color=colour, shape="circle", opacity=1)
    words = base.transform_calculate(label="'best: ' + datum.trial").mark_text(dy=-16, color=colour, fontSize=11)
    return alt.layer(circle, words.encode(text="label:N"))


def shape() -> alt.Shape:
    """The mark of how a trial ended."""
    return alt.Shape("state:N", title=None, scale=alt.Scale(domain=list(STATES), range=list(_SHAPES)))


def _colours(theme: Theme) -> list[str]:
    return [HUES[hue][theme] for hue in _HUES]


def told(trials: Trials) -> list[alt.Tooltip]:
    """What is said of the trial under the pointer."""
    fields = [(key, re.sub(r"([\\.\[\]'\"])", r"\\\1", f"set {key}")) for key in trials.keys]
    settings = [alt.Tooltip(field=field, type="nominal", title=key) for key, field in fields]
    return [
        alt.Tooltip("trial:Q"),
        alt.Tooltip("score:Q", format=".4f", title=trials.judged),
        alt.Tooltip("state:N"),
        *settings,
    ]


def score_axis(trials: Trials, name: str = "y") -> alt.Y:
    """The axis of scores."""
    return alt.Y(f"{name}:Q", title=trials.judged, scale=alt.Scale(zero=False, padding=14))


def key_axis(kind: Any, name: str, key: str, values: Sequence[Any]) -> Any:
    """An axis of a key: many numbers as numbers, by their logarithms where they are spread; all else is listed."""
    if not is_range(values):
        order = sorted(set(values)) if is_number(values) else list(dict.fromkeys(map(as_text, values)))
        return kind(f"{name}:N", title=key, sort=[as_text(value) for value in order], axis=alt.Axis(labelAngle=0))
    spread = is_spread(values)
    plain = alt.Scale(zero=False, nice=False, padding=14)
    scale = alt.Scale(type="log", nice=False, padding=14) if spread else plain
    tens = (
        [10.0**n for n in range(math.ceil(math.log10(min(values))), math.floor(math.log10(max(values))) + 1)]
        if spread
        else []
    )
    axis = alt.Axis(values=tens, format="~g") if len(tens) > 1 else alt.Axis(tickCount=6)
    return kind(f"{name}:Q", title=key, scale=scale, axis=axis)


def is_range(values: Sequence[Any]) -> bool:
    """Whether values are numbers, and too many to list."""
    return is_number(values) and len(set(values)) > LISTED


def on_axis(values: Sequence[Any]) -> list[Any]:
    """Values as `key_axis` places them."""
    return list(values) if is_range(values) else [as_text(value) for value in values]


def titled(layers: Sequence[Any], trials: Trials, of: str = "") -> Chart:
    """Layers as one chart, with how many trials there are and how they ended under its title."""
    title = alt.Title(f"{trials.name}{f': {of}' if of else ''}", subtitle=trials.counted)
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)


def nothing(found: str) -> UserError:
    """The error for a figure without anything to show."""
    return UserError(
        found,
        expected="more trials that are over",
        why="there is nothing to draw",
        fix="wait for them, or give the search more trials",
    )
