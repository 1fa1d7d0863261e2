"""What methods reach, and at what cost, on a fleet of three tiers with a tenfold range of speeds.

Fashion-MNIST over 100 clients with Dirichlet labels (alpha 0.3); a third of the devices takes 5 ms per sample, a third
15 ms, a third 50 ms; links of 1 MB/s down and 250 kB/s up. Every method has the same local work (2 epochs, batch 32,
rate 0.05) and ends with the first version after so many virtual seconds. Prints the comparison of all seeds as
`polyrhythm compare` does, and draws it.

    python benchmarks/three_tiers.py --seeds 3 --seconds 3000 --out three-tiers -o three-tiers.png
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import polyrhythm as pr
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.budgets import Levels


def methods() -> Mapping[str, tuple[Recipe, int]]:
    """The recipes, and how many versions each makes at the most; schedules need a number to follow."""
    shared = {"cohort": 10, "epochs": 2, "batch": 32, "lr": 0.05}
    return {
        "FedAvg": (pr.fedavg(**shared), 60),
        "FedBuff": (pr.fedbuff(**shared), 800),
        "CC-FedAdam": (
            pr.cc_fedadam(clock="event", server_lr=0.003, **shared) | pr.parts.buffer(size=5),
            800,
        ),
        "CCFL": (pr.ccfl(**shared), 120),
        "ALT": (pr.alt(**shared), 60),
        "UtilitySampling": (pr.oort(**shared), 240),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3000.0, help="virtual")
    parser.add_argument("--goal", type=float, default=0.75)
    parser.add_argument("--out", type=Path, default=Path("three-tiers"))
    parser.add_argument("--only", nargs="*", choices=methods())
    parser.add_argument("-o", "--output", type=Path, help="a picture: .png, .svg or .html")
    given = parser.parse_args()
    collection = pr.data.fashion_mnist()
    fleet = (
        pr.Fleet(devices=pr.fleet.Tiers(slowdown=(1.0, 3.0, 10.0), seconds_per_sample=0.005))
        | pr.fleet.FixedLinks(down=1e6, up=2.5e5)
        | Levels(levels=4, order="random")
    )
    for seed in range(given.seeds):
        federation = pr.federate(collection, pr.data.Dirichlet(alpha=0.3), clients=100, seed=seed)
        for name, (recipe, versions) in methods().items():
            if given.only and name not in given.only:
                continue
            experiment = pr.Experiment(
                federation=federation,
                model="ccfl-mlp",
                recipe=recipe,
                fleet=fleet,
                rounds=versions,
                until=pr.Until(time=given.seconds),
                seed=seed,
                evaluation=pr.Evaluation(every=1 if versions <= 240 else 5),
                name=name,
            )
            run = pr.run(experiment, out=given.out)
            print(f"{name}, seed {seed}: {run.summary['final_accuracy']:.3f}", flush=True)
    found = pr.compare(given.out)
    print(found.table(to=given.goal, at_time=given.seconds).T.to_string())
    if given.output is not None:
        found.plot.costs(save=given.output)


if __name__ == "__main__":
    main()
