"""How much does a client do?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from polyrhythm.settings import Count, Positive
from polyrhythm.slots.mechanism import Mechanism, Visit


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a visit is going to do.

    Args:
        steps: optimiser steps.
        continues: whether the passes over the data go on where the last visit stopped, instead of starting afresh.
    """

    steps: int
    continues: bool = False


@dataclass(frozen=True, kw_only=True)
class Work(Mechanism):
    """Base: what a visit does, decided before it starts."""

    def plan(self, visit: Visit) -> Plan:
        """The plan of one training visit."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Epochs(Work):
    """Passes over the client's samples, each in a fresh order.

    An epoch has ceil(n_i / batch) steps, floor with `drop_last`. A fraction of an epoch is that fraction of its steps,
    rounded half up; a visit takes at least one step. No state.

    Args:
        epochs: passes per visit, > 0; 0.5 is half a pass.
    """

    epochs: Positive = 1.0

    def plan(self, visit: Visit) -> Plan:
        return Plan(steps=max(1, math.floor(self.epochs * visit.epoch_steps + 0.5)))


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

    def plan(self, visit: Visit) -> Plan:
        return Plan(steps=self.steps, continues=True)
