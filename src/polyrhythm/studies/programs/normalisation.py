"""Two clients, one of which takes two local steps and the other five: where the server's model goes, and why to divide.

Client i's loss is |w - o_i|^2 / 2 in the plane, so the mean loss of both is least halfway between o_1 and o_2. At a
local rate eta, K steps move a client from w to w + (1 - (1 - eta)^K) (o_i - w). Averaging rests where these movements
cancel, and so does averaging them divided by K: both places follow from the formula, and are compared with where runs
of this library end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import torch

import polyrhythm as pr
from polyrhythm.figures.marks import chart, hues
from polyrhythm.figures.theme import HUES, config
from polyrhythm.methods.recipe import Recipe
from polyrhythm.studies.definition import Scale
from polyrhythm.studies.page.findings import Findings, Outcome, Picture, Table, holding
from polyrhythm.studies.page.pictures import saved

OPTIMA = ((0.0, 0.0), (4.0, 0.0))  # o_1 and o_2, which are 4 apart
STEPS = (2, 5)
START = (1.0, 3.0)
RATES = (0.2, 0.05, 0.01)
DRAWN = 0.2  # the rate of the picture, at which its steps can be seen
BATCH = 2
ENOUGH = 1e-3  # of the distance between the optima: how near a run comes to where it rests

Point = tuple[float, float]


@final
@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to average: what a client's movement counts, by its steps, and the server's rate.

    Args:
        divides: whether movements are divided by the steps behind them.
        rate: of the server.
    """

    divides: bool
    rate: float

    def recipe(self, lr: float) -> Recipe:
        """In this library."""
        plain = pr.fedavg(cohort=2, epochs=1, batch=BATCH, lr=lr) | pr.parts.equal() | pr.parts.server_sgd(lr=self.rate)
        return plain | pr.parts.per_step() if self.divides else plain

    def counts(self, lr: float) -> tuple[float, float]:
        """How far each client draws the model towards its own optimum."""
        moved = [1 - (1 - lr) ** steps for steps in STEPS]
        one, other = (m / k if self.divides else m for m, k in zip(moved, STEPS, strict=True))
        return self.rate * one / 2, self.rate * other / 2

    def rests(self, lr: float) -> float:
        """Where it rests: the share of the way from o_1 to o_2. Half of it is the optimum of both."""
        one, other = self.counts(lr)
        return other / (one + other)

    def path(self, lr: float, versions: int) -> list[Point]:
        """Of the server's model, from START."""
        one, other = self.counts(lr)
        places = [START]
        for _ in range(versions):
            x, y = places[-1]
            a, b = OPTIMA
            places.append((x + one * (a[0] - x) + other * (b[0] - x), y + one * (a[1] - y) + other * (b[1] - y)))
        return places


WAYS: Mapping[str, Way] = {
    "movements as they are": Way(divides=False, rate=1.0),
    "divided by their steps": Way(divides=True, rate=sum(STEPS) / 2),
}
_COLOURS = {**dict(zip(WAYS, ("vermilion", "blue"), strict=True)), "local steps": "grey"}


def findings(scale: Scale, folder: Path, runs: Path) -> Findings:
    """Figure 4; at scale smoke at one local rate of three.

    Args:
        scale: how much of it.
        folder: of the page.
        runs: where runs are kept.
    """
    rates = RATES[:1] if scale == "smoke" else RATES
    found = {(name, lr): _ends(way, lr, runs) for name, way in WAYS.items() for lr in rates}
    claims = _claims(found)
    return Findings(
        verdict=holding(claims),
        tables=(_table(found),),
        claims=claims,
        pictures=(_picture(folder),),
        notes=(
            "The losses are ours: the figure's are not in the text. Where a model rests does not depend on the optima, "
            "nor on the rate of the server.",
            "At a large local rate the division does more than is needed: the last of many steps are smaller than the "
            "first ones, since they are nearer to the client's optimum, and so a mean step of many is a short one.",
        ),
    )


class _End(NamedTuple):
    formula: float
    run: float


def _ends(way: Way, lr: float, folder: Path) -> _End:
    """Where the formula and a run of the library end: the share of the way from o_1 to o_2."""
    wants = [torch.tensor(o).repeat(BATCH * k, 1) for o, k in zip(OPTIMA, STEPS, strict=True)]
    # The model gives w for every sample; a client has as many samples as make its steps in one epoch.
    ones = torch.ones(BATCH * sum(STEPS), 1)
    whose = torch.arange(len(STEPS)).repeat_interleave(torch.tensor([BATCH * k for k in STEPS]))
    data = pr.data.arrays(ones, torch.cat(wants), test=(ones, torch.cat(wants)), columns={"client": whose})
    federation = pr.federate(data, pr.data.ByColumn(column="client"), clients=None, seed=0)
    model = torch.nn.Linear(1, 2, bias=False)
    shrinks = 1 - sum(way.counts(lr))
    versions = next(n for n in range(1, 10_000) if shrinks**n < ENOUGH / 10)
    experiment = pr.Experiment(
        federation=federation,
        model=model,
        recipe=way.recipe(lr),
        rounds=versions,
        evaluation=pr.Evaluation(every=versions),
    )
    end = pr.run(experiment, out=folder, resume="auto").weights()["weight"].flatten().tolist()
    return _End(formula=way.rests(lr), run=(end[0] - OPTIMA[0][0]) / (OPTIMA[1][0] - OPTIMA[0][0]))


def _table(found: Mapping[tuple[str, float], _End]) -> Table:
    rows = [(f"{name}, eta = {lr:g}", f"{end.formula:.4f}", f"{end.run:.4f}") for (name, lr), end in found.items()]
    return Table(
        name="rests",
        caption="Where the model rests: the share of the way from the optimum of the client with two steps to that of "
        "the client with five. The optimum of both is at 0.5.",
        head=("", "formula", "run"),
        rows=tuple(rows),
    )


def _claims(found: Mapping[tuple[str, float], _End]) -> tuple[Outcome, ...]:
    plain, divided = ({lr: end.run for (name, lr), end in found.items() if name == way} for way in WAYS)
    left = {lr: abs(end - 0.5) for lr, end in divided.items()}
    worst = max(abs(end.formula - end.run) for end in found.values())
    return (
        Outcome(
            says="The model is dragged towards the client that takes more steps",
            verdict="holds" if all(end > 0.5 + ENOUGH for end in plain.values()) else "differs",
            evidence=", ".join(f"{end:.3f} at eta = {lr:g}" for lr, end in plain.items()),
        ),
        Outcome(
            says="Dividing by the numbers of steps brings it nearer to the optimum of both",
            verdict="holds" if all(left[lr] < abs(plain[lr] - 0.5) for lr in left) else "differs",
            evidence=", ".join(f"{end:.3f} at eta = {lr:g}" for lr, end in divided.items()),
        ),
        Outcome(
            says="Divided so, it ends at the optimum of both",
            verdict="holds" if all(away <= ENOUGH for away in left.values()) else "differs",
            evidence=", ".join(f"{away:.3f} away from it at eta = {lr:g}" for lr, away in left.items()),
        ),
        Outcome(
            says="Runs of this library end where the formula says",
            verdict="holds" if worst < ENOUGH else "differs",
            evidence=f"at most {worst:.5f} apart",
        ),
    )


def _picture(folder: Path) -> Picture:
    """The plane: local steps of both clients from the first model, and the server's way with and without dividing."""
    import altair as alt

    rows: list[dict[str, Any]] = []
    for number, (optimum, steps) in enumerate(zip(OPTIMA, STEPS, strict=True), start=1):
        for step in range(steps + 1):
            x, y = ((1 - DRAWN) ** step * (s - o) + o for s, o in zip(START, optimum, strict=True))
            rows.append({"x": x, "y": y, "order": step, "of": "local steps", "line": f"client {number}"})
    for name, way in WAYS.items():
        for version, (x, y) in enumerate(way.path(DRAWN, 12)):
            rows.append({"x": x, "y": y, "order": version, "of": name, "line": name})
    marks = chart(rows, 460, 340)
    axes = {"x": alt.X("x:Q", title=None), "y": alt.Y("y:Q", title=None)}
    lines = marks.mark_line(point={"size": 22}).encode(
        **axes, color=hues("of", _COLOURS, "light"), detail="line:N", order="order:O"
    )
    middle = tuple((a + b) / 2 for a, b in zip(*OPTIMA, strict=True))
    places = {"start": START, "optimum of client 1": OPTIMA[0], "optimum of client 2": OPTIMA[1], "of both": middle}
    named = [{"x": place[0], "y": place[1], "name": name} for name, place in places.items()]
    ink = HUES["ink"]["light"]
    points = chart(named, 460, 340).mark_point(shape="cross", size=90, color=ink, filled=True).encode(**axes)
    words = chart(named, 460, 340).mark_text(dy=-12, align="center", color=ink).encode(**axes, text="name:N")
    title = "Two and five local steps"
    drawn = alt.layer(lines, points, words).properties(title=title).configure(**config("light"))
    about = (
        f"Local rate {DRAWN:g}: in grey the clients' steps in the first round, then the server's model over 12 rounds."
    )
    return saved(drawn, folder, "normalisation", title=title, about=about)
