"""The virtual clock: who computes when, what waits at the server, and how stale it is by then."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import chart, filled, hues, named, panelled, seconds_axis, wide
from polyrhythm.figures.participation import fate
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES
from polyrhythm.figures.thinning import thin
from polyrhythm.runs.costs import seconds

_COLUMNS = ("dispatch", "client", "version", "status", "reason", "started", "finished")
_SPANS = ("down_seconds", "compute_seconds", "up_seconds")
MOST_VISITS = 150
MOST_CHANGES = 300
MOST_CLIENTS = 40
DOING: Mapping[str, str] = {
    "receiving": "sky",
    "computing": "blue",
    "sending": "green",
    "lost or refused": "vermilion",
    "too late": "purple",
    "not over": "grey",
}

Row = Mapping[str, Any]


def joined(visits: Sequence[Row], versions: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Each update that was accepted, in the order of arrival, and the version that it went into."""
    counted = [v for v in visits if fate(v) in ("trained", "estimated")]
    arrived = iter(sorted(counted, key=lambda visit: (visit["finished"], visit["dispatch"])))
    for row in versions:
        for _ in range(row["accepted"]):
            if (visit := next(arrived, None)) is not None:
                yield visit, row["version"]


def staleness(visits: Sequence[Row], versions: Sequence[Row]) -> dict[int, int]:
    """How many updates were so many versions behind the model that they were added to."""
    return dict(sorted(collections.Counter(to - 1 - v["version"] for v, to in joined(visits, versions)).items()))


def waiting(visits: Sequence[Row], versions: Sequence[Row]) -> list[dict[str, float]]:
    """How many updates wait at the server, as `x`, virtual seconds, and `y`, at every moment at which that changes."""
    into = list(joined(visits, versions))
    times = {row["version"]: row["time"] for row in versions}
    changes = [(visit["finished"], 0, 1) for visit, _ in into]
    changes += [(times[version], 1, -count) for version, count in collections.Counter(v for _, v in into).items()]
    found, held = [{"x": 0.0, "y": 0.0}], 0
    for moment, _, change in sorted(changes):
        held += change
        found.append({"x": moment, "y": float(held)})
    return found


def spans(visits: Sequence[Row]) -> list[dict[str, Any]]:
    """What clients do when: `client`, `from`, `to` in virtual seconds, and `doing`."""
    found = []
    for visit in visits:
        ended = {"lost": "lost or refused", "refused": "lost or refused", "late": "too late", "unfinished": "not over"}
        whole = ended.get(fate(visit))
        edges = [visit["started"]]
        for length in () if whole else (visit[span] or 0.0 for span in _SPANS):
            edges.append(edges[-1] + length)
        parts = [(whole, visit["started"], visit["finished"])] if whole else [
            *zip(DOING, edges, edges[1:], strict=False)
        ]  # fmt: skip
        found += [
            {"client": visit["client"], "from": start, "to": end, "doing": doing}
            for doing, start, end in parts
            if end > start
        ]
    return found


def _timeline(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels, drawn = [], {}
    width = wide(len(subject.methods), options.width)
    for name, members in subject.methods.items():
        run = members[0]
        visits = sorted(subject.visits(run, *_COLUMNS, *_SPANS), key=lambda v: (v["started"], v["dispatch"]))
        # A client that was never asked has a row, too; of more than there is room for, those that were.
        few_enough = run.clients <= MOST_CLIENTS
        clients = list(range(run.clients)) if few_enough else sorted({v["client"] for v in visits})[:MOST_CLIENTS]
        few = [visit for visit in visits if visit["client"] in set(clients)]
        notes = [] if few_enough else [f"{len(clients)} of {run.clients:,} clients"]
        until = few[MOST_VISITS - 1]["started"] if len(few) > MOST_VISITS else None
        if until is not None:
            notes.append(_part(until, max(visit["finished"] for visit in visits)))
        drawn[name] = (few[:MOST_VISITS], clients, until, ", ".join(notes))
    rows = {name: spans(few) for name, (few, *_) in drawn.items()}
    seen = {row["doing"] for found in rows.values() for row in found}
    colours = {doing: hue for doing, hue in DOING.items() if doing in seen}
    for name, (_, clients, until, note) in drawn.items():
        run = subject.methods[name][0]
        end = until or max((row["to"] for row in rows[name]), default=1.0)
        height = max(60, 11 * len(clients))
        shown = [{**row, "to": min(row["to"], end)} for row in rows[name] if row["from"] < end]
        domain = alt.Scale(domain=[0, end], nice=False)
        heading = named(name, run, subject, note=note)
        bars = chart(shown, width, height, heading).mark_rect().encode(
            x=alt.X("from:Q", title="virtual time (s)", scale=domain, axis=seconds_axis()),
            x2="to:Q",
            y=alt.Y("client:O", title="client", scale=alt.Scale(domain=clients, paddingInner=0.15)),
            color=hues("doing", colours, options.theme, above=len(subject.methods) > 1),
            tooltip=["client:O", "doing:N", alt.Tooltip("from:Q", format=".4~g"), alt.Tooltip("to:Q", format=".4~g")],
        )  # fmt: skip
        times = [{"from": row["time"]} for row in subject.versions(run) if 0 < row["time"] <= end]
        rules = chart(thin(times, ("from",)), width, height).mark_rule(
            color=HUES["ink"][options.theme], size=0.6, opacity=0.5
        )
        panels.append(alt.layer(bars, rules.encode(x=alt.X("from:Q", scale=domain))))
    return panelled(panels)


def _part(until: float, end: float) -> str:
    """What is shown of a run that is too long to show, in words."""
    return f"the first {seconds(until)} of {seconds(end)}"


def _staleness(subject: Subject, options: Options) -> Chart:
    import altair as alt

    rows: list[dict[str, Any]] = []
    for place, (name, members) in enumerate(subject.methods.items()):
        found: collections.Counter[int] = collections.Counter()
        for run in members:
            found += collections.Counter(staleness(subject.visits(run, *_COLUMNS), subject.versions(run)))
        total = sum(found.values())
        rows += [
            {"method": name, "place": place, "staleness": s, "share": n / total, "updates": n}
            for s, n in sorted(found.items())
        ]
    looks = filled(subject.styles(options.theme), shown=len(subject.methods) > 1)
    # By place, and not stacked: Vega-Lite writes the names in an order of bars into an expression, unescaped.
    extra = {"xOffset": alt.XOffset("place:O", scale=alt.Scale(domain=list(range(len(subject.methods)))))}
    values = list(range(max((row["staleness"] for row in rows), default=0) + 1))
    x = alt.X("staleness:O", title="staleness (versions)", scale=alt.Scale(domain=values))
    bars: Any = chart(rows, options.width, 240).mark_bar().encode(
        x=x.axis(labelAngle=0, labelOverlap=True),
        y=alt.Y("share:Q", stack=None, title="share of updates", axis=alt.Axis(format="%")),
        **looks,
        order=alt.Order("place:Q"),
        tooltip=["method:N", "staleness:O", alt.Tooltip("share:Q", format=".2%"), "updates:Q"],
        **(extra if len(subject.methods) > 1 else {}),
    )  # fmt: skip
    return bars


def _buffer(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels = []
    for name, members in subject.methods.items():
        run = members[0]
        rows = waiting(subject.visits(run, *_COLUMNS), subject.versions(run))
        end = rows[min(len(rows), MOST_CHANGES) - 1]["x"]
        cut = bisect.bisect_right([row["x"] for row in rows], end)
        look = subject.styles(options.theme)[name]
        heading = named(name, run, subject, note=_part(end, rows[-1]["x"]) if cut < len(rows) else "")
        area = chart(thin(rows[:cut]), wide(len(subject.methods), options.width), 110, heading).mark_area(
            interpolate="step-after", color=look.colour, opacity=0.35, line={"color": look.colour, "strokeWidth": 1}
        )
        panels.append(
            area.encode(
                x=alt.X("x:Q", title="virtual time (s)", axis=seconds_axis(), scale=alt.Scale(nice=False)),
                y=alt.Y("y:Q", stack=None, title="updates waiting", axis=alt.Axis(tickMinStep=1, tickCount=5)),
            )
        )
    return panelled(panels)


def _never_stale(subject: Subject) -> str:
    known = subject.has("versions", "staleness_max IS NOT NULL")
    return "0 of every update" if known and not subject.has("versions", "staleness_max > 0") else ""


_NO_UPDATE = "no update is in a version yet; wait for the first one"
_updates, _reports = needs("versions", "accepted > 0", _NO_UPDATE), needs("visits", "1", _NO_UPDATE)
_visits = needs("visits", "1", "no visit is over yet; wait for the first one")
_time = needs(
    "visits",
    "finished > started",
    "no visit took any virtual time; give the fleet devices with a speed, such as fleet=tiers",
)
FIGURES: Sequence[Figure] = (
    Figure(
        name="timeline",
        title="Who does what when",
        about="What each client does on the virtual clock; a line stands wherever the server makes a version.",
        lacks=lambda subject: _visits(subject) or _time(subject),
        drawn=_timeline,
    ),
    Figure(
        name="staleness",
        title="Staleness",
        about="How many versions behind the model that they were added to the updates were, over all seeds.",
        lacks=lambda subject: _updates(subject) or _reports(subject),
        drawn=_staleness,
        flat=_never_stale,
    ),
    Figure(
        name="buffer",
        title="Updates that wait at the server",
        about="How many updates wait for the next version, over virtual time.",
        lacks=lambda subject: _visits(subject) or _time(subject) or _updates(subject),
        drawn=_buffer,
    ),
)
