"""A narrower copy of a module: with a portion of its units, and hence really smaller matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from polyrhythm.base.axes import Dim, Narrower
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.tensor_names import joined, named_parts
from polyrhythm.base.vectors import CPU, Segment, Slot


def narrow(module: nn.Module, portion: Narrower, scale: float = 1.0) -> nn.Module:
    """A copy of a module that has only the units of a portion, with their weights.

    Sizes that torch's own layers note down follow; a layer of one's own has to read them off its tensors.

    Args:
        module: the whole model.
        portion: what to keep of it.
        scale: what the outputs of linear layers and convolutions are multiplied by in training, where these were cut.
    """
    copied, own, whole = copy_of(module, one_base=CPU), portion.layout, portion.axes.layout
    values = _by_name(portion, module)
    made: dict[int, nn.Parameter] = {}
    for prefix, part in named_parts(copied):
        for name, parameter in list(part._parameters.items()):
            place = joined(prefix, name)
            if parameter is None:
                continue
            if id(parameter) not in made and place in values:
                made[id(parameter)] = nn.Parameter(values[place].to(parameter.dtype))
            if id(parameter) in made:
                setattr(part, name, made[id(parameter)])  # a recurrent layer keeps a list of its own of them
        for name, buffer in list(part._buffers.items()):
            place = joined(prefix, name)
            if buffer is not None and place in values:
                part._buffers[name] = values[place]
        _noted(part)
        if scale != 1.0 and isinstance(part, _SCALED) and _cut(module.get_submodule(prefix), part):
            part.register_forward_hook(Scaler(scale))
    assert [s.name for s in own.segments] == [s.name for s in whole.segments]
    return copied


@final
@dataclass(frozen=True)
class Scaler:
    """Forward hook that multiplies what a layer gives in training."""

    factor: float

    def __call__(self, module: nn.Module, given: Any, found: Tensor) -> Tensor:
        return found * self.factor if module.training else found


_SCALED = (nn.Linear, nn.modules.conv._ConvNd)


def _cut(before: nn.Module, after: nn.Module) -> bool:
    """Whether a layer gives less than it did."""
    return any(getattr(before, name, 0) != getattr(after, name, 0) for name in ("out_features", "out_channels"))


def _by_name(portion: Narrower, module: nn.Module) -> dict[str, Tensor]:
    """The portion's tensors by name."""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    whole, axes = portion.axes.layout, portion.axes
    slots: list[Segment | Slot] = [*whole.segments, *whole.buffers]
    own: list[Segment | Slot] = [*portion.layout.segments, *portion.layout.buffers]
    dims_of: list[tuple[Dim, ...]] = [*axes.parameters, *axes.buffers]
    found: dict[str, Tensor] = {}
    for slot, dims, smaller in zip(slots, dims_of, own, strict=True):
        places = torch.from_numpy(portion.elements(slot.shape, dims))
        found[slot.name] = tensors[slot.name].detach().reshape(-1)[places].view(smaller.shape).clone()
    return found


def _noted(part: nn.Module) -> None:
    """Has a layer's own notes say what its tensors are."""
    shape = {name: tuple(p.shape) for name, p in part._parameters.items() if p is not None}
    notes: dict[str, Any] = {}
    if isinstance(part, nn.Linear):
        notes = {"out_features": shape["weight"][0], "in_features": shape["weight"][1]}
    elif isinstance(part, nn.modules.conv._ConvTransposeNd):
        notes = {"in_channels": shape["weight"][0], "out_channels": shape["weight"][1] * part.groups}
    elif isinstance(part, nn.modules.conv._ConvNd):
        if part.groups > 1 and part.groups == part.in_channels:  # one filter, or several, to each channel
            notes = {"groups": shape["weight"][0] * part.groups // part.out_channels}
            notes["in_channels"] = notes["groups"]
        else:
            notes = {"in_channels": shape["weight"][1] * part.groups}
        notes["out_channels"] = shape["weight"][0]
    elif isinstance(part, nn.modules.batchnorm._NormBase):
        first = next(iter(shape.values()), None) or next(
            (tuple(b.shape) for b in part._buffers.values() if b is not None), None
        )
        notes = {} if not first else {"num_features": first[0]}
    elif isinstance(part, nn.LayerNorm) and "weight" in shape:
        notes = {"normalized_shape": shape["weight"]}
    elif isinstance(part, nn.GroupNorm) and "weight" in shape:
        width = shape["weight"][0]
        groups = part.num_groups if part.num_groups == 1 else part.num_groups * width // part.num_channels
        notes = {"num_groups": groups, "num_channels": width}
    elif isinstance(part, nn.Embedding):
        notes = {"embedding_dim": shape["weight"][1]}
    elif isinstance(part, nn.RNNBase):
        notes = {"input_size": shape["weight_ih_l0"][1], "hidden_size": shape["weight_hh_l0"][1]}
    for name, value in notes.items():
        setattr(part, name, value)
