"""A slow client is heard rarely: two clients want x = +1 and x = -1, the best for both is x = 0.

python examples/slow_client.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

import polyrhythm as pr


@final
@dataclass(frozen=True, kw_only=True)
class OneIsSlow(pr.fleet.Devices):
    """Client 1, which wants x = -1, is ten times slower than client 0."""

    def device(self, place: pr.fleet.Place, client: int) -> pr.fleet.Device:
        return pr.fleet.Device(seconds_per_sample=10.0 if client == 1 else 1.0)


def main(rounds: int = 1000) -> None:
    """In rounds, as they come, and as they come with a memory: where the only weight x goes."""
    wants, ones = torch.tensor([1.0, -1.0] * 10), torch.ones(20, 1)  # the model gives x * 1; losses are squares
    data = pr.data.arrays(ones, wants, test=(ones, wants), columns={"client": wants < 0}, task="regression")
    federation = pr.federate(data, pr.data.ByColumn(column="client"), clients=None, seed=0)
    rounds_of_all = pr.fedavg(epochs=1, lr=0.01) | pr.parts.equal()
    as_they_come = rounds_of_all | pr.parts.rolling(concurrency=2) | pr.parts.buffer(size=1)
    recipes = {
        "rounds": rounds_of_all,
        "as they come": as_they_come,
        "remembered": as_they_come | pr.parts.last_updates(),
    }
    for name, recipe in recipes.items():
        model, fleet = torch.nn.Linear(1, 1, bias=False), pr.Fleet(devices=OneIsSlow())
        run = pr.run(pr.Experiment(federation=federation, model=model, recipe=recipe, fleet=fleet, rounds=rounds))
        x, visits = run.weights()["weight"].item(), run.visits.client.value_counts()
        print(f"{name}: {visits.get(0, 0)} visits and {visits.get(1, 0)}, x = {x:+.3f}, mean loss {1 + x**2:.3f}")


if __name__ == "__main__":
    main()
