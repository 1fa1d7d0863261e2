"""Parts of a user's own, one for each kind that engines and servers have to be told about; tests name them by path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.extend import (
    Correction,
    Count,
    InvitationContext,
    Invitations,
    Lens,
    NonNegative,
    Order,
    Participation,
    Plan,
    Positive,
    Progress,
    Push,
    Recipe,
    ReleaseContext,
    ReleasePolicy,
    Schedule,
    Setup,
    State,
    Substitute,
    SubstituteKind,
    Visit,
    WorkModifier,
    stream,
    to_train,
)


@final
@dataclass(frozen=True, kw_only=True)
class _Apart:
    """Stops once a batch's representations are further from the received model's than some distance."""

    layer: str
    threshold: float

    def similarity(self, current: Tensor, received: Tensor) -> Tensor:
        return -torch.linalg.vector_norm(current - received, dim=1)

    def reached(self, similarities: Tensor) -> Tensor:
        return similarities.mean(dim=-1) < -self.threshold


@final
@dataclass(frozen=True, kw_only=True)
class StopApart(WorkModifier):
    """Ends a visit after the epoch in which representations have moved by `distance`.

    Args:
        distance: Euclidean, of a batch's representations on average.
        watch: the representation.
        says: whether it says what it watches, as it has to.
    """

    distance: Positive = 0.5
    watch: str = "logits"
    says: bool = True

    @property
    def watches(self) -> tuple[str, ...]:
        return (self.watch,) if self.says else ()

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        return replace(plan, stop=_Apart(layer=self.watch, threshold=self.distance))


@final
@dataclass(frozen=True, kw_only=True)
class Deaf(WorkModifier):
    """Has every third client send nothing at all."""

    @property
    def substitutes(self) -> frozenset[SubstituteKind]:
        return frozenset({"silence"})

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        return plan if visit.client % 3 else replace(plan, substitute=Substitute(kind="silence"))


@final
@dataclass(frozen=True, kw_only=True)
class Lean(Correction):
    """Adds `strength` to every gradient. 0 is exactly no correction."""

    strength: NonNegative = 0.5

    def push(self, setup: Setup, state: State, brief: State) -> Push:
        return Push(shift=torch.full((setup.size,), self.strength, dtype=setup.dtype))


@final
@dataclass(frozen=True, kw_only=True)
class EveryFew(ReleasePolicy):
    """Steps once `count` updates have come."""

    count: Count = 2

    def complete(self, standing: ReleaseContext) -> bool:
        return standing.waiting >= self.count

    @property
    def release_size(self) -> int:
        return self.count

    @property
    def carries_over(self) -> bool:
        return True


@final
@dataclass(frozen=True, kw_only=True)
class InTurn(Participation):
    """Invites clients one after the other, by number; the first or the last ones first."""

    cohort: Count | None = None
    begin: Literal["first", "last"] = "first"

    def server_start(self, setup: Setup) -> State:
        return {"next": 0}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        everybody = context.roster.all()
        order = everybody if self.begin == "first" else everybody[::-1]
        turn = order[state["next"] % len(order) :] + order[: state["next"] % len(order)]
        invited = context.there(turn, context.places(self.size))
        return {"next": state["next"] + len(invited)}, to_train(invited)


@final
@dataclass(frozen=True, kw_only=True)
class Halving(Schedule):
    """Halves the rate in every version."""

    def factor(self, at: int, end: int | None) -> float:
        return 0.5**at


def leaning(strength: NonNegative = 0.5) -> Lean:
    """A part, made by a function."""
    return Lean(strength=strength)


def method(cohort: Count = 3) -> Recipe:
    """A recipe, made by a function."""
    return Recipe(title="mine", participation=InTurn(cohort=cohort)) | Lean()


@final
@dataclass(frozen=True, kw_only=True)
class Balanced(Order):
    """What a sampler by weights does: as many draws as samples, from each class equally often."""

    def rank(self, visit: Visit, lens: Lens) -> np.ndarray:
        return lens.targets()

    def one_pass(
        self, visit: Visit, name: tuple[int | str, ...], ranking: np.ndarray | None, progress: Progress
    ) -> np.ndarray:
        assert ranking is not None
        shares = 1 / np.bincount(ranking)[ranking]
        draws = stream(visit.seed, "balanced", visit.client, *name)
        return draws.choice(len(ranking), size=len(ranking), p=shares / shares.sum())
