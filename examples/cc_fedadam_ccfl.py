"""CC-FedAdam + CCFL's budgets + data curriculum: three papers in one line.

python examples/cc_fedadam_ccfl.py
"""

from __future__ import annotations

import polyrhythm as pr


def main(rounds: int = 30) -> None:
    """A buffered, stale, adaptive server; clients that skip by budget; easy samples first."""
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=0)
    recipe = pr.cc_fedadam(cohort=10) | pr.parts.skip_and_estimate() | pr.parts.curriculum(least=8)
    run = pr.run(pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=rounds))
    visits = run.visits
    age = visits.loc[visits["status"] == "skipped", "measures_age"].mean()
    print(recipe.title)
    print(f"accuracy   {run.summary['final_accuracy']:.3f} after {rounds} versions")
    print(f"trained    {(visits['status'] == 'trained').sum()} visits")
    print(f"estimated  {(visits['status'] == 'skipped').sum()} visits, by movements {age:.1f} versions old on average")


if __name__ == "__main__":
    main()
