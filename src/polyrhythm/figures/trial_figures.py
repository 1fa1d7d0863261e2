"""Figures of a search: its history, what matters, one key, two keys, all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import altair as alt

from polyrhythm.base.errors import unknown
from polyrhythm.figures.contour import contour
from polyrhythm.figures.figure import Chart
from polyrhythm.figures.parallel import parallel
from polyrhythm.figures.theme import HUES, Theme, config
from polyrhythm.figures.trial_marks import (
    STATES,
    WIDTH,
    key_axis,
    marks,
    nothing,
    on_axis,
    points,
    score_axis,
    titled,
)
from polyrhythm.figures.trials import LEAST, Trials

_ROW = 34  # pixels of a bar
_SLICE = "slice-"
ABOUT: Mapping[str, tuple[str, str]] = {
    "history": (
        "History",
        "each trial in its turn, and the best so far; pruned ones were stopped early, failed ones have no score and "
        "stand at the foot.",
    ),
    "importance": (
        "What matters",
        "of each key, the share of the variance of the finished trials' ranks that groups of its values explain alone, "
        "less what they would by chance; what two keys do together is in neither.",
    ),
    "parallel": (
        "Trials",
        "a line for each trial, over an axis for each key and one for the score; dashed where it was stopped early or "
        "failed, thick for the best.",
    ),
    "contour": (
        "Two keys",
        "the score over two keys: a point for each trial, and behind them means of equal settings, or between the "
        "trials of ranges means by nearness, which are a picture and no result.",
    ),
    "slice": ("One key", "the score over one key, whatever the others were."),
}
"""What each is called, and what it shows."""


def offered(trials: Trials) -> list[str]:
    """The names of figures that have something to show; `slice` once for each key, as `slice-KEY`."""
    if all(trial.state == "waiting" for trial in trials.tried):
        return []
    if all(trial.score is None for trial in trials.tried):
        return ["history"]
    pairs = ["contour"] if len(trials.varied) > 1 else []
    return ["history", "importance", "parallel", *pairs, *(f"{_SLICE}{key}" for key in trials.varied)]


def drawn(
    name: str, trials: Trials, *, theme: Theme = "light", against: str = "trial", x: str = "", y: str = ""
) -> Chart:
    """One of them.

    Args:
        name: as `offered` gives it.
        trials: what it is of.
        theme: "light" or "dark".
        against: of the history, "trial" or "time".
        x, y: the keys of a contour; the two that matter most if empty.

    Raises:
        UserError: no such figure or key, or it has nothing to show.
    """
    names = offered(trials)
    if not names:
        raise nothing("no trial is over")
    if name not in names:
        raise unknown("figure", name, names, why="the name decides what is drawn")
    if name == "parallel":
        return parallel(trials, theme)
    if name == "history":
        chart = _history(trials, theme, against)
    elif name == "importance":
        chart = _importance(trials, theme)
    elif name == "contour":
        chart = contour(trials, theme, *_pair(trials, x, y))
    else:
        chart = _slice(trials, theme, name.removeprefix(_SLICE))
    return chart.configure(**config(theme))


def _history(trials: Trials, theme: Theme, against: str) -> Chart:
    if against not in ("trial", "time"):
        raise unknown("axis", against, ["trial", "time"], why="a history is over one of them")
    timed = against == "time"
    there = [t for t in trials.tried if t.state != "waiting" and (not timed or t.ended is not None)]
    if not there:
        raise nothing("no trial is over whose time is known")
    there.sort(key=lambda t: (t.ended or 0.0, t.number) if timed else (0.0, t.number))
    place = [float(t.ended or 0.0) / 60 if timed else float(t.number) for t in there]
    steps, best = list[dict[str, float]](), -math.inf
    for at, trial in zip(place, there, strict=True):
        if trial.state == "finished" and trial.score is not None:
            best = max(best, trial.score)
        if best > -math.inf:
            steps.append({"x": at, "y": best})
    rows = [{"x": at, **row} for at, row in zip(place, points(there), strict=True)]
    words = "minutes since the first trial" if timed else "trial"
    ticks = alt.Axis() if timed else alt.Axis(tickMinStep=1, format="d")
    x = alt.X("x:Q", title=words, scale=alt.Scale(zero=False, nice=False, padding=10), axis=ticks)
    line = (
        alt.Chart(alt.InlineData(values=steps))
        .mark_line(interpolate="step-after", strokeWidth=2, color=HUES["blue"][theme])
        .encode(x=x, y=score_axis(trials))
    )
    return titled([line, *marks(rows, trials, x, theme)], trials)


def _slice(trials: Trials, theme: Theme, key: str) -> Chart:
    there = [t for t in trials.tried if t.state in STATES and key in t.setting]
    values = [t.setting[key] for t in there]
    rows = [{"x": value, **row} for value, row in zip(on_axis(values), points(there), strict=True)]
    return titled(marks(rows, trials, key_axis(alt.X, "x", key, values), theme), trials, key)


def _importance(trials: Trials, theme: Theme) -> Chart:
    shares, many = trials.importance(), len(trials.finished)
    if not shares:
        few = f"{many:,} of {LEAST} finished" if many < LEAST else "less than two for each value"
        raise nothing(f"too few trials to tell what matters: {few}")
    rows = [{"key": key, "share": s.share, "groups": s.groups} for key, s in shares.items()]
    y = alt.Y("key:N", sort=list(shares), title=None, axis=alt.Axis(labelLimit=220, ticks=False, domain=False))
    scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%")
    x = alt.X("share:Q", title="share of the variance of ranks", scale=scale, axis=axis)
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y)
    bars = base.mark_bar(color=HUES["blue"][theme], height=14).encode(
        tooltip=[alt.Tooltip("key:N"), alt.Tooltip("share:Q", format=".1%"), alt.Tooltip("groups:Q", title="groups")]
    )
    words = base.mark_text(align="left", dx=5, color=config(theme)["title"]["color"], fontSize=11)
    left = [key for key in trials.varied if key not in shares]
    told = f"{many:,} finished trials" + (f"; too few for {', '.join(left)}" if left else "")
    chart = alt.layer(bars, words.encode(text=alt.Text("share:Q", format=".0%")))
    title = alt.Title(f"{trials.name}: what matters", subtitle=told)
    return chart.properties(width=WIDTH, height=max(60, _ROW * len(rows)), title=title)


def _pair(trials: Trials, x: str, y: str) -> tuple[str, str]:
    """The keys of a contour: those that are named, then those that matter most."""
    for key in filter(None, (x, y)):
        if key not in trials.varied:
            raise unknown("key", key, trials.varied, why="only what was varied has values to lie along an axis")
    order = list(dict.fromkeys([*filter(None, (x, y)), *trials.importance(), *trials.varied]))
    return order[0], order[1]
