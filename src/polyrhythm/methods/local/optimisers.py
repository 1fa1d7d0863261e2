"""The local optimiser, on one flat vector.

Order inside a step: gradient, clip, corrections, weight decay, momentum, step. State starts afresh with every visit
unless `keep_state` is set. The arithmetic is torch.optim's, operation by operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Decay, NonNegative, Positive, Settings


@dataclass(frozen=True, kw_only=True)
class LocalOptimiser(Settings):
    """Base.

    Args:
        lr: learning rate, > 0, multiplied by the schedule.
        weight_decay: L2 strength; a parameter without gradient takes none, as in torch.optim.
        clip: largest global gradient norm before corrections; None for no clipping.
        keep_state: whether momentum or moments persist over a client's visits.
    """

    lr: Positive = 0.1
    weight_decay: NonNegative = 0.0
    clip: Positive | None = None
    keep_state: bool = False

    shareable: ClassVar[bool] = False
    """Whether clients may share its moments, so that each begins with their mean."""

    @property
    def linear(self) -> bool:
        """Whether the path is linear in the gradients, so that a travel exists."""
        return False

    @property
    def plain(self) -> bool:
        """Whether a step is w - rate * g and nothing more, so that an engine may step by the gradient itself."""
        return False

    def start(self, like: Tensor) -> dict[str, Tensor | int]:
        """Fresh state for weights like these, [P]."""
        raise NotImplementedError

    def step_(self, weights: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor | int]) -> None:
        """One step in place. `gradient` is scratch: it may be overwritten.

        All are [P]; or, for an optimiser that works element by element, [K, P] with a rate for each row, [K, 1].
        """
        raise NotImplementedError

    def travel(self, rates: Sequence[float], pull: float) -> float:
        """How far a constant gradient of one moves every weight over steps at these rates, pulled back by `pull`."""
        return 0.0


@final
@dataclass(frozen=True, kw_only=True)
class LocalSgd(LocalOptimiser):
    """Stochastic gradient descent, as torch.optim.SGD: d = g + wd * w; m <- momentum * m + d; w - rate * m.

    Args:
        momentum: of the heavy ball.
        nesterov: steps along d + momentum * m instead of m.
    """

    momentum: Decay = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise UserError(
                "nesterov=true with momentum=0",
                expected="a momentum above 0",
                why="Nesterov's step looks ahead along the momentum; without any it is plain SGD",
                fix="set momentum=0.9, or leave nesterov out",
            )

    @property
    def linear(self) -> bool:
        return True

    @property
    def plain(self) -> bool:
        return not self.momentum and not self.weight_decay and self.clip is None

    def start(self, like: Tensor) -> dict[str, Tensor | int]:
        return {"momentum": torch.zeros_like(like)} if self.momentum else {}

    def step_(self, weights: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor | int]) -> None:
        if self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)
        if self.momentum:
            buffer = state["momentum"]
            assert isinstance(buffer, Tensor)
            buffer.mul_(self.momentum).add_(gradient)
            gradient = gradient.add_(buffer, alpha=self.momentum) if self.nesterov else buffer
        if isinstance(rate, Tensor):
            weights.addcmul_(gradient, rate, value=-1)
        else:
            weights.add_(gradient, alpha=-rate)

    def travel(self, rates: Sequence[float], pull: float) -> float:
        # The optimiser itself, run on one number: w - w0 = -way, gradient 1, starting from w0 = 0.
        way = buffer = 0.0
        for rate in rates:
            direction = 1.0 - (pull + self.weight_decay) * way
            buffer = self.momentum * buffer + direction
            way += rate * (direction + self.momentum * buffer if self.nesterov else buffer)
        return way


@final
@dataclass(frozen=True, kw_only=True)
class LocalAdam(LocalOptimiser):
    """Adam, as torch.optim.Adam, or AdamW with `decoupled`.

    Args:
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: added to the root of the second moment.
        decoupled: applies weight decay to the weights (AdamW) instead of the gradient.

    Raises:
        UserError: when a visit starts, if epsilon is zero in the model's precision.

    Reference: Kingma and Ba, "Adam", ICLR 2015, Algorithm 1; Loshchilov and Hutter, "Decoupled Weight Decay
    Regularization", ICLR 2019, Algorithm 2.
    """

    lr: Positive = 0.001
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Positive = 1e-8
    decoupled: bool = False

    def start(self, like: Tensor) -> dict[str, Tensor | int]:
        if not torch.full((), self.epsilon, dtype=like.dtype):
            raise UserError(
                f"local_adam: epsilon = {self.epsilon:g} with {like.dtype} weights",
                expected="an epsilon that is not zero in the model's precision",
                why="Adam would divide zero by zero wherever a gradient is zero",
                fix="set epsilon=1e-4 (LocalAdam), or train in bfloat16 or float32",
            )
        return {"first": torch.zeros_like(like), "second": torch.zeros_like(like), "steps": 0}

    def step_(self, weights: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor | int]) -> None:
        assert not isinstance(rate, Tensor)
        first, second, steps = state["first"], state["second"], state["steps"]
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        # One number, or [P] once a parameter was left out of a step: torch.optim counts for each parameter.
        steps += 1  # in place if it is a tensor, so that the count of what is left out can be put back
        state["steps"] = steps
        if self.weight_decay:
            if self.decoupled:
                weights.mul_(1 - rate * self.weight_decay)
            else:
                gradient.add_(weights, alpha=self.weight_decay)
        first.lerp_(gradient, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        denominator = (second.sqrt() / (1 - self.beta2**steps) ** 0.5).add_(self.epsilon)
        if isinstance(steps, Tensor):
            weights.addcdiv_(first, denominator.mul_(1 - self.beta1**steps), value=-rate)
        else:
            weights.addcdiv_(first, denominator, value=-rate / (1 - self.beta1**steps))


@final
@dataclass(frozen=True, kw_only=True)
class LocalAMSGrad(LocalOptimiser):
    """AMSGrad without bias correction: the second moment that divides never falls.

        m <- beta1 * m + (1 - beta1) * g;  v <- beta2 * v + (1 - beta2) * g^2;  h <- max(h, v);  w - rate * m / sqrt(h)

    h and v begin at epsilon^2, so nothing is added to the root. Element by element, without a count of steps.

    Args:
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: root of the least that divides.

    Raises:
        UserError: when a visit starts, if epsilon^2 is zero in the model's precision.

    Reference: Reddi, Kale, Kumar, "On the Convergence of Adam and Beyond", ICLR 2018, Algorithm 2; epsilon as in
    FedLALR, see `shared_moments`.
    """

    lr: Positive = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    epsilon: Positive = 1e-8

    shareable = True

    def start(self, like: Tensor) -> dict[str, Tensor | int]:
        least = torch.full_like(like, self.epsilon**2)
        if like.numel() and not least.view(-1)[0]:
            raise UserError(
                f"local_amsgrad: epsilon = {self.epsilon:g} with {like.dtype} weights",
                expected="an epsilon whose square is not zero in the model's precision",
                why="it would divide zero by zero wherever a gradient is zero",
                fix="set epsilon=1e-3, or train in bfloat16 or float32",
            )
        return {"first": torch.zeros_like(like), "second": least, "largest": least.clone()}

    def step_(self, weights: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor | int]) -> None:
        first, second, largest = state["first"], state["second"], state["largest"]
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        assert isinstance(largest, Tensor)
        assert not isinstance(rate, Tensor)
        if self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)
        first.lerp_(gradient, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        torch.maximum(largest, second, out=largest)
        weights.addcdiv_(first, largest.sqrt(), value=-rate)


def clip_(gradient: Tensor, largest: float) -> None:
    """Scales gradients [..., P] down to a norm of `largest` each, in place; torch.nn.utils.clip_grad_norm_'s rule."""
    norms = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    gradient.mul_((largest / (norms + 1e-6)).clamp_(max=1.0))


def carry(state: State, like: Tensor, optimiser: LocalOptimiser) -> dict[str, Tensor | int]:
    """The state for a visit: fresh, or a copy of what the client kept."""
    if not optimiser.keep_state or not state:
        return optimiser.start(like)
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}
