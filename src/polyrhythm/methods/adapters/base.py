"""How are the factors of low-rank adapters averaged?

The mean of B and the mean of A are not the mean of B A. With B_i, A_i what client i ends a visit with, p_i its share
and s the adapters' scale, plain averaging misses s sum_i p_i (B_i - B)(A_i - A) of each layer. The parts here say what
becomes of each adapter in place of that; whatever else learns, such as a head, is averaged as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from polyrhythm.base.adapters import Adapter
from polyrhythm.base.messages import Report, State
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class Factors:
    """Factors of one adapter, float64, and what its layer computes with beside W.

    Args:
        b: [d, r].
        a: [r, k].
        residual: R, [d, k]; None where the layer has none.
    """

    b: Tensor
    a: Tensor
    residual: Tensor | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Heard:
    """What a version knows of one adapter.

    Args:
        adapter: where it is.
        before: as the version was before.
        mean: the mean of what clients have, over those who hold each coordinate.
        clients: what each client has, zero where its rank ends; without residuals.
        shares: p_i, summing to 1.
        seed: the experiment's.
        version: to be made from this one.
        number: of the adapter, in the model's order.
    """

    adapter: Adapter
    before: Factors
    mean: Factors
    clients: tuple[Factors, ...]
    shares: tuple[float, ...]
    seed: int
    version: int
    number: int

    def product(self) -> Tensor:
        """sum_i p_i s B_i A_i, [d, k]: by one product of all factors side by side."""
        left = torch.cat([c.b * share for c, share in zip(self.clients, self.shares, strict=True)], 1)
        return self.adapter.scale * (left @ torch.cat([c.a for c in self.clients], 0))


@dataclass(frozen=True, kw_only=True)
class AdapterAverage(ReleaseModifier):
    """Base of what says how adapters are averaged."""

    of_adapters = True
    both_factors = True
    of_a_release = True
    decides = "how adapters are averaged"
    privacy = refused(
        "it multiplies what single clients sent, unclipped and without noise",
        "train one factor alone, of which the mean is exact: freeze_factor",
    )
    in_sums = needs_single("products of each client's own factors", "take freeze_factor, of which the mean is exact")

    new_coordinates: ClassVar[bool] = False
    """Whether adapters begin each version in other coordinates, so that nothing of an earlier one goes on."""

    @property
    def of_whole_models(self) -> bool:
        """Ranks that differ are no obstacle; for other parts of models there is a rule."""
        return False

    @property
    def sets_all(self) -> bool:
        return True

    @property
    def needs_all(self) -> bool:
        return True

    def after(self, heard: Heard) -> Factors:
        """The factors of one adapter in the next version."""
        raise NotImplementedError

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        if not setup.adapters or not release.reports:
            return state, mean
        mean = mean.clone()
        for number, adapter in enumerate(setup.adapters):
            now = _factors(adapter, release.weights, residual=True)
            heard = Heard(
                adapter=adapter,
                before=now,
                mean=_factors(adapter, (release.weights + mean).to(release.weights.dtype), residual=True),
                clients=tuple(_held(adapter, release, i, report) for i, report in enumerate(release.reports)),
                shares=release.shares,
                seed=setup.seed,
                version=release.version,
                number=number,
            )
            found = self.after(heard)
            adapter.b.of(mean).copy_(found.b - now.b)
            adapter.a.of(mean).copy_(found.a - now.a)
            if adapter.residual is not None and found.residual is not None and now.residual is not None:
                adapter.residual.of(mean).copy_(found.residual - now.residual)
        return state, mean


def _factors(adapter: Adapter, vector: Tensor, *, residual: bool = False) -> Factors:
    """The factors in a vector [P] of weights."""
    own = adapter.residual.of(vector).double() if residual and adapter.residual is not None else None
    return Factors(b=adapter.b.of(vector).double(), a=adapter.a.of(vector).double(), residual=own)


def _held(adapter: Adapter, release: Release, number: int, report: Report) -> Factors:
    """The factors that a client ended with: those it was sent and its update, where it holds them."""
    weights, portion = release.weights, release.portions[number] if release.portions else None

    def of(place: Tensor, update: Tensor | None, mask: Tensor | None) -> Tensor:
        moved = place.double() if update is None else place.double() + update.double()
        return moved if mask is None else moved * mask

    update, mask = report.update, None if portion is None else portion.mask
    parts = [
        of(
            segment.of(weights),
            None if update is None else segment.of(update),
            None if mask is None else segment.of(mask),
        )
        for segment in (adapter.b, adapter.a)
    ]
    return Factors(b=parts[0], a=parts[1])
