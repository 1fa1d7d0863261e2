"""How many events a second the simulator itself can take: a million clients, a cohort of 1,000, and no training.

Every visit gives a ready-made update (a stub gradient), so what is timed is the server, the clock, the fleet, the
roster and the books. Processor time of one core. One JSON line per setting.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.threads import settled_memory
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.fleet import Fleet, FleetState
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.tasks import task
from polyrhythm.runs.environment import peak_memory
from polyrhythm.simulation.simulator import InlineDriver


def _rolling(recipe: Recipe, concurrency: int) -> Recipe:
    return recipe | pr.parts.rolling(concurrency=concurrency) | pr.parts.buffer(size=max(1, concurrency // 10))


SETTINGS = {
    "synchronous": lambda cohort: pr.fedavg(cohort=cohort),
    "over_select": lambda cohort: pr.fedavg(cohort=cohort) | pr.parts.over_select(factor=1.3),
    "rolling": lambda cohort: _rolling(pr.fedavg(), cohort),
    "scaffold": lambda cohort: pr.scaffold(cohort=cohort),
    "power_of_choice": lambda cohort: pr.power_of_choice(cohort=cohort),
    "oort": lambda cohort: pr.oort(cohort=cohort),
    "tifl": lambda cohort: pr.tifl(cohort=cohort),
    "rolling_power_of_choice": lambda cohort: _rolling(pr.power_of_choice(), cohort),
    "rolling_oort": lambda cohort: _rolling(pr.oort(), cohort),
    "rolling_tifl": lambda cohort: _rolling(pr.tifl(), cohort),
}


def measure(name: str, recipe: Recipe, population: int, events: int, parameters: int) -> dict[str, object]:
    """Runs so many events and says how long they took."""
    torch.set_num_threads(1)
    engine = TorchEngine(nn.Linear(parameters - 1, 1), task("regression"))
    layout = engine.layout
    update = torch.full((layout.size,), 1e-3)
    extras = {key: {"change": update} for key, _ in recipe.mechanisms() if key == "control_variates"}
    setup = Setup(size=layout.size, dtype=layout.dtype, population=population, total_rounds=None, seed=0)

    template = Report(
        dispatch=-1,
        client=-1,
        visit=0,
        version=0,
        kind="train",
        recipe=recipe.digest,
        num_samples=20,
        update=update,
        steps=2,
        rate=0.1,
        travel=0.2,
        loss=1.0,
        extras=extras,
    )

    def stub(assignment: Assignment) -> Report:
        client = assignment.client
        return replace_unchecked(
            template,
            dispatch=assignment.dispatch,
            client=client,
            visit=assignment.visit,
            version=assignment.version,
            kind=assignment.kind,
            samples=20 + client % 7,
            measures={"loss": 1.0 + client % 5, "squared_loss": 1.0 + client % 7},
        )

    world = FleetState(Fleet(devices=pr.fleet.Tiers()), population, 0, range(population))
    driver = InlineDriver(recipe, setup, engine, lambda client: None, world, visit=stub)  # type: ignore[arg-type, return-value]
    moments = driver.moments(engine.initial())
    next(moments)
    with settled_memory():
        start = time.process_time()
        for _, moment in zip(range(events), moments, strict=False):
            last = moment
        seconds = time.process_time() - start
    return {
        "setting": name,
        "population": population,
        "parameters": layout.parameters,
        "events": events,
        "versions": last.turn.state.version,
        "events_per_second": round(events / seconds),
        "peak_memory_mb": round(peak_memory() / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=int, default=1_000_000)
    parser.add_argument("--cohort", type=int, default=1_000)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--parameters", type=int, default=16)
    parser.add_argument("--only", choices=SETTINGS)
    given = parser.parse_args()
    for name in [given.only] if given.only else SETTINGS:
        recipe = SETTINGS[name](given.cohort)
        print(json.dumps(measure(name, recipe, given.population, given.events, given.parameters)), flush=True)


if __name__ == "__main__":
    main()
