"""Step programs: a list of layers over one flat vector, which C++ can run without asking back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from polyrhythm.base.vectors import Segment

Pair = tuple[int, int]


@final
@dataclass(frozen=True, kw_only=True)
class Convolution:
    """out[o, y, x] = bias[o] + sum over c, i, j of weights[o, c, i, j] · in[c, y · stride + i − padding, …]."""

    weights: int
    bias: int
    rows: int
    kernel: Pair
    stride: Pair
    padding: Pair


@final
@dataclass(frozen=True, kw_only=True)
class Linear:
    """out[o] = bias[o] + sum over i of weights[o, i] · in[i], of all that came before, flattened."""

    weights: int
    bias: int
    rows: int


@final
@dataclass(frozen=True, kw_only=True)
class Relu:
    """max(x, 0), in place."""


@final
@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Zero with probability `share`, else x / (1 − share), in place."""

    share: float


@final
@dataclass(frozen=True, kw_only=True)
class MaxPool:
    """The highest of each window; its gradient goes to the first that is as high."""

    kernel: Pair
    stride: Pair
    padding: Pair


@final
@dataclass(frozen=True, kw_only=True)
class AveragePool:
    """The mean of each window; over its whole area, or over what is no padding."""

    kernel: Pair
    stride: Pair
    padding: Pair
    whole_area: bool


@final
@dataclass(frozen=True, kw_only=True)
class Embedding:
    """out[t] = weights[in[t]], the vector of a token, for each of a sample's tokens: a sequence of vectors."""

    weights: int
    tokens: int
    width: int


@final
@dataclass(frozen=True, kw_only=True)
class Gates:
    """out[t] = bias + weights · in[t] along a sequence: what an LSTM's four gates make of its inputs."""

    weights: int
    bias: int
    rows: int


@final
@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """An LSTM's way along a sequence of such gates, i, f, g and o, to which weights · out[t − 1] + bias is added.

    c[t] = σ(f) c[t − 1] + σ(i) tanh(g);  out[t] = σ(o) tanh(c[t]); c and out begin as zeros.
    """

    weights: int
    bias: int
    hidden: int


@final
@dataclass(frozen=True, kw_only=True)
class Last:
    """The last vector of a sequence."""


@final
@dataclass(frozen=True, kw_only=True)
class From:
    """The next layer reads what the first so many layers lead to, not counting dropout."""

    place: int


@final
@dataclass(frozen=True, kw_only=True)
class Sum:
    """What there is, and what the first so many layers lead to, not counting dropout."""

    place: int


@final
@dataclass(frozen=True, kw_only=True)
class Norm:
    """(x − mean) / √(variance + epsilon) over a group of a sample's channels; times weights, plus bias by channel."""

    weights: int
    bias: int
    groups: int
    epsilon: float


@final
@dataclass(frozen=True, kw_only=True)
class BatchNorm:
    """(x − mean) / √(variance + epsilon) of each channel, times weights, plus bias.

    In training both moments are of a batch's samples and pixels, and the running ones move towards them by `momentum`;
    in evaluation, and always if it is not `live`, they are the running ones.
    """

    weights: int
    bias: int
    channels: int
    epsilon: float
    momentum: float
    live: bool


Layer = (
    Convolution
    | Linear
    | Relu
    | Dropout
    | MaxPool
    | AveragePool
    | Embedding
    | Gates
    | Recurrence
    | Last
    | From
    | Sum
    | Norm
    | BatchNorm
)


def shape_after(layer: Layer, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """What a layer makes of a sample of so many channels, height and width; a sequence is one row of pixels."""
    match layer:
        case Linear():
            return layer.rows, 1, 1
        case Embedding():
            return layer.width, 1, math.prod(shape)
        case Gates():
            return layer.rows, *shape[1:]
        case Recurrence():
            return layer.hidden, *shape[1:]
        case Last():
            return shape[0], 1, 1
    if not isinstance(layer, Convolution | MaxPool | AveragePool):
        return shape
    height, width = slid(shape[1:], layer.kernel, layer.stride, layer.padding)
    return layer.rows if isinstance(layer, Convolution) else shape[0], height, width


def slid(sizes: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair) -> tuple[int, ...]:
    """How many places a window has along each side."""
    sides = zip(sizes, kernel, stride, padding, strict=True)
    return tuple((size + 2 * p - k) // s + 1 for size, k, s, p in sides)


@final
@dataclass(frozen=True)
class Place:
    """A place in the network: after its first so many layers, where a sample is so many numbers."""

    layers: int
    width: int


@final
@dataclass(frozen=True, kw_only=True)
class Program:
    """What a step computes.

    Args:
        shape: of a sample, as channels, height and width; samples of another shape are so many channels of 1 × 1.
        layers: in order. Weights and biases are offsets into the flat vector; a bias of −1 is none.
        size: elements of the vector.
        loss: "cross_entropy" or "binary_cross_entropy".
        smoothing: of labels, for cross entropy.
        weight: of each label's loss, for binary cross entropy.
        idle: the parameters that no layer uses: they stay as they are.
        places: where a representation is, by the names that `models.representation.locate` knows.
        statistics: the buffers with the running means and variances of batch norms, in turn, as places in the layout.
        counts: those that count the batches of live ones.
    """

    shape: tuple[int, int, int]
    layers: tuple[Layer, ...]
    size: int
    loss: str
    smoothing: float = 0.0
    weight: float = 1.0
    idle: tuple[Segment, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    statistics: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def reads_tokens(self) -> bool:
        """Whether samples are tokens, whole numbers, in place of what is measured."""
        return isinstance(self.layers[0], Embedding)

    @property
    def outputs(self) -> Place:
        """Where the outputs are."""
        return self.places["logits"]

    def width(self, layer: int) -> int:
        """How many numbers of a sample go into a layer."""
        return math.prod(self.inputs[layer])

    @property
    def inputs(self) -> list[tuple[int, int, int]]:
        """The shapes of what goes into each layer, as channels, height and width."""
        here, found, places = self.shape, list[tuple[int, int, int]](), [self.shape]
        for layer in self.layers:
            here = places[layer.place] if isinstance(layer, From) else here
            found.append(here)
            here = shape_after(layer, here)
            if not isinstance(layer, Dropout):
                places.append(here)
        return found
