"""Parts of the model at both ends: a visit in the smaller vectors of a portion, and means over those who hold each.

A client with a portion carries its visit out as if that were the model: with its vectors [Q], its layout and an engine
for the narrower module. On the way in, whatever is a vector [P] of the model is cut to its part; on the way out that is
put back. So neither the local loop nor a mechanism knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import torch
from torch import Tensor

from polyrhythm.base.adapters import adapters_in
from polyrhythm.base.frozen import cached, replace_unchecked
from polyrhythm.base.messages import Assignment, Model, Report, State
from polyrhythm.base.portions import Portion
from polyrhythm.base.sums import weighted_sum
from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.protocols import Engine
from polyrhythm.methods.capacity.base import Capacity
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.recipe import Recipe


@runtime_checkable
class Narrows(Protocol):
    """An engine that can compute a part of its model."""

    def narrowed(self, portion: Portion, scale: float) -> Engine:
        """An engine of the narrower module, the same one for portions of the same sizes.

        Args:
            portion: what is left of the model.
            scale: what the outputs of layers that were cut are multiplied by in training.
        """


def portion_of(recipe: Recipe, setup: Setup, what: Assignment | Report, weights: Tensor) -> Portion | None:
    """What a client holds on a visit; None if that is all of the model.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        what: the visit.
        weights: that it was sent, [P].
    """
    if recipe.capacity.whole:
        return None
    return _as_told(recipe, what).portion(setup, what.client, what.visit, what.version, weights)


def outline_of(recipe: Recipe, setup: Setup, what: Assignment) -> Portion | None:
    """A portion of the shape of what a client holds on a visit; None if that is all of the model."""
    return _as_told(recipe, what).outline(setup, what.client, what.visit, what.version)


def _as_told(recipe: Recipe, what: Assignment | Report) -> Capacity:
    """What says which part a client holds, for one visit."""
    told = what.briefs if isinstance(what, Assignment) else what.extras
    return recipe.capacity.as_told(told.get(recipe.key_of(recipe.capacity), {})) if told else recipe.capacity


@final
@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """A visit in the vectors of a portion.

    Args:
        portion: what the client holds.
        engine: computes it.
        setup: as it is in those vectors.
        before, sent: the client's state and the assignment, in vectors of the model.
    """

    portion: Portion
    engine: Engine
    setup: Setup
    before: ClientState
    sent: Assignment

    @cached
    def state(self) -> ClientState:
        """The client's state in vectors of the portion."""
        portion, before = self.portion, self.before
        previous = before.previous
        if previous is not None:
            previous = Model(weights=portion.taken(previous.weights), buffers=portion.taken_buffers(previous.buffers))
        return replace_unchecked(
            before,
            parts=portion.taken_in(before.parts),
            optimiser=portion.taken_in(before.optimiser),
            previous=previous,
        )

    @cached
    def assignment(self) -> Assignment:
        """What is to be done, likewise."""
        portion, sent = self.portion, self.sent
        return replace_unchecked(
            sent,
            weights=portion.taken(sent.weights),
            buffers=portion.taken_buffers(sent.buffers),
            briefs=portion.taken_in(sent.briefs),
        )

    def after(self, state: ClientState, report: Report) -> tuple[ClientState, Report]:
        """The client's state and its report in vectors of the model."""
        portion, before, sent = self.portion, self.before, self.sent
        previous = before.previous
        if state.previous is not None:
            own = state.previous
            previous = Model(
                weights=portion.put(own.weights, sent.weights), buffers=portion.put_buffers(own.buffers, sent.buffers)
            )
        whole = replace_unchecked(
            state,
            parts={key: portion.put_in(part, before.parts.get(key)) for key, part in state.parts.items()},
            optimiser=portion.put_in(state.optimiser, before.optimiser),
            previous=previous,
        )
        fields = {name: value for name, value in vars(report).items() if name != "norm"}
        if report.update is not None:
            fields["update"] = portion.spread(report.update)
        if report.buffers:
            fields["buffers"] = portion.put_buffers(report.buffers, sent.buffers)
        fields["extras"] = {key: portion.put_in(extra, None) for key, extra in report.extras.items()}
        fields["idle"] = portion.spans(report.idle)
        return whole, Report(**fields)


def narrowed(
    recipe: Recipe, setup: Setup, state: ClientState, assignment: Assignment, engine: Engine
) -> Narrowed | None:
    """A visit in the vectors of what its client holds; None if that is all of the model."""
    portion = portion_of(recipe, setup, assignment, assignment.weights)
    if portion is None:
        return None
    assert isinstance(engine, Narrows), f"{type(engine).__name__} computes no part of a model"
    return Narrowed(
        portion=portion,
        engine=engine.narrowed(portion, recipe.capacity.scale(setup, assignment.client, assignment.version)),
        setup=replace_unchecked(
            setup,
            size=portion.layout.size,
            cuts=None,
            fixed_parts=None,
            adapters=adapters_in(portion.layout, {adapter.name: adapter.scale for adapter in setup.adapters})
            if setup.adapters
            else (),
        ),
        before=state,
        sent=assignment,
    )


def over_holders(mean: Tensor, release: Release) -> tuple[Tensor, Tensor | None]:
    """The mean of the updates over those who hold each coordinate [P], and which are held by nobody; None if none is.

    D_j = sum_i s_i c_i u_ij / sum_i s_i, both over clients i that hold j. Where all do, it is the mean as it was.

    Args:
        mean: sum_i s_i c_i u_i, with zeros where a client holds nothing.
        release: whose updates these are.
    """
    missing, holders = _missing(release.portions, release.shares, mean.shape)
    if missing is None:
        return mean, None
    nobody = holders == 0
    held = torch.where(nobody, 1.0, 1.0 - missing)
    return torch.where(nobody, 0.0, mean / held.to(mean.dtype)), nobody


def _missing(
    portions: Sequence[Portion | None], shares: Sequence[float], shape: torch.Size
) -> tuple[Tensor | None, Tensor]:
    """The shares of those who do not hold each coordinate, float64 [P], exactly 0 where all do; and how many do
    that count."""
    masks: dict[int, tuple[Portion, float, int]] = {}
    for portion, share in zip(portions, shares, strict=True):
        if portion is not None:
            _, so_far, count = masks.get(id(portion), (portion, 0.0, 0))
            masks[id(portion)] = portion, so_far + share, count + (share > 0)
    holders = torch.full(shape, sum(share > 0 for share in shares), dtype=torch.int64)
    if not masks:
        return None, holders
    missing = torch.zeros(shape, dtype=torch.float64)
    for portion, share, count in masks.values():
        out = ~portion.mask
        missing += out * share
        holders -= out * count
    return missing, holders


def kept_state(after: State, before: State, nobody: Tensor, size: int) -> State:
    """A state of the server's after a step, with every vector [P] in it as it was where nobody holds a coordinate."""
    found = dict(after)
    for key, value in after.items():
        known = before.get(key)
        if isinstance(value, Tensor) and isinstance(known, Tensor) and value.shape == known.shape == (size,):
            found[key] = torch.where(nobody, known, value)
        elif isinstance(value, Mapping) and isinstance(known, Mapping):
            found[key] = kept_state(value, known, nobody, size)
    return found


def mean_of_held(
    layout: Layout, many: Sequence[Buffers], portions: Sequence[Portion | None], held: Sequence[float], ours: Buffers
) -> Buffers:
    """Floating-point buffers averaged over those who hold each element; what nobody holds stays the server's.

    Args:
        layout: names the buffers.
        many: the clients' buffers, as long as the model's.
        portions: what each client holds.
        held: the weight of each.
        ours: the server's.
    """
    found = list[Tensor]()
    for number, slot in enumerate(layout.buffers):
        tensors = [buffers[number] for buffers in many]
        if not (slot.dtype.is_floating_point or slot.dtype.is_complex):
            found.append(ours[number])
            continue
        masks = [_buffer_mask(portion, number, tensors[0]) for portion in portions]
        weights = [mask * share for mask, share in zip(masks, held, strict=True)]
        total = torch.stack(weights).sum(0)
        sums = weighted_sum([t * mask for t, mask in zip(tensors, masks, strict=True)], held)
        mean = torch.where(total > 0, sums / torch.where(total > 0, total, 1.0), ours[number].to(sums.dtype))
        found.append(mean.to(slot.dtype))
    return tuple(found)


def _buffer_mask(portion: Portion | None, number: int, like: Tensor) -> Tensor:
    """Whether a client holds each element of a buffer, as 0 or 1."""
    where = None if portion is None else portion.buffer_places[number]
    if where is None:
        return torch.ones_like(like)
    return torch.zeros_like(like).reshape(-1).index_fill_(0, where, 1).view(like.shape)
