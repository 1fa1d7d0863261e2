"""How good the model is for each group of clients, and a method's result over its two settings."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.axes import AXES
from polyrhythm.figures.bands import band
from polyrhythm.figures.curves import range_of
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.lines import floored, smoothly
from polyrhythm.figures.marks import along, chart, grouped, panelled, told, upright, wide
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES
from polyrhythm.runs.costs import On, score

_HUES = ("blue", "orange", "green", "vermilion", "purple", "sky", "yellow", "brown")
WAYS = {
    "SkipAndEstimate": "moves as it did last",
    "SkipAndResendModel": "sends its last model",
    "SkipSilently": "is left out",
}
OWN = {"mean": "mean over clients' own tests", "pooled": "all clients' own tests together"}


def series(row: Mapping[str, Any], headline: str) -> dict[str, float]:
    """A version's results by group of like devices, and over the clients' own tests."""
    groups = row["groups"] or {}
    found = {
        key.removesuffix(f"_{headline}").replace("_", " "): value
        for key, value in groups.items()
        if key.endswith(f"_{headline}") and not key.endswith(f"_balanced_{headline}")  # which is another metric
    }
    own = row["clients"] or {}
    return found | {words: own[f"{headline}_{k}"] for k, words in OWN.items() if f"{headline}_{k}" in own}


def _of(group: str, headline: str, row: Mapping[str, Any]) -> float | None:
    return series(row, headline).get(group)


def _groups(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels = []
    names = dict.fromkeys(
        key for run in subject.runs for row in subject.versions(run) for key in series(row, subject.headline)
    )
    hues = [HUES[_HUES[i % len(_HUES)]][options.theme] for i in range(len(names))]
    lens = options.lens
    for name, members in subject.methods.items():
        versions = [subject.versions(run) for run in members]
        rows = [
            {"group": group, **point}
            for group in names
            for point in band(versions, functools.partial(_of, group, subject.headline), options.against, lens)
        ]
        if not rows:
            continue
        x = along(options.against, lens)
        measure = in_words(subject.headline)
        y, _, logarithmic, refused = upright(measure, rows, range_of(subject), lens)
        color = grouped("group", list(names), hues, above=len(subject.methods) > 1)
        notes = [name] if len(subject.methods) > 1 else []
        notes += ([smoothly(lens)] if lens.smooth > 1 else []) + ([refused] if refused else [])
        size = (wide(len(subject.methods), options.width), 240)
        marks = chart(rows, *size, "; ".join(notes))
        tips = ["group:N", *told(AXES[options.against], measure)]
        layers = [marks.mark_line(clip=lens.span is not None).encode(x=x, y=y, color=color, tooltip=tips)]
        if lens.smooth > 1:
            faint = marks.mark_line(strokeWidth=1, opacity=0.3, clip=True)
            layers.insert(0, faint.encode(x=x, y=alt.Y("raw:Q", title=measure), color=color))
        if len(members) > 1:
            area = chart(floored(rows) if logarithmic else rows, *size).mark_area(opacity=0.18, clip=True)
            layers.insert(
                0, area.encode(x=x, y=alt.Y("low:Q", title=measure, scale=y["scale"]), y2="high:Q", color=color)
            )
        panels.append(layers[0] if len(layers) == 1 else alt.layer(*layers))
    return panelled(panels)


def settings(config: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """The settings of every part of some name, anywhere in a configuration."""
    if isinstance(config, Mapping):
        if config.get("name") == name:
            yield config
        for value in config.values():
            yield from settings(value, name)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from settings(value, name)


def cells(subject: Subject, on: On) -> list[dict[str, Any]]:
    """A cell for each share `r` of slow clients, period `W` and `way` to skip: the last result, mean over its runs."""
    found: dict[tuple[str, float, int], list[float]] = {}
    for run in subject.runs:
        place = next(settings(run.config, "SlowShare"), None)
        known = [v for row in subject.versions(run) if (v := score(row, subject.headline, on)) is not None]
        if place is not None and known:
            found.setdefault((_way(run.config), place["share_slow"], place["period"]), []).append(known[-1])
    return [
        {"way": way, "r": r, "W": period, "result": math.fsum(values) / len(values), "runs": len(values)}
        for (way, r, period), values in sorted(found.items())
    ]


def _way(config: Any) -> str:
    """What a slow client does in place of training, in words."""
    return next((words for name, words in WAYS.items() if any(settings(config, name))), "")


def _budgets(subject: Subject, options: Options) -> Chart:
    import altair as alt

    found = cells(subject, options.on)
    plain = [c["result"] for c in found if c["r"] == 0 or c["W"] == 1]
    base = math.fsum(plain) / len(plain) if plain else None
    rows = [{**c, "shown": c["result"] - base if base is not None else c["result"]} for c in found]
    word = in_words(subject.headline)
    title = f"{word} minus that with r = 0 or W = 1" if base is not None else word
    most = max((abs(row["shown"]) for row in rows), default=1.0) or 1.0
    scale = (
        alt.Scale(scheme="blueorange", domain=[-most, most], reverse=True) if base is not None
        else alt.Scale(scheme="viridis", zero=False)
    )  # fmt: skip
    ways = list(dict.fromkeys(row["way"] for row in rows if row["r"] and row["W"] > 1)) or [""]
    periods, shares = ({row[key] for row in rows} for key in ("W", "r"))
    step = min(90.0, options.width / max(1, len(periods)) / len(ways) ** 0.5)
    x = alt.X("W:O", title="W: visits for one in which a slow client trains", axis=alt.Axis(labelAngle=0))
    y = alt.Y("r:O", title="r: share of slow clients", sort="descending")
    dark = f"abs(datum.shown) > {0.6 * most}" if base is not None else "false"
    panels = []
    for way in ways:
        own = [row for row in rows if row["way"] == way or len(ways) == 1]
        panel = chart(own, step * len(periods), 44 * len(shares), way if len(ways) > 1 else "")
        square = panel.mark_rect().encode(
            x=x,
            y=y,
            color=alt.Color("shown:Q", title=title, scale=scale, legend=alt.Legend(gradientLength=220, titleLimit=0)),
            tooltip=["r:O", "W:O", alt.Tooltip("result:Q", format=".4f"), "runs:Q"],
        )  # fmt: skip
        text = panel.mark_text(fontSize=11).encode(
            x=x, y=y, text=alt.Text("shown:Q", format="+.3f" if base is not None else ".3f"),
            color=alt.condition(dark, alt.value("#FFFFFF"), alt.value("#1A1A1A")),
        )  # fmt: skip
        panels.append(alt.layer(square, text))
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _no_grid(subject: Subject) -> str:
    places = {
        (p["share_slow"], p["period"]) for run in subject.runs if (p := next(settings(run.config, "SlowShare"), None))
    }
    if len(places) >= 2 and subject.has("versions", "test IS NOT NULL OR validation IS NOT NULL"):
        return ""
    return (
        f"these runs have {len(places)} pairs of a share r of slow clients and their period W; run ccfl with several "
        "budgets, such as ccfl(budgets=slow_share(share_slow=0.5, period=4))"
    )


FIGURES: Sequence[Figure] = (
    Figure(
        name="groups",
        title="Results by group of clients",
        about="The headline metric for each group of like devices, and over the clients' own tests.",
        lacks=needs(
            "versions",
            "groups IS NOT NULL OR clients IS NOT NULL",
            "no result by group of clients is on record; run it with evaluation.groups=true, or with local_test=0.2",
        ),
        drawn=_groups,
        along=True,
        curved=True,
    ),
    Figure(
        name="budgets",
        title="Share of slow clients and how seldom they train",
        about="The final result for each share r of slow clients and each period W. CCFL, figure 4.",
        lacks=_no_grid,
        drawn=_budgets,
        judged=True,
    ),
)
