"""The largest weights of a model: FIARSE."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Literal, final

import torch
from annotated_types import Gt
from torch import Tensor

from polyrhythm.base.magnitudes import Magnitudes, Sparser
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.methods.capacity.base import Cut, Levels, Ratio
from polyrhythm.methods.mechanism import Need, Setup

SIZES = (1.0, 0.25, 0.0625, 0.015625)
"""The sizes of FIARSE's submodels."""


@final
@dataclass(frozen=True, kw_only=True)
class LargestWeights(Levels):
    """A client of ratio r holds the k = ⌊r · n⌋ weights of largest |w| in the model that it is sent.

    Ranked are the n weights and biases of all linear layers and convolutions together; everything else, such as
    normalisation, is held whole. With θ the k-th largest |w|, which stays for the visit, each forward pass uses w where
    |w| ≥ θ and 0 where not, and the gradient g of what is used becomes g · (1 + 2θ|w| / (|w| + θ)²), of what is not 0:
    a weight is moved for its value, and for being among the largest. ratio = 1 is exactly `whole`: θ = 0.

    The server's mean of a coordinate is over those who held it at the beginning of their visits, which it finds in the
    model that it sent. No state. Down go the values of what is held and a bit for each ranked weight, up the values.
    Operations are those of the whole model: single zeros save none on ordinary devices.

    Departures: the authors' server divides by the clients whose update of a coordinate is not zero, so that a unit that
    happens to be dead counts as not held; with size 1 theirs has θ = min |w|, and so is not FedAvg. Of equal |w| the
    first ones are held. A weight that falls below θ during a visit is still held: momentum and decay go on moving it.

    Args:
        ratio: r, the share of the ranked weights; or a list of levels, which `by` deals to clients.
        by: "clients" deals the levels in equal parts, or in those of `shares`; "memory" gives each device the largest
            level of which a visit's vectors fit into its memory.
        shares: of clients, one for each level; only with by="clients".
        dealt: "random" deals by the experiment's seed; "in_order" gives the first clients the first level.
        redrawn: deals anew for each version; only with by="clients".

    Reference: Wu, Wang, Chen, Zhang, Xu, "FIARSE: Model-Heterogeneous Federated Learning via Importance-Aware
    Submodel Extraction", NeurIPS 2024, section 3, and the authors' code.
    """

    ratio: Ratio | tuple[Ratio, ...] = SIZES
    by: Literal["clients", "memory"] = "clients"
    shares: tuple[Annotated[float, Gt(0)], ...] | None = None
    dealt: Literal["random", "in_order"] = "random"
    redrawn: bool = False

    @property
    def cuts(self) -> Cut:
        return "magnitude"

    @property
    def levels(self) -> tuple[float, ...]:
        return self.ratio if isinstance(self.ratio, tuple) else (self.ratio,)

    @property
    def beyond_kernels(self) -> str:
        return "single weights are left out of each pass" if min(self.levels) < 1 else ""

    def needs(self) -> frozenset[Need]:
        return frozenset({"base"})

    def of_level(self, cuts: Cuts, level: float) -> Portion | None:
        assert isinstance(cuts, Magnitudes)
        return None if level >= 1 else cuts.portion(torch.arange(len(cuts.places)) < cuts.count(level), 0.0)

    def submodel(self, cuts: Cuts, level: float, weights: Tensor) -> Portion | None:
        assert isinstance(cuts, Magnitudes)
        return largest(cuts, weights, level)

    def outline(self, setup: Setup, client: int, visit: int, version: int) -> Portion | None:
        return None if setup.cuts is None else _outline(self, setup.cuts, self.level_of(setup, client, version))

    def kept(
        self, setup: Setup, cuts: Cuts, level: float, client: int, visit: int, version: int, weights: Tensor | None
    ) -> Portion | None:
        assert isinstance(cuts, Magnitudes)
        assert weights is not None
        return largest(cuts, weights, level)


@functools.lru_cache(maxsize=16)
def _outline(part: LargestWeights, cuts: Cuts, level: float) -> Portion | None:
    return part.of_level(cuts, level)


def largest(magnitudes: Magnitudes, weights: Tensor, ratio: float) -> Sparser | None:
    """What holds the largest of some weights [P], as many as a ratio has; None if that is all of them."""
    if ratio >= 1:
        return None
    sizes = weights[magnitudes.places].abs().nan_to_num(nan=torch.inf)
    count = magnitudes.count(ratio)
    threshold = sizes.kthvalue(len(sizes) - count + 1).values  # not sorted, which takes many times as long
    held, equal = sizes > threshold, (sizes == threshold).nonzero()[:, 0]
    held[equal[: count - int(held.sum())]] = True
    return magnitudes.portion(held, float(threshold))
