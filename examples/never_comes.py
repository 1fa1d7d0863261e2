"""A client that never comes biases every algorithm: two clients want x = +1 and x = -1, the best for both is x = 0.

python examples/never_comes.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

import polyrhythm as pr
from polyrhythm.extend import Invitation, InvitationContext, Invitations, Participation, Setup, State


@final
@dataclass(frozen=True, kw_only=True)
class Only(Participation):
    """Invites the same clients in every version: the first ones."""

    first: int

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        return state, tuple(Invitation(client=c) for c in context.roster.all()[: self.first])

    size = property(lambda self: self.first)


def main(rounds: int = 100) -> None:
    """Both come, or one: where the only weight x goes, and the mean loss over both clients there."""
    wants, ones = torch.tensor([1.0, -1.0] * 10), torch.ones(20, 1)  # the model gives x * 1; losses are squares
    data = pr.data.arrays(ones, wants, test=(ones, wants), columns={"client": wants < 0}, task="regression")
    federation = pr.federate(data, pr.data.ByColumn(column="client"), clients=None, seed=0)
    for first in (2, 1):
        recipe, model = pr.fedavg(epochs=1) | Only(first=first), torch.nn.Linear(1, 1, bias=False)
        run = pr.run(pr.Experiment(federation=federation, model=model, recipe=recipe, rounds=rounds))
        x = run.weights()["weight"].item()
        print(f"{first} of 2 clients come: x = {x:+.3f}, mean loss {1 + x**2:.3f}")


if __name__ == "__main__":
    main()
