"""Which model does a client use in the end?

Beside the seven slots. The global model is what the server makes; a personal one is made of it at the client, and is
what the client is judged by on its own test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import NonNegative, Positive
from polyrhythm.base.vectors import Layout
from polyrhythm.methods.local.optimisers import LocalOptimiser
from polyrhythm.methods.mechanism import Mechanism, Model, Visit
from polyrhythm.methods.order.base import Order, Shuffled
from polyrhythm.methods.personal.guides import Guide, Pass
from polyrhythm.methods.personal.scope import matching
from polyrhythm.methods.privacy.effects import INSIDE, inside


@final
@dataclass(frozen=True, kw_only=True)
class Round:
    """A round of a client's own training, beside that for the server, with the local optimiser.

    Args:
        steps: how many.
        order: of samples in a pass.
        pull: strength of the pull towards the model that the client was sent.
        layers: what alone is trained, as for `PersonalLayers`; () for all.
        lr: its learning rate; None for that of the method.
    """

    steps: int
    pull: float = 0.0
    layers: tuple[str, ...] = ()
    lr: float | None = None
    order: Order = Shuffled()


def steps_of(epochs: float, visit: Visit) -> int:
    """So many passes in steps, rounded half up; at least one step unless there are no passes."""
    return max(1, math.floor(epochs * visit.epoch_steps + 0.5)) if epochs and visit.epoch_steps else 0


@dataclass(frozen=True, kw_only=True)
class PersonalModel(Mechanism):
    """Base: the model that a client uses."""

    @property
    def passes(self) -> float:
        """Passes over a client's samples that each of its visits makes for it, at most."""
        return 0.0

    @property
    def tunes(self) -> bool:
        """Whether work is done for it when it is used: it trains `when_used`, or looks at the client's samples."""
        return False

    @property
    def gradients(self) -> int:
        """How many gradients of a batch each local step takes, its own included."""
        return 1

    @property
    def others(self) -> int:
        """How many batches each local step looks at beside its own."""
        return 0

    @property
    def bends(self) -> bool:
        """Whether local steps go elsewhere than along the gradient of their batch at the weights."""
        return False

    def fits(self, layout: Layout) -> None:
        """Goes on if it can be made of this model.

        Raises:
            UserError: it names what is not in the model.
        """

    @property
    def moves(self) -> bool:
        """Whether a visit may begin elsewhere than at the model that was sent."""
        return False

    def sampled(self, state: State, num_samples: int) -> tuple[int, int]:
        """On how many samples it is learned where a visit begins, and in how many passes at most; 0 for none.

        Args:
            state: the client's, after its last accepted visit.
            num_samples: that it holds.
        """
        return 0, 0

    def start(self, state: State, received: Model, layout: Layout, passes: Iterable[Pass]) -> tuple[Model, State]:
        """Where a visit begins, or the model that a client uses, and what it knows then.

        Args:
            state: the client's.
            received: the model that it was sent.
            layout: of the vectors.
            passes: over a sample of its samples.
        """
        return received, state

    def guide(self, state: State, received: Model, optimiser: LocalOptimiser, layout: Layout) -> Guide | None:
        """What goes along with the local steps of a visit; None for nothing.

        Args:
            state: the client's, as it knows when the visit begins.
            received: the model that it works from.
            optimiser: the local one.
            layout: of the vectors.
        """
        return None

    def beside(self, visit: Visit) -> Round | None:
        """What a visit trains beside its work for the server, on the model that `begins` gives; None for nothing."""
        return None

    def begins(self, state: State, received: Model) -> Model:
        """Where that training begins."""
        return received

    def kept(self, trained: Model) -> State:
        """The client's state after it."""
        return {}

    def when_used(self, visit: Visit) -> Round | None:
        """What is trained when the client comes to use its model, on what `begins` gives; None for nothing."""
        return None

    @property
    def reads(self) -> str:
        """The representation that it predicts by, in place of the model's outputs; "" for these alone."""
        return ""

    @property
    def compares(self) -> bool:
        """Whether it predicts by the client's own training samples."""
        return False

    @property
    def asks(self) -> str:
        """The part whose word from the server it predicts by; "" for none."""
        return ""

    def predicts(self, outputs: Tensor, features: Tensor, own: tuple[Tensor, Tensor] | None, brief: State) -> Tensor:
        """What a client's model predicts for some samples, as outputs of a model, [B, C].

        Args:
            outputs: of its model, [B, C].
            features: the samples' representations under it, [B, F].
            own: those of the client's training samples, [n, F], and their classes, int64 [n], if it `compares`.
            brief: what the server sends for the part that it `asks`.
        """
        return outputs


@final
@dataclass(frozen=True, kw_only=True)
class GlobalModel(PersonalModel):
    """A client uses the global model, with its own layers where it has some. No state."""

    privacy = INSIDE


@final
@dataclass(frozen=True, kw_only=True)
class FineTuning(PersonalModel):
    """A client trains the global model on its own samples before it uses it; nothing of that is sent.

    w_i = the model that the client would be sent, after `epochs` passes of the local optimiser, freshly begun, over its
    training samples. It is made when it is measured, and then forgotten: training, costs and the global model are those
    of the method without it, to the bit. epochs = 0 is exactly the global model. No state.

    Args:
        epochs: passes.
        layers: what alone is trained, as for `personal_layers`, such as ["head"]; [] for all.
        lr: its learning rate; None for that of the method, at that version.

    Reference: what FedAvg is compared with as "FedAvg + fine-tuning", such as in Oh, Kim, Yun, "FedBABU: Toward
    Enhanced Representation for Federated Image Classification", ICLR 2022, section 5.
    """

    epochs: NonNegative = 5.0
    layers: tuple[str, ...] = ()
    lr: Positive | None = None

    of_a_release = True
    privacy = inside("makes a model that stays at the client")

    @property
    def tunes(self) -> bool:
        return self.epochs > 0

    def fits(self, layout: Layout) -> None:
        if self.layers:
            matching(self.layers, layout)

    def when_used(self, visit: Visit) -> Round | None:
        steps = steps_of(self.epochs, visit)
        return Round(steps=steps, layers=self.layers, lr=self.lr) if steps else None


@final
@dataclass(frozen=True, kw_only=True)
class PersonalCopy(PersonalModel):
    """Each client keeps a model of its own, trained beside the global one and pulled towards it.

    In each of its visits, after the work for the server, v <- v - lr * (g(v) + strength * (v - w)) for `epochs`
    shuffled passes, with w the model that the client was sent. The global model does not depend on v: it is that of the
    method without this part, to the bit. strength = 0 is training alone: exactly that of `local_only`, from the model
    that the client was sent first. Client state: v and its buffers. No bytes; gradients for `epochs` more passes.

    Departures: v begins with the first model that a client is sent, which is version 0 only if it is there at once: so
    nothing else has to be sent for it. A client that never trained uses the global model.

    Args:
        strength: of the pull, lambda, >= 0; loss per squared weight.
        epochs: passes per visit.

    Reference: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
    Algorithm 1.
    """

    strength: NonNegative = 1.0
    epochs: Positive = 2.0

    of_a_release = True
    privacy = inside("makes a model that stays at the client")

    @property
    def passes(self) -> float:
        return self.epochs

    def beside(self, visit: Visit) -> Round | None:
        return Round(steps=steps_of(self.epochs, visit), pull=self.strength)

    def begins(self, state: State, received: Model) -> Model:
        return Model(weights=state["weights"], buffers=tuple(state["buffers"])) if state else received

    def kept(self, trained: Model) -> State:
        return {"weights": trained.weights, "buffers": list(trained.buffers)}
