"""The fleet at work: how visits are spread over clients and devices, the energy they take, and batteries."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.curves import column, curves
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import COUNT, chart, grouped, hues, methods, named, seconds_axis
from polyrhythm.figures.participation import fate
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES
from polyrhythm.figures.thinning import evenly, thin
from polyrhythm.runs.heard import gini, lorenz
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.spread import quantile

MOST_BARS = 200
MOST_LINES = 12
_HUES = ("blue", "orange", "green", "vermilion", "purple", "sky", "yellow", "brown")
OTHERS = "no group"
"""What devices are called that belong to none."""

Row = Mapping[str, Any]


def accepted(visits: Sequence[Row], clients: Sequence[int]) -> dict[int, int]:
    """How many updates of each client went into a version, of some clients, whether or not they were ever heard of."""
    counts = collections.Counter(visit["client"] for visit in visits if fate(visit) in ("trained", "estimated"))
    return {client: counts[client] for client in clients}


def spent(visits: Sequence[Row], devices: Mapping[int, str]) -> list[dict[str, Any]]:
    """The energy of each group of devices so far, as `group`, `x`, virtual seconds, and `y`, joules."""
    totals: dict[str, list[dict[str, Any]]] = {}
    for visit in sorted(visits, key=lambda visit: (visit["finished"], visit["dispatch"])):
        group = devices.get(visit["client"]) or OTHERS
        line = totals.setdefault(group, [{"group": group, "x": 0.0, "y": 0.0}])
        line.append({"group": group, "x": visit["finished"], "y": line[-1]["y"] + visit["joules"]})
    end = max((line[-1]["x"] for line in totals.values()), default=0.0)
    return [
        row
        for name in sorted(totals)
        for row in thin([*totals[name], {**totals[name][-1], "x": end}], ("y",), most=200)
    ]


def levels(visits: Sequence[Row], battery: float, charging: float) -> dict[int, list[tuple[float, float]]]:
    """The charge of each battery at the end of each visit of its client: (virtual seconds, share), by client.

    As the fleet has it: full at first, charged all the time, drained of a visit's energy when this ends.

    Args:
        visits: with `client`, `finished` and `joules`.
        battery: joules.
        charging: watts.
    """
    found: dict[int, list[tuple[float, float]]] = {}
    left: dict[int, tuple[float, float]] = {}
    for visit in sorted(visits, key=lambda visit: (visit["finished"], visit["dispatch"])):
        level, then = left.get(visit["client"], (battery, visit["finished"]))
        level = min(battery, level + charging * max(0.0, visit["finished"] - then))
        level = max(0.0, level - visit["joules"])
        left[visit["client"]] = (level, visit["finished"])
        found.setdefault(visit["client"], [(0.0, 1.0)]).append((visit["finished"], level / battery))
    return found


def _devices(run: RecordedRun, subject: Subject) -> dict[int, str]:
    return {row["client"]: row["device"] for row in subject.clients(run)}


def _colours(subject: Subject, field: str, options: Options) -> Any:
    """One colour for each group of devices, the same in every panel; one for all where there is but one group."""
    import altair as alt

    shown = [_devices(runs[0], subject).values() for runs in subject.methods.values()]
    groups = sorted({device or OTHERS for devices in shown for device in devices})
    if len(groups) < 2:
        return alt.value(HUES["blue"][options.theme])
    of_each = {name: _HUES[i % len(_HUES)] for i, name in enumerate(groups)}
    if field == "device":  # bars
        return hues(field, of_each, options.theme)
    return grouped(field, groups, [HUES[hue][options.theme] for hue in of_each.values()])


def _holding(run: RecordedRun, subject: Subject) -> list[int]:
    """The clients that hold data, and so could be asked; all, where it is not on record which do."""
    known = [row["client"] for row in subject.clients(run) if row["samples"]]
    return known if known and run.clients <= len(subject.clients(run)) else list(range(run.clients))


def _counts(run: RecordedRun, subject: Subject) -> dict[int, int]:
    visits = subject.visits(run, "client", "status", "reason")
    return accepted(visits, _holding(run, subject))


def _visits(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels, color = [], _colours(subject, "device", options)
    for name, runs in subject.methods.items():
        run, devices = runs[0], _devices(runs[0], subject)
        counts = _counts(run, subject)
        order = sorted(counts, key=lambda client: (-counts[client], client))
        shown = evenly(order, MOST_BARS)
        rows = [
            {"place": i, "client": c, "device": devices.get(c) or OTHERS, "updates": counts[c]}
            for i, c in enumerate(shown)
        ]
        notes = [f"{len(shown):,} of {len(order):,} clients"] if len(shown) < len(order) else []
        notes += [f"Gini {gini(list(counts.values())):.2f}"]
        bars = chart(rows, options.width, 150, named(name, run, subject, note=", ".join(notes))).mark_bar()
        told = ["client:Q", "device:N", "updates:Q"]
        panels.append(
            bars.encode(
                x=alt.X("place:O", title="clients, the most frequent first", axis=alt.Axis(labels=False, ticks=False)),
                y=alt.Y("updates:Q", title="updates in all", axis=alt.Axis(tickMinStep=1)),
                color=color,
                tooltip=told,
            )
        )
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _lorenz(subject: Subject, options: Options) -> Chart:
    import altair as alt

    rows = [
        {"method": name, "seed": run.seed, **row}
        for name, runs in subject.methods.items()
        for run in runs
        for row in thin(lorenz(list(_counts(run, subject).values())), ("y",), most=200)
    ]
    color, dash = methods(subject.styles(options.theme), shown=len(subject.methods) > 1)
    side = min(options.width, 360)
    x = alt.X("share:Q", title="share of clients, the rarest first", axis=alt.Axis(format="%"))
    y = alt.Y("y:Q", title="share of all updates", axis=alt.Axis(format="%"))
    tips = ["method:N", "seed:N", alt.Tooltip("share:Q", format=".0%"), alt.Tooltip("y:Q", format=".1%")]
    lines = chart(rows, side, side).mark_line(opacity=0.85).encode(
        x=x, y=y, color=color, strokeDash=dash, detail="seed:N", tooltip=tips
    )  # fmt: skip
    alike = chart([{"share": 0.0, "y": 0.0}, {"share": 1.0, "y": 1.0}], side, side).mark_line(
        color=HUES["grey"][options.theme], strokeDash=[3, 3], strokeWidth=1
    )
    return alt.layer(alike.encode(x=x, y=y), lines)


def _staleness(subject: Subject, options: Options) -> Chart:
    value = functools.partial(column, name="staleness_mean", after=0)
    return curves(subject, value, options, "staleness (versions), mean of a version", COUNT)


def _energy(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels, color = [], _colours(subject, "group", options)
    for name, runs in subject.methods.items():
        run = runs[0]
        rows = spent(subject.visits(run, "dispatch", "client", "finished", "joules"), _devices(run, subject))
        marks = chart(rows, options.width, 170, named(name, run, subject)).mark_line(interpolate="step-after")
        panels.append(
            marks.encode(
                x=alt.X("x:Q", title="virtual time (s)", axis=seconds_axis()),
                y=alt.Y("y:Q", title="energy of its devices so far (J)"),
                color=color,
                tooltip=["group:N", alt.Tooltip("x:Q", format=",.4~g"), alt.Tooltip("y:Q", format=",.4~g")],
            )
        )
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _settings(run: RecordedRun) -> tuple[float, float, float] | None:
    """Joules of a battery, watts of charging and the reserve, by a run's configuration; None without batteries."""
    fleet = (run.config.get("resolved") or run.config).get("fleet")
    energy = fleet.get("energy") if isinstance(fleet, Mapping) else None
    if not isinstance(energy, Mapping) or not isinstance(energy.get("battery"), (int, float)) or energy["battery"] <= 0:
        return None
    return float(energy["battery"]), float(energy.get("charging") or 0.0), float(energy.get("reserve") or 0.0)


def _battery(subject: Subject, options: Options) -> Chart:
    import altair as alt

    panels = []
    for name, runs in subject.methods.items():
        run, known = runs[0], _settings(runs[0])
        if known is None:
            continue
        battery, charging, reserve = known
        found = levels(subject.visits(run, "dispatch", "client", "finished", "joules"), battery, charging)
        if not found:
            continue
        # From the emptiest to the fullest, by what each was left with.
        order = sorted(found, key=lambda client: (found[client][-1][1], client))
        few = evenly(order, MOST_LINES)
        rows = [
            {"client": client, **point}
            for client in few
            for point in thin([{"x": x, "y": y} for x, y in found[client]], most=120)
        ]
        last = sorted(line[-1][1] for line in found.values())
        notes = [f"{len(few)} of {len(order):,} clients"] if len(few) < len(order) else []
        notes += [f"in the end a median of {quantile(last, 0.5):.0%}"]
        look = subject.styles(options.theme)[name]
        panel = chart(rows, options.width, 170, named(name, run, subject, note=", ".join(notes)))
        lines = panel.mark_line(color=look.colour, opacity=0.55, strokeWidth=1.2).encode(
            x=alt.X("x:Q", title="virtual time (s)", axis=seconds_axis()),
            y=alt.Y("y:Q", title="charge after a visit", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            detail="client:N",
            tooltip=["client:N", alt.Tooltip("x:Q", format=",.4~g"), alt.Tooltip("y:Q", format=".0%")],
        )
        line = chart([{"y": reserve}], options.width, 170).mark_rule(
            color=HUES["vermilion"][options.theme], strokeDash=[4, 3]
        )
        panels.append(alt.layer(lines, line.encode(y="y:Q")))
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels)


def _no_battery(subject: Subject) -> str:
    if any(_settings(run) is not None for run in subject.runs):
        return _no_visits(subject)
    return "no device has a battery; give the fleet one, such as fleet.energy.battery=500"


_no_visits = needs("visits", "1", "no visit is over yet; wait for the first one")
_no_update = needs("versions", "accepted > 0", "no update is in a version yet; wait for the first one")
FIGURES: Sequence[Figure] = (
    Figure(
        name="visits",
        title="Updates of each client",
        about="How many updates of each client went into a version, by its group of like devices; the first seed of "
        "each method. The Gini coefficient is 0 where all took part alike.",
        lacks=lambda subject: _no_visits(subject) or _no_update(subject),
        drawn=_visits,
    ),
    Figure(
        name="lorenz",
        title="How evenly clients take part",
        about="The share of all updates that the rarest clients made: on the dashed line all took part alike.",
        lacks=lambda subject: _no_visits(subject) or _no_update(subject),
        drawn=_lorenz,
    ),
    Figure(
        name="staleness_over_time",
        title="Staleness over the run",
        about="How many versions behind the model that they were added to a version's updates were, on average.",
        lacks=needs("versions", "staleness_max > 0", "no update was stale; run a method that does not wait, fedbuff"),
        drawn=_staleness,
        along=True,
    ),
    Figure(
        name="energy",
        title="Energy by group of devices",
        about="What the devices of each group have used so far, on the virtual clock; the first seed of each method.",
        lacks=needs("visits", "joules > 0", "no visit took any energy; give the fleet fleet.energy.joules_per_flop"),
        drawn=_energy,
    ),
    Figure(
        name="battery",
        title="Batteries",
        about="How full batteries are after each visit, from the emptiest to the fullest of those shown; below the "
        "dashed line a client is not there. The first seed of each method.",
        lacks=_no_battery,
        drawn=_battery,
    ),
)
