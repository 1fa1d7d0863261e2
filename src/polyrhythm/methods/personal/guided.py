"""Models of a client's own that are made along with its work for the server, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count, Fraction, NonNegative, Positive
from polyrhythm.base.vectors import Layout
from polyrhythm.methods.local.optimisers import LocalOptimiser, clip_
from polyrhythm.methods.mechanism import Model, Visit
from polyrhythm.methods.personal.guides import Guide, Slopes
from polyrhythm.methods.personal.models import PersonalModel, Round
from polyrhythm.methods.privacy.effects import inside

_AT_HOME = inside("makes a model that stays at the client")


def _own(state: State, received: Model) -> Model:
    """The model in a client's state; what it was sent where there is none."""
    return Model(weights=state["weights"], buffers=tuple(state["buffers"])) if state else received


@final
@dataclass(frozen=True, kw_only=True)
class PersonalMixture(PersonalModel):
    """Each client mixes the global model with one of its own, which is trained to be good in the mixture.

    A client uses share * v + (1 - share) * w, with w the newest global model. With each local step of w, on the same
    batch, v <- v - lr * share * g(share * v + (1 - share) * w), both from where they were before the step, with a local
    optimiser of its own, freshly begun. The global model does not depend on v: it is that of the method without this
    part, to the bit. share = 0 is exactly the global model, without a gradient more. share = 1 is training alone:
    exactly that of `local_only`, from the model that the client was sent first, where the network draws nothing.

    Client state: v, the share, and the mixture's buffers. No bytes; twice the gradients.

    Departures: the authors' program mixes outputs, which is the same for a linear model only, steps w before it looks
    at the mixture, and adds 0.02 * share to what the share is adapted by. This is the paper.

    Args:
        share: alpha, of the client's own model, 0 to 1.
        adapt: whether each client adapts it, once in a visit, with its first batch: share - lr * <v - w, g(mixture)>,
            kept within 0 and 1.

    Reference: Deng, Kamani, Mahdavi, "Adaptive Personalized Federated Learning", 2020, Algorithm 1.
    """

    share: Fraction = 0.5
    adapt: bool = False

    of_a_release = True
    privacy = _AT_HOME

    @property
    def gradients(self) -> int:
        return 2 if self.share or self.adapt else 1

    def guide(self, state: State, received: Model, optimiser: LocalOptimiser, layout: Layout) -> Guide | None:
        if self.gradients == 1:
            return None
        return _Mixing(_own(state, received), state.get("share", self.share), optimiser, self.adapt)

    def begins(self, state: State, received: Model) -> Model:
        if not state:
            return received
        mixed = torch.lerp(received.weights, state["weights"], state["share"])
        return Model(weights=mixed, buffers=tuple(state["buffers"]))


@final
class _Mixing(Guide):
    """A visit's v.

    Args:
        own: v, with the mixture's buffers.
        share: of it.
        optimiser: the local one.
        adapt: whether the share is adapted.
    """

    def __init__(self, own: Model, share: float, optimiser: LocalOptimiser, adapt: bool) -> None:
        self._weights, self._buffers, self._share = own.weights.clone(), own.buffers, share
        self._optimiser, self._moments, self._adapts = optimiser, optimiser.start(own.weights), adapt

    def point(self, weights: Tensor, slopes: Slopes, rate: float) -> Tensor:
        own, share = self._weights, self._share
        gradient, unused, self._buffers, _ = slopes(torch.lerp(weights, own, share), buffers=self._buffers)
        if self._adapts:
            self._adapts = False
            steeper = float(torch.dot((own - weights).double(), gradient.double()))
            self._share = min(1.0, max(0.0, share - rate * steeper))
        if share != 1:
            gradient = gradient.mul_(share)
        if self._optimiser.clip is not None:
            clip_(gradient, self._optimiser.clip)
        untouched = [(s, s.of(own).clone()) for s in unused]
        self._optimiser.step_(own, gradient, rate, self._moments)
        for segment, before in untouched:
            segment.of(own).copy_(before)
        return weights

    def kept(self, model: Model) -> State:
        return {"weights": self._weights, "buffers": list(self._buffers), "share": self._share}


@final
@dataclass(frozen=True, kw_only=True)
class MoreauEnvelope(PersonalModel):
    """A client's own model nears its optimum under a pull to the local one, which then goes a step towards it.

    With each batch, `steps` times theta <- theta - lr * (g(theta) + strength * (theta - w)), and then the local step
    of w along strength * (w - theta), the gradient of the Moreau envelope of the loss. theta begins each visit at the
    model that was sent, and goes on from batch to batch; the client uses the last one. strength = 0 leaves the global
    model as it is, exactly, and theta is trained alone. Neutral situation: steps = 1, in the first step of a visit,
    where w moves as under FedAvg with strength * `lr` times its rate, to rounding.

    Client state: theta and its buffers. No bytes; `steps` gradients of each batch.

    Departures: the authors' program also adds 0.001 * theta to each gradient, and tests the local w in place of theta,
    since its list of personal parameters is the model's own. A client that never trained uses the global model.

    Args:
        strength: lambda, of the pull; loss per squared weight.
        steps: K, of theta on each batch.
        lr: of theta.

    Reference: Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1.
    """

    strength: NonNegative = 15.0
    steps: Count = 5
    lr: Positive = 0.01

    of_a_release = True
    privacy = _AT_HOME

    @property
    def gradients(self) -> int:
        return self.steps

    @property
    def bends(self) -> bool:
        return True

    def guide(self, state: State, received: Model, optimiser: LocalOptimiser, layout: Layout) -> Guide | None:
        return _Nearing(self, received.weights.clone())

    def begins(self, state: State, received: Model) -> Model:
        return _own(state, received)


@final
class _Nearing(Guide):
    """A visit's theta.

    Args:
        by: the part.
        theta: where it begins.
    """

    def __init__(self, by: MoreauEnvelope, theta: Tensor) -> None:
        self._by, self._theta = by, theta

    def point(self, weights: Tensor, slopes: Slopes, rate: float) -> Tensor:
        for _ in range(self._by.steps - 1):
            self._nearer(weights, slopes(self._theta).gradient)
        return self._theta

    def direction(self, weights: Tensor, gradient: Tensor, slopes: Slopes, rate: float) -> Tensor:
        self._nearer(weights, gradient)
        return (weights - self._theta) * self._by.strength

    def _nearer(self, weights: Tensor, gradient: Tensor) -> None:
        slope = torch.add(gradient, self._theta - weights, alpha=self._by.strength)
        self._theta = torch.add(self._theta, slope, alpha=-self._by.lr)

    def kept(self, model: Model) -> State:
        return {"weights": self._theta, "buffers": list(model.buffers)}


@final
@dataclass(frozen=True, kw_only=True)
class MetaStep(PersonalModel):
    """The global model is trained for what it becomes after one step on a client's own samples.

    Each local step goes along the gradient where a step with another batch leads, w' = w - lr * g_1(w): along g_2(w')
    ("first_order"), or along g_2(w') - lr / (2 delta) * (g_3(w + delta * g_2(w')) - g_3(w - delta * g_2(w'))), which
    has the second derivative by a difference of gradients ("hessian_free"). g_2 is of the batch that the step has
    anyway, the other batches are from passes of their own, over the same training samples. A client uses the global
    model after one such step. lr = 0 is exactly the method without this part, and the global model. No state, no
    bytes; two gradients with each step, or four.

    Departures: programs of others personalise on batches of the test, or give the inner step momentum; this does
    neither.

    Args:
        lr: alpha, of the inner step, and of the one when the model is used.
        form: "first_order" or "hessian_free".
        delta: half of the distance over which gradients are compared.

    Reference: Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
    Model-Agnostic Meta-Learning Approach", NeurIPS 2020, Algorithm 1.
    """

    lr: NonNegative = 0.01
    form: Literal["first_order", "hessian_free"] = "first_order"
    delta: Positive = 1e-3

    of_a_release = True
    privacy = _AT_HOME

    @property
    def tunes(self) -> bool:
        return self.lr > 0

    @property
    def gradients(self) -> int:
        if not self.lr:
            return 1
        return 2 if self.form == "first_order" else 4

    @property
    def others(self) -> int:
        return self.gradients // 2

    @property
    def bends(self) -> bool:
        return self.lr > 0

    def guide(self, state: State, received: Model, optimiser: LocalOptimiser, layout: Layout) -> Guide | None:
        return _Ahead(self) if self.lr else None

    def when_used(self, visit: Visit) -> Round | None:
        return Round(steps=1, lr=self.lr) if self.lr and visit.epoch_steps else None


@final
class _Ahead(Guide):
    """A visit of meta steps.

    Args:
        by: the part.
    """

    def __init__(self, by: MetaStep) -> None:
        self._by = by

    def point(self, weights: Tensor, slopes: Slopes, rate: float) -> Tensor:
        return torch.add(weights, slopes(weights, which=1).gradient, alpha=-self._by.lr)

    def direction(self, weights: Tensor, gradient: Tensor, slopes: Slopes, rate: float) -> Tensor:
        if self._by.form == "first_order":
            return gradient
        delta = self._by.delta
        up, down = (slopes(torch.add(weights, gradient, alpha=d), which=2).gradient for d in (delta, -delta))
        return torch.add(gradient, up - down, alpha=-self._by.lr / (2 * delta))
