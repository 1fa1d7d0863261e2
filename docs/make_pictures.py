"""Draws the pictures of docs/mechanisms, docs/fleet.md and docs/costs.md, from real runs on the digits and real draws.

python docs/make_pictures.py            # all of them, in half a minute
python docs/make_pictures.py pacing     # some of them
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import altair as alt

import polyrhythm as pr
from polyrhythm.data.partitions import Partition
from polyrhythm.fleet.survey import survey
from polyrhythm.methods.order.pacing import Family, Pacing
from polyrhythm.methods.participation.critical_periods import CriticalPeriods
from polyrhythm.methods.work.budgets import Levels
from polyrhythm.models.catalogue import Builder

PICTURES = Path(__file__).with_name("pictures")
WIDTH = 520

# Okabe and Ito's colours, which colour-blind people can tell apart.
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"

Draw = Callable[[Path, int | None], Any]  # Altair types its layers and rows of charts as Any


def main(names: Sequence[str] = (), *, folder: Path = PICTURES, rounds: int | None = None) -> None:
    """Draws the named pictures, or all; `rounds` shortens the runs, for a test."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or DRAWN:
        with tempfile.TemporaryDirectory() as out:
            chart = DRAWN[name](Path(out), rounds)
        # Without descriptions for screen readers on each mark, which make the file thrice as large.
        # Room between words, since a reader's font may be wider than the one they were measured with.
        spaced = chart.configure(aria=False).configure_axis(labelSeparation=8).configure_legend(columnPadding=32)
        spaced.configure_title(fontSize=11, fontWeight="normal").save(str(folder / f"{name}.svg"))
        print(folder / f"{name}.svg")


def made(
    recipe: pr.Recipe,
    out: Path,
    *,
    rounds: int,
    clients: int = 20,
    partition: Partition | None = None,
    model: str | Builder = "mlp",
    fleet: pr.Fleet | None = None,
) -> pr.Run:
    """One run on the digits, seed 0."""
    split = partition or pr.data.Dirichlet(alpha=0.3)
    federation = pr.federate(pr.data.digits(), split, clients=clients, seed=0)
    experiment = pr.Experiment(
        federation=federation, model=model, recipe=recipe, rounds=rounds, seed=0, fleet=fleet or pr.Fleet()
    )
    return pr.run(experiment, out=out)


def chart(rows: list[dict[str, Any]], height: int, title: str = "") -> alt.Chart:
    """An empty chart over rows that are given as values, so that no limit on rows bites."""
    return alt.Chart(alt.InlineData(values=rows), title=title, width=WIDTH, height=height)


def coloured(field: str, colours: dict[str, str]) -> alt.Color:
    """One colour for each value of a field, told below."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(
        f"{field}:N", title=None, scale=scale, legend=alt.Legend(orient="bottom", symbolSize=120, labelLimit=0)
    )


def round_axis(rounds: int) -> alt.X:
    return alt.X("round:Q", title="round", scale=alt.Scale(domain=[0, rounds + 1], nice=False))


def critical_periods(out: Path, rounds: int | None) -> Any:
    """The federated gradient norm, and under it the cohort that follows it, for both rules."""
    rounds = rounds or 60
    colours, rows = {"literal": BLUE, "windowed": VERMILION}, []
    rules = (CriticalPeriods(rule="literal"), CriticalPeriods(rule="windowed", cap=0.75, floor=1.0))
    for rule, policy in zip(colours, rules, strict=True):
        recipe = pr.fedavg(cohort=5) | policy
        history = made(recipe, out, rounds=rounds, clients=40, partition=pr.data.Dirichlet(alpha=0.1)).history
        for version, row in history.iloc[1:].iterrows():
            norm, cohort = row["measures_gradient_norm"], row["cohort"]
            rows.append({"round": version, "norm": norm, "cohort": cohort, "rule": rule})
    x, color = round_axis(rounds), coloured("rule", colours)
    title = "fedavg(cohort=5) | critical_periods, digits, 40 clients, dirichlet(alpha=0.1)"
    norm = chart(rows, 150, title).mark_line(point={"size": 14}).encode(
        x=x, y=alt.Y("norm:Q", title="FGN: η · mean |g|²"), color=color
    )  # fmt: skip
    cohort = chart(rows, 150).mark_line(interpolate="step").encode(
        x=x, y=alt.Y("cohort:Q", title="cohort (clients)"), color=color
    )  # fmt: skip
    return alt.vconcat(norm, cohort)


def stop_on_drift(out: Path, rounds: int | None) -> Any:
    """Epochs that clients truly made, and under them their similarity and the threshold that it meets."""
    rounds = rounds or 30
    recipe = pr.fedavg(epochs=10, lr=0.05) | pr.parts.stop_on_drift(batch="min")
    visits = made(recipe, out, rounds=rounds, model=pr.models.with_projection(pr.models.find("mlp"))).visits
    visits = visits.assign(round=visits["version"] + 1)
    counted = visits.groupby(["round", "epochs"]).size().reset_index(name="clients")
    mean = visits.groupby("round")["epochs"].mean().reset_index()
    x = round_axis(rounds)
    y = alt.Y("epochs:Q", title="epochs of a visit", scale=alt.Scale(domain=[0, 11], nice=False))
    size = alt.Size("clients:Q", title="clients", legend=alt.Legend(orient="bottom", values=[1, 5, 10]))
    title = "fedavg(epochs=10, lr=0.05) | stop_on_drift(batch=min), with_projection(mlp), digits, 20 clients"
    marks = chart(counted.to_dict("records"), 150, title).mark_circle(color=BLUE, opacity=0.8)
    dots = marks.encode(x=x, y=y, size=size)
    line = chart(mean.to_dict("records"), 150).mark_line(color=VERMILION).encode(x=x, y=y)
    seen = visits.groupby("round").agg(
        threshold=("measures_threshold", "first"),
        least=("measures_similarity", "min"),
        mean=("measures_similarity", "mean"),
        most=("measures_similarity", "max"),
    )
    spread = seen.reset_index().to_dict("records")
    colours = {"mean similarity of a visit: range over clients": SKY, "its mean over clients": BLUE, "T_h": VERMILION}
    band, middle, threshold = (
        [row | {"of": of, "cosine": row[key]} for row in spread]
        for of, key in zip(colours, ("least", "mean", "threshold"), strict=True)
    )
    y = alt.Y("cosine:Q", title="cosine", scale=alt.Scale(domain=[0, 1]))
    color = coloured("of", colours)
    area = chart(band, 150).mark_area(opacity=0.5).encode(x=x, y=y, y2="most:Q", color=color)
    lines = chart(middle + threshold, 150).mark_line().encode(x=x, y=y, color=color)
    return alt.vconcat(dots + line, area + lines).resolve_scale(color="independent")


def skip_and_estimate(out: Path, rounds: int | None) -> Any:
    """Who trained, was estimated or silent, by client and round."""
    rounds = rounds or 40
    recipe = pr.fedavg(cohort=10) | pr.parts.equal() | pr.parts.skip_and_estimate(cold_start="exclude")
    visits = made(recipe, out, rounds=rounds).visits
    colours = {"trained": BLUE, "estimated": ORANGE, "silent": "#BBBBBB"}
    rows = []
    for _, visit in visits.iterrows():
        did = "trained" if visit["status"] == "trained" else "silent" if visit["reason"] == "silent" else "estimated"
        client, budget = int(visit["client"]), Levels().share(int(visit["client"]), 20, 0)
        rows.append({"round": int(visit["version"]) + 1, "client": client, "did": did, "budget": budget})
    title = "fedavg(cohort=10) | equal | skip_and_estimate(cold_start=exclude), digits, 20 clients"
    axis = alt.Axis(values=list(range(5, rounds + 1, 5)), labelAngle=0)
    groups: list[alt.Chart] = [
        chart([row for row in rows if row["budget"] == budget], 75, title if budget == 1 else "")
        .mark_rect(stroke="white")
        .encode(
            x=alt.X("round:O", title="round", axis=axis if budget == 0.125 else None),
            y=alt.Y("client:O", title=["client,", f"budget {budget:g}"]),
            color=coloured("did", colours),
        )
        for budget in (1, 0.5, 0.25, 0.125)
    ]
    return alt.vconcat(*groups, spacing=4).resolve_scale(x="shared")


def pacing(out: Path, rounds: int | None) -> Any:
    """The pacing functions as they are computed."""
    colours: dict[str, str] = dict(zip(FAMILIES, (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE), strict=True))
    rows = []
    for family in FAMILIES:
        for printed in (False, True) if family == "linear" else (False,):
            rule = Pacing(family=family, a=0.8, b=0.2, printed=printed)
            form = "as printed" if printed else "corrected"
            rows += [
                {"step": step, "in use": rule.count(1000, step, 100), "family": family, "form": form}
                for step in range(101)
            ]
    dash = alt.Scale(domain=["corrected", "as printed"], range=[[1, 0], [5, 4]])
    legend = alt.Legend(orient="bottom", symbolSize=400)
    lines = chart(rows, 300, "1,000 samples, a visit of 100 steps, a = 0.8, b = 0.2").mark_line().encode(
        x=alt.X("step:Q", title="step of the visit"),
        y=alt.Y("in use:Q", title="samples in use, easiest first"),
        color=coloured("family", colours),
        strokeDash=alt.StrokeDash("form:N", title=None, scale=dash, legend=legend),
    )  # fmt: skip
    return lines


FAMILIES: tuple[Family, ...] = ("linear", "quadratic", "root", "step", "exponential", "log")


def client_curriculum(out: Path, rounds: int | None) -> Any:
    """Which clients trained, by their place in the latest ranking, and the pool that they came from."""
    rounds = rounds or 40
    recipe = pr.fedavg(cohort=5, epochs=5) | pr.parts.client_curriculum()
    run = made(recipe, out, rounds=rounds, clients=40, partition=pr.data.DirichletPerClient(beta=0.2))
    places: dict[int, int] = {}
    pools: list[dict[str, float]] = []
    trained: list[dict[str, float]] = []
    for version, visits in run.visits.groupby("version"):
        measured = visits[visits["status"] == "measured"].sort_values("measures_loss")
        if len(measured):
            places = {client: place for place, client in enumerate(measured["client"], start=1)}
            pools.append({"from": version + 0.5, "low": 0.5, "high": 0.5})
        pools[-1]["to"] = version + 1.5
        for client in visits[visits["status"] == "trained"]["client"]:
            place = places[client]
            trained.append({"from": version + 0.5, "to": version + 1.5, "low": place - 0.5, "high": place + 0.5})
            pools[-1]["high"] += 1
    pools[-1]["high"] += run.history["measures_pool"].iloc[-1]  # the run ended before they were used up
    title = "fedavg(cohort=5, epochs=5) | client_curriculum, digits, 40 clients, dirichlet_per_client(beta=0.2)"
    x = alt.X("from:Q", title="round", scale=alt.Scale(domain=[0.5, rounds + 0.5], nice=False))
    y = alt.Y("low:Q", title="client by its measured loss (1 = easiest)", scale=alt.Scale(domain=[0.5, 40.5]))
    shade = chart(pools, 260, title).mark_rect(color=SKY, opacity=0.3, stroke=SKY)
    taken = chart(trained, 260).mark_rect(color=BLUE, stroke="white", strokeWidth=0.5)
    return alt.layer(*(drawn.encode(x=x, x2="to:Q", y=y, y2="high:Q") for drawn in (shade, taken)))


def client_centric(out: Path, rounds: int | None) -> Any:
    """How stale the updates of a release are: sampled, and by buffers smaller than the number under way."""
    rounds = rounds or 100
    recipes = {
        "cc_fedadam: sampled among 5": pr.cc_fedadam(cohort=10),
        "buffer of 5, 10 under way": pr.fedavg(cohort=10) | pr.parts.buffer(size=5),
        "buffer of 2, 10 under way": pr.fedavg(cohort=10) | pr.parts.buffer(size=2),
    }
    panels = []
    for (name, recipe), colour in zip(recipes.items(), (BLUE, ORANGE, GREEN), strict=True):
        stale = staleness(made(recipe, out, rounds=rounds))
        share = {s: stale.count(s) / len(stale) for s in range(11)}
        rows = [{"staleness": s, "share": v} for s, v in share.items()]
        bars = chart(rows, 170, name).mark_bar(color=colour).encode(
            x=alt.X("staleness:O", title="staleness (versions)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title="share of updates", scale=alt.Scale(domain=[0, 0.7])),
        )  # fmt: skip
        panels.append(bars.properties(width=200))
    return alt.hconcat(*panels)


def staleness(run: pr.Run) -> list[int]:
    """Versions between the model that an update started from and the one it was added to, for each update."""
    history = run.history
    arrived = run.visits.sort_values(["finished", "dispatch"])["version"].tolist()
    stale = []
    for version, accepted in history["accepted"].iloc[1:].items():
        stale += [version - 1 - sent for sent in arrived[:accepted]]
        del arrived[:accepted]
    return stale


def fleet(out: Path, rounds: int | None) -> Any:
    """How fast the devices of several sources are, and when the clients of several availabilities are there."""
    clients = 1000
    sources = {"tiers": pr.Fleet(devices=pr.fleet.Tiers()), "lognormal": pr.Fleet(devices=pr.fleet.Lognormal())}
    sources |= {"zipf": pr.Fleet(devices=pr.fleet.Zipf()), "phones": pr.fleet.phones()}
    colours: dict[str, str] = dict(zip(sources, (BLUE, ORANGE, GREEN, PURPLE), strict=True))
    rows = []
    for name, made_of in sources.items():
        seconds = sorted(survey(made_of, clients, 0, horizon=60.0).seconds_per_sample)
        rows += [{"s": s, "share": (i + 1) / clients, "source": name} for i, s in enumerate(seconds) if i % 5 == 4]
    speed = chart(rows, 150, f"{clients:,} devices").mark_line(interpolate="step-after").encode(
        x=alt.X(
            "s:Q",
            title="seconds per sample (logarithmic)",
            scale=alt.Scale(type="log", domain=[1e-4, 1], clamp=True, nice=False),
            axis=alt.Axis(values=[1e-4, 1e-3, 1e-2, 1e-1, 1]),
        ),
        y=alt.Y("share:Q", title="share that is as fast"),
        color=coloured("source", colours),
    )  # fmt: skip
    there = {
        "periodic(zones=1)": pr.fleet.Periodic(zones=1),
        "periodic": pr.fleet.Periodic(),
        "markov": pr.fleet.Markov(),
    }
    colours = dict(zip(there, (BLUE, ORANGE, GREEN), strict=True))
    rows = []
    for name, part in there.items():
        shares = survey(pr.Fleet(availability=part), clients, 0, horizon=2 * 86_400.0).there
        rows += [{"hour": 2 * i + 1, "share": share, "part": name} for i, share in enumerate(shares.tolist())]
    presence = chart(rows, 150, f"{clients:,} clients over two days").mark_line(interpolate="step").encode(
        x=alt.X("hour:Q", title="hour", scale=alt.Scale(domain=[0, 48]), axis=alt.Axis(values=list(range(0, 49, 6)))),
        y=alt.Y("share:Q", title="share that is there", scale=alt.Scale(domain=[0, 1])),
        color=coloured("part", colours),
    )  # fmt: skip
    return alt.vconcat(speed, presence).resolve_scale(color="independent")


# Four fast devices, four that are three times and four that are ten times slower, in this order.
SPEEDS = tuple(pr.fleet.Device(seconds_per_sample=s) for s in (0.001, 0.003, 0.010) for _ in range(4))


def asynchrony(out: Path, rounds: int | None) -> Any:
    """Who is at work when, and what becomes of it, where the server waits for all, for some, and for nobody."""
    recipes = {
        "fedavg(cohort=4): a round waits for its slowest client": pr.fedavg(cohort=4),
        "… | over_select(factor=1.5): the first 4 of 6, the others are given up": pr.fedavg(cohort=4)
        | pr.parts.over_select(factor=1.5),
        "fedbuff(concurrency=4, buffer=4): whoever ends is replaced at once": pr.fedbuff(concurrency=4, buffer=4),
    }
    fates = {
        "in the next version": BLUE,
        "in a version after others (stale)": SKY,
        "too late: thrown away": VERMILION,
        "under way when the picture ends": "#BBBBBB",
    }
    fleet, end, panels = pr.Fleet(devices=pr.fleet.ListedDevices(devices=SPEEDS)), 6.0, []
    for name, recipe in recipes.items():
        run = made(recipe, out, rounds=rounds or 60, clients=12, partition=pr.data.Iid(), fleet=fleet)
        times = run.history["time"]
        rows = []
        for _, visit in run.visits[run.visits["started"] < end].iterrows():
            fate = "too late: thrown away" if visit["status"] == "late" else "in the next version"
            if visit["status"] == "trained" and int((times < visit["finished"]).sum()) - 1 > visit["version"]:
                fate = "in a version after others (stale)"
            if visit["finished"] > end or visit["status"] == "unfinished":
                fate = "under way when the picture ends"
            rows.append(
                {
                    "from": visit["started"],
                    "to": min(visit["finished"], end),
                    "client": int(visit["client"]),
                    "fate": fate,
                }
            )
        x = alt.X("from:Q", title="virtual seconds", scale=alt.Scale(domain=[0, end], nice=False))
        bars = chart(rows, 130, name).mark_rect(stroke="white", strokeWidth=0.4).encode(
            x=x,
            x2="to:Q",
            y=alt.Y("client:O", title="client", scale=alt.Scale(domain=list(range(12)))),
            color=coloured("fate", fates),
        )  # fmt: skip
        steps = [{"from": time} for time in times.iloc[1:].tolist() if time < end]
        panels.append(bars + chart(steps, 130).mark_rule(size=0.7).encode(x=x))
    return alt.vconcat(*panels)


def selection(out: Path, rounds: int | None) -> Any:
    """Accuracy over virtual time, and whose updates it is made of."""
    rounds = rounds or 60
    recipes = {
        "fedavg": pr.fedavg(cohort=5),
        "power_of_choice": pr.power_of_choice(cohort=5, d=10),
        "oort": pr.oort(cohort=5),
        "tifl": pr.tifl(cohort=5, tiers=3),
    }
    colours: dict[str, str] = dict(zip(recipes, (BLUE, ORANGE, VERMILION, GREEN), strict=True))
    fleet = pr.Fleet(devices=pr.fleet.Tiers())
    tiers = {"tier 1": BLUE, "tier 2": SKY, "tier 3": "#BBBBBB"}
    place = pr.fleet.Place(population=40, seed=0)
    group = [fleet.devices.device(place, client).group for client in range(40)]
    reached, updates = [], {"all clients": group}
    for name, recipe in recipes.items():
        run = made(recipe, out, rounds=rounds, clients=40, partition=pr.data.Dirichlet(alpha=0.1), fleet=fleet)
        best, times = run.history["test_accuracy"].cummax(), run.history["time"]
        reached += [{"s": s, "accuracy": a, "method": name} for s, a in zip(times, best, strict=True)]
        updates[name] = [group[client] for client in run.visits[run.visits["status"] == "trained"]["client"]]
    shares = [
        {"of": of, "tier": tier, "share": groups.count(tier) / len(groups)}
        for of, groups in updates.items()
        for tier in tiers
    ]
    title = f"{rounds} rounds, digits, 40 clients, dirichlet(alpha=0.1), tiers"
    lines = chart(reached, 190, title).mark_line(interpolate="step-after").encode(
        x=alt.X("s:Q", title="virtual seconds"),
        y=alt.Y("accuracy:Q", title="best test accuracy so far"),
        color=coloured("method", colours),
    )  # fmt: skip
    bars = chart(shares, 100).mark_bar().encode(
        x=alt.X("share:Q", title="share of the updates (tier 1: fastest)", scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("of:N", title=None, sort=list(updates)),
        color=coloured("tier", tiers),
    )  # fmt: skip
    return alt.vconcat(lines, bars).resolve_scale(color="independent")


def costs(out: Path, rounds: int | None) -> Any:
    """What clients do all the time, and the energy that it takes."""
    kinds = {"receiving": SKY, "computing": BLUE, "sending": GREEN, "waiting for the version": ORANGE}
    devices = pr.fleet.ListedDevices(devices=SPEEDS[::2])
    fleet = pr.Fleet(devices=devices) | pr.fleet.FixedLinks(down=1e6, up=4e5, latency=0.05)
    recipe = pr.fedavg(cohort=4)
    run = made(recipe, out, rounds=min(rounds or 3, 3), clients=6, partition=pr.data.Iid(), fleet=fleet)
    times, rows = run.history["time"], []
    for _, visit in run.visits.iterrows():
        moment, version = visit["started"], times[visit["version"] + 1]
        lengths = (visit["down_seconds"], visit["compute_seconds"], visit["up_seconds"], version - visit["finished"])
        for kind, length in zip(kinds, lengths, strict=True):
            rows.append({"from": moment, "to": moment + length, "client": int(visit["client"]), "kind": kind})
            moment += length
    x = alt.X("from:Q", title="virtual seconds", scale=alt.Scale(domain=[0, times.iloc[-1]], nice=False))
    title = "fedavg(cohort=4), 6 clients: two fast, two 3 times and two 10 times slower"
    bars = chart(rows, 130, title).mark_rect(stroke="white", strokeWidth=0.4).encode(
        x=x,
        x2="to:Q",
        y=alt.Y("client:O", title="client", scale=alt.Scale(domain=list(range(6)))),
        color=coloured("kind", kinds),
    )  # fmt: skip
    steps = [{"from": time} for time in times.iloc[1:].tolist()]
    return bars + chart(steps, 130).mark_rule(size=0.7).encode(x=x)


DRAWN: dict[str, Draw] = {
    "critical_periods": critical_periods,
    "stop_on_drift": stop_on_drift,
    "skip_and_estimate": skip_and_estimate,
    "pacing": pacing,
    "client_curriculum": client_curriculum,
    "client_centric": client_centric,
    "fleet": fleet,
    "asynchrony": asynchrony,
    "selection": selection,
    "costs": costs,
}


if __name__ == "__main__":
    main(sys.argv[1:])
