"""CCFL + ALT: clients that cannot afford a visit send their last movement again; those that train stop on drift.

python examples/ccfl_alt.py
"""

from __future__ import annotations

import polyrhythm as pr


def main(rounds: int = 15) -> None:
    """FedAvg, each of the two alone, and both: a quarter of the clients each can afford 1, 1/2, 1/4, 1/8 of visits."""
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=0)
    stop = pr.parts.stop_on_drift(a=0.8, b=0.15, batch="min")
    recipes = {
        "FedAvg": pr.fedavg(cohort=10, epochs=5),
        "ALT": pr.fedavg(cohort=10, epochs=5) | stop,
        "CCFL": pr.ccfl(cohort=10, epochs=5),
        "CCFL + ALT": pr.ccfl(cohort=10, epochs=5) | stop,
    }
    for name, recipe in recipes.items():
        run = pr.run(pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=rounds, name=name))
        results = run.summary
        print(f"{name:10}  accuracy {results['final_accuracy']:.3f}, {results['local_steps']:,} local steps")


if __name__ == "__main__":
    main()
