"""How many clients take part, and the critical periods that decide it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.curves import column, curves
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import COLUMN, Range, chart, named, panelled, told, wide
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES
from polyrhythm.figures.thinning import thin
from polyrhythm.runs.costs import score

_STATE = {"critical", "next_cohort"}
_NAMES: Mapping[str, str] = {
    "gradient_norm": "FGN: η · mean |g|²",
    "fisher_trace": "FedFIM: trace",
    "released_norm": "mean update: |D|²",
}


def periods(versions: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The stretches of versions that were critical, `from` and `to`, half a version around the first and the last."""
    found: list[dict[str, float]] = []
    for row in versions:
        if row["version"] == 0 or not (row["measures"] or {}).get("critical"):
            continue
        start, end = row["version"] - 0.5, row["version"] + 0.5
        if found and found[-1]["to"] == start:
            found[-1]["to"] = end
        else:
            found.append({"from": start, "to": end})
    return found


def detectors(versions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the detectors that were watched."""
    watching = [row["measures"] for row in versions if "critical" in (row["measures"] or {})]
    seen = dict.fromkeys(key for measures in watching for key in measures if key not in _STATE)
    return [key for key in seen if key.startswith(tuple(_NAMES))]


def _cohort(subject: Subject, options: Options) -> Chart:
    value = functools.partial(column, name="cohort", after=0)
    most = max(run.clients for run in subject.runs)
    return curves(subject, value, options, "clients invited", Range(least=0, most=most, zero=True))


def _critical(subject: Subject, options: Options) -> Chart:
    import altair as alt

    watching = {
        name: found for name, (run, *_) in subject.methods.items() if (found := detectors(subject.versions(run)))
    }
    panels, width = list[Any](), wide(len(watching), options.width)
    for name, watched in watching.items():
        run, panel = subject.methods[name][0], list[Any]()
        versions = subject.versions(run)
        shades = periods(versions)
        scale = alt.Scale(domain=[0, versions[-1]["version"] + 1], nice=False)
        x = alt.X("x:Q", title="round", scale=scale)
        look = subject.styles(options.theme)[name]
        series = [(_words(key), [(r["version"], (r["measures"] or {}).get(key)) for r in versions]) for key in watched]
        judged = [(r["version"], score(r, subject.headline, options.on)) for r in versions]
        series.insert(0, (in_words(subject.headline), judged))
        series.append(("clients invited", [(r["version"], r["cohort"]) for r in versions if r["version"]]))
        heading = named(name, run, subject)
        for place, (title, points) in enumerate(series):
            below = "round" if place == len(series) - 1 else ""
            rows = thin([{"x": x, "y": y} for x, y in points if y is not None])
            shade = chart(shades, width, 130, heading if place == 0 else "")
            back = shade.mark_rect(color=HUES["orange"][options.theme], opacity=0.22).encode(
                x=alt.X("from:Q", scale=scale, title=below), x2="to:Q"
            )
            shape: Any = "step" if place == len(series) - 1 else "linear"
            line = chart(rows, width, 130).mark_line(color=look.colour, interpolate=shape)
            y = alt.Y("y:Q", title=title)
            panel.append(alt.layer(back, line.encode(x=x.title(below), y=y, tooltip=told("round", title))))
        panels.append(panel)
    if len(panels) <= COLUMN:
        return alt.vconcat(*itertools.chain(*panels))
    return panelled([alt.vconcat(*panel) for panel in panels])


def _one_cohort(subject: Subject) -> str:
    cohort = subject.only("cohort", after=0)
    return "" if cohort is None else f"{cohort:,} in every version"


def _words(key: str) -> str:
    known = next((words for name, words in _NAMES.items() if key == name), None)
    return known or key.replace("_", " ")


FIGURES: Sequence[Figure] = (
    Figure(
        name="cohort",
        title="Cohort",
        about="How many clients the server invited for each version; the band is one standard deviation over seeds.",
        lacks=needs("versions", "version > 0", "no version has been made yet; wait for the first one"),
        drawn=_cohort,
        flat=_one_cohort,
        along=True,
        curved=True,
    ),
    Figure(
        name="critical_periods",
        title="Critical learning periods",
        about="The result, the detectors of critical periods, and the cohort; critical rounds are shaded. "
        "FedCL, figures 1 and 49.",
        lacks=needs(
            "versions",
            "json_extract(measures, '$.critical') IS NOT NULL",
            "no run watches for critical periods; use fedcl, or pipe critical_periods(act=false) onto a recipe",
        ),
        drawn=_critical,
        judged=True,
    ),
)
