"""Results client by client: how they are spread, who is served badly, how far groups of devices are apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.curves import curves, range_of
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import Range, chart, methods, named
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES
from polyrhythm.figures.thinning import evenly
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.spread import ClientResults, by_device, quantile, spread

ROWS = 100
COLUMNS = 60
EDGES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Shares of the clients below the borders of the bands."""


def bands(found: ClientResults) -> list[dict[str, float]]:
    """How results are spread over clients, version by version: `version`, `worst` (tenth), and `q10` to `q90`."""
    rows = []
    for version, scores, _ in found.versions:
        known = sorted(value for value in scores if not math.isnan(value))
        if (over := spread(scores)) is not None:
            edges = {f"q{round(100 * share)}": quantile(known, share) for share in EDGES}
            rows.append({"version": version, "worst": over.worst, **edges})
    return rows


def last_of_each(found: ClientResults) -> list[dict[str, float]]:
    """The clients by their newest result, worst first: from which `share` of them on one has which `score`."""
    known = sorted(value for value in found.versions[-1][1] if not math.isnan(value)) if found.versions else []
    places = [{"share": place / len(known), "score": value} for place, value in enumerate(known)]
    return [*places, {"share": 1.0, "score": known[-1]}] if known else []


def apart(found: ClientResults) -> dict[int, float]:
    """How much better the best group of like devices is served than the worst, by version; empty with one group."""
    gaps = {}
    for version, scores, _ in found.versions:
        means = by_device(found.devices, scores).values()
        if len(means) > 1:
            gaps[version] = max(means) - min(means)
    return gaps


def tiles(found: ClientResults) -> list[dict[str, Any]]:
    """The map of clients over versions: a cell for each, of more than there is room for evenly chosen ones.

    Clients come by their group of like devices, and in it by their newest result, the worst on top.
    """
    if not found.versions:
        return []
    newest, several = found.versions[-1][1], len(set(found.devices)) > 1
    worth = [math.inf if math.isnan(value) else value for value in newest]
    order = sorted(range(len(found.clients)), key=lambda i: (found.devices[i], worth[i], found.clients[i]))
    places = evenly(order, ROWS)
    versions = [found.versions[i] for i in evenly(range(len(found.versions)), COLUMNS)]
    if versions[-1] is not found.versions[-1]:
        versions = [*versions[:-1], found.versions[-1]]
    return [
        {
            "client": f"{found.devices[i]}: {found.clients[i]}" if several else str(found.clients[i]),
            "device": found.devices[i],
            "row": row,
            "version": version,
            "score": None if math.isnan(scores[i]) else scores[i],
        }
        for row, i in enumerate(places)
        for version, scores, _ in versions
    ]


def _measure(subject: Subject) -> str:
    return f"{in_words(subject.headline)} on own tests"


def _note(found: ClientResults) -> str:
    return f"{len(found.clients):,} of {found.having:,} clients" if len(found.clients) < found.having else ""


def _first(subject: Subject) -> list[tuple[str, RecordedRun, ClientResults]]:
    """Of each method that has results of clients, its first run."""
    found = [(name, runs[0], subject.client_results(runs[0])) for name, runs in subject.methods.items()]
    return [entry for entry in found if entry[2].versions]


def _bands(subject: Subject, options: Options) -> Chart:
    return bands_of(subject, options, bands)


def bands_of(subject: Subject, options: Options, read: Callable[[ClientResults], list[dict[str, float]]]) -> Chart:
    """A panel for each method's first run: how results are spread over clients, version by version.

    Args:
        subject: the runs.
        options: how it is drawn.
        read: gives the rows, as `bands`.
    """
    import altair as alt

    panels = []
    styles = subject.styles(options.theme)
    found = [(name, run, own, rows) for name, run, own in _first(subject) if (rows := read(own))]
    domain = _domain([row[edge] for *_, rows in found for row in rows for edge in ("worst", "q10", "q90")], subject)
    for name, run, own, rows in found:
        look = styles[name]
        panel = chart(rows, options.width, 200, named(name, run, subject, note=_note(own)))
        x = alt.X("version:Q", title="server version", axis=alt.Axis(tickMinStep=1))
        scale = alt.Scale(domain=domain)
        tips = [
            alt.Tooltip("version:Q"),
            *(
                alt.Tooltip(f"{key}:Q", title=words, format=".4~g")
                for key, words in (("worst", "worst tenth"), ("q10", "10 % below"), ("q50", "median"), ("q90", "90 %"))
            ),
        ]
        wide = panel.mark_area(color=look.colour, opacity=0.15, clip=True).encode(
            x=x, y=alt.Y("q10:Q", title=_measure(subject), scale=scale), y2="q90:Q"
        )
        inner = panel.mark_area(color=look.colour, opacity=0.25, clip=True).encode(
            x=x, y=alt.Y("q25:Q", scale=scale), y2="q75:Q"
        )
        middle = panel.mark_line(color=look.colour, clip=True).encode(x=x, y=alt.Y("q50:Q", scale=scale), tooltip=tips)
        worst = panel.mark_line(color=HUES["ink"][options.theme], strokeDash=[2, 2], strokeWidth=1.2, clip=True)
        panels.append(alt.layer(wide, inner, middle, worst.encode(x=x, y=alt.Y("worst:Q", scale=scale), tooltip=tips)))
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _domain(values: Sequence[float], subject: Subject) -> list[float]:
    """Where a vertical axis begins and ends: as far as values go, and no further than they can."""
    low, high = min(values), max(values)
    of: Range = range_of(subject)
    air = 0.05 * (high - low) or 0.05
    least = low - air if of.least is None else max(of.least, low - air)
    return [least, high + air if of.most is None else min(of.most, high + air)]


def _fairness(subject: Subject, options: Options) -> Chart:
    import altair as alt

    rows = [
        {"method": name, "seed": run.seed, **row}
        for name, runs in subject.methods.items()
        for run in runs
        for row in last_of_each(subject.client_results(run))
    ]
    color, dash = methods(subject.styles(options.theme), shown=len(subject.methods) > 1)
    opacity = 0.75 if len(subject.runs) > len(subject.methods) else 1.0
    marks = chart(rows, options.width, 260).mark_line(interpolate="step-after", opacity=opacity)
    return marks.encode(
        x=alt.X("share:Q", title="clients, the worst first", axis=alt.Axis(format="%")),
        y=alt.Y("score:Q", title=_measure(subject), scale=alt.Scale(zero=False)),
        color=color,
        strokeDash=dash,
        detail="seed:N",
        tooltip=["method:N", "seed:N", alt.Tooltip("share:Q", format=".0%"), alt.Tooltip("score:Q", format=".4~g")],
    )


def _map(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels, found = [], [(name, run, own, tiles(own)) for name, run, own in _first(subject)]
    values = [cell["score"] for *_, cells in found for cell in cells if cell["score"] is not None]
    domain = [min(values, default=0.0), max(values, default=1.0)]
    for name, run, own, cells in found:
        shown = len({cell["row"] for cell in cells})
        notes = [f"{shown:,} of {own.having:,} clients"] if shown < own.having else []
        versions = sorted({cell["version"] for cell in cells})
        notes += [f"{len(versions)} of {len(own.versions)} versions"] if len(versions) < len(own.versions) else []
        order = list(dict.fromkeys(cell["client"] for cell in cells))
        height = min(420, max(90, 9 * shown))
        panel = chart(cells, options.width, height, named(name, run, subject, note=", ".join(notes)))
        marks = panel.mark_rect().encode(
            x=alt.X("version:O", title="server version", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y(
                "client:N",
                title="client, the worst of a group on top",
                scale=alt.Scale(domain=order),
                axis=alt.Axis(labelOverlap=True, ticks=False),
            ),
            color=alt.Color(
                "score:Q",
                title=_measure(subject),
                scale=alt.Scale(scheme="viridis", domain=domain),
                legend=alt.Legend(gradientLength=220, titleLimit=0),
            ),
            tooltip=["client:N", "device:N", "version:O", alt.Tooltip("score:Q", format=".4~g")],
        )
        panels.append(marks)
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _gap(subject: Subject, options: Options) -> Chart:
    gaps = {run.id: apart(subject.client_results(run)) for run in subject.runs}
    run_of = {id(row): run.id for run in subject.runs for row in subject.versions(run)}

    def value(row: Mapping[str, Any]) -> float | None:
        return gaps[run_of[id(row)]].get(row["version"])

    measure = f"{in_words(subject.headline)}, best minus worst group"
    return curves(subject, value, options, measure, Range(least=0, zero=True))


def _one_device(subject: Subject) -> str:
    if missing := _results(subject):
        return missing
    if any(len(set(filter(None, subject.client_results(run).devices))) > 1 for run in subject.runs):
        return ""
    return "the clients that are measured are all on like devices; give the fleet groups, such as fleet=tiers"


_results = needs(
    "client_results",
    "1",
    "no result of a single client is on record; run it with local_test=0.2, so that each has a test of its own",
)
FIGURES: Sequence[Figure] = (
    Figure(
        name="client_results",
        title="Results over clients",
        about="How the global model does on clients' own tests: the median, the middle half and 80 % of them, and "
        "dashed the mean of the worst tenth; the first seed of each method.",
        lacks=_results,
        drawn=_bands,
    ),
    Figure(
        name="fairness",
        title="Who is served badly",
        about="Clients by their newest result on their own tests, the worst to the left: the flatter, the fairer.",
        lacks=_results,
        drawn=_fairness,
    ),
    Figure(
        name="client_map",
        title="Each client's result",
        about="Every client's result on its own test, version by version; the first seed of each method.",
        lacks=_results,
        drawn=_map,
    ),
    Figure(
        name="device_gap",
        title="Gap between groups of devices",
        about="How much better the best group of like devices is served than the worst, on clients' own tests.",
        lacks=_one_device,
        drawn=_gap,
        along=True,
    ),
)
