"""Reading a module as a step program.

The module is traced symbolically, so it does not matter whether it is written with layers or with functions. What the
program cannot say exactly is refused with a reason, and never approximated; that it says what the module does is held
to torch before a run (`engines.proof`).
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import fx, nn
from torch.nn import functional

from polyrhythm.base.vectors import Layout
from polyrhythm.engines.native.program import (
    AveragePool,
    Convolution,
    Dropout,
    Embedding,
    From,
    Gates,
    Last,
    Layer,
    Linear,
    MaxPool,
    Norm,
    Pair,
    Place,
    Program,
    Recurrence,
    Relu,
    Sum,
    slid,
)
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
    layers = tuple(walk.layers)
    if not any(isinstance(layer, Convolution | Linear | Embedding) for layer in layers):
        raise Unsupported("no layer of it learns")
    if len(walk.shape) != 1:
        raise Unsupported(f"it gives outputs of shape {walk.shape} for a sample")
    channels, height, width = shape if len(shape) == 3 else (math.prod(shape), 1, 1)
    program = Program(
        shape=(channels, height, width),
        layers=layers,
        size=layout.size,
        loss="cross_entropy",
        idle=tuple(s for s in layout.segments if s.offset not in walk.used),
        places=walk.places,
    )
    return _with_loss(program, task, outputs=walk.shape[0])


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
    if any(True for _ in module.buffers()):
        raise Unsupported("it has buffers, which its passes may change")
    first: _Walk | None = None
    for way, replica, graph in traces(module):
        try:
            walk = _Walk(replica, layout, shape).along(graph)
        except Unsupported as reason:
            if first is None:
                raise
            raise Unlike(f"in {way}, {reason}") from reason
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


@final
@dataclass(frozen=True)
class _Given:
    """What a node gives: where that is, the shape of a sample, and whether it is that of the node before."""

    place: Place
    shape: tuple[int, ...]
    sequence: bool = False
    pair: bool = False
    alias: bool = False


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
    """A walk through a traced module, which keeps the shape of a sample as it goes."""

    module: nn.Module
    layout: Layout
    shape: tuple[int, ...]
    sequence: bool = False  # whether a sample is one, of vectors, [T, width]
    pair: bool = False  # and the states of one have something beside them
    layers: list[Layer] = field(default_factory=list)
    given: dict[fx.Node, _Given] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    places: dict[str, Place] = field(default_factory=dict)

    def along(self, graph: fx.Graph) -> _Walk:
        """Reads the layers of a graph, each of which reads what one before gives, or the sum of two."""
        given = _Given(self._here, self.shape, self.sequence, self.pair)
        for node in graph.nodes:
            if node.op == "placeholder" and not self.given:
                self.given[node] = given
                continue
            sources = node.all_input_nodes
            if not sources or any(source not in self.given for source in sources):
                raise Unsupported("its layers do not follow one after another")
            if node.op == "output":
                given = self.given[sources[0]]
                if len(sources) > 1 or self._kept(given.place) != self._kept(self._here):
                    raise Unsupported("what it gives is not what its last layer does")
                continue
            if not node.users:
                raise Unsupported(f"nothing reads its {node.name}")
            self._step(node, sources)
        self.shape = given.shape
        self.places["logits"] = given.place
        if not isinstance(getattr(self.module, "projection", None), nn.Module) and "features" in self.places:
            self.places["projection"] = self.places["features"]
        return self

    def _step(self, node: fx.Node, sources: Sequence[fx.Node]) -> None:
        """Reads a node, and notes what it gives."""
        before = self.given[sources[0]]
        self.shape, self.sequence, self.pair = before.shape, before.sequence, before.pair
        if len(sources) == 2 and node.target in _SUMS and len(node.args) == 2 and not node.kwargs:
            found = self._sum(*(self.given[source] for source in sources))
        elif len(sources) == 1:
            found = self._read(node)
            if found and self._kept(before.place) != self._kept(self._here):
                self.layers.append(From(place=self._kept(before.place)))
            if found and isinstance(found[0], Relu | Dropout) and not _alone(sources[0], self.given):
                raise Unsupported(f"{node.name} changes in place what is read elsewhere")
        else:
            raise Unsupported("its layers do not follow one after another")
        self.layers += found
        place = self._here if found else Place(before.place.layers, math.prod(self.shape))
        self.given[node] = _Given(place, self.shape, self.sequence, self.pair, alias=not found)
        self._name(node, before.place, place)

    def _sum(self, one: _Given, other: _Given) -> tuple[Layer, ...]:
        """What there is, and what was there before."""
        if self._kept(one.place) == self._kept(self._here):
            one, other = other, one
        if one.shape != other.shape or one.sequence or self._kept(other.place) != self._kept(self._here):
            raise Unsupported("it adds what is not of one shape, or was not computed last")
        if self._kept(one.place) == self._kept(other.place):
            raise Unsupported("it adds something to itself")
        return (Sum(place=self._kept(one.place)),)

    def _kept(self, place: Place) -> int:
        """How many layers lead to a place, not counting dropout."""
        return sum(not isinstance(layer, Dropout) for layer in self.layers[: place.layers])

    @property
    def kept(self) -> list[Layer]:
        """The layers of an evaluation pass."""
        return [layer for layer in self.layers if not isinstance(layer, Dropout)]

    @property
    def landmarks(self) -> dict[str, tuple[int, int]]:
        """The places, counted without dropout."""
        dropped = [sum(isinstance(p, Dropout) for p in self.layers[:i]) for i in range(len(self.layers) + 1)]
        return {name: (p.layers - dropped[p.layers], p.width) for name, p in self.places.items()}

    @property
    def _here(self) -> Place:
        return Place(len(self.layers), math.prod(self.shape))

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

    def _read(self, node: fx.Node) -> tuple[Layer, ...]:
        """What a node does; its outputs' shape is then the walk's."""
        if node.op == "call_module":
            name = str(node.target)
            layer = self.module.get_submodule(name)
            if type(layer) not in _MODULES:
                raise Unsupported(f"{name} is a {type(layer).__name__}")
            return _MODULES[type(layer)](self, layer, name)
        if node.op == "get_attr" or node.target not in _CALLS:
            raise Unsupported(f"it uses {getattr(node.target, '__name__', node.target)}")
        read, names = _CALLS[node.target]
        return read(self, **dict(zip(names, node.args[1:], strict=False)), **node.kwargs)

    def _offset(self, name: str, shape: tuple[int, ...]) -> int:
        """Where a parameter lies in the vector, if it is as large as its layer says."""
        for segment in self.layout.segments:
            if segment.name == name and segment.offset not in self.used:
                if segment.shape != shape:
                    raise Unsupported(f"{name} is of shape {segment.shape}, where its layer says {shape}")
                self.used.add(segment.offset)
                return segment.offset
        raise Unsupported(f"{name} is used twice, or no parameter of the model")

    def _offsets(self, layer: nn.Conv2d | nn.Linear, name: str, shape: tuple[int, ...]) -> dict[str, Any]:
        bias = -1 if layer.bias is None else self._offset(f"{name}.bias", shape[:1])
        return {"weights": self._offset(f"{name}.weight", shape), "bias": bias}

    def convolution(self, layer: nn.Conv2d, name: str) -> tuple[Layer, ...]:
        plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        if not plain or isinstance(layer.padding, str):
            raise Unsupported(f"{name} has groups, dilation, or a padding that is not a number of zeros")
        if self.shape[:1] != (layer.in_channels,):
            raise Unsupported(f"{name} reads {layer.in_channels} channels from samples of shape {self.shape}")
        window = self._slide(name, layer.kernel_size, layer.stride, layer.padding, channels=layer.out_channels)
        offsets = self._offsets(layer, name, (layer.out_channels, layer.in_channels, *window["kernel"]))
        return (Convolution(rows=layer.out_channels, **offsets, **window),)

    def linear(self, layer: nn.Linear, name: str) -> tuple[Layer, ...]:
        if self.shape != (layer.in_features,):
            raise Unsupported(f"{name} reads {layer.in_features} numbers from samples of shape {self.shape}")
        self.shape = (layer.out_features,)
        offsets = self._offsets(layer, name, (layer.out_features, layer.in_features))
        return (Linear(rows=layer.out_features, **offsets),)

    def embedding(self, layer: nn.Embedding, name: str) -> tuple[Layer, ...]:
        odd = layer.padding_idx is not None or layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse
        if odd or self.layers or len(self.shape) != 1:
            raise Unsupported(f"{name} does more than to look up the tokens of a sample")
        tokens, width = layer.num_embeddings, layer.embedding_dim
        self.shape, self.sequence = (*self.shape, width), True
        return (Embedding(weights=self._offset(f"{name}.weight", (tokens, width)), tokens=tokens, width=width),)

    def lstm(self, layer: nn.LSTM, name: str) -> tuple[Layer, ...]:
        if not layer.batch_first or layer.bidirectional or layer.proj_size or (layer.dropout and layer.num_layers > 1):
            raise Unsupported(f"{name} is bidirectional, drops out, projects, or has its batch as second axis")
        if not self.sequence or self.shape[1] != layer.input_size:
            raise Unsupported(f"{name} reads sequences of {layer.input_size} from samples of shape {self.shape}")
        found, rows = list[Layer](), 4 * layer.hidden_size
        for number in range(layer.num_layers):
            given = [
                (
                    self._offset(f"{name}.weight_{what}_l{number}", (rows, width)),
                    self._offset(f"{name}.bias_{what}_l{number}", (rows,)) if layer.bias else -1,
                )
                for what, width in (("ih", self.shape[1]), ("hh", layer.hidden_size))
            ]
            found.append(Gates(weights=given[0][0], bias=given[0][1], rows=rows))
            found.append(Recurrence(weights=given[1][0], bias=given[1][1], hidden=layer.hidden_size))
            self.shape = (self.shape[0], layer.hidden_size)
        self.pair = True
        return tuple(found)

    def item(self, index: Any) -> tuple[Layer, ...]:
        if self.pair and index == 0:
            self.pair = False
            return ()
        if self.sequence and not self.pair and index in ((slice(None), -1), (slice(None), -1, slice(None))):
            self.shape, self.sequence = self.shape[1:], False
            return (Last(),)
        raise Unsupported("it takes other parts of what a layer gives than its last state")

    def relu(self, inplace: bool = False) -> tuple[Layer, ...]:
        self._no_sequence()
        return (Relu(),)

    def _no_sequence(self) -> None:
        """Refuses what would change states that the way back through them reads."""
        if self.sequence:
            raise Unsupported("something else than an LSTM reads a whole sequence")

    def dropout(self, p: float = 0.5, training: bool = True, inplace: bool = False) -> tuple[Layer, ...]:
        if training and p:
            self._no_sequence()
        return (Dropout(share=p),) if training and p else ()

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> tuple[Layer, ...]:
        self._no_sequence()
        if start_dim != 1 or end_dim not in (-1, len(self.shape)):
            raise Unsupported(f"it flattens axes {start_dim} to {end_dim}")
        self.shape = (math.prod(self.shape),)
        return ()

    def norm(self, layer: nn.GroupNorm, name: str) -> tuple[Layer, ...]:
        if len(self.shape) != 3 or self.shape[0] != layer.num_channels:
            raise Unsupported(f"{name} reads {layer.num_channels} channels from samples of shape {self.shape}")
        shape, offsets = (layer.num_channels,), {"weights": -1, "bias": -1}
        if layer.affine:
            offsets = {"weights": self._offset(f"{name}.weight", shape), "bias": self._offset(f"{name}.bias", shape)}
        return (Norm(**offsets, groups=layer.num_groups, epsilon=layer.eps),)

    def whole_average(self, layer: nn.AdaptiveAvgPool2d, name: str) -> tuple[Layer, ...]:
        if layer.output_size not in (1, (1, 1)) or len(self.shape) != 3:
            raise Unsupported(f"{name} averages over parts of an image")
        height, width = self.shape[1:]
        return (AveragePool(**self._slide(name, (height, width), (height, width), 0), whole_area=True),)

    def max_pool(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Layer, ...]:
        if ceil_mode or return_indices or _pair(dilation) != (1, 1):
            raise Unsupported("it pools with dilation, ceil_mode or indices")
        return (MaxPool(**self._slide("a pooling", kernel_size, stride or kernel_size, padding)),)

    def average_pool(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> tuple[Layer, ...]:
        if ceil_mode or divisor_override is not None:
            raise Unsupported("it pools with ceil_mode or a divisor")
        window = self._slide("a pooling", kernel_size, stride or kernel_size, padding)
        return (AveragePool(**window, whole_area=count_include_pad),)

    def _slide(self, name: str, kernel: Any, stride: Any, padding: Any, channels: int | None = None) -> dict[str, Any]:
        """Slides a window over an image, and keeps the shape that it leaves."""
        if len(self.shape) != 3:
            raise Unsupported(f"{name} reads samples of shape {self.shape}")
        window = {"kernel": _pair(kernel), "stride": _pair(stride), "padding": _pair(padding)}
        self.shape = (channels or self.shape[0], *slid(self.shape[1:], **window))
        return window


def _pair(value: Any) -> Pair:
    first, second = (value, value) if isinstance(value, int) else value
    return first, second


_MODULES: Mapping[type, Callable[[_Walk, Any, str], tuple[Layer, ...]]] = {
    nn.Conv2d: _Walk.convolution,
    nn.Linear: _Walk.linear,
    nn.Embedding: _Walk.embedding,
    nn.LSTM: _Walk.lstm,
    nn.GroupNorm: _Walk.norm,
    nn.AdaptiveAvgPool2d: _Walk.whole_average,
    nn.ReLU: lambda walk, layer, name: walk.relu(),
    nn.Identity: lambda walk, layer, name: (),
    nn.Flatten: lambda walk, layer, name: walk.flatten(layer.start_dim, layer.end_dim),
    nn.Dropout: lambda walk, layer, name: walk.dropout(layer.p, layer.training),
    nn.MaxPool2d: lambda walk, layer, name: walk.max_pool(
        layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, layer.return_indices
    ),
    nn.AvgPool2d: lambda walk, layer, name: walk.average_pool(
        layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, layer.count_include_pad, layer.divisor_override
    ),
}
"""What reads a layer. Exactly these classes: a subclass may compute something else."""
_SUMS = (operator.add, torch.add)
_RELU = (_Walk.relu, ("inplace",))
_FLATTEN = (_Walk.flatten, ("start_dim", "end_dim"))
_MAX_POOL = (_Walk.max_pool, ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"))
_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_CALLS: Mapping[Any, tuple[Callable[..., tuple[Layer, ...]], tuple[str, ...]]] = {
    functional.relu: _RELU,
    torch.relu: _RELU,
    "relu": _RELU,
    torch.flatten: _FLATTEN,
    "flatten": _FLATTEN,
    functional.max_pool2d: _MAX_POOL,
    torch.max_pool2d: _MAX_POOL,
    functional.avg_pool2d: (_Walk.average_pool, _AVERAGE),
    functional.dropout: (_Walk.dropout, ("p", "training", "inplace")),
    operator.getitem: (_Walk.item, ("index",)),
}
"""What reads a call of a function, or of a method by its name, and the names of its arguments after the first."""
