"""What does the server step on, where some updates cannot be trusted: a mean of shortened ones, or another middle?

Two things can be said here, in any order of the pipe: how long an update may be (`ClipUpdates`), and what the middle of
the updates is (`Median`, `TrimmedMean`, `GeometricMedian`). What is left counts by shares and scales as ever.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, final

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from polyrhythm.base.messages import Fault, Report, State
from polyrhythm.base.settings import Count, Positive
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.secure_sum.effects import SumEffect, needs_single, works_in_sums
from polyrhythm.methods.work.budgets import EPSILON

_BLOCK = 2**22
"""About how many numbers are sorted at once."""
_CANCELLED = 1e-6
"""How long a sum of unit vectors, each by its share, may be that counts as none."""


@final
@dataclass(frozen=True, kw_only=True)
class ClipUpdates(ReleaseModifier):
    """Shortens updates that are longer than a limit, so that no client moves the model further than that.

    u_i <- u_i * min(1, limit / |u_i|), before scales and shares. The limit is `norm`, or `times` the median norm of the
    last `window` updates that were in a version; in the first version, of its own. What is remembered of a longer
    update is the limit, so that outliers do not raise it; of an update of nothing, nothing is.

    Neutral situation: no update is longer than the limit: exactly the plain mean. Server state: `window` numbers. No
    extra bytes; two norms for each update.

    Args:
        norm: the limit, Euclidean, in units of the weights; None for one that follows from earlier updates.
        times: the limit in medians, where there is no `norm`.
        window: over how many earlier updates the median is taken.
        refuse: refuses the report of an update that is more than so many times as long as the limit: then nothing of
            it counts, its extras included, and its client goes on from its last accepted visit. None refuses nobody.

    Departure: the paper clips by a fixed norm and adds noise; this adds none, so it promises no privacy.

    Reference: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
    section 3: flat clipping.
    """

    norm: Positive | None = None
    times: Positive = 3.0
    window: Count = 50
    refuse: Annotated[float, Ge(1)] | None = None

    decides = "how long an update may be"
    of_a_release = True
    privacy = refused("it decides how long an update may be, by updates without noise, and dp decides that")

    def under_secagg(self) -> SumEffect:
        if self.norm is not None and self.refuse is None:
            return works_in_sums("has each client shorten its own update")
        return needs_single("how long they are, for a limit or a refusal", "clip_updates(norm=…) without refuse")

    @property
    def longest(self) -> float | None:
        return self.norm

    def shortens(self, update: Tensor) -> float:
        norm = _norm(update)
        return self.norm / norm if self.norm is not None and norm > self.norm else 1.0

    def server_start(self, setup: Setup) -> State:
        return {"norms": (), "clipped": 0}

    def limit(self, state: State, norms: Sequence[float] = ()) -> float:
        """How long an update may be; infinity where nothing is known yet."""
        if self.norm is not None:
            return self.norm
        known = state["norms"] or [n for n in norms if n > 0]
        return self.times * statistics.median(known) if known else math.inf

    def limits(self, state: State, release: Release) -> Sequence[float] | None:
        norms = _norms(release)
        limit = self.limit(state, norms)
        return [limit / n if n > limit else 1.0 for n in norms]

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        if self.refuse is not None and report.update is not None:
            norm, limit = _norm(report.update), self.limit(state)
            if norm > self.refuse * limit:
                words = f"its update has norm {norm:.3g}, more than {self.refuse:g} times the limit of {limit:.3g}"
                return Fault("too_far", words)
        return None

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        if release.total is not None:  # what clients have shortened only they know
            return {**state, "clipped": None}
        norms = _norms(release)
        limit = self.limit(state, norms)
        seen = (*state["norms"], *(min(n, limit) for n in norms if n > 0))[-self.window :]
        return {**state, "norms": seen, "clipped": sum(n > limit for n in norms)}

    def measures(self, state: State) -> Mapping[str, float]:
        return {} if state["clipped"] is None else {"clipped": float(state["clipped"])}


@dataclass(frozen=True, kw_only=True)
class Middle(ReleaseModifier):
    """Base of other middles than the mean."""

    decides = "what the middle of the updates is"
    of_a_release = True
    privacy = refused("how far one client moves a middle has no bound by which noise could be chosen")
    in_sums = needs_single("a middle is chosen among them", "take clip_updates(norm=…)")

    @property
    def needs_all(self) -> bool:
        return True

    @property
    def of_whole_models(self) -> bool:
        return True


@final
@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Middle):
    """For each weight apart, leaves out the smallest and the largest changes, and takes the mean of the others.

    With K updates, ⌊share · K⌋ are left out at either end, by share and scale of those that are left: sum share_i *
    scale_i * u_i / sum share_i. share = 0, and fewer than 1 / share updates, are exactly the plain mean. No state, no
    extra bytes; sorts K numbers for each weight.

    Up to ⌊share · K⌋ updates may be anything at all: the result lies between the smallest and the largest of the
    others. In expectation it is not the mean where clients differ: what only few clients learn is left out as well.

    Args:
        share: left out at either end, from 0 to less than 1/2.

    Departure: the paper counts clients alike; here those that are left count as the recipe weighs them (`equal` for
    the paper's).

    Reference: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates", ICML 2018, definition 2.
    """

    share: Annotated[float, Ge(0), Lt(0.5)] = 0.1

    by_coordinate = "any"

    def centre_of_held(
        self, updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float], held: Sequence[Tensor]
    ) -> Tensor | None:
        if math.floor(self.share * len(updates) + EPSILON) == 0:
            return None  # nothing is left out of anything: the plain mean, to the bit
        return _trimmed_of_held(
            updates, shares, scales, held, lambda count: (self.share * count + EPSILON).floor().to(torch.int64)
        )

    def centre(self, updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float]) -> Tensor | None:
        return _trimmed(updates, shares, scales, drop=math.floor(self.share * len(updates) + EPSILON))


@final
@dataclass(frozen=True, kw_only=True)
class Median(Middle):
    """For each weight apart, takes the middle one of the changes; of an even number, the mean of the two in the middle.

    Those two count by their shares. Neutral situation: one or two updates, where it is exactly the plain mean. No
    state, no extra bytes; sorts K numbers for each weight. Fewer than half of the updates may be anything at all.

    Departure: where shares differ, the paper's mean of two is the plain one (`equal`).

    Reference: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates", ICML 2018, definition 1.
    """

    by_coordinate = "any"

    def centre(self, updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float]) -> Tensor | None:
        return _trimmed(updates, shares, scales, drop=(len(updates) - 1) // 2)

    def centre_of_held(
        self, updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float], held: Sequence[Tensor]
    ) -> Tensor | None:
        return _trimmed_of_held(updates, shares, scales, held, lambda count: (count.long() - 1).clamp(min=0) // 2)


@final
@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Middle):
    """The vector whose distances to all updates have the smallest sum, each counted by its share.

    Weiszfeld's iterations from the coordinate-wise median: z <- sum b_i * u_i / sum b_i with b_i = share_i /
    max(smoothing, |u_i - z|), until the unit vectors towards the updates cancel to a millionth, or `iterations` are
    made. iterations = 0 is exactly the plain mean. It depends on no choice of axes, but for where it begins. No state,
    no extra bytes; each iteration reads all updates twice, and computes in double precision. Fewer than half of the
    shares may belong to anything at all, however long.

    Args:
        iterations: how often z is moved at most; it takes about 20.
        smoothing: distances below this count as this one, so that an update that z has met does not hold it for ever.

    Departure: the paper makes 3 iterations from the mean, of which an outlier with the share a leaves about
    (a / (1 - a))^3 of what it pulls: nothing helps against one that is longer by many orders of magnitude. Scales
    multiply updates before, as everywhere here.

    Reference: Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions on Signal
    Processing 70, 2022, Algorithm 2 (RFA).
    """

    iterations: Annotated[int, Ge(0)] = 100
    smoothing: Positive = 1e-6

    why_whole = "goes by distances between whole updates, which those of different coordinates do not have"

    def centre(self, updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float]) -> Tensor | None:
        if not self.iterations or not any(shares):
            return None
        middle = _trimmed(updates, shares, scales, drop=(len(updates) - 1) // 2)
        dtype, middle = middle.dtype, middle.double()
        for _ in range(self.iterations):
            away = [_norm(u.double() * s - middle) for u, s in zip(updates, scales, strict=True)]
            pulls = [a / max(self.smoothing, d) for a, d in zip(shares, away, strict=True)]
            total = math.fsum(pulls)
            before, weights = middle, [p / total * s for p, s in zip(pulls, scales, strict=True)]
            middle = weighted_sum((u.double() for u in updates), weights)
            if _norm(middle - before) * total <= _CANCELLED:
                break
        return middle.to(dtype)


def _trimmed(updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float], drop: int) -> Tensor:
    """The mean of each weight's changes without the `drop` smallest and largest, [P]; in blocks, to bound memory."""
    count = len(updates)
    if not drop:
        return weighted_sum(updates, [a * b for a, b in zip(shares, scales, strict=True)])
    half = updates[0].dtype in (torch.float16, torch.bfloat16)
    dtype = torch.float32 if half else updates[0].dtype
    weights, parts = torch.tensor(shares, dtype=dtype), []
    size = max(1, _BLOCK // count)
    for start in range(0, len(updates[0]), size):
        block = (u[start : start + size].to(dtype) for u in updates)
        rows = torch.stack([part * scale for part, scale in zip(block, scales, strict=True)])  # [K, B]
        values, order = rows.sort(dim=0, stable=True)
        kept, by = values[drop : count - drop], weights[order[drop : count - drop]]
        total = by.sum(0)
        # Where none of those in the middle has a share, they count alike.
        parts.append(torch.where(total > 0, (kept * by).sum(0) / total.clamp(min=1e-30), kept.mean(0)))
    return torch.cat(parts)


def _trimmed_of_held(
    updates: Sequence[Tensor],
    shares: Sequence[float],
    scales: Sequence[float],
    held: Sequence[Tensor],
    drop: Callable[[Tensor], Tensor],
) -> Tensor:
    """The same over those K_j that hold a coordinate, of whom `drop` of K_j are left out at either end; 0 for none."""
    half = updates[0].dtype in (torch.float16, torch.bfloat16)
    dtype = torch.float32 if half else updates[0].dtype
    weights, parts = torch.tensor(shares, dtype=dtype), []
    size = max(1, _BLOCK // len(updates))
    places = torch.arange(len(updates))[:, None]
    for start in range(0, len(updates[0]), size):
        block = (u[start : start + size].to(dtype) for u in updates)
        there = torch.stack([mask[start : start + size] for mask in held])  # [K, B]
        rows = torch.stack([part * scale for part, scale in zip(block, scales, strict=True)])
        values, order = torch.where(there, rows, torch.inf).sort(dim=0, stable=True)  # who holds nothing is last
        count = there.sum(0)
        left = drop(count)
        kept = (places >= left) & (places < count - left)
        by, values = weights[order] * kept, torch.where(kept, values, 0.0)
        total, many = by.sum(0), kept.sum(0)
        alike = values.sum(0) / many.clamp(min=1)
        parts.append(torch.where(total > 0, (values * by).sum(0) / total.clamp(min=1e-30), alike))
    return torch.cat(parts)


def _norm(update: Tensor) -> float:
    """In double precision, where the squares of whatever is finite are finite."""
    return float(torch.linalg.vector_norm(update, dtype=torch.float64))


def _norms(release: Release) -> list[float]:
    return [_norm(update) for update in release.updates()]
