"""How does an update travel from a client to the server?

Beside the seven slots, like the local optimiser. The core hands over the update once training is over, and sends on
what the server will decode: a vector [P] of the model's own dtype, in which padding and the parameters that no step of
the visit touched are zero. Everything else that a client sends up (buffers, extras of mechanisms) travels as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.vectors import Layout, Segment, Spans
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.privacy.effects import INSIDE, inside
from polyrhythm.methods.work.budgets import EPSILON, Share


@final
@dataclass(frozen=True, kw_only=True)
class Packed:
    """An update on its way.

    Args:
        update: what the server decodes, [P].
        size: bytes on the wire; None if it travels as it is.
    """

    update: Tensor
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Compression(Mechanism):
    """Base: how an update travels."""

    def pack(self, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> tuple[State, Packed]:
        """The new client state, and the update as it travels.

        Args:
            layout: says what in the vector is a parameter.
            state: the client's, after its last accepted visit that trained.
            update: w_K - w_0, [P]; not changed.
            idle: the parts of it that no step touched.
        """
        raise NotImplementedError

    def size(self, layout: Layout) -> int | None:
        """Bytes of an update on the wire, at most; None if it travels as it is."""
        raise NotImplementedError

    @property
    def sizes_alike(self) -> bool:
        """Whether every update is exactly of that size."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether a client keeps a vector of what was left out."""
        return False

    @property
    def sums_only(self) -> bool:
        """Whether the server is to know the sum of updates, and no single one."""
        return False


@final
@dataclass(frozen=True, kw_only=True)
class Lossless(Compression):
    """The update travels as it is: exactly no compression. No state; one vector of bytes."""

    privacy = INSIDE

    def pack(self, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> tuple[State, Packed]:
        return state, Packed(update=update)

    def size(self, layout: Layout) -> int | None:
        return None

    @property
    def sizes_alike(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Lossy(Compression):
    """Base of what loses something: error feedback, which sends later what was left out.

    v = update + e; sent = C(v); e <- v - sent, with e = 0 at the start. So all that was sent, and e, add up to all
    updates. e is client state, and goes back to what it was if the server does not accept the visit. What it holds of a
    parameter that no step of a visit touched waits for a visit that does.

    Args:
        error_feedback: whether what is left out is remembered; otherwise it is lost.
    """

    error_feedback: bool = True

    of_a_release = True

    @property
    def remembers(self) -> bool:
        return self.error_feedback

    @classmethod
    def label(cls) -> str:
        return f"compress_{super().label()}"

    def pack(self, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> tuple[State, Packed]:
        # Half precision is remembered in float32, like every sum over many versions.
        wanted = update.to(torch.promote_types(update.dtype, torch.float32))
        if "left" in state:
            wanted = wanted + state["left"]
        decoded, size = self.encode(layout, wanted, idle)
        packed = Packed(update=decoded.to(layout.dtype), size=size)
        if not self.error_feedback:
            return {}, packed
        left = wanted - packed.update
        return {"left": left} if bool(left.any()) else {}, packed

    def encode(self, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
        """C(v), and its bytes: zero in padding and in what is idle."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class TopK(Lossy):
    """Sends the largest entries of an update, by absolute value, and their places.

    k = ceil(share * P) over the whole model, padding not counted; of equal entries the first ones. share = 1 sends
    every entry, exactly as it is. On the wire k * (4 + the bytes of an element): above a share of 1/2 of a float32
    model that is more than the vector itself. With error feedback one vector of client state; O(P) per visit.

    Args:
        share: of the trainable entries that are sent, above 0 and at most 1.
        error_feedback: adds what was left out to the client's next update.

    Reference: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, Algorithm 1, on a client's whole
    update in place of a gradient.
    """

    share: Share = 0.01

    privacy = inside("decodes an update before it is clipped")

    def encode(self, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
        # Places that cannot be sent are smaller than any that can; what is no number must be sent, to be found out.
        magnitude = torch.full_like(vector, -1.0)
        for segment in _moved(layout, idle):
            magnitude.narrow(0, segment.offset, segment.size).copy_(_part(vector, segment).abs())
        magnitude.nan_to_num_(nan=math.inf, posinf=math.inf)
        kept = min(self._count(layout), sum(s.size for s in _moved(layout, idle)))
        # The least of the k largest is one number, whichever of several equal ones a sort would put first.
        least = magnitude.topk(max(1, kept), sorted=False).values.min()
        chosen = magnitude > least
        equal = (magnitude == least).nonzero()[:, 0]
        chosen[equal[: kept - int(chosen.sum())]] = True
        return torch.where(chosen, vector, 0.0), kept * (_INDEX + layout.dtype.itemsize)

    def size(self, layout: Layout) -> int | None:
        return self._count(layout) * (_INDEX + layout.dtype.itemsize)

    def _count(self, layout: Layout) -> int:
        return max(1, math.ceil(self.share * layout.parameters - EPSILON))


@final
@dataclass(frozen=True, kw_only=True)
class Int8(Lossy):
    """Sends each entry as one of 255 whole multiples of a step.

    Per parameter tensor: step = max |v| / 127, entry = step * round(v / step), halves to the even one. Deterministic:
    error feedback makes up for the rounding, in place of a draw. An entry is off by at most half a step, and by what
    the model's own precision rounds. Neutral situation: entries that are whole multiples of their step. On the wire one
    byte per entry, padding not counted, and a float32 step per tensor. With error feedback one vector of client state.

    Args:
        error_feedback: adds what was rounded off to the client's next update.

    Reference: Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
    Training of Speech DNNs", Interspeech 2014, section 3 (error feedback), with 8 bits in place of one.
    """

    privacy = inside("decodes an update before it is clipped")

    def encode(self, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
        decoded = torch.zeros_like(vector)
        for segment in _moved(layout, idle):
            part = _part(vector, segment)
            step = (part.abs().max() / 127).float()
            if step:  # true for what is no number, too, so that it gets through and is found out
                torch.mul((part / step).round_().clamp_(-127, 127), step, out=_part(decoded, segment))
        return decoded, self._size(layout)

    def size(self, layout: Layout) -> int | None:
        return self._size(layout)

    @property
    def sizes_alike(self) -> bool:
        return True

    def _size(self, layout: Layout) -> int:
        return layout.parameters + _STEP * len(layout.segments)


_INDEX = 4  # bytes of a place in the vector
_STEP = 4  # bytes of a float32


def _moved(layout: Layout, idle: Spans) -> Iterator[Segment]:
    """The parameters that have something to send."""
    untouched = frozenset(idle)
    return (s for s in layout.segments if s.size and (s.offset, s.size) not in untouched)


def _part(vector: Tensor, segment: Segment) -> Tensor:
    """A parameter's entries of a vector, as a view."""
    return vector.narrow(0, segment.offset, segment.size)
