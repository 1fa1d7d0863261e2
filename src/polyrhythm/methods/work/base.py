"""How much does a client do, or what is sent instead?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, final

from torch import Tensor

from polyrhythm.base.adapters import Factor
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State, SubstituteKind
from polyrhythm.base.settings import Count, Positive
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Mechanism, Modifier, Setup, Visit
from polyrhythm.methods.privacy.effects import INSIDE


@final
@dataclass(frozen=True, kw_only=True)
class Substitute:
    """What a client sends instead of training.

    Args:
        kind: "movement", "model" or "silence".
        update: the movement, [P]; None where the server keeps it, and for a model, which the client core subtracts.
        steps, travel, pull, rate: of the visit that it stems from.
        age: versions since then.
        packed: bytes of the update on the wire, as in `Report`; None for those of any update.
    """

    kind: SubstituteKind
    update: Tensor | None = None
    steps: int = 0
    travel: float = 0.0
    pull: float = 0.0
    rate: float = 0.0
    age: int = 0
    packed: int | None = None


class Stop(Protocol):
    """Ends a visit early: looks at every batch before its step; the running epoch always finishes."""

    @property
    def layer(self) -> str:
        """The representation that is compared; one of those that the policy `watches`."""

    def similarity(self, current: Tensor, received: Tensor) -> Tensor:
        """How alike the representations [B, F] of a batch's samples are, [B]."""

    def reached(self, similarities: Tensor) -> Tensor:
        """Whether batches with these similarities [..., B] say stop, bool [...]."""

    @property
    def threshold(self) -> float:
        """For the record."""


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a visit is going to do.

    Args:
        steps: optimiser steps at most.
        continues: whether the passes over the data go on where the last visit stopped, instead of starting afresh.
        stop: ends the visit after the epoch in which a batch says so; None to do all steps.
        substitute: what is sent instead of training; None to train.
        within: seconds from the invitation to the report, for which steps are left out; None for all the time it takes.
        apart: whether these steps train the shared part alone, and the personal one is held; it is trained before.
        first: steps before these, in which the personal part alone is trained.
    """

    steps: int
    continues: bool = False
    stop: Stop | None = None
    substitute: Substitute | None = None
    within: float | None = None
    apart: bool = False
    first: int = 0

    @property
    def in_all(self) -> int:
        """Steps of the visit."""
        return self.first + self.steps


@dataclass(frozen=True, kw_only=True)
class OfWork(Mechanism):
    """What a policy says of the plans that it makes, or changes."""

    @property
    def may_stop(self) -> bool:
        """Whether its plans may `stop` early, so that nobody can say before a visit how long it takes."""
        return bool(self.watches)

    @property
    def guesses(self) -> bool:
        return self.may_stop

    @property
    def substitutes(self) -> frozenset[SubstituteKind]:
        """The kinds of `Substitute` that its plans may have: a real federation's server takes no others."""
        return frozenset()

    @property
    def freezes(self) -> Factor | None:
        """The factor of adapters that nobody ever trains or sends."""
        return None

    def rests(self, version: int) -> Factor | None:
        """The factor of adapters that visits to a version leave as it is, and do not send back."""
        return None

    def at_server(self, setup: Setup, client: int) -> bool:
        """Whether the server keeps what this client sends again, so that no vector goes with it."""
        return False


@dataclass(frozen=True, kw_only=True)
class Work(OfWork):
    """Base: what a visit does, decided before it starts."""

    def plan(self, setup: Setup, visit: Visit, state: State, brief: State) -> Plan:
        """The plan of one training visit."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class WorkModifier(OfWork, Modifier):
    """Base of what changes a plan. Each changes another part of it, so their order does not matter."""

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        """The plan of one training visit, from what others have planned."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Epochs(Work):
    """Passes over the client's samples, each in a fresh order.

    An epoch has ceil(n_i / batch) steps, floor with `drop_last`. A fraction of an epoch is that fraction of its steps,
    rounded half up; a visit takes at least one step. No state.

    Args:
        epochs: passes per visit, > 0; 0.5 is half a pass.
        rule: "passes"; or "code": floor(n_i / batch) + 1 steps per epoch, as the curriculum paper's program counts
            them, which is one more where the batch divides n_i.
    """

    epochs: Positive = 2.0
    rule: Literal["passes", "code"] = "passes"

    privacy = INSIDE

    def plan(self, setup: Setup, visit: Visit, state: State, brief: State) -> Plan:
        per_epoch = visit.epoch_steps if self.rule == "passes" else visit.num_samples // visit.batch + 1
        return Plan(steps=max(1, math.floor(self.epochs * per_epoch + 0.5)))


@final
@dataclass(frozen=True, kw_only=True)
class Steps(Work):
    """A fixed number of steps, from passes that go on where the last visit stopped.

    Unequal clients do equal work. Client state: the number of the pass and the place in it.

    Args:
        steps: optimiser steps per visit.

    Reference: the authors' code of "CC-FedAvg", IEEE Internet of Things Journal (CCFL): a persistent shuffled iterator.
    """

    steps: Count = 1

    privacy = INSIDE

    def plan(self, setup: Setup, visit: Visit, state: State, brief: State) -> Plan:
        return Plan(steps=self.steps, continues=True)


@final
@dataclass(frozen=True, kw_only=True)
class RandomEpochs(Work):
    """A number of epochs drawn anew for every client and visit, uniform on epochs - spread ... epochs + spread.

    spread = 0 is exactly `Epochs`. No state.

    Args:
        epochs: the middle.
        spread: how far it varies, less than `epochs`.

    Reference: "Client-Centric Federated Adaptive Optimization", 2025, section 5: {1, ..., 5}.
    """

    epochs: Count = 3
    spread: int = 2

    privacy = INSIDE

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.spread < self.epochs:
            raise UserError(
                f"random_epochs: epochs={self.epochs}, spread={self.spread}",
                expected="a spread of 0 or more, and less than epochs",
                why="every visit makes at least one epoch",
                fix=f"spread={max(self.epochs - 1, 0)} or less",
            )

    def plan(self, setup: Setup, visit: Visit, state: State, brief: State) -> Plan:
        drawn = stream(visit.seed, "work", "epochs", visit.client, visit.visit)
        epochs = int(drawn.integers(self.epochs - self.spread, self.epochs + self.spread, endpoint=True))
        return Epochs(epochs=epochs).plan(setup, visit, state, brief)
