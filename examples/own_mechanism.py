"""Your own mechanism: a correction with a memory at the server, used like any other part.

python examples/own_mechanism.py
cd examples && PYTHONPATH=. polyrhythm run --method "fedavg(epochs=5) | own_mechanism:SharedDirection(strength=0.5)"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import polyrhythm as pr
from polyrhythm.extend import Correction, Need, NonNegative, Push, Release, Setup, State, weighted_sum


@final
@dataclass(frozen=True, kw_only=True)
class SharedDirection(Correction):
    """Adds the federation's last mean gradient to every local gradient: momentum that all clients share.

    Local gradient g + strength * G, with G = -sum_i share_i * update_i / travel_i of the version before: the mean
    gradient along the clients' paths. strength = 0 is exactly no correction, and so is the first version, where G = 0.
    One vector of server state; one extra vector down, none up.

    Args:
        strength: of the shared gradient beside the client's own, >= 0.

    Reference: in the spirit of Xu et al., "FedCM: Federated Learning with Client-level Momentum", 2021.
    """

    strength: NonNegative = 0.5

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"})  # refuses local Adam, whose path has no such sum

    def server_start(self, setup: Setup) -> State:
        return {"gradient": setup.zeros()}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return {"gradient": state["gradient"]}

    def push(self, setup: Setup, state: State, brief: State) -> Push:
        return Push(shift=self.strength * brief["gradient"])

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        shares = zip(release.shares, release.reports, strict=True)
        # A client that had nothing to send instead of training has not travelled.
        rates = [-share / report.travel if report.travel else 0.0 for share, report in shares]
        return {"gradient": weighted_sum(release.updates(), rates)}


def main(rounds: int = 30) -> None:
    """FedAvg, the same with the mechanism off, and on."""
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.1), clients=20, seed=0)
    digests = []
    for strength in (None, 0.0, 0.5):
        recipe = pr.fedavg(cohort=5, epochs=5)
        if strength is not None:
            recipe = recipe | SharedDirection(strength=strength)
        run = pr.run(pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=rounds))
        digests.append(run.summary["digest"])
        print(f"strength {strength}: last 20 rounds {run.summary['last20_mean']:.3f}, digest {digests[-1][:8]}")
    print(f"off is exactly FedAvg: {digests[0] == digests[1]}")


if __name__ == "__main__":
    main()
