"""Which places of a module's parameters have to be cut together, found in one pass of it.

Every dimension of a parameter begins as an axis of its own. Along the way of a batch the dimensions that meet are made
one: a layer's columns with the rows of the layer before, a norm's weights with the channels that it scales, both ends
of a shortcut. What the model gives, and what comes in, is kept whole. Two proofs follow: the units of all axes in
another order must give the same outputs, and the module with half of them must run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from polyrhythm.base.axes import Axes, Axis, Narrower
from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.streams import seeded_torch, stream
from polyrhythm.base.tensor_names import joined, named_parts
from polyrhythm.models.calling import outputs_in
from polyrhythm.models.calls import Refused, Seen
from polyrhythm.models.narrowing import narrow
from polyrhythm.models.passing import RULES
from polyrhythm.models.unifying import Dims, Free, axes_in, fixed, free_in, frozen, keep, resolved

_CLOSE = 1e-4
"""Of the outputs' size: by how much they may differ when units are in another order, in float32."""


def axes_of(module: nn.Module, inputs: Tensor) -> Axes:
    """The axes of a module along which it can be cut.

    Args:
        module: the model; copied, never changed.
        inputs: two samples or more, as a batch.

    Raises:
        UserError: something in it whose width nobody knows how to follow, by name; or nothing in it can be cut.
    """
    flat = FlatModel(module)
    trace = _Trace(flat.module)
    flat.module.train()
    try:
        with seeded_torch(0, "init", "widths"), torch.no_grad(), trace:
            outputs = outputs_in(flat.module(inputs))
    except Refused as reason:
        raise _refusal(module, str(reason)) from None
    for dim in trace.dims(outputs):
        keep(dim)
    return _proven(module, _found(flat, trace), inputs)


@final
class _Trace(TorchFunctionMode):
    """Follows dimensions through every function of torch's that is called."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._known: dict[int, tuple[Tensor, Dims]] = {}
        for prefix, part in named_parts(module):
            for name, tensor in itertools.chain(part._parameters.items(), part._buffers.items()):
                if tensor is None or id(tensor) in self._known:
                    continue
                learns = isinstance(tensor, nn.Parameter) and tensor.requires_grad
                whole = not learns and (isinstance(tensor, nn.Parameter) or name in part._non_persistent_buffers_set)
                where = joined(prefix, name)
                sizes = tensor.shape
                self.say(tensor, tuple(fixed(n) if whole or n == 1 else (Free(where, n),) for n in sizes))

    def say(self, tensor: Tensor, dims: Dims) -> None:
        """Notes the dimensions of a tensor, and keeps it alive, so that no other one is taken for it."""
        self._known[id(tensor)] = tensor, dims

    def dims(self, tensor: Tensor) -> Dims:
        """What is known of a tensor's dimensions."""
        known = self._known.get(id(tensor))
        return tuple(map(fixed, tensor.shape)) if known is None else tuple(map(resolved, known[1]))

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        before = {id(t): self.dims(t) for t in _tensors((args, kwargs))}
        out = func(*args, **kwargs)
        given = _tensors(out)
        if not given or not any(free_in(dim) for dims in before.values() for dim in dims):
            return out
        name = getattr(func, "__name__", str(func))
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        rule = RULES.get(name.strip("_")) or RULES.get(name)
        if rule is None:
            raise Refused(f"what {name} does to widths is not known")
        found = rule(Seen(args=args, kwargs=kwargs, out=out, dims=lambda t: before.get(id(t), self.dims(t))))
        for tensor, dims in zip(given, found, strict=False):
            if id(tensor) not in self._known or tuple(map(resolved, dims)) != self.dims(tensor):
                self.say(tensor, dims)
        return out


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for inner in value.values() for t in _tensors(inner)]
    if isinstance(value, (list, tuple)):
        return [t for inner in value for t in _tensors(inner)]
    return []


def _found(flat: FlatModel, trace: _Trace) -> Axes:
    """What a pass has found, of what is in the vector and beside it."""
    tensors = dict(flat.module.named_parameters()) | dict(flat.module.named_buffers())
    layout = flat.layout
    parameters = [trace.dims(tensors[s.name]) for s in layout.segments]
    buffers = [trace.dims(tensors[s.name]) for s in layout.buffers]
    seen: dict[Free, int] = {}
    for dims in (*parameters, *buffers):
        for axis in [axis for dim in dims for axis in axes_in(dim)]:
            if not axis.met:  # nobody reads what is written there
                keep((axis,))
            elif axis not in seen:
                seen[axis] = len(seen)
    axes = tuple(Axis(axis.name, axis.size, axis.unit) for axis in seen)
    if not axes:
        raise _refusal(flat.module, "no width in it lies between two layers")

    def told(many: Sequence[Dims]) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(frozen(dim, seen) for dim in dims) for dims in many)

    return Axes(axes, layout, told(parameters), told(buffers))


def _proven(module: nn.Module, axes: Axes, inputs: Tensor) -> Axes:
    """The axes, if the module shows that they are right."""
    reordered = Reordered(axes)
    before, flat = _outputs(copy_of(module), inputs), FlatModel(module)
    flat.load(reordered.vector(flat.weights), reordered.buffers(flat.buffers()))
    after = _outputs(flat.module, inputs)
    scale = float(before.abs().max()) or 1.0
    if not torch.allclose(before, after, rtol=0.0, atol=_CLOSE * scale):
        off = float((before - after).abs().max()) / scale
        raise _refusal(module, f"its units in another order give other outputs, off by {off:.2g} of their size")
    halves = axes.portion([range(-(-axis.units // 2)) for axis in axes.axes])
    if halves is not None:
        try:
            shape = _outputs(narrow(module, halves), inputs).shape
        except Exception as error:
            raise _refusal(module, f"with half of its units it fails: {type(error).__name__}: {error}") from error
        if shape != before.shape:
            raise _refusal(module, f"with half of its units it gives {tuple(shape)} in place of {tuple(before.shape)}")
    return axes


def _outputs(module: nn.Module, inputs: Tensor) -> Tensor:
    with seeded_torch(0, "init", "widths"), torch.no_grad():
        outputs: Tensor = outputs_in(module.eval()(inputs))
    return outputs.double()


@final
class Reordered:
    """The same model with the units of every axis in another order.

    Args:
        axes: the model's.
    """

    def __init__(self, axes: Axes) -> None:
        units = [stream(0, "init", "widths", n).permutation(a.units) for n, a in enumerate(axes.axes)]
        self._axes, self._order = axes, Narrower(axes, tuple(units))

    def vector(self, vector: Tensor) -> Tensor:
        """A vector [P] in that order."""
        return self._order.taken(vector)

    def buffers(self, buffers: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Buffers in that order."""
        known = zip(self._axes.layout.buffers, self._axes.buffers, strict=True)
        places = [self._order.elements(slot.shape, dims) for slot, dims in known]
        pairs = zip(buffers, places, strict=True)
        return tuple(b.reshape(-1)[torch.from_numpy(where)].view(b.shape) for b, where in pairs)


def _refusal(module: nn.Module, reason: str) -> UserError:
    return UserError(
        f"{type(module).__name__} cannot be cut in width: {reason}",
        expected="layers whose widths can be followed: linear, convolutions, norms, sums, embeddings, recurrent",
        why="a client that trains a part of the model needs to know which numbers of its layers belong together",
        fix="use such a model, or a recipe in which every client trains all of it",
    )
