"""Draws the gallery of docs/figures.md, every figure in it from real runs on the digits.

python docs/make_figures.py                  # all of them
python docs/make_figures.py accuracy labels  # some of them
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace
from polyrhythm.methods.work.budgets import SlowShare

PICTURES = Path(__file__).with_name("pictures") / "figures"
ROUNDS = 40
FLEET = pr.Fleet(devices=pr.fleet.Tiers()) | pr.fleet.FixedLinks(down=1e6, up=4e5, latency=0.02)
LOOKS = pr.Evaluation(groups=True, measure=("update_similarity", "estimation_error", "sample_losses"))

EQUALS = pr.fedavg(cohort=5) | pr.parts.equal()
HIDDEN = EQUALS | pr.parts.dp(noise=2.0, clip=0.5, delta=0.01)
NOISES = {"bare": 0.0, "little noise": 0.35, "some noise": 0.7, "much noise": 1.4}

RECIPES: Mapping[str, pr.Recipe] = {
    "fedavg": pr.fedavg(cohort=5),
    "fedcl": pr.fedavg(cohort=5) | CriticalPeriods(watch=(FisherTrace(),)),
    "ccfl": pr.ccfl(cohort=10),
    "alt": pr.fedavg(cohort=5, epochs=6) | pr.parts.stop_on_drift(batch="min", representation="features"),
    "curriculum": pr.curriculum_fl(cohort=5),
    "fedbuff": pr.fedbuff(concurrency=8, buffer=4),
    "tested": pr.fedavg(cohort=5),
    "proximal": pr.fedprox(cohort=5, mu=1.0),
    "seldom": pr.fedavg(cohort=5),
    "rescaled": pr.fedau(cohort=5),
    "coins": HIDDEN | pr.parts.poisson(rate=0.25),
    "cohorts": HIDDEN,
    **{
        name: EQUALS | pr.parts.poisson(rate=0.25) | pr.parts.dp(noise=noise, clip=0.5, delta=0.01)
        for name, noise in NOISES.items()
    },
    "fine_tuned": pr.fedavg_ft(cohort=5),
    "fedper": pr.fedper(cohort=5),
    "ditto": pr.ditto(cohort=5),
}
"""The runs of the gallery: three seeds of each."""
OWN_MODELS = ("fine_tuned", "fedper", "ditto")
OWN_TESTS = ("tested", "proximal", *OWN_MODELS)
"""Those in which every client has a test of its own, and a battery."""
SELDOM = ("seldom", "rescaled")
"""Those in which every client has a test of its own, and is there for a share of the time that its data decide."""
COMING = FLEET | pr.fleet.ByLabels(lowest=0.1, cycle=20.0)
BATTERY = pr.fleet.Energy(battery=3.0, charging=0.05)

SHOWS: Mapping[str, Sequence[str]] = {
    "accuracy": ("fedavg", "fedcl", "ccfl", "fedbuff"),
    "loss": ("fedavg", "fedcl"),
    "costs": ("fedavg", "fedcl", "fedbuff"),
    "to_accuracy": ("fedavg", "fedcl", "fedbuff"),
    "pareto": ("fedavg", "fedcl", "ccfl", "alt", "fedbuff"),
    "differences": ("fedavg", "fedcl", "ccfl", "alt", "fedbuff"),
    "training_loss": ("fedavg", "fedcl"),
    "groups": ("fedavg",),
    "client_results": ("tested", "proximal"),
    "own_models": OWN_MODELS,
    "fairness": ("tested", "proximal"),
    **dict.fromkeys(("client_gains", "worst_tenth"), OWN_MODELS),
    **dict.fromkeys(("client_map", "device_gap"), ("tested", "proximal")),
    "availability": SELDOM,
    "classes": ("tested", "proximal"),
    **dict.fromkeys(("class_map", "confusion"), ("tested",)),
    "cohort": ("fedavg", "fedcl"),
    "critical_periods": ("fedcl",),
    "participation": ("ccfl",),
    "visits": ("fedavg", "fedbuff"),
    "heard": SELDOM,
    "lorenz": ("fedavg", "fedbuff"),
    **dict.fromkeys(("samples_behind", "samples_heard"), SELDOM),
    "epochs": ("fedavg", "alt"),
    "drift": ("alt",),
    "timeline": ("fedavg", "fedbuff"),
    "staleness": ("fedavg", "fedbuff"),
    "staleness_over_time": ("fedbuff",),
    "buffer": ("fedbuff",),
    "energy": ("fedavg", "fedbuff"),
    "battery": ("tested",),
    "labels": ("fedavg",),
    "pacing": ("curriculum",),
    "sample_losses": ("curriculum",),
    "samples": ("curriculum",),
    "budgets": (),
    "update_similarity": ("fedavg", "alt"),
    "estimation_error": ("ccfl",),
    "rate": ("fedavg",),
    "epsilon": ("coins", "cohorts"),
    "results_by_epsilon": tuple(NOISES),
}
"""What each figure of the gallery is drawn from; `budgets` has runs of its own."""
ONE_RUN = (
    *("client_results", "own_models", "client_map", "class_map", "confusion", "critical_periods", "participation"),
    *("visits", "heard", "drift", "timeline", "buffer", "energy", "battery", "labels", "sample_losses", "samples"),
)


def main(names: Sequence[str] = (), *, folder: Path = PICTURES, rounds: int = ROUNDS, seeds: int = 3) -> None:
    """Draws the named figures, or all; fewer rounds and seeds are for a test."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = names or list(SHOWS)
    with tempfile.TemporaryDirectory() as out:
        used = {of for name in wanted for of in SHOWS[name]}
        made = {
            name: [run(recipe, name, Path(out), rounds, seed) for seed in range(seeds)]
            for name, recipe in RECIPES.items()
            if name in used
        }
        for name in wanted:
            few = 1 if name in ONE_RUN else seeds
            runs = [one for of in SHOWS[name] for one in made[of][:few]] or grid(Path(out), rounds)
            figures.save(figures.draw(name, runs, width=460), folder / f"{name}.svg")
            print(folder / f"{name}.svg")


def run(recipe: pr.Recipe, name: str, out: Path, rounds: int, seed: int) -> pr.Run:
    """One run on the digits."""
    own, seldom = name in OWN_TESTS, name in SELDOM
    tests = 0.2 if own or seldom else 0.0
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=seed, local_test=tests)
    experiment = pr.Experiment(
        federation=federation,
        model="mlp",
        recipe=recipe,
        rounds=rounds,
        seed=seed,
        fleet=COMING if seldom else FLEET | BATTERY if own else FLEET,
        evaluation=LOOKS,
        name=name,
    )
    return pr.run(experiment, out=out)


def grid(out: Path, rounds: int) -> list[pr.Run]:
    """CCFL over shares of slow clients and their periods."""
    return [
        run(pr.ccfl(cohort=10, budgets=SlowShare(share_slow=share, period=period)), "grid", out, rounds, 0)
        for share in (0.0, 0.25, 0.5, 1.0)
        for period in (1, 2, 4, 8)
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
