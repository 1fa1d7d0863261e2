"""Which coordinates does a client train and send?

Both ends derive them from the same facts (seed, client, version, visit, and what the device can hold), so that no index
travels. What a client does not hold is to it as if it were not there: it is neither sent down nor trained, decays by
nothing, and counts in no sum of the server's.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol, final

import numpy as np
import torch
from annotated_types import Gt, Le
from torch import Tensor

from polyrhythm.base.axes import Axes, Axis
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Fault, Report, State
from polyrhythm.base.portions import Cuts, FixedParts, Portion
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Mechanism, Setup
from polyrhythm.methods.privacy.effects import INSIDE, refused
from polyrhythm.methods.secure_sum.effects import BLIND, SumEffect, needs_single
from polyrhythm.methods.work.budgets import EPSILON

Ratio = Annotated[float, Gt(0), Le(1)]
Cut = Literal["widths", "depth", "magnitude", "ranks"]
"""Along what a model is cut: its widths, its depth, the size of its weights, or the ranks of its adapters."""

LEVELS = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""The widths of HeteroFL and FedRolex."""


class Penalty(Protocol):
    """A term of the loss that depends on the weights alone."""

    def add_(self, gradient: Tensor, weights: Tensor) -> None:
        """Adds its gradient at some weights [P] to that of the loss [P]."""


@dataclass(frozen=True, kw_only=True)
class Capacity(Mechanism):
    """Base: which coordinates a client holds on a visit."""

    @property
    def whole(self) -> bool:
        """Whether every client holds all of them."""
        return False

    def under_secagg(self) -> SumEffect:
        if self.whole:
            return BLIND
        return needs_single("what one client alone holds is its update", "let everybody train the whole model")

    @property
    def cuts(self) -> Cut:
        """Along what it cuts a model."""
        return "widths"

    @property
    def static(self) -> bool:
        """Whether a client holds the same ones on all its visits."""
        return False

    @property
    def by_device(self) -> Literal["", "memory", "speed"]:
        """What of a device says how much it holds, if anything does."""
        return ""

    @property
    def levels(self) -> tuple[float, ...]:
        """How much of the model a client may have."""
        return (1.0,)

    @property
    def by_classes(self) -> bool:
        """Whether outputs for classes that a client lacks are left out of its training, and of the mean."""
        return False

    @property
    def statistics_apart(self) -> bool:
        """Whether running statistics of norms stay out of training, and are taken of everybody's samples for a model
        that is looked at."""
        return False

    @property
    def beyond_kernels(self) -> str:
        """Why torch alone computes a client's steps, where that is so, in words."""
        return ""

    def portion(
        self, setup: Setup, client: int, visit: int, version: int, weights: Tensor | None = None
    ) -> Portion | None:
        """What a client holds on a visit to a version of these weights [P]; None if that is all of the model."""
        return None

    def as_told(self, told: State) -> Capacity:
        """What says which part a client holds on one visit, by what it was told with it, or has told."""
        return self

    def penalty(self, setup: Setup, brief: State) -> Penalty | None:
        """What is added to the loss by weights that are to be held no more; None where there is nothing."""
        return None

    def outline(self, setup: Setup, client: int, visit: int, version: int) -> Portion | None:
        """A portion of the shape of that one, for whoever does not have the weights."""
        return self.portion(setup, client, visit, version)

    def of_level(self, cuts: Cuts, level: float) -> Portion | None:
        """What a client of such a level holds on some visit: of that shape on each."""
        return None

    def submodel(self, cuts: Cuts, level: float, weights: Tensor) -> Portion | None:
        """What a client of such a level would hold of these weights [P], to be measured; None if that is all."""
        return self.of_level(cuts, level)

    def fixed_level(self, setup: Setup, client: int) -> float | None:
        """How much of the model a client holds on all its visits; None if that changes."""
        return 1.0

    def exits(self, version: int) -> float | None:
        """By how much the exits of a model learn from each other in a version; None where its outputs alone train."""
        return None

    def scale(self, setup: Setup, client: int, version: int) -> float:
        """What the outputs of layers that were cut are multiplied by in training."""
        return 1.0


@final
@dataclass(frozen=True, kw_only=True)
class Whole(Capacity):
    """Every client trains all of the model. No state."""

    privacy = INSIDE

    @property
    def whole(self) -> bool:
        return True

    @property
    def static(self) -> bool:
        return True


WHOLE = Whole()


class Levels(Capacity):
    """Base of what deals levels to clients; what has it declares the settings that are annotated here.

    Attributes:
        by: "clients" deals the levels in equal parts, or in those of `shares`; otherwise what of a device decides.
        shares: of clients, one for each level; only with by="clients".
        dealt: "random" deals by the experiment's seed; "in_order" gives the first clients the first level.
        redrawn: deals anew for each version; only with by="clients".
    """

    by: Literal["clients", "memory", "speed"]
    shares: tuple[Annotated[float, Gt(0)], ...] | None
    dealt: Literal["random", "in_order"]
    redrawn: bool

    of_a_release = True
    privacy = refused("each weight is divided by how many train it, which is told without noise")

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = self.levels
        if not levels:
            raise UserError(
                f"{self.label()}: {self.measure}=[]",
                expected=f"at least one {self.measure}",
                why="every client holds some share of the model",
                fix=self.example,
            )
        if self.shares is not None and (len(self.shares) != len(levels) or self.by != "clients"):
            raise UserError(
                f"{self.label()}: {len(self.shares)} shares for {len(levels)} {self.measure}s, by={self.by!r}",
                expected=f'one share of clients for each {self.measure}, with by="clients"',
                why=f"they say how many clients have each {self.measure}",
                fix="leave shares out for equal parts, or where devices decide",
            )
        if self.redrawn and self.by != "clients":
            raise UserError(
                f"{self.label()}: redrawn=true with by={self.by!r}",
                expected='by="clients"',
                why="a device holds what it can, whatever the version",
                fix="leave one of them out",
            )

    measure = "ratio"
    """What a level is called, as a setting."""
    example = "ratio=[1, 0.5, 0.25]"

    @property
    def static(self) -> bool:
        return self._alike and (not self.redrawn or len(set(self.levels)) == 1)

    @property
    def _alike(self) -> bool:
        """Whether the coordinates follow from the level alone."""
        return False

    @property
    def by_device(self) -> Literal["", "memory", "speed"]:
        return "" if self.by == "clients" else self.by

    def portion(
        self, setup: Setup, client: int, visit: int, version: int, weights: Tensor | None = None
    ) -> Portion | None:
        if setup.cuts is None:
            return None
        return self.kept(setup, setup.cuts, self.level_of(setup, client, version), client, visit, version, weights)

    def kept(
        self, setup: Setup, cuts: Cuts, level: float, client: int, visit: int, version: int, weights: Tensor | None
    ) -> Portion | None:
        """What a client of a level holds."""
        return self.of_level(cuts, level)

    def level_of(self, setup: Setup, client: int, version: int) -> float:
        """The level of a client on a visit to a version."""
        levels = self.levels
        if len(levels) == 1:
            return float(levels[0])
        if self.by_device:
            return max(levels) if setup.levels is None else float(setup.levels[client])
        place = client
        if self.dealt == "random":
            place = _places(setup.population, setup.seed, version if self.redrawn else -1)[client]
        elif self.redrawn:
            place = (client + version) % setup.population
        return float(levels[_level(place, setup.population, self.shares or (1.0,) * len(levels))])

    def fixed_level(self, setup: Setup, client: int) -> float | None:
        return None if self.redrawn else self.level_of(setup, client, 0)


@dataclass(frozen=True, kw_only=True)
class Widths(Levels):
    """Base of what cuts widths: a client of ratio r holds k = ⌈r · n⌉ of the n units of every axis.

    An axis is a width between two layers of a model; inputs and outputs are whole. r = 1 for all is exactly `whole`.
    The server's mean is then one over the holders of each coordinate j: sum_i s_i c_i u_ij / sum_i s_i over clients i
    that hold j; what nobody holds stays as it is, and so do the moments of the server's step there. No state.

    Args:
        ratio: r; or a list of levels, which `by` deals to clients.
        by: "clients" deals the levels in equal parts, or in those of `shares`; "memory" gives each device the widest
            level of which a visit's vectors fit into its memory; "speed" the widest with which it is no slower than the
            fastest device with the whole model, by its number of parameters. Either gives the narrowest to whoever can
            do no more.
        shares: of clients, one for each level; only with by="clients".
        dealt: "random" deals by the experiment's seed; "in_order" gives the first clients the first level.
        redrawn: deals anew for each version; only with by="clients".
        scaler: multiplies the outputs of layers that were cut by 1 / r in training, as HeteroFL does.
        masked: has outputs for classes that a client lacks count as 0 in its training, so that they still add 1 to the
            sum of exponentials; rows of the output layer for these classes are not trained there, and count in no mean.
            A client then tells the server which classes it has, a byte for each. With all classes exactly as without.
            For the task classification.
        static_norms: HeteroFL's static BatchNorm: running statistics neither travel nor move in training, and those of
            a version that is looked at come from a pass of everybody's samples through it, cumulated over batches.
            Without BatchNorm exactly as without. Only in the simulation.
    """

    ratio: Ratio | tuple[Ratio, ...] = LEVELS
    by: Literal["clients", "memory", "speed"] = "clients"
    shares: tuple[Annotated[float, Gt(0)], ...] | None = None
    dealt: Literal["random", "in_order"] = "random"
    redrawn: bool = False
    scaler: bool = False
    masked: bool = False
    static_norms: bool = False

    @property
    def levels(self) -> tuple[float, ...]:
        return self.ratio if isinstance(self.ratio, tuple) else (self.ratio,)

    @property
    def beyond_kernels(self) -> str:
        if self.masked:
            return "outputs for classes that a client lacks are left out"
        return "what narrower layers give is scaled" if self.scaler and min(self.levels) < 1 else ""

    @property
    def by_classes(self) -> bool:
        return self.masked

    @property
    def statistics_apart(self) -> bool:
        return self.static_norms

    @property
    def sends_alike(self) -> bool:
        return not self.masked

    def describe(self) -> dict[str, Any]:
        """As before there were `masked` and `static_norms`, where they are off: so a recipe has the digest it had."""
        off = {name for name in ("masked", "static_norms") if not getattr(self, name)}
        return {key: value for key, value in super().describe().items() if key not in off}

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        if not self.masked or not report.fresh or setup.cuts is None:
            return None
        layout, told = setup.cuts.layout, report.extras.get(self.label(), {}).get("classes")
        count = next(s.shape[0] for s in layout.segments if s.name in layout.head)
        if not isinstance(told, Tensor) or told.dtype != torch.bool or told.shape != (count,) or not told.any():
            return Fault("shape", f"it does not say which of {count} classes its client has")
        return None

    def of_level(self, cuts: Cuts, level: float) -> Portion | None:
        assert isinstance(cuts, Axes)
        return prefix(cuts, level)

    def scale(self, setup: Setup, client: int, version: int) -> float:
        return 1.0 / self.level_of(setup, client, version) if self.scaler else 1.0


def with_fixed_parts(capacity: Capacity, setup: Setup) -> Setup:
    """A setup that says what clients hold on all their visits, where they hold fixed parts of the model."""
    if capacity.whole or not capacity.static or setup.cuts is None:
        return setup
    if all(capacity.of_level(setup.cuts, level) is None for level in capacity.levels):
        return setup
    clients = range(setup.population) if setup.members is None else setup.members
    parts = FixedParts(lambda client: capacity.portion(setup, client, 0, 0), clients, setup.size)
    return replace(setup, fixed_parts=parts)


def _level(place: int, population: int, shares: tuple[float, ...]) -> int:
    """Which level the client in a place has, of so many."""
    whole, so_far = math.fsum(shares), 0.0
    for level, share in enumerate(shares):
        so_far += share
        if place < population * so_far / whole - EPSILON:
            return level
    return len(shares) - 1


@functools.lru_cache(maxsize=4)
def _places(population: int, seed: int, version: int) -> tuple[int, ...]:
    """Every client's place in a random order of all clients, for all versions if it is of -1."""
    names = ("places",) if version < 0 else ("places", version)
    return tuple(int(i) for i in stream(seed, "capacity", *names).permutation(population))


def count(axis: Axis, ratio: float) -> int:
    """k: how many units of an axis a client of a ratio holds."""
    return max(1, math.ceil(ratio * axis.units - EPSILON))


@functools.lru_cache(maxsize=64)
def prefix(axes: Axes, ratio: float) -> Portion | None:
    """The first units of each axis."""
    return prefix_of(axes, tuple(count(axis, ratio) for axis in axes.axes))


@functools.lru_cache(maxsize=64)
def prefix_of(axes: Axes, counts: tuple[int, ...]) -> Portion | None:
    """The first units of each axis, so many of them."""
    return axes.portion([np.arange(units) for units in counts])
