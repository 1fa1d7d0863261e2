"""Draws the pictures of docs/mechanisms from real runs on the digits.

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
from polyrhythm.slots.pacing import Pacing

PICTURES = Path(__file__).with_name("pictures")
WIDTH = 520

# Okabe and Ito's colours, which colour-blind people can tell apart.
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"

Draw = Callable[[Path, int | None], alt.TopLevelMixin]


def main(names: Sequence[str] = (), *, folder: Path = PICTURES, rounds: int | None = None) -> None:
    """Draws the named pictures, or all; `rounds` shortens the runs, for a test."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or DRAWN:
        with tempfile.TemporaryDirectory() as out:
            chart = DRAWN[name](Path(out), rounds)
        chart.save(str(folder / f"{name}.svg"))
        print(folder / f"{name}.svg")


def made(recipe: pr.Recipe, out: Path, *, rounds: int, clients: int = 20, partition: Partition | None = None) -> pr.Run:
    """One run on the digits, seed 0."""
    split = partition or pr.data.Dirichlet(alpha=0.3)
    federation = pr.federate(pr.data.digits(), split, clients=clients, seed=0)
    experiment = pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=rounds, seed=0)
    return pr.run(experiment, out=out)


def chart(rows: list[dict[str, Any]], height: int, title: str = "") -> alt.Chart:
    """An empty chart over rows that are given as values, so that no limit on rows bites."""
    return alt.Chart(alt.InlineData(values=rows), title=title, width=WIDTH, height=height)


def coloured(field: str, colours: dict[str, str]) -> alt.Color:
    """One colour for each value of a field, told below."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=alt.Legend(orient="bottom", symbolSize=120))


def round_axis(rounds: int) -> alt.X:
    return alt.X("round:Q", title="round", scale=alt.Scale(domain=[0, rounds + 1], nice=False))


def critical_periods(out: Path, rounds: int | None) -> alt.TopLevelMixin:
    """The federated gradient norm, and under it the cohort that follows it, for both rules."""
    rounds = rounds or 60
    colours, rows = {"literal": BLUE, "windowed": VERMILION}, []
    for rule, settings in {"literal": {}, "windowed": {"cap": 0.75, "floor": 1.0}}.items():
        recipe = pr.fedavg(cohort=5) | pr.critical_periods(rule=rule, **settings)
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


def stop_on_drift(out: Path, rounds: int | None) -> alt.TopLevelMixin:
    """Epochs that clients truly made, and under them their similarity and the threshold that it meets."""
    rounds = rounds or 20
    recipe = pr.fedavg(cohort=10, epochs=10) | pr.stop_on_drift(a=0.8, b=0.15)
    visits = made(recipe, out, rounds=rounds).visits
    visits = visits.assign(round=visits["version"] + 1)
    counted = visits.groupby(["round", "epochs"]).size().reset_index(name="clients")
    mean = visits.groupby("round")["epochs"].mean().reset_index()
    x = round_axis(rounds)
    y = alt.Y("epochs:Q", title="epochs of a visit", scale=alt.Scale(domain=[0, 11], nice=False))
    size = alt.Size("clients:Q", title="clients", legend=alt.Legend(orient="bottom", values=[1, 5, 10]))
    title = "fedavg(cohort=10, epochs=10) | stop_on_drift(a=0.8, b=0.15), digits, 20 clients"
    marks = chart(counted.to_dict("records"), 150, title).mark_circle(color=BLUE, opacity=0.8)
    dots = marks.encode(x=x, y=y, size=size)
    line = chart(mean.to_dict("records"), 150).mark_line(color=VERMILION).encode(x=x, y=y)
    colours = {"similarity, mean of a visit's batches": SKY, "threshold T_h": VERMILION}
    similarity, threshold = (
        [{"round": r, "cosine": v, "of": of} for r, v in zip(visits["round"], visits[f"measures_{key}"], strict=True)]
        for of, key in zip(colours, ("similarity", "threshold"), strict=True)
    )
    low = alt.Y("cosine:Q", title="cosine", scale=alt.Scale(zero=False))
    color = coloured("of", colours)
    cosines = chart(similarity, 150).mark_point(filled=True, size=22).encode(x=x, y=low, color=color)
    bar = chart(threshold, 150).mark_line().encode(x=x, y=low, color=color)
    return alt.vconcat(dots + line, cosines + bar).resolve_scale(color="independent")


def skip_and_estimate(out: Path, rounds: int | None) -> alt.TopLevelMixin:
    """Who trained, was estimated or silent, by client and round."""
    rounds = rounds or 40
    recipe = pr.fedavg(cohort=10) | pr.equal() | pr.skip_and_estimate(cold_start="exclude")
    visits = made(recipe, out, rounds=rounds).visits
    colours = {"trained": BLUE, "estimated": ORANGE, "silent": "#BBBBBB"}
    rows = []
    for _, visit in visits.iterrows():
        estimated = "estimated" if visit["measures_age"] == visit["measures_age"] else "silent"
        did = "trained" if visit["status"] == "trained" else estimated
        rows.append({"round": int(visit["version"]) + 1, "client": int(visit["client"]), "did": did})
    title = "fedavg(cohort=10) | equal | skip_and_estimate(cold_start=exclude), digits, 20 clients"
    sheet = chart(rows, 20 * 13, title).mark_rect(stroke="white").encode(
        x=alt.X("round:O", title="round", axis=alt.Axis(values=list(range(0, rounds + 1, 5)), labelAngle=0)),
        y=alt.Y("client:O", title="client; budget 1 (0–4), 1/2 (5–9), 1/4 (10–14), 1/8 (15–19)"),
        color=coloured("did", colours),
    )  # fmt: skip
    return sheet


def pacing(out: Path, rounds: int | None) -> alt.TopLevelMixin:
    """The pacing functions as they are computed."""
    colours = dict(zip(FAMILIES, (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE), strict=True))
    rows = []
    for family in FAMILIES:
        for printed in (False, True) if family == "linear" else (False,):
            rule = Pacing(family=family, a=0.8, b=0.2, printed=printed)
            form = "as printed in the paper" if printed else "corrected"
            rows += [
                {"step": step, "in use": rule.count(1000, step, 100), "family": family, "form": form}
                for step in range(101)
            ]
    dash = alt.Scale(domain=["corrected", "as printed in the paper"], range=[[1, 0], [5, 4]])
    legend = alt.Legend(orient="bottom", symbolSize=400)
    lines = chart(rows, 300, "1,000 samples, a visit of 100 steps, a = 0.8, b = 0.2").mark_line().encode(
        x=alt.X("step:Q", title="step of the visit"),
        y=alt.Y("in use:Q", title="samples in use, easiest first"),
        color=coloured("family", colours),
        strokeDash=alt.StrokeDash("form:N", title=None, scale=dash, legend=legend),
    )  # fmt: skip
    return lines


FAMILIES = ("linear", "quadratic", "root", "step", "exponential", "log")


def client_curriculum(out: Path, rounds: int | None) -> alt.TopLevelMixin:
    """Which clients trained, by their place in the latest ranking, and the pool that they came from."""
    rounds, cohort = rounds or 40, 5
    split = pr.data.DirichletPerClient(beta=0.2)
    visits = made(
        pr.fedavg(cohort=cohort, epochs=5) | pr.client_curriculum(), out, rounds=rounds, clients=40, partition=split
    ).visits
    places: dict[int, int] = {}
    trained: list[dict[str, Any]] = []
    pools: list[dict[str, Any]] = []
    for version, seen in visits.groupby("version"):
        measured = seen[seen["status"] == "measured"].sort_values("measures_loss")
        if len(measured):
            places = {int(client): place for place, client in enumerate(measured["client"], start=1)}
            pools.append({"round": version + 0.5, "end": rounds + 0.5, "pool": 0})
            pools[-2:-1] = [p | {"end": version + 0.5} for p in pools[-2:-1]]
        for client in seen[seen["status"] == "trained"]["client"]:
            trained.append({"from": version + 0.5, "to": version + 1.5, "place": places[int(client)]})
            pools[-1]["pool"] += 1
    title = "fedavg(cohort=5, epochs=5) | client_curriculum, digits, 40 clients, dirichlet_per_client(beta=0.2)"
    domain = alt.Scale(domain=[0.5, rounds + 0.5], nice=False)
    y = alt.Y("low:Q", title="place of the client in the ranking (1 = easiest)", scale=alt.Scale(domain=[0.5, 40.5]))
    for row in trained:
        row |= {"low": row["place"] - 0.5, "high": row["place"] + 0.5}
    for row in pools:
        row |= {"low": 0.5, "high": row["pool"] + 0.5}
    x = alt.X("from:Q", title="round", scale=domain)
    pooled = chart([p | {"from": p["round"], "to": p["end"]} for p in pools], 260, title)
    shade = pooled.mark_rect(color=SKY, opacity=0.3, stroke=SKY).encode(x=x, x2="to:Q", y=y, y2="high:Q")
    taken = chart(trained, 260).mark_rect(color=BLUE, stroke="white", strokeWidth=0.5)
    return shade + taken.encode(x=x, x2="to:Q", y=y, y2="high:Q")


def client_centric(out: Path, rounds: int | None) -> alt.TopLevelMixin:
    """How stale the updates of a release are: sampled, and by buffers smaller than the number under way."""
    rounds = rounds or 100
    recipes = {
        "cc_fedadam: sampled among 5": pr.cc_fedadam(cohort=10),
        "buffer of 5, 10 under way": pr.fedavg(cohort=10) | pr.buffer(size=5),
        "buffer of 2, 10 under way": pr.fedavg(cohort=10) | pr.buffer(size=2),
    }
    panels = []
    for (name, recipe), colour in zip(recipes.items(), (BLUE, ORANGE, GREEN), strict=True):
        stale = staleness(made(recipe, out, rounds=rounds))
        share = {s: stale.count(s) / len(stale) for s in range(13)}
        rows = [{"staleness": s, "share": v} for s, v in share.items()]
        bars = chart(rows, 170, name).mark_bar(color=colour).encode(
            x=alt.X("staleness:O", title="staleness (versions)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title="share of updates", scale=alt.Scale(domain=[0, 0.6])),
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


DRAWN: dict[str, Draw] = {
    "critical_periods": critical_periods,
    "stop_on_drift": stop_on_drift,
    "skip_and_estimate": skip_and_estimate,
    "pacing": pacing,
    "client_curriculum": client_curriculum,
    "client_centric": client_centric,
}


if __name__ == "__main__":
    main(sys.argv[1:])
