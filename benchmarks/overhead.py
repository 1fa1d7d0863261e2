"""What a round costs beside its gradients, in copies of a vector: 1,000 clients a round, a million parameters.

The engine is a stub: a visit takes one step with a gradient that lies there ready, and everything else is a real run
(client core, server, clock, books). Beside it, as many vectors are copied from one place in memory to another, which is
one read and one write each. A round of both in turn; processor time, since both are one thread.

    python benchmarks/overhead.py --cohort 1000 --parameters 1000000

One JSON line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from typing import Any, final

import numpy as np
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.threads import keep_freed_memory
from polyrhythm.core.local_step import Computed, LocalSteps
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.models.tasks import task
from polyrhythm.runs.environment import peak_memory
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, VersionRecord


@final
class Wide(nn.Module):
    """So many parameters, of which one is used."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(parameters))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight[:1]


@final
class Stub(LocalSteps):
    """An engine whose gradient lies ready; all else is the torch engine's."""

    descends = True

    def __init__(self, module: nn.Module) -> None:
        self._real = TorchEngine(module, task("regression"))
        self._real.gradient.fill_(1e-3)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def weights(self) -> torch.Tensor:
        return self._real.weights

    @property
    def gradient(self) -> torch.Tensor:
        return self._real.gradient

    def compute(self, inputs: torch.Tensor, targets: torch.Tensor, positions: np.ndarray, *rest: Any) -> Computed:
        return Computed(torch.zeros(()), ())

    def descend(self, inputs: torch.Tensor, targets: torch.Tensor, positions: np.ndarray, *rest: Any) -> Computed:
        self._real.weights.add_(self._real.gradient, alpha=-rest[-1])
        return Computed(torch.zeros(()), ())

    def stepped(self) -> None:
        self._real.stepped()


@final
class Pacer(Observer):
    """Copies as many vectors after each round as the round had visits, and notes how long both took."""

    def __init__(self, cohort: int, parameters: int) -> None:
        # So many that none is still in a cache when its turn comes again.
        places = max(2, min(cohort, 2**26 // parameters))
        self._from, self._to = torch.ones(places, parameters), torch.ones(places, parameters)
        self._cohort, self._begun = cohort, 0.0
        self.rounds: list[float] = []
        self.copies: list[float] = []

    def version(self, record: VersionRecord, model: ModelView) -> None:
        now = time.process_time()
        if record.version > 1:  # the first round makes memory
            self.rounds.append(now - self._begun)
            for i in range(self._cohort):
                self._to[i % len(self._to)].copy_(self._from[i % len(self._from)])
            self.copies.append(time.process_time() - now)
        self._begun = time.process_time()


def measure(cohort: int, parameters: int, rounds: int) -> dict[str, Any]:
    """Seconds of a round and of its copies."""
    samples = ArraySamples(torch.zeros(2 * cohort, 1), torch.zeros(2 * cohort, 1))
    collection = Collection(name="nothing", task="regression", classes=(), train=samples, test=samples)
    module = Wide(parameters)
    experiment = pr.Experiment(
        federation=pr.federate(collection, pr.data.Iid(), 2 * cohort, 0),
        model=module,
        recipe=pr.fedavg(cohort=cohort, epochs=1, batch=1),
        rounds=rounds + 2,
        evaluation=pr.Evaluation(every=rounds + 3),
    )
    stub: Any = Stub(module)
    prepared = prepare(experiment, pr.Execution(driver="inline", engine="torch"))
    prepared = dataclasses.replace(prepared, chosen=dataclasses.replace(prepared.chosen, engine=stub))
    keep_freed_memory()
    pacer = Pacer(cohort, parameters)
    carry_out(prepared, [pacer])
    round_seconds, copy_seconds = statistics.median(pacer.rounds), statistics.median(pacer.copies)
    return {
        "cohort": cohort,
        "parameters": parameters,
        "seconds_a_round": round(round_seconds, 4),
        "copies_seconds": round(copy_seconds, 4),
        "copied_gb_per_s": round(8e-9 * cohort * parameters / copy_seconds, 1),
        "ratio": round(statistics.median(a / b for a, b in zip(pacer.rounds, pacer.copies, strict=True)), 2),
        "peak_memory_mb": round(peak_memory() / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", type=int, default=1_000)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(given.cohort, given.parameters, given.rounds)))


if __name__ == "__main__":
    main()
