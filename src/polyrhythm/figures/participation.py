"""Who did what in each round: trained, was estimated, stayed silent, was lost."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import chart, hues, named
from polyrhythm.figures.subject import Subject

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

COLUMNS = 150
ROWS = 100


def fate(visit: Mapping[str, Any]) -> str:
    """What became of a visit, in the words of the legend."""
    if visit["status"] == "skipped":
        return "silent" if visit["reason"] == "silent" else "estimated"
    return "refused" if visit["status"] == "dropped" else str(visit["status"])


def raster(visits: Sequence[Mapping[str, Any]], *, columns: int = COLUMNS, rows: int = ROWS) -> list[dict[str, Any]]:
    """A cell for each client and stretch of rounds, with what the client did most often in it.

    Up to 150 rounds and 100 clients each have a column and a row of their own. More clients are thinned, evenly; more
    rounds share columns.

    Args:
        visits: with `client`, `version` (that it was sent), `status` and `reason`.
        columns: how many columns there may be.
        rows: how many rows.
    """
    if not visits:
        return []
    last = max(visit["version"] for visit in visits) + 1
    wide = -(-last // columns)
    clients = sorted({visit["client"] for visit in visits})
    shown = {clients[i * len(clients) // rows] for i in range(rows)} if len(clients) > rows else set(clients)
    done: dict[tuple[int, int], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for visit in visits:
        if visit["client"] in shown:
            done[visit["client"], visit["version"] // wide][fate(visit)] += 1
    return [
        {"client": client, "from": column * wide + 0.5, "to": (column + 1) * wide + 0.5, "fate": best}
        for (client, column), counts in sorted(done.items())
        for best in [max(counts, key=lambda name: (counts[name], -list(FATES).index(name)))]
    ]


def _participation(subject: Subject, options: Options) -> Chart:
    import altair as alt

    cells_of = {
        name: raster(subject.visits(members[0], "client", "version", "status", "reason"))
        for name, members in subject.methods.items()
    }
    seen = {cell["fate"] for cells in cells_of.values() for cell in cells}
    found = {fate: hue for fate, hue in FATES.items() if fate in seen}
    panels = []
    for name, cells in cells_of.items():
        run = subject.methods[name][0]
        clients = sorted({cell["client"] for cell in cells})
        x = alt.X("from:Q", title="round (version that was sent + 1)", scale=alt.Scale(nice=False, zero=False))
        y = alt.Y("client:O", title="client", axis=alt.Axis(labelOverlap=True), scale=alt.Scale(domain=clients))
        height = min(360, max(80, 12 * len(clients)))
        title = named(name, run, subject)
        panels.append(
            chart(cells, options.width, height, title)
            .mark_rect()
            .encode(
                x=x,
                x2="to:Q",
                y=y,
                color=hues("fate", found, options.theme),
                tooltip=["client:O", alt.Tooltip("from:Q", title="round"), "fate:N"],
            )
        )
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


FIGURES: Sequence[Figure] = (
    Figure(
        name="participation",
        title="Participation",
        about="What each client did in each round: trained, was estimated from earlier, stayed silent, or was lost.",
        lacks=needs("visits", "1", "no visit is over yet"),
        drawn=_participation,
    ),
)
