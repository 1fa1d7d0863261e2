"""Who did what in each round: trained, was estimated, stayed silent, was lost."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import chart, hues, named, panelled, wide
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.thinning import evenly

FATES: Mapping[str, str] = {
    "trained": "blue",
    "estimated": "orange",
    "silent": "grey",
    "lost": "vermilion",
    "late": "purple",
    "refused": "brown",
    "unfinished": "yellow",
    "measured": "sky",
}
"""What can become of a visit, and its hue."""

_PLACES = {name: place for place, name in enumerate(FATES)}
COLUMNS = 150
ROWS = 100


def fate(visit: Mapping[str, Any]) -> str:
    """What became of a visit, in the words of the legend."""
    if visit["status"] == "skipped":
        return "silent" if visit["reason"] == "silent" else "estimated"
    return "refused" if visit["status"] == "dropped" else str(visit["status"])


def raster(
    visits: Sequence[Mapping[str, Any]], clients: int, *, columns: int = COLUMNS, rows: int = ROWS
) -> list[dict[str, Any]]:
    """A cell for each client and stretch of rounds in which it did something.

    Up to 150 rounds and 100 clients each have a column and a row of their own. More clients are thinned, evenly; more
    rounds share columns, and a cell tells what the client did most often in them, and in which `share` of them it did
    anything at all: a client that takes part in every fourth round is not one that always does.

    Args:
        visits: with `client`, `version` (that it was sent), `status` and `reason`.
        clients: how many there are, whether or not they were ever heard of.
        columns: how many columns there may be.
        rows: how many rows.
    """
    if not visits:
        return []
    last = max(visit["version"] for visit in visits) + 1
    wide = -(-last // columns)
    shown = set(evenly(range(clients), rows))
    done: dict[tuple[int, int], dict[int, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for visit in visits:
        if visit["client"] in shown:
            done[visit["client"], visit["version"] // wide][visit["version"]].append(fate(visit))
    return [
        {
            "client": client,
            "from": column * wide + 0.5,
            "to": end + 0.5,
            "rounds": str(end) if wide == 1 else f"{column * wide + 1} to {end}",
            "fate": max(counts, key=lambda name: (counts[name], -_PLACES[name])),
            "share": len(of_round) / (end - column * wide),
        }
        for (client, column), of_round in sorted(done.items())
        for end in [min((column + 1) * wide, last)]
        for counts in [collections.Counter(name for names in of_round.values() for name in names)]
    ]


def _participation(subject: Subject, options: Options) -> Chart:
    import altair as alt

    cells_of = {
        name: raster(subject.visits(members[0], "client", "version", "status", "reason"), members[0].clients)
        for name, members in subject.methods.items()
    }
    seen = {cell["fate"] for cells in cells_of.values() for cell in cells}
    found = {fate: hue for fate, hue in FATES.items() if fate in seen}
    coarse = any(cell["to"] - cell["from"] > 1 for cells in cells_of.values() for cell in cells)
    share: dict[str, Any] = {}
    orient: dict[str, Any] = {"orient": "top"} if len(cells_of) > 1 else {}
    if coarse:
        shades = alt.Scale(domain=[0, 1], range=[0.08, 1])
        legend = alt.Legend(format="%", values=[0.25, 0.5, 0.75, 1], symbolType="square", symbolStrokeWidth=0, **orient)
        share["opacity"] = alt.Opacity("share:Q", title="share of a stretch's rounds", scale=shades, legend=legend)
    panels = []
    for name, cells in cells_of.items():
        run = subject.methods[name][0]
        clients = evenly(range(run.clients), ROWS)
        stretch = max((round(cell["to"] - cell["from"]) for cell in cells), default=1)
        notes = [f"{len(clients):,} of {run.clients:,} clients"] if len(clients) < run.clients else []
        notes += [f"{stretch} rounds a column"] if stretch > 1 else []
        x = alt.X("from:Q", title="round (version that was sent + 1)", scale=alt.Scale(nice=False, zero=False))
        y = alt.Y("client:O", title="client", axis=alt.Axis(labelOverlap=True), scale=alt.Scale(domain=clients))
        height = min(360, max(80, 12 * len(clients)))
        often = [alt.Tooltip("share:Q", format=".0%", title="in")] if coarse else []
        panels.append(
            chart(cells, wide(len(cells_of), options.width), height, named(name, run, subject, note=", ".join(notes)))
            .mark_rect()
            .encode(
                x=x,
                x2="to:Q",
                y=y,
                color=hues("fate", found, options.theme, above=len(cells_of) > 1),
                tooltip=["client:O", alt.Tooltip("rounds:N", title="round"), "fate:N", *often],
                **share,
            )
        )
    return panelled(panels)


FIGURES: Sequence[Figure] = (
    Figure(
        name="participation",
        title="Participation",
        about="What each client did in each round: trained, was estimated from earlier, stayed silent, or was lost; "
        "nothing where it was not asked. Where rounds share a column, the fainter, the fewer of them.",
        lacks=needs("visits", "1", "no visit is over yet"),
        drawn=_participation,
    ),
)
