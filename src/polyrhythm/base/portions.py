"""Parts of a model: which coordinates a client holds, and the vectors of a smaller model of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from polyrhythm.base.frozen import cached
from polyrhythm.base.sums import weighted_sum
from polyrhythm.base.vectors import Buffers, Layout, Spans


class Cuts:
    """Base: along what a model can be cut.

    Attributes:
        layout: of the whole model.
    """

    layout: Layout


class Portion:
    """Base: a portion of a model, which is to its client as if it were the model, with vectors [Q] for the model's [P].

    Attributes:
        whole: the model's layout.
        layout: of the portion's own vectors.
        segments: which of the model's parameters each of its own is, or is a part of.
        slots: likewise of buffers.
        key: equal for portions that are models of one shape.
    """

    @property
    def whole(self) -> Layout:
        raise NotImplementedError

    @property
    def layout(self) -> Layout:
        raise NotImplementedError

    @property
    def key(self) -> Hashable:
        raise NotImplementedError

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Where its parameters' elements lie in a vector [P] of the model and in one [Q] of its own, int64."""
        raise NotImplementedError

    @property
    def segments(self) -> range | tuple[int, ...]:
        return range(len(self.whole.segments))

    @property
    def slots(self) -> range | tuple[int, ...]:
        return range(len(self.whole.buffers))

    @property
    def buffer_places(self) -> tuple[Tensor | None, ...]:
        """Of each of the model's buffers, where its part lies in it, int64; None if it has all of it."""
        return (None,) * len(self.whole.buffers)

    @property
    def index_bytes(self) -> int:
        """What it costs on the wire to say which coordinates these are; nothing where both ends know."""
        return 0

    @property
    def index(self) -> Tensor | None:
        """Which coordinates these are, as it is said on the wire, uint8 [index_bytes]; None where both ends know."""
        return None

    def indexed(self, index: Tensor) -> Portion | None:
        """The portion of this shape that an index says; None if it is no index of one."""
        return None

    @property
    def share(self) -> float:
        """Of the model's parameters."""
        return self.layout.parameters / self.whole.parameters

    def buffer_bytes(self, apart: frozenset[str] = frozenset()) -> int:
        """Of its buffers on the wire, without those of some names."""
        return sum(math.prod(s.shape) * s.dtype.itemsize for s in self.layout.buffers if s.name not in apart)

    @cached
    def mask(self) -> Tensor:
        """Whether each coordinate is held, bool [P]; padding is held by nobody."""
        mask = torch.zeros(self.whole.size, dtype=torch.bool)
        mask[self.places[0]] = True
        return mask

    def taken(self, vector: Tensor) -> Tensor:
        """Its part [Q] of a vector [P]."""
        there, here = self.places
        own = torch.zeros(self.layout.size, dtype=vector.dtype)
        own[here] = vector[there]
        return own

    def put(self, own: Tensor, onto: Tensor) -> Tensor:
        """A copy of a vector [P], with its part [Q] in place."""
        there, here = self.places
        whole = onto.clone()
        whole[there] = own[here].to(whole.dtype)
        return whole

    def spread(self, own: Tensor) -> Tensor:
        """A vector [P] with its part [Q] in place, and zeros elsewhere."""
        return self.put(own, torch.zeros(self.whole.size, dtype=own.dtype))

    def taken_buffers(self, buffers: Buffers) -> Buffers:
        """Its part of the model's buffers."""
        found = list[Tensor]()
        for number, slot in zip(self.slots, self.layout.buffers, strict=True):
            buffer, where = buffers[number], self.buffer_places[number]
            found.append(buffer if where is None else buffer.reshape(-1)[where].view(slot.shape))
        return tuple(found)

    def put_buffers(self, own: Buffers, onto: Buffers) -> Buffers:
        """Copies of the model's buffers, with its part in place."""
        whole = list(onto)
        for number, buffer in zip(self.slots, own, strict=True):
            before, where = onto[number], self.buffer_places[number]
            filled = buffer if where is None else before.clone().reshape(-1).index_copy_(0, where, buffer.reshape(-1))
            whole[number] = filled.view(before.shape)
        return tuple(whole)

    def taken_in(self, value: Any) -> Any:
        """A state with its part of every vector [P] in it; all else as it is."""
        return mapped(value, lambda tensor: self.taken(tensor) if self._whole(tensor) else tensor)

    def put_in(self, own: Any, before: Any) -> Any:
        """A state with every vector [Q] in it put back to where it was; what is held of a vector that is gone is zero.

        Args:
            own: the state, of vectors [Q].
            before: the state, of vectors [P], that it was made from; a vector that is not in it was zero.
        """
        if isinstance(own, Tensor):
            if own.shape != (self.layout.size,):
                return own
            known = isinstance(before, Tensor) and self._whole(before)
            return self.put(own, before) if known else self.spread(own)
        if isinstance(own, Mapping):
            earlier = before if isinstance(before, Mapping) else {}
            put = {key: self.put_in(value, earlier.get(key)) for key, value in own.items()}
            for key, value in earlier.items():
                if key not in own and isinstance(value, Tensor) and self._whole(value):
                    left = value.masked_fill(self.mask, 0.0)
                    put |= {key: left} if bool(left.any()) else {}
            return put
        if isinstance(own, (list, tuple)):
            return type(own)(self.put_in(value, None) for value in own)
        return own

    def spans(self, own: Spans) -> Spans:
        """Parts of the model's vector, from those of its own: the same parameters."""
        pairs = zip(self.layout.segments, self.segments, strict=True)
        numbers = {(s.offset, s.size): n for s, n in pairs if s.size}
        wholes = self.whole.segments
        return tuple((wholes[numbers[span]].offset, wholes[numbers[span]].size) for span in own)

    def _whole(self, tensor: Tensor) -> bool:
        return tensor.shape == (self.whole.size,)


@final
class FixedParts:
    """The parts of the model that clients hold on all their visits.

    Args:
        part: of a client; None if that is all of the model.
        clients: those that may ever be heard.
        size: P.
    """

    def __init__(self, part: Callable[[int], Portion | None], clients: Iterable[int], size: int) -> None:
        self.part, self._clients, self._size = part, clients, size

    @cached
    def holders(self) -> Tensor:
        """N_j: how many clients hold each coordinate, float64 [P]; at least 1, so that it divides."""
        masks: dict[int, tuple[Portion, int]] = {}
        whole = 0
        for portion in map(self.part, self._clients):
            if portion is None:
                whole += 1
            else:
                masks[id(portion)] = portion, masks.get(id(portion), (portion, 0))[1] + 1
        counts = torch.full((self._size,), float(whole), dtype=torch.float64)
        for portion, count in masks.values():
            counts += portion.mask * float(count)
        return counts.clamp(min=1.0)

    def held(self, client: int, vector: Tensor) -> Tensor:
        """A vector [P] with zeros where a client holds nothing."""
        portion = self.part(client)
        return vector if portion is None else torch.where(portion.mask, vector, 0.0)


def masks_of(portions: Sequence[Portion | None], size: int) -> list[Tensor]:
    """Which coordinates each of several portions has, bool [P]."""
    whole = torch.ones(size, dtype=torch.bool)
    return [whole if portion is None else portion.mask for portion in portions]


def share_held(portions: Sequence[Portion | None], shares: Sequence[float], size: int) -> Tensor:
    """The shares of those who hold each coordinate, together, float64 [P]."""
    total = torch.zeros(size, dtype=torch.float64)
    for portion, share in zip(portions, shares, strict=True):
        total += share if portion is None else portion.mask * share
    return total


def over_held(vector: Tensor, share: Tensor) -> Tensor:
    """A sum over clients divided by the shares of those who hold each coordinate; 0 where nobody does."""
    return torch.where(share > 0, vector / torch.where(share > 0, share, 1.0), 0.0).to(vector.dtype)


def mean_of_held(
    updates: Sequence[Tensor], portions: Sequence[Portion | None], idle: Sequence[Sequence[tuple[int, int]]]
) -> Tensor:
    """The plain mean of updates [P], each coordinate over those that hold and moved it; zero where none did.

    Args:
        updates: in vectors of the model.
        portions: what each client held; None for all.
        idle: the spans (offset, size) that each did not move.
    """
    moved = share_held(portions, [1.0] * len(updates), len(updates[0]))
    for portion, spans in zip(portions, idle, strict=True):
        for offset, size in spans:
            held = 1.0 if portion is None else portion.mask.narrow(0, offset, size).double()
            moved.narrow(0, offset, size).sub_(held)
    return over_held(weighted_sum(updates, [1.0] * len(updates)), moved)


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """A state with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(inner, change) for inner in value)
    return value
