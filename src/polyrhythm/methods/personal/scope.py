"""Which coordinates of the model are shared, and which stay at the client?

Beside the seven slots, as compression is. What stays is one vector of just those coordinates, and those buffers, in the
client's state: it is provisional until the server accepts the visit, and whoever keeps client states keeps it.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.base.vectors import Buffers, Layout, Segment, Spans
from polyrhythm.methods.mechanism import Mechanism, Model
from polyrhythm.methods.privacy.effects import INSIDE, refused

KINDS = ("head", "body", "norms")
"""Parts of a model that have a name of their own: its last linear layer, all but that, its normalisation layers."""


@final
@dataclass(frozen=True)
class Part:
    """Part of a model.

    Args:
        segments: its parameters.
        buffers: the places of its buffers among those that travel.
    """

    segments: tuple[Segment, ...] = ()
    buffers: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.segments or self.buffers)

    @functools.cached_property
    def spans(self) -> Spans:
        """(offset, size) of each of its parameters in a vector."""
        return tuple((segment.offset, segment.size) for segment in self.segments)

    @property
    def size(self) -> int:
        """Elements of its parameters."""
        return sum(segment.size for segment in self.segments)

    def of(self, vector: Tensor) -> Tensor:
        """Its coordinates of a vector [P], one after the other, in memory of their own."""
        parts = [vector.narrow(0, offset, size) for offset, size in self.spans]
        return torch.cat(parts) if parts else vector.new_empty(0)

    def put(self, vector: Tensor, values: Tensor) -> Tensor:
        """A copy of a vector [P] with other values at these coordinates."""
        changed, place = vector.clone(), 0
        for offset, size in self.spans:
            changed.narrow(0, offset, size).copy_(values.narrow(0, place, size))
            place += size
        return changed

    def put_buffers(self, buffers: Buffers, values: Sequence[Tensor]) -> Buffers:
        """Buffers of which those in its places are others."""
        given = dict(zip(self.buffers, values, strict=True))
        return tuple(given.get(place, buffer) for place, buffer in enumerate(buffers))


NOTHING = Part()


def matching(layers: tuple[str, ...], layout: Layout) -> Part:
    """The part of a model that some words name.

    Args:
        layers: each a kind ("head", "body", "norms"), or a pattern of names of parameters and buffers.
        layout: of the model.

    Raises:
        UserError: a word names nothing. A model may well have no normalisation layers.
    """
    return _matching(layers, layout)


@functools.lru_cache(maxsize=32)
def _matching(layers: tuple[str, ...], layout: Layout) -> Part:
    names = [*(s.name for s in layout.segments), *(slot.name for slot in layout.buffers)]
    chosen = set[str]()
    for layer in layers:
        if layer == "norms":
            found = set(layout.norms)
        elif layer in ("head", "body"):
            found = set(layout.head) if layer == "head" else set(names) - layout.head
            if not layout.head:
                raise _names_nothing(layer, "the model has no linear layer", layout)
        else:
            found = set(fnmatch.filter(names, layer)) | {name for name in names if name.startswith(f"{layer}.")}
        if not found and layer != "norms":
            raise _names_nothing(layer, "no parameter or buffer is called so", layout)
        chosen |= found
    return Part(
        segments=tuple(s for s in layout.segments if s.name in chosen),
        buffers=tuple(place for place, slot in enumerate(layout.buffers) if slot.name in chosen),
    )


@functools.lru_cache(maxsize=32)
def without(part: Part, layout: Layout) -> Layout:
    """The layout of the same vectors, which names all but a part of them."""
    segments, kept = frozenset(part.segments), frozenset(part.buffers)
    return replace(
        layout,
        segments=tuple(s for s in layout.segments if s not in segments),
        buffers=tuple(slot for place, slot in enumerate(layout.buffers) if place not in kept),
    )


def _names_nothing(layer: str, why: str, layout: Layout) -> UserError:
    names = [segment.name for segment in layout.segments]
    some = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return UserError(
        f"layers: {layer!r}, which names nothing: {why}",
        expected=f"{', '.join(map(repr, KINDS))}, the name of a layer, or a pattern such as '*.bias'; here are {some}",
        why="clients would share what they were to keep",
        fix="name layers as the model does",
    )


@dataclass(frozen=True, kw_only=True)
class Scope(Mechanism):
    """Base: what is shared."""

    def own(self, layout: Layout) -> Part:
        """What stays at each client.

        Raises:
            UserError: it names what is not in the model.
        """
        raise NotImplementedError

    def shared(self, layout: Layout) -> Layout:
        """What travels: the layout of the same vectors, of which it names only the shared part."""
        own = self.own(layout)
        return without(own, layout) if own else layout

    def of_client(self, layout: Layout, state: State, received: Model) -> Model:
        """The model that a client works with: what it was sent, with its own part in it.

        Args:
            layout: of the vectors.
            state: the client's, after its last accepted visit that trained; empty before the first, when its own part
                is that of the model it was sent, which is that of version 0.
            received: what the server sent.
        """
        own = self.own(layout)
        if not own or not state:
            return received
        return Model(
            weights=own.put(received.weights, state["weights"]),
            buffers=own.put_buffers(received.buffers, state["buffers"]),
        )

    def kept(self, layout: Layout, model: Model) -> State:
        """The client's state after a visit that ended with a model."""
        own = self.own(layout)
        if not own:
            return {}
        return {"weights": own.of(model.weights), "buffers": [model.buffers[place].clone() for place in own.buffers]}


@final
@dataclass(frozen=True, kw_only=True)
class Everything(Scope):
    """All of the model is shared: exactly no personal part. No state."""

    privacy = INSIDE

    def own(self, layout: Layout) -> Part:
        return NOTHING


@final
@dataclass(frozen=True, kw_only=True)
class PersonalLayers(Scope):
    """Some layers stay at each client: they are trained with the others, and neither sent nor averaged.

    A client works with [shared part as it was sent, its own part as it left it]; a new one has version 0's own part,
    which is sent to it once. The update is zero on the personal part, so that nothing at the server moves there: not
    the mean, not moments, not control variates. A visit that the server did not accept leaves the personal part as it
    was before.

    Client state: the personal part and its buffers. Bytes: the shared part each way, and once per client the personal
    part down. Neutral value: layers that name nothing, such as "norms" of a model without any: exactly all shared.
    With all layers personal, each client trains alone.

    A pull (prox, dynamic_regularisation) is towards where the visit began, so it holds a personal coordinate at the
    client's own last value; clipping is of the whole gradient, as in training alone.

    Args:
        layers: what stays: "head" (the last linear layer), "body" (all but that), "norms" (normalisation layers, with
            their running statistics), the name of a layer, or a pattern of names such as "*.bias".

    Reference: Arivazhagan et al., "Federated Learning with Personalization Layers", 2019, Algorithm 1 (head); Liang et
    al., "Think Locally, Act Globally: Federated Learning with Local and Global Representations", 2020 (body); Li et
    al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021 (norms).
    """

    layers: tuple[str, ...] = ("head",)

    of_a_release = True
    privacy = refused(
        "noise would be added to the layers that stay at clients, too", "take fine_tuning or personal_copy"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise UserError(
                "personal_layers: layers = []",
                expected=f"{', '.join(map(repr, KINDS))}, or names of layers",
                why="nothing would be personal",
                fix="leave personal_layers out, or name what stays at clients: layers=['head']",
            )

    def own(self, layout: Layout) -> Part:
        return matching(self.layers, layout)
