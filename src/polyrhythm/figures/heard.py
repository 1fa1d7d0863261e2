"""Who was heard: how often, with how many samples, and how those are served who are seldom there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import FALLING, in_words
from polyrhythm.figures.crowd import foremost, set_apart
from polyrhythm.figures.crowd import in_words as in_colour
from polyrhythm.figures.curves import curves
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import SHARE, chart, methods, named, panelled, shaped, wide
from polyrhythm.figures.subject import Subject
from polyrhythm.runs.heard import By, Heard, by_groups, gini

BARS = 24
"""Bars of a histogram, at most."""
GROUPS = 5
"""Groups of clients by availability."""
TITLES: Mapping[By, str] = {
    "there": "share of the time there, mean of a fifth",
    "heard": "updates in all, mean of a fifth",
}


def histogram(updates: Sequence[int], width: int) -> list[dict[str, Any]]:
    """How many clients were heard how often: bars `from` and `to` some number of updates, `clients`, and their `share`.

    Those that were never heard have a bar of their own.

    Args:
        updates: of each client.
        width: updates that share a bar.
    """
    import numpy as np

    counts = np.bincount([0 if not n else 1 + (n - 1) // width for n in updates])
    return [
        {
            "from": (place - 1) * width + 0.5 if place else -0.5,
            "to": place * width + 0.5 if place else 0.5,
            "updates": _span((place - 1) * width + 1, place * width) if place else "never",
            "clients": int(count),
            "share": int(count) / len(updates),
        }
        for place, count in enumerate(counts)
        if count
    ]


def _span(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _heard(subject: Subject, options: Options) -> Chart:
    import altair as alt

    found = {name: (runs[0], subject.heard(runs[0])) for name, runs in subject.methods.items()}
    most = max((int(held.updates.max(initial=0)) for _, held in found.values()), default=0)
    width = max(1, math.ceil(most / BARS))
    counts = {name: histogram(held.updates.tolist(), width) for name, (_, held) in found.items()}
    highest = max((row["share"] for rows in counts.values() for row in rows), default=1.0)
    styles, panels = subject.styles(options.theme), []
    for name, (run, held) in found.items():
        never = int((held.updates == 0).sum())
        notes = [f"{never:,} of {len(held.updates):,} clients never", f"Gini {gini(held.updates.tolist()):.2f}"]
        bars = chart(
            counts[name], wide(len(found), options.width), 110, named(name, run, subject, note=", ".join(notes))
        )
        panels.append(
            bars.mark_rect(color=styles[name].colour, strokeWidth=0).encode(
                x=alt.X(
                    "from:Q",
                    title="updates of a client in all (left of the gap: none)" if width > 1 else "updates of a client",
                    axis=alt.Axis(tickMinStep=1),
                    scale=alt.Scale(domain=[-0.5, width * math.ceil(most / width) + 0.5], nice=False),
                ),
                x2="to:Q",
                y=alt.Y("share:Q", title="clients", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, highest])),
                y2=alt.datum(0),
                tooltip=["updates:N", "clients:Q", alt.Tooltip("share:Q", format=".1%")],
            )
        )
    return panelled(panels)


def _behind(subject: Subject, options: Options) -> Chart:
    shares = {
        run.id: {one.version: one.share for one in subject.behind(run)}
        for runs in subject.methods.values()
        for run in runs
    }
    run_of = {id(row): run.id for run in subject.runs for row in subject.versions(run)}

    def value(row: Mapping[str, Any]) -> float | None:
        return shares[run_of[id(row)]].get(row["version"])

    return curves(subject, value, options, "share of all samples behind a version", SHARE)


def _reached(subject: Subject, options: Options) -> Chart:
    shares = {
        run.id: {one.version: one.so_far for one in subject.behind(run)}
        for runs in subject.methods.values()
        for run in runs
    }
    run_of = {id(row): run.id for run in subject.runs for row in subject.versions(run)}

    def value(row: Mapping[str, Any]) -> float | None:
        return shares[run_of[id(row)]].get(row["version"], 0.0 if row["version"] == 0 else None)

    return curves(subject, value, options, "share of all samples heard so far", SHARE)


def order_of(found: Sequence[Heard]) -> By:
    """What clients are in order by: how long they were there, where that differs in every run, else how often heard."""
    return "there" if all(held.varies("there") for held in found) else "heard"


def _availability(subject: Subject, options: Options) -> Chart:
    import altair as alt

    of = {name: [subject.heard(run) for run in runs] for name, runs in subject.methods.items()}
    of = {name: [held for held in runs if held.measured] for name, runs in of.items()}
    by = order_of([held for runs in of.values() for held in runs])
    rows = [
        {"method": name, "seed": run, **group}
        for name, runs in of.items()
        for run, held in enumerate(runs)
        for group in by_groups(held, by, GROUPS)
    ]
    means = list[dict[str, Any]]()
    for name, runs in of.items():
        groups = [by_groups(held, by, GROUPS) for held in runs]
        if groups and len({len(one) for one in groups}) == 1:
            means += [
                {"method": name, **{key: _mean([row[key] for row in same]) for key in ("place", "loss", "score")}}
                for same in zip(*groups, strict=True)
            ]
        else:
            means += [row for row in rows if row["method"] == name and row["seed"] == 0]
    baseline, falling = options.baseline or next(iter(subject.methods)), subject.headline in FALLING
    ends = {name: _mean([row["score"] for row in means if row["method"] == name]) for name in of if of[name]}
    styles, chosen = subject.styles(options.theme), foremost(ends, falling, baseline)
    if chosen:
        styles = set_apart(styles, chosen, options.theme)
        rows = [row for row in rows if row["method"] in chosen]
    color, dash = methods(styles, shown=len(subject.methods) > 1, told=chosen)
    half, panels = (options.width - 60) // 2, []
    x = alt.X("place:Q", title=TITLES[by].split(", "), axis=alt.Axis(format="%" if by == "there" else "~g"))
    for key, title in (("loss", "loss"), ("score", in_words(subject.headline))):
        y = alt.Y(f"{key}:Q", title=f"{title} on own tests", scale=alt.Scale(zero=False))
        tips = ["method:N", alt.Tooltip("place:Q", format=".3~g"), alt.Tooltip(f"{key}:Q", format=".4~g")]
        layers = list[Any]()
        for front in (False, True):
            if some := [row for row in means if (row["method"] in chosen) is front]:
                how: dict[str, Any] = {"strokeWidth": 1} if chosen and not front else {}
                line = chart(some, half, 240).mark_line(**how)
                layers.append(line.encode(x=x, y=y, color=color, strokeDash=dash, tooltip=tips))
        dots = chart(rows, half, 240).mark_point(size=30, filled=True, opacity=0.6)
        layers.append(dots.encode(x=x, y=y, color=color, **shaped(styles, color), tooltip=tips))
        panels.append(alt.layer(*layers))
    drawn: Chart = alt.hconcat(*panels)
    if not chosen:
        return drawn
    return drawn.properties(title=alt.Title([in_colour(chosen, len(styles), baseline)]))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _nobody(subject: Subject) -> str:
    return needs("versions", "accepted > 0", "no update is in a version yet; wait for the first one")(subject)


def _no_samples(subject: Subject) -> str:
    if missing := _nobody(subject):
        return missing
    # Without a look at visits, since it is asked of every run that is shown.
    members = {run.id: subject.clients(run) for run in subject.runs}
    if any(len(members[run.id]) == run.clients and _samples(members[run.id]) for run in subject.runs):
        return ""
    return "not all clients are on record, as in a federation of more than 10,000; run a smaller one"


def _no_result(subject: Subject) -> str:
    if missing := needs(
        "client_results",
        "1",
        "no result of a single client is on record; run it with local_test=0.2, so that each has a test of its own",
    )(subject):
        return missing
    found = [held for run in subject.runs if (held := subject.heard(run)).measured]
    if found and all(held.varies(order_of(found)) for held in found):
        return ""
    return "all clients were there, and heard, alike; run it on a fleet that comes and goes, such as fleet=phones"


def _samples(members: Sequence[Mapping[str, Any]]) -> list[int]:
    """Of each client that holds some, and was there to train."""
    return [row["samples"] for row in members if row["samples"] and not row["unseen"]]


def _one_share(subject: Subject) -> str:
    """Why shares say nothing: as many were heard for every version, and all hold alike or all were heard."""
    shares = set[float]()
    for run in subject.runs:
        made, held = subject.versions(run)[1:], _samples(subject.clients(run))
        counts = {row["accepted"] for row in made}
        if len(counts) != 1 or not held or any(row["staleness_max"] for row in made):
            return ""
        if (count := counts.pop()) != len(held) and len({*held}) > 1:
            return ""
        shares.add(round(count / len(held), 6))
    return f"{shares.pop():.1%} behind every version" if len(shares) == 1 else ""


FIGURES: Sequence[Figure] = (
    Figure(
        name="heard",
        title="Who was heard",
        about="How many clients gave how many updates to versions, those that were never heard apart; the first seed "
        "of each method. The Gini coefficient is 0 where all took part alike.",
        lacks=_nobody,
        drawn=_heard,
    ),
    Figure(
        name="samples_behind",
        title="Samples behind each version",
        about="The share of the federation's samples held by the clients whose updates went into a version; the band "
        "is one standard deviation over seeds.",
        lacks=_no_samples,
        drawn=_behind,
        flat=_one_share,
        along=True,
        curved=True,
    ),
    Figure(
        name="samples_heard",
        title="Samples heard so far",
        about="The share of the federation's samples held by the clients that were heard so far: what a method that "
        "remembers updates can still hold.",
        lacks=_no_samples,
        drawn=_reached,
        along=True,
        curved=True,
    ),
    Figure(
        name="availability",
        title="Results by availability",
        about="Loss and result of the newest version on clients' own tests, for clients from the rarest fifth to the "
        "commonest, by how long they were there; by how often they were heard, where all were there alike. Points are "
        "single seeds, lines their mean: the flatter, the less the model leans to whom it could hear.",
        lacks=_no_result,
        drawn=_availability,
    ),
)
