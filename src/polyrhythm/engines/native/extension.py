"""Programs on the compiled side."""

from __future__ import annotations

from typing import Any, Protocol, cast

from polyrhythm.base.compiled import extension
from polyrhythm.engines.native.program import (
    AveragePool,
    BatchNorm,
    Convolution,
    Dropout,
    Embedding,
    From,
    Gates,
    Last,
    Linear,
    MaxPool,
    Norm,
    Program,
    Recurrence,
    Relu,
    Sum,
)
from polyrhythm.engines.unsupported import NotBuilt


class Rounds(Protocol):
    """The compiled side: room for one thread to run a program's rounds in."""

    def run(self, **given: Any) -> tuple[float, float, float]: ...

    def look(self, **given: Any) -> None: ...

    def trace(self, **given: Any) -> float: ...

    def ahead(self, **given: Any) -> tuple[float, float]: ...

    def back(self, **given: Any) -> None: ...


def holds() -> bool:
    """Whether what was built can hold parameters; an older build cannot."""
    return bool(getattr(extension(), "holds", False))


def compiled(program: Program, kernels: str = "") -> Rounds:
    """A program for one thread.

    Args:
        program: what a step computes.
        kernels: "avx512", "avx2" or "plain"; the best that this processor has if empty.

    Raises:
        NotBuilt: an older build, which lacks some of its layers.
    """
    native = extension()
    built = native.Program(*program.shape, program.size, program.loss, program.smoothing, program.weight)
    if program.reads_tokens or any(isinstance(layer, From | Sum | Norm) for layer in program.layers):
        _check_age(native)
    if program.statistics and not getattr(native, "batch_norms", False):
        raise NotBuilt("it was compiled by an older version, which has no batch norms")
    places = [0]  # of the compiled layers, which count dropout
    for number, layer in enumerate(program.layers):
        match layer:
            case Convolution():
                built.convolution(layer.weights, layer.bias, layer.rows, layer.kernel, layer.stride, layer.padding)
            case Linear():
                built.linear(layer.weights, layer.bias, layer.rows)
            case Relu():
                built.relu()
            case Dropout():
                built.dropout(layer.share)
            case MaxPool():
                built.max_pool(layer.kernel, layer.stride, layer.padding)
            case AveragePool():
                built.average_pool(layer.kernel, layer.stride, layer.padding, layer.whole_area)
            case Embedding():
                built.embedding(layer.weights, layer.tokens, layer.width)
            case Gates():
                built.convolution(layer.weights, layer.bias, layer.rows, (1, 1), (1, 1), (0, 0))
            case Recurrence():
                built.recurrence(layer.weights, layer.bias)
            case Last():
                built.last()
            case From():
                built.from_(places[layer.place])
            case Sum():
                built.sum(places[layer.place])
            case Norm():
                built.norm(layer.weights, layer.bias, layer.groups, layer.epsilon)
            case BatchNorm():
                built.batch_norm(layer.weights, layer.bias, layer.epsilon, layer.momentum, layer.live)
        if not isinstance(layer, Dropout):
            places.append(number + 1)
    return cast(Rounds, native.Rounds(built, kernels))


def _check_age(native: Any) -> None:
    if not getattr(native, "graphs", False):
        raise NotBuilt("it was compiled by an older version, which has no sequences, sums of layers, or norms")
