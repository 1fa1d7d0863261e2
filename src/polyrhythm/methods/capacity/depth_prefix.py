"""The first blocks of a model with several exits: DepthFL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, final

from annotated_types import Gt

from polyrhythm.base.depths import Depths
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.settings import Count, NonNegative
from polyrhythm.methods.capacity.base import Cut, Levels

DEPTHS = (1, 2, 3, 4)
"""The depths of DepthFL's clients."""


@final
@dataclass(frozen=True, kw_only=True)
class DepthPrefix(Levels):
    """A client of depth d holds the first d blocks of a model with M exits, and the head behind each.

    It trains all its exits at once. With z_i what the i-th of them gives, the loss of a batch is

        sum_i CE(z_i, y) + w / (d − 1) · sum_i sum_{j≠i} KL(softmax z_j ‖ softmax z_i),    z_j without a gradient,

    so that exits learn from each other (self-distillation, temperature 1), with w = `distillation` ·
    exp(−5 (1 − min(t / T, 1))²) in version t. It predicts with the mean of its exits' outputs, which is also what its
    reported loss is of. A depth of M or more is all of the model.

    Neutral situation: a model with one exit: exactly no change. The server's mean is over the holders of each
    coordinate; what nobody holds stays as it is. No state; bytes, operations and memory are those of the shallower
    model.

    Departures: the authors' program adds 1e-7 to the probabilities that are learned from, and trains with FedDyn (α =
    0.1), whose sum over clients it divides by all N although few hold the last blocks; with `dynamic_regularisation`
    it is here divided by those that hold a coordinate. Needs a model that is a `WithExits` or is made like it, and a
    task of one class to a sample.

    Args:
        depth: d, from 1; or a list of levels, which `by` deals to clients.
        distillation: the largest w; 0 is none.
        ramp: T, the versions in which w rises to it.
        by: "clients" deals the levels in equal parts, or in those of `shares`; "memory" gives each device the deepest
            level of which a visit's vectors fit into its memory; "speed" the deepest with which it is no slower than
            the fastest device with the whole model, by its number of parameters.
        shares: of clients, one for each level; only with by="clients".
        dealt: "random" deals by the experiment's seed; "in_order" gives the first clients the first level.
        redrawn: deals anew for each version; only with by="clients".

    Reference: Kim, Yu, Kim, Moon, "DepthFL: Depthwise Federated Learning for Heterogeneous Clients", ICLR 2023,
    section 3; T and the form of w are of the authors' program.
    """

    depth: Count | tuple[Count, ...] = DEPTHS
    distillation: NonNegative = 1.0
    ramp: Count = 300
    by: Literal["clients", "memory", "speed"] = "clients"
    shares: tuple[Annotated[float, Gt(0)], ...] | None = None
    dealt: Literal["random", "in_order"] = "random"
    redrawn: bool = False

    measure = "depth"
    example = "depth=[1, 2, 3]"

    @property
    def cuts(self) -> Cut:
        return "depth"

    @property
    def levels(self) -> tuple[float, ...]:
        return self.depth if isinstance(self.depth, tuple) else (self.depth,)

    @property
    def _alike(self) -> bool:
        return True

    @property
    def beyond_kernels(self) -> str:
        return "each exit of a model has a loss of its own"

    def of_level(self, cuts: Cuts, level: float) -> Portion | None:
        assert isinstance(cuts, Depths)
        return cuts.portion(int(level))

    def exits(self, version: int) -> float | None:
        return self.distillation * math.exp(-5 * (1 - min(version / self.ramp, 1.0)) ** 2)
