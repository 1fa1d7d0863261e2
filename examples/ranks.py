"""A rank for every device: digits that are mirrored, learned by low-rank adapters on a model of upright ones.

python examples/ranks.py
"""

from __future__ import annotations

import torch
from torch import nn

import polyrhythm as pr

LARGEST, RANKS = 16, (16, 8, 4, 1)


def mirrored(samples: pr.data.ArraySamples) -> tuple[torch.Tensor, torch.Tensor]:
    """The same digits, left for right."""
    inputs, targets = samples.batch(torch.arange(len(samples)))
    return inputs.flip(-1), targets


def main(rounds: int = 60) -> None:
    """Ranks by memory, under three averages, against one rank for all and against leaving weak devices out."""
    digits = pr.data.digits()
    upright = pr.federate(digits, pr.data.Iid(), clients=2, seed=0)
    known = pr.run(pr.Experiment(federation=upright, model="mlp", recipe=pr.centralised(), rounds=min(rounds, 10)))
    weights = known.weights()

    def base(shape: tuple[int, ...], outputs: int) -> nn.Module:
        made = pr.models.build("mlp", shape, outputs)
        made.load_state_dict(weights)
        return made

    turned = pr.data.arrays(*mirrored(digits.train), test=mirrored(digits.test), task="classification")
    federation = pr.federate(turned, pr.data.Dirichlet(alpha=0.3), clients=40, seed=0)

    def model(rank: int) -> pr.models.Builder:
        return pr.models.with_lora(base, rank=rank, alpha=2 * rank)

    # What a visit needs beside the frozen weights: four vectors of what learns, 16 bytes a number.
    shape = (1, 8, 8)
    frozen = 4 * sum(p.numel() for p in model(1)(shape, 10).parameters() if not p.requires_grad)
    needs = [frozen + 16 * sum(p.numel() for p in model(r)(shape, 10).parameters() if p.requires_grad) for r in RANKS]
    fleet = pr.Fleet(
        devices=pr.fleet.Tiers(slowdown=(1, 2, 4, 8), memory=tuple(map(float, needs)), seconds_per_sample=0.01),
        links=pr.fleet.FixedLinks(down=1e6, up=2.5e5),
    )
    common = {"cohort": 10, "epochs": 1.0, "batch": 16, "lr": 0.1}
    rows = {
        "rank 1 for all": (1, pr.fedit(**common)),
        "rank 16, without weak devices": (
            LARGEST,
            pr.fedit(**common) | pr.parts.rank_prefix(rank=LARGEST, by="memory"),
        ),
        "fedit, ranks by memory": (LARGEST, pr.fedit(**common) | pr.parts.rank_prefix(rank=RANKS, by="memory")),
        "hetlora": (LARGEST, pr.hetlora(rank=RANKS, by="memory", **common)),
        "flexlora": (LARGEST, pr.flexlora(rank=RANKS, by="memory", **common)),
    }
    for name, (rank, recipe) in rows.items():
        run = pr.run(pr.Experiment(federation=federation, model=model(rank), recipe=recipe, fleet=fleet, rounds=rounds))
        costs, heard = run.summary, run.visits["client"].nunique()
        traffic = (costs["bytes_up"] + costs["bytes_down"]) / 1e6
        accuracy, seconds = costs["final_accuracy"], costs["virtual_seconds"]
        print(f"{name:30} {accuracy:.3f}  {traffic:7.1f} MB  {seconds:6.0f} s  {heard} clients heard")


if __name__ == "__main__":
    main()
