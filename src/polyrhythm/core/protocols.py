"""What the client core asks of the world: some samples, and an engine that computes gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeGuard, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.vectors import Buffers, Layout, Spans
from polyrhythm.core.local_step import Computed, LocalRule
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.order.base import Lens
from polyrhythm.methods.personal.guides import Slope


class ClientData(Protocol):
    """One client's samples. Positions are its own, from 0 to len - 1."""

    def __len__(self) -> int: ...

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] and targets [B, ...]; augmented with draws from `generator`, plain if it is None."""

    @property
    def augmented(self) -> bool:
        """Whether a batch draws from the generator."""

    def fixed(self, name: str) -> np.ndarray:
        """A score that the experiment holds for each of the client's samples, float [n]."""


@final
@dataclass(frozen=True, kw_only=True)
class Opening:
    """What an engine is told when a training visit begins.

    Args:
        data: the client's samples.
        start: where training starts: the received model, or the client's own where nothing is exchanged.
        received: what the server sent.
        previous: the client's last local model, if it is kept.
        reuse: whether frozen models' outputs will be asked for more often than once per sample and may be computed for
            all samples at once: true if nothing augments them and the visit makes at least one pass.
        seed: names what the network itself draws (dropout), for an engine that `NamesDraws`.
        exits: where all exits of a model are trained, by how much they learn from each other; None where its outputs
            alone are.
        lacking: the classes that no sample of the client has, int64, if outputs for them count as 0 in training.
    """

    data: ClientData
    start: Model
    received: Model
    previous: Model | None
    reuse: bool
    seed: int = 0
    exits: float | None = None
    lacking: Tensor | None = None


class Engine(Protocol):
    """Takes the local steps of one model at a time, in weights that are scratch.

    Everything from one `open` to the next belongs to one visit.
    """

    @property
    def layout(self) -> Layout: ...

    @property
    def weights(self) -> Tensor:
        """The current weights [P]."""

    @property
    def single_sample_fails(self) -> bool:
        """Whether training on a batch of one sample raises (BatchNorm)."""

    @property
    def one_mode(self) -> bool:
        """Whether the module surely computes the same in training and in eval mode; if not, judging takes a pass."""

    @property
    def forward_samples(self) -> int:
        """Samples of extra forward passes since `open`."""

    def open(self, visit: Opening) -> None:
        """Starts a visit."""

    def step(self, inputs: Tensor, targets: Tensor, positions: np.ndarray, rule: LocalRule, rate: float) -> Computed:
        """Takes one local step in `weights`, as in `local_step.LocalSteps`, which engines of gradients have it from.

        Args:
            inputs, targets: the batch.
            positions: whose they are, among the client's samples.
            rule: of all steps of the visit.
            rate: of this one.
        """

    def buffers(self) -> Buffers:
        """A copy of the travelling buffers as training left them."""

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> Mapping[str, float]:
        """The task's metrics in eval mode over all of a client's samples, or those at `positions`.

        What the model itself draws is the caller's to name, as for `lens` and `fisher`: see `drawing`.
        """

    def represented(self, model: Model, data: ClientData, layer: str) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs, representations [n, F] and targets of all of a client's samples, in eval mode.

        What the model itself draws is the caller's to name, as for `evaluate`.
        """

    def slope(
        self, at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers | None
    ) -> Slope:
        """The gradient of one batch at other weights, as in `local_step.LocalSteps`."""

    def lens(self) -> Lens:
        """The visit's samples under its frozen models."""

    def fisher(self, model: Model, data: ClientData, *, labels: np.random.Generator | None = None) -> float:
        """Mean over a client's samples of the squared norm of that sample's gradient, in eval mode.

        Args:
            model: at which the gradients are taken.
            data: the samples.
            labels: draws one label per sample from the model's own predictions; None takes those in the data.
        """


@runtime_checkable
class NamesDraws(Protocol):
    """An engine that never draws from torch's default generator, of which there is one for all threads.

    Attributes:
        names_draws: what it draws is named by the opening's seed and the step instead.
    """

    names_draws: ClassVar[bool]


@final
@dataclass(frozen=True, kw_only=True)
class Job(LocalRule):
    """Steps of a visit that were decided beforehand: nothing needs to be asked between two of them.

    All steps, or those of an epoch where a visit may end after each; their squared losses are always wanted.

    Args:
        data: the client's samples, not augmented.
        positions: of all batches, one after another, int64 [m].
        ends: where each batch ends in them, int64 [steps].
        rates: of each step.
        first: the number of the first step in its visit.
        within: the engine of a part of the model, whose vectors these are; None for the one that is asked.
    """

    data: ClientData
    positions: np.ndarray
    ends: np.ndarray
    rates: Sequence[float]
    first: int = 0
    within: Engine | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Done:
    """What a job gave, beside the weights and moments that it stepped.

    Args:
        loss: the task's losses, each batch's mean times its samples, summed.
        squared_loss: the squared losses of single samples, summed.
        gradient_squares: the squared norms of the gradients, summed over steps; 0 unless they were asked for.
        idle: the parts of the vector that no step touched.
        pair: as in `Computed`, for all samples of the job in its order, each before the step of its batch.
        forward_samples: samples of extra forward passes in the job.
    """

    loss: float
    squared_loss: float
    gradient_squares: float
    idle: Spans
    pair: tuple[Tensor, Tensor] | None = None
    forward_samples: int = 0


@runtime_checkable
class TakesJobs(Protocol):
    """An engine that can take many steps of a visit at once. It need not: the client core then steps by itself.

    Attributes:
        releases_lock: whether other Python threads, each with an engine of its own, run meanwhile.
    """

    releases_lock: ClassVar[bool]

    def local_round(self, job: Job) -> Done | None:
        """Takes the steps, in the engine's weights and in the job's moments; None if it cannot, and nothing is changed.

        The steps are those of the client core, in its order; the numbers are equal to rounding.
        """


@runtime_checkable
class TakesCohorts(TakesJobs, Protocol):
    """An engine that can take the steps of several visits at once."""

    def local_rounds(self, jobs: Sequence[Job]) -> Iterator[Done | None]:
        """Takes the steps of all jobs, and gives one answer after the other, in their order.

        Each is as that of `local_round`; while it is the last one given, the engine's weights are where its job ended.
        The visits were opened one after the other, and each has had what else it wanted of the engine.
        """

    def on(self, device: torch.device, share: float = 1.0) -> TakesCohorts:
        """The same engine on another device.

        Args:
            device: where to compute.
            share: of a GPU, whose memory others may be using too.
        """


# As `isinstance` of these protocols, which takes as long as a small step.


def takes_jobs(engine: Engine) -> TypeGuard[TakesJobs]:
    """Whether it is a `TakesJobs`."""
    return hasattr(engine, "local_round")


def takes_cohorts(engine: Engine) -> TypeGuard[TakesCohorts]:
    """Whether it is a `TakesCohorts`."""
    return hasattr(engine, "local_rounds")


def names_draws(engine: Engine) -> TypeGuard[NamesDraws]:
    """Whether it is a `NamesDraws`."""
    return hasattr(engine, "names_draws")
