"""What each engine makes of a round: a cohort's visits, with nothing of the server, beside the torch engine.

All engines go through the client core, with one thread, and take turns, so that whoever else uses the machine disturbs
all of them; of several repeats the quickest counts, in processor time (on a GPU in seconds of the clock). Made-up data
in the shapes of `polyrhythm bench`. One line of JSON a work: seconds, their ratios to torch's (below 1 is quicker), how
long each engine took to be there, and which one the rule chooses.

    python benchmarks/engines.py [WORK ...] [--engines native stacked compiled] [--repeats 7] [--device cpu]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import Any

from polyrhythm.bench.bare import WORKS
from polyrhythm.bench.works import experiment
from polyrhythm.core.memory import ClientState
from polyrhythm.drivers.executors import Clients, Errand
from polyrhythm.engines.devices import device_of
from polyrhythm.threads import one_thread
from polyrhythm.wires import Assignment


class Way:
    """An engine, and a cohort's visits for it.

    Args:
        work: a name.
        engine: what to ask for.
        device: what to ask for.
    """

    def __init__(self, work: str, engine: str, device: str) -> None:
        given: dict[str, Any] = {"engine": engine, "device": device if engine == "stacked" else "auto"}
        of = dataclasses.replace(experiment(work, 1), driver="inline", **given)
        begun = time.perf_counter()
        self.chosen = of.chosen
        self.start = time.perf_counter() - begun
        weights = self.chosen.engine.initial().weights
        clients = Clients(recipe=of.recipe, setup=of.setup, engine=self.chosen.engine, data=of.data_of)
        self._executor = of.crew.executor(clients)
        self._errands = [
            Errand(
                assignment=Assignment(
                    **{"dispatch": client, "client": client, "visit": 0, "version": 0, "kind": "train", "horizon": 1},
                    **{"recipe": of.recipe.digest, "weights": weights, "buffers": (), "briefs": {}, "accepted": -1},
                ),
                state=ClientState(),
            )
            for client in range(WORKS[work].cohort)
        ]
        self._clock = time.process_time if device_of(device).type == "cpu" else time.perf_counter
        self.best = float("inf")

    def go(self) -> None:
        """All visits once."""
        begun = self._clock()
        self._executor.carry_out(self._errands)
        self.best = min(self.best, self._clock() - begun)


def measured(work: str, engines: list[str], repeats: int, device: str) -> dict[str, Any]:
    """One work on some engines."""
    ways = {engine: Way(work, engine, device) for engine in ("torch", *engines)}
    refused = {e: way.chosen.why_not for e, way in ways.items() if way.chosen.kind != e}
    taken = {e: way for e, way in ways.items() if e not in refused}
    for _ in range(repeats):
        for way in taken.values():
            way.go()
    torch = ways["torch"].best
    return {
        "work": work,
        "seconds": {e: round(way.best, 4) for e, way in taken.items()},
        "ratio": {e: round(way.best / torch, 3) for e, way in taken.items() if e != "torch"},
        "start": {e: round(way.start, 2) for e, way in taken.items()},
        "refused": refused,
        "chosen": Way(work, "auto", device).chosen.name,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", help="by default all")
    parser.add_argument("--engines", nargs="+", default=["native", "stacked", "compiled"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    with one_thread():
        for work in given.works or WORKS:
            print(json.dumps(measured(work, given.engines, given.repeats, given.device)), flush=True)


if __name__ == "__main__":
    main()
