"""What goes along with the local steps of a visit: a model of the client's own, or another direction for each step.

A guide lives for one visit. It sees every step twice, before its gradient is taken and after, and may take gradients of
its own meanwhile, of the same batch or of others: these move neither the visit's weights, nor its statistics, nor any
draw of its.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple, Protocol

from torch import Tensor

from polyrhythm.base.messages import Model, State
from polyrhythm.base.vectors import Buffers, Segment


class Slope(NamedTuple):
    """The gradient of a batch, [P], the parameters without one, the model's buffers after it, and the loss."""

    gradient: Tensor
    unused: tuple[Segment, ...]
    buffers: Buffers
    loss: Tensor


Pass = Iterable[Callable[[Tensor], Slope]]
"""The batches of a pass, each as what gives its gradient at some weights, [P]."""


class Slopes(Protocol):
    """Gradients that may be asked for during a step."""

    def __call__(self, at: Tensor, which: int = 0, buffers: Buffers | None = None) -> Slope:
        """The gradient of the objective, in training mode.

        Args:
            at: the weights, [P].
            which: the batch: 0 for the step's own, from 1 on for the others that a guide asks for.
            buffers: that go with the weights; None for those of the visit, as they are now.
        """


class Guide:
    """Base: steps as they are.

    Attributes:
        steers: whether it must see each step.
    """

    steers: ClassVar[bool] = True

    def point(self, weights: Tensor, slopes: Slopes, rate: float) -> Tensor:
        """Where the gradient of the step is taken, [P].

        Args:
            weights: of the visit, [P]; not to be changed.
            slopes: gives gradients.
            rate: of the step.
        """
        return weights

    def direction(self, weights: Tensor, gradient: Tensor, slopes: Slopes, rate: float) -> Tensor:
        """What is stepped along in place of the gradient that was taken there, [P].

        Args:
            weights: of the visit, [P].
            gradient: at `point`, [P].
            slopes: gives gradients.
            rate: of the step.
        """
        return gradient

    def kept(self, model: Model) -> State:
        """The client's state after the visit.

        Args:
            model: with which the visit has ended.
        """
        return {}
