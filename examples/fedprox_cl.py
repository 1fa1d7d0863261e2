"""FedProx-CL: FedProx that invites more clients while the federation is in a critical learning period.

python examples/fedprox_cl.py
"""

from __future__ import annotations

import polyrhythm as pr


def main(rounds: int = 30) -> None:
    """FedProx with a fixed cohort, and with one that follows the federated gradient norm."""
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.1), clients=40, seed=0)
    fixed = pr.fedprox(mu=0.01, cohort=5)
    for name, recipe in {"FedProx": fixed, "FedProx-CL": fixed | pr.parts.critical_periods(delta=0.01)}.items():
        run = pr.run(pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=rounds, name=name))
        results = run.summary
        print(f"{name:10}  accuracy {results['final_accuracy']:.3f}, {results['client_updates']} client updates")
        print(f"            cohorts {' '.join(map(str, run.history['cohort'][1:]))}")


if __name__ == "__main__":
    main()
