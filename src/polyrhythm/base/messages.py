"""What travels between server and clients, and what the server hears: plain, frozen values."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.faults import Fault as Fault
from polyrhythm.base.faults import FaultKind as FaultKind
from polyrhythm.base.frozen import cached, replace_unchecked
from polyrhythm.base.streams import Integers
from polyrhythm.base.vectors import Buffers, Spans

State = Mapping[str, Any]
"""A mechanism's state, brief or extra: tensors, numbers, strings, lists and dicts of them. Never changed in place."""

Kind = Literal["train", "measure", "rehearse"]

SubstituteKind = Literal["", "movement", "model", "silence"]
"""What a client sent instead of training: its last movement, its last local model, or nothing; "" if it trained."""


@final
@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One piece of work for one client.

    Args:
        dispatch: the server's running number of this assignment; orders everything that could otherwise tie.
        client: whose.
        visit: how many training assignments this client had before: names its random draws.
        accepted: the last visit of this client that the server accepted, -1 for none. The client's state of any later
            visit was never accepted and is dropped.
        kind: "train"; "measure": forward passes at the given version; or "rehearse": all that training would do next,
            of which only the length of the update is told. The latter two touch no client state.
        version: the server version that the weights are.
        total_rounds: how many versions the run will have, None if nobody knows (then no part may need it).
        weights: [P].
        buffers: beside the weights.
        briefs: what each mechanism sends down, by key.
        recipe: digest of the recipe; a client with another one must refuse.
        samples: how many of its samples a client measures on, drawn by chance; None for all.
    """

    dispatch: int
    client: int
    visit: int
    accepted: int
    kind: Kind
    version: int
    total_rounds: int | None
    weights: Tensor
    buffers: Buffers
    briefs: Mapping[str, State]
    recipe: str
    samples: int | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Report:
    """A client's answer.

    Args:
        dispatch, client, visit, version, kind, recipe: of the assignment it answers.
        num_samples: n_i, the samples that the client holds.
        update: w_K - w_0, [P]; None from a measuring visit, from a silent one, and where the server keeps the movement.
        buffers: after training, in layout order; empty from a visit that did not train.
        substitute: what was sent instead of training; what follows then describes the visit that it stems from.
        age: versions since that visit; 0 if this one trained.
        steps: optimiser steps truly taken.
        samples: samples trained on, counted as often as they were used.
        forward_samples: samples of extra forward passes, over all frozen models.
        gradient_samples: samples of extra gradients (Fisher trace).
        rate: the local learning rate of the first step.
        travel: how far a constant gradient of one would have moved every weight: eta * a_i in FedNova's letters.
            Covers momentum, proximal pull, weight decay and schedules (K * eta for plain SGD).
        pull: total strength of the pull towards w0 during the visit.
        idle: the parts of the update that no step touched, since the loss never depended on those parameters.
        loss: mean training loss over the samples trained on, None without steps.
        extras: what each mechanism sends up, by key.
        measures: named numbers for the record, and the results of a measuring visit.
        packed: bytes of the update on the wire, if it travels compressed; None if it does not.
        checksum: of everything that is large in it, as it was sent off (`polyrhythm.core.validation.checksum`); None
            where the way is safe.
        duration: seconds from dispatch to arrival; the driver fills it in.
        time: when it was heard, in seconds since the run began; likewise.
    """

    dispatch: int
    client: int
    visit: int
    version: int
    kind: Kind
    recipe: str
    num_samples: int
    update: Tensor | None
    buffers: Buffers = ()
    steps: int = 0
    samples: int = 0
    forward_samples: int = 0
    gradient_samples: int = 0
    substitute: SubstituteKind = ""
    age: int = 0
    rate: float = 0.0
    travel: float = 0.0
    pull: float = 0.0
    idle: Spans = ()
    loss: float | None = None
    extras: Mapping[str, State] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)
    packed: int | None = None
    checksum: int | None = None
    duration: float = 0.0
    time: float = 0.0

    @property
    def fresh(self) -> bool:
        """Whether this visit trained."""
        return self.kind == "train" and not self.substitute

    @property
    def stepped(self) -> bool:
        """Whether local steps were taken in it, of which an update may not have come."""
        return self.fresh or self.kind == "rehearse"

    @cached
    def norm(self) -> float | None:
        """Euclidean length of the update: one read of it, whoever asks first. No finite number if any in it is none.

        None where nobody can know it: there is none, or it is whole numbers under a mask.
        """
        if self.update is None or not self.update.is_floating_point():
            return None
        return float(torch.linalg.vector_norm(self.update))

    def heard(self, *, after: float, at: float) -> Report:
        """The same report with its duration and the time of its arrival."""
        return replace_unchecked(self, duration=after, time=at)


@final
@dataclass(frozen=True, kw_only=True)
class Lost:
    """An assignment that will never be answered, why, when that was known, and as what it counts."""

    dispatch: int
    reason: str
    time: float = 0.0
    fault: FaultKind = "lost"


@final
@dataclass(frozen=True, kw_only=True)
class Arrived:
    """A client that was away is there and asks for work."""

    client: int
    time: float = 0.0


@final
@dataclass(frozen=True, kw_only=True)
class Timer:
    """The wake-up that the server asked for."""

    time: float


Event = Report | Lost | Arrived | Timer
"""What the server hears. `time` is seconds since the run began, on the driver's clock."""


class Roster(Protocol):
    """All that the server sees of who is there now. The driver logs the answers, so that a replay sees the same."""

    @property
    def population(self) -> int:
        """How many clients the federation declares, present or not."""

    @property
    def eligible(self) -> int:
        """How many clients may ever be invited: those that hold data."""

    def draw(self, count: int, generator: Integers, exclude: Container[int]) -> tuple[int, ...]:
        """Up to `count` distinct present clients, drawn uniformly in O(count), none of them in `exclude`.

        A smaller count with an equal generator gives a prefix.
        """

    def draw_by_samples(self, count: int, generator: np.random.Generator, exclude: Container[int]) -> tuple[int, ...]:
        """Up to `count` distinct present clients, none of them in `exclude`, drawn one after the other.

        Each with probability proportional to the samples that it declared when it joined, among those left. O(log N)
        for a client, and O(N) once where most clients are away or excluded. A smaller count with an equal generator
        gives a prefix.
        """

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the named clients that are present, in the order given."""

    def samples(self) -> tuple[int, ...]:
        """The samples that each eligible client declared when it joined, in the order of `all`. O(population)."""

    def all(self) -> tuple[int, ...]:
        """Every eligible client, in order. O(population): only for policies that must see everybody."""

    def unmask(self, version: int, clients: tuple[int, ...], masked: np.ndarray) -> np.ndarray | None:
        """The sum of what clients sent under masks without these; None where too few of them help.

        Args:
            version: that they were invited for.
            clients: whose vectors are in the sum, in order.
            masked: the sum modulo 2^32, uint32; not changed.
        """


@final
@dataclass(frozen=True, kw_only=True)
class Model:
    """Weights and buffers of one frozen model."""

    weights: Tensor
    buffers: Buffers


@final
@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a weighing may know of one update in a release; `weight` is what it counts by why it was invited."""

    dispatch: int
    client: int
    num_samples: int
    steps: int
    travel: float
    pull: float
    rate: float
    staleness: int
    weight: float = 1.0
