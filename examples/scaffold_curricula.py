"""SCAFFOLD with both curricula: easy samples first at every client, and easy clients first.

python examples/scaffold_curricula.py
"""

from __future__ import annotations

import polyrhythm as pr


def main(rounds: int = 20) -> None:
    """SCAFFOLD, then with a curriculum over samples, over clients, and over both."""
    federation = pr.federate(pr.data.digits(), pr.data.DirichletPerClient(beta=0.2), clients=20, seed=0)
    scaffold = pr.scaffold(cohort=5, epochs=5)
    samples, clients = pr.parts.curriculum(score="global", least=8), pr.parts.client_curriculum()
    recipes = {
        "SCAFFOLD": scaffold,
        "+ samples": scaffold | samples,
        "+ clients": scaffold | clients,
        "+ both": scaffold | samples | clients,
    }
    for name, recipe in recipes.items():
        run = pr.run(pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=rounds, name=name))
        trained = run.visits[run.visits["status"] == "trained"]
        early = trained[trained["version"] < rounds / 2]["client"].nunique()
        print(
            f"{name:9}  accuracy {run.summary['final_accuracy']:.3f}, {run.summary['local_steps']:,} local steps, "
            f"{early} clients in the first half"
        )


if __name__ == "__main__":
    main()
