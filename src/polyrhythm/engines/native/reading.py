"""Reading a module as a step program.

The module is traced symbolically, so it does not matter whether it is written with layers or with functions. What the
program cannot say exactly is refused with a reason, and never approximated; that it says what the module does is held
to torch before a run (`engines.proof`).
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import fx, nn

from polyrhythm.base.vectors import Layout
from polyrhythm.engines.native.program import (
    BatchNorm,
    Convolution,
    Dropout,
    Embedding,
    From,
    Layer,
    Linear,
    Place,
    Program,
    Relu,
    Sum,
)
from polyrhythm.engines.native.reading_layers import LayerReader
from polyrhythm.engines.native.tracing import Pass, refuse_hooks, traces
from polyrhythm.engines.unsupported import Unlike, Unsupported
from polyrhythm.models.multilabel import MultiLabel
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import Classification, NextCharacter


def program_of(module: nn.Module, layout: Layout, task: Task, shape: tuple[int, ...]) -> Program:
    """The step program of a model.

    Args:
        module: the model, in training mode.
        layout: of its weights.
        task: its loss.
        shape: of one sample.

    Raises:
        Unsupported: with the reason.
    """
    if any(s.dtype != torch.float32 for s in layout.segments):
        raise Unsupported("its weights are not float32")
    walk = _walked(module, layout, shape)
    layers, outputs = tuple(walk.layers), walk.reader.shape
    if not any(isinstance(layer, Convolution | Linear | Embedding) for layer in layers):
        raise Unsupported("no layer of it learns")
    if len(outputs) != 1:
        raise Unsupported(f"it gives outputs of shape {outputs} for a sample")
    channels, height, width = shape if len(shape) == 3 else (math.prod(shape), 1, 1)
    program = Program(
        shape=(channels, height, width),
        layers=layers,
        size=layout.size,
        loss="cross_entropy",
        idle=tuple(s for s in layout.segments if s.offset not in walk.reader.used),
        places=walk.places,
        statistics=tuple(walk.reader.statistics),
        counts=tuple(walk.reader.counts),
    )
    for layer, given in zip(layers, program.inputs, strict=True):
        if isinstance(layer, BatchNorm) and given[0] != layer.channels:
            raise Unsupported("it norms pixels that were flattened")
    return _with_loss(program, task, outputs=outputs[0])


def _with_loss(program: Program, task: Task, outputs: int) -> Program:
    if not task.sums_over_samples and task.name not in ("next_token", "survival"):
        raise Unsupported("class weights, and losses of one's own, have no kernel")
    if isinstance(task, NextCharacter) or type(task) is Classification:
        return dataclasses.replace(program, smoothing=task.smoothing)
    if type(task) is MultiLabel:
        weight = 1.0 / outputs if task.labels == "mean" else 1.0
        return dataclasses.replace(program, loss="binary_cross_entropy", weight=weight)
    raise Unsupported(f"the loss of {task.name} has no kernel")


def _walked(module: nn.Module, layout: Layout, shape: tuple[int, ...]) -> _Walk:
    """The walk of a training pass, if every other pass goes the same way."""
    refuse_hooks(module)
    if sum(1 for _ in module.named_parameters(remove_duplicate=False)) != len(layout.segments):
        raise Unsupported("some of its parameters are frozen or tied")
    others = (part for part in module.modules() if type(part) not in (nn.BatchNorm1d, nn.BatchNorm2d))
    if any(True for part in others for _ in part.buffers(recurse=False)):
        raise Unsupported("it has buffers, which its passes may change")
    first: _Walk | None = None
    for way, replica, graph in traces(module):
        try:
            walk = _Walk(replica, LayerReader(replica, layout, shape, training=way.training)).along(graph)
        except Unsupported as reason:
            if first is None:
                raise
            raise Unlike(f"in {way}, {reason}") from reason
        if len(walk.reader.buffers) != sum(1 for _ in module.named_buffers(remove_duplicate=False)):
            raise Unsupported("it has buffers that none of its batch norms reads")
        first = first or walk
        _compare(way, first, walk)
    assert first is not None
    return first


def _compare(way: Pass, training: _Walk, other: _Walk) -> None:
    """Refuses a module that goes another way in evaluation than in training, beside dropout, or the next time."""
    if not way.training and any(isinstance(layer, Dropout) for layer in other.layers):
        raise Unlike(f"in {way}, it drops out")
    same = training.layers == other.layers if way.training else training.kept == other.layers
    if not same or training.landmarks != other.landmarks:
        raise Unlike(f"in {way}, it takes other operations than in its first pass")


_SUMS = (operator.add, torch.add)


@final
@dataclass(frozen=True)
class _Given:
    """What a node gives: where that is, the shape of a sample, and whether it is that of the node before."""

    place: Place
    shape: tuple[int, ...]
    sequence: bool
    pair: bool
    alias: bool


def _alone(node: fx.Node, given: Mapping[fx.Node, _Given]) -> bool:
    """Whether one node alone reads what a node gives, by whatever name."""
    while len(node.users) == 1:
        if node not in given or not given[node].alias:
            return True
        (node,) = node.all_input_nodes
    return False


@final
@dataclass
class _Walk:
    """A walk through a traced module."""

    module: nn.Module
    reader: LayerReader
    layers: list[Layer] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    given: dict[fx.Node, _Given] = field(default_factory=dict)

    def along(self, graph: fx.Graph) -> _Walk:
        """Reads the layers of a graph, each of which reads what one before gives, or the sum of two."""
        given = self._given(self._here)
        for node in graph.nodes:
            if node.op == "placeholder" and not self.given:
                self.given[node] = given
                continue
            sources = node.all_input_nodes
            if not sources or any(source not in self.given for source in sources):
                raise Unsupported("its layers do not follow one after another")
            if node.op == "output":
                given = self.given[sources[0]]
                if len(sources) > 1 or not self._is_here(given):
                    raise Unsupported("what it gives is not what its last layer does")
                continue
            if not node.users:
                raise Unsupported(f"nothing reads its {node.name}")
            self._step(node, sources)
        self.reader.shape = given.shape
        self.places["logits"] = given.place
        if not isinstance(getattr(self.module, "projection", None), nn.Module) and "features" in self.places:
            self.places["projection"] = self.places["features"]
        return self

    def _step(self, node: fx.Node, sources: Sequence[fx.Node]) -> None:
        """Reads a node, and notes what it gives."""
        before, reader = self.given[sources[0]], self.reader
        reader.shape, reader.sequence, reader.pair = before.shape, before.sequence, before.pair
        if len(sources) == 2 and node.target in _SUMS and len(node.args) == 2 and not node.kwargs:
            found = self._sum(*(self.given[source] for source in sources))
        elif len(sources) == 1:
            found = reader.read(node)
            if found and not self._is_here(before):
                self.layers.append(From(place=self._kept(before.place)))
            if found and isinstance(found[0], Relu | Dropout) and not _alone(sources[0], self.given):
                raise Unsupported(f"{node.name} changes in place what is read elsewhere")
        else:
            raise Unsupported("its layers do not follow one after another")
        self.layers += found
        place = self._here if found else Place(before.place.layers, math.prod(reader.shape))
        self.given[node] = self._given(place, alias=not found)
        self._name(node, before.place, place)

    def _sum(self, one: _Given, other: _Given) -> tuple[Layer, ...]:
        """What there is, and what was there before."""
        if self._is_here(one):
            one, other = other, one
        if one.shape != other.shape or one.sequence or not self._is_here(other):
            raise Unsupported("it adds what is not of one shape, or was not computed last")
        if self._is_here(one):
            raise Unsupported("it adds something to itself")
        return (Sum(place=self._kept(one.place)),)

    def _given(self, place: Place, *, alias: bool = False) -> _Given:
        """What there is now."""
        return _Given(place, self.reader.shape, self.reader.sequence, self.reader.pair, alias)

    def _is_here(self, given: _Given) -> bool:
        """Whether that is what the last layer gave."""
        return self._kept(given.place) == self._kept(self._here)

    def _kept(self, place: Place) -> int:
        """How many layers lead to a place, not counting dropout."""
        return sum(not isinstance(layer, Dropout) for layer in self.layers[: place.layers])

    @property
    def kept(self) -> list[Layer]:
        """The layers of an evaluation pass."""
        kept = (layer for layer in self.layers if not isinstance(layer, Dropout))
        return [dataclasses.replace(p, live=False) if isinstance(p, BatchNorm) else p for p in kept]

    @property
    def landmarks(self) -> dict[str, tuple[int, int]]:
        """The places, counted without dropout."""
        return {name: (self._kept(place), place.width) for name, place in self.places.items()}

    @property
    def _here(self) -> Place:
        return Place(len(self.layers), math.prod(self.reader.shape))

    def _name(self, node: fx.Node, before: Place, after: Place) -> None:
        """Notes where a node's submodules have their outputs, and the output layer its inputs."""
        layer = self.module.get_submodule(str(node.target)) if node.op == "call_module" else None
        if getattr(layer, "inplace", node.kwargs.get("inplace", False)):
            # What was read before is changed with it.
            self.places |= {name: after for name, place in self.places.items() if place == before}
        for name, _ in node.meta.get("nn_module_stack", {}).values():
            if name not in ("features", "logits"):  # which mean something else, whatever a submodule is called
                self.places[name] = after
        if isinstance(layer, nn.Linear):
            self.places["features"] = before
