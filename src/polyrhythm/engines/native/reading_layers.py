"""What single operations of a traced module do to a sample, as layers of a step program."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import fx, nn
from torch.nn import functional

from polyrhythm.base.vectors import Layout, Slot
from polyrhythm.engines.native.program import (
    AveragePool,
    BatchNorm,
    Convolution,
    Dropout,
    Embedding,
    Gates,
    Last,
    Layer,
    Linear,
    MaxPool,
    Norm,
    Pair,
    Recurrence,
    Relu,
    slid,
)
from polyrhythm.engines.unsupported import Unlike, Unsupported

_STATISTICS = ("running_mean", "running_var")


@final
@dataclass
class LayerReader:
    """Reads operations one by one, and knows what a sample is between them.

    Args:
        module: whose operations they are.
        layout: of its weights.
        shape: of a sample as it is now; whoever reads another node first sets it to what that node is given.
        sequence: whether it is a sequence of vectors, [T, width].
        pair: whether it is the states of an LSTM, which have something beside them.
        used: where parameters begin that were read.
        begun: whether there was a layer.
        training: whether it is read as it trains.
        buffers: which of those that travel were read.
        statistics, counts: those of batch norms, as a program has them.
    """

    module: nn.Module
    layout: Layout
    shape: tuple[int, ...]
    sequence: bool = False
    pair: bool = False
    used: set[int] = field(default_factory=set)
    begun: bool = False
    training: bool = True
    buffers: set[int] = field(default_factory=set)
    statistics: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def read(self, node: fx.Node) -> tuple[Layer, ...]:
        """What a node does to what there is; nothing where it only has another name or shape for it.

        Raises:
            Unsupported: there are no such layers.
        """
        found = self._read(node)
        self.begun = self.begun or bool(found)
        return found

    def _read(self, node: fx.Node) -> tuple[Layer, ...]:
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
        if odd or self.begun or len(self.shape) != 1:
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

    def batch_norm(self, layer: nn.BatchNorm1d | nn.BatchNorm2d, name: str) -> tuple[Layer, ...]:
        axes = 1 if isinstance(layer, nn.BatchNorm1d) else 3
        if len(self.shape) != axes or self.shape[0] != layer.num_features:
            raise Unsupported(f"{name} reads {layer.num_features} channels from samples of shape {self.shape}")
        if not layer.track_running_stats or layer.momentum is None:
            raise Unsupported(f"{name} has no running statistics, or the mean of all batches")
        if layer.weight is None and layer.bias is not None:
            raise Unsupported(f"{name} has a bias and no weight")
        if layer.training and not self.training:
            raise Unlike(f"{name} is in training mode in evaluation")
        shape, counted = (layer.num_features,), self._buffer(f"{name}.num_batches_tracked", (), torch.int64)
        self.statistics += [self._buffer(f"{name}.{what}", shape, torch.float32) for what in _STATISTICS]
        self.counts += [counted] if layer.training else []
        return (
            BatchNorm(
                weights=-1 if layer.weight is None else self._offset(f"{name}.weight", shape),
                bias=-1 if layer.bias is None else self._offset(f"{name}.bias", shape),
                channels=layer.num_features,
                epsilon=layer.eps,
                momentum=layer.momentum,
                live=layer.training,
            ),
        )

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """Which of the buffers that travel it is, if nothing else has read it."""
        for place, slot in enumerate(self.layout.buffers):
            if slot == Slot(name, shape, dtype) and place not in self.buffers:
                self.buffers.add(place)
                return place
        raise Unsupported(f"{name} is used twice, does not travel, or is of another shape or type")

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


_MODULES: Mapping[type, Callable[[LayerReader, Any, str], tuple[Layer, ...]]] = {
    nn.Conv2d: LayerReader.convolution,
    nn.Linear: LayerReader.linear,
    nn.Embedding: LayerReader.embedding,
    nn.LSTM: LayerReader.lstm,
    nn.GroupNorm: LayerReader.norm,
    nn.BatchNorm1d: LayerReader.batch_norm,
    nn.BatchNorm2d: LayerReader.batch_norm,
    nn.AdaptiveAvgPool2d: LayerReader.whole_average,
    nn.ReLU: lambda reader, layer, name: reader.relu(),
    nn.Identity: lambda reader, layer, name: (),
    nn.Flatten: lambda reader, layer, name: reader.flatten(layer.start_dim, layer.end_dim),
    nn.Dropout: lambda reader, layer, name: reader.dropout(layer.p, layer.training),
    nn.MaxPool2d: lambda reader, layer, name: reader.max_pool(
        layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, layer.return_indices
    ),
    nn.AvgPool2d: lambda reader, layer, name: reader.average_pool(
        layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, layer.count_include_pad, layer.divisor_override
    ),
}
"""What reads a layer. Exactly these classes: a subclass may compute something else."""
_RELU = (LayerReader.relu, ("inplace",))
_FLATTEN = (LayerReader.flatten, ("start_dim", "end_dim"))
_MAX_POOL = (LayerReader.max_pool, ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"))
_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_CALLS: Mapping[Any, tuple[Callable[..., tuple[Layer, ...]], tuple[str, ...]]] = {
    functional.relu: _RELU,
    torch.relu: _RELU,
    "relu": _RELU,
    torch.flatten: _FLATTEN,
    "flatten": _FLATTEN,
    functional.max_pool2d: _MAX_POOL,
    torch.max_pool2d: _MAX_POOL,
    functional.avg_pool2d: (LayerReader.average_pool, _AVERAGE),
    functional.dropout: (LayerReader.dropout, ("p", "training", "inplace")),
    operator.getitem: (LayerReader.item, ("index",)),
}
"""What reads a call of a function, or of a method by its name, and the names of its arguments after the first."""
