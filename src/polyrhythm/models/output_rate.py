"""A learning rate of its own for a model's output layer, whatever trains the model and though it has one rate for all.

The layer's weights W are stored as V = W / sqrt(r), and used as sqrt(r) V. A step of plain SGD on V is

    V − η ∂loss/∂V = V − η sqrt(r) ∂loss/∂W,  so  W − r η ∂loss/∂W

exactly a step on W at r times the rate. Nobody else needs to know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

from torch import Tensor, nn
from torch.nn.utils import parametrize

from polyrhythm.base.errors import UserError
from polyrhythm.base.module_copies import copy_of


@final
class _Scaled(nn.Module):
    """W = scale · V."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, stored: Tensor) -> Tensor:
        return self.scale * stored

    def right_inverse(self, weights: Tensor) -> Tensor:
        return weights / self.scale


def with_rate(module: nn.Module, layer: str, rate: float) -> nn.Module:
    """A copy of a model of which one layer learns at a rate of its own under plain SGD.

    Args:
        module: not changed.
        layer: the name of the layer, as in `named_modules()`.
        rate: how many times the rate of the others, > 0.

    Raises:
        UserError: the layer shares its weights with another, or computes them.
    """
    changed = copy_of(module)
    place = changed.get_submodule(layer)
    everywhere = [parameter for _, parameter in changed.named_parameters(remove_duplicate=False)]
    for part in _parts(place):
        if sum(parameter is getattr(place, part) for parameter in everywhere) != 1:
            raise UserError(
                f"{type(module).__name__}: the {part} of its output layer {layer!r} is shared with another layer, or "
                "computed from something else",
                expected="an output layer with parameters of its own",
                why="it is to learn at a rate of its own",
                fix="leave that rate at 1, or untie the layer",
            )
        parametrize.register_parametrization(place, part, _Scaled(math.sqrt(rate)))
    return changed


def folded(state: Mapping[str, Tensor], layer: str, rate: float) -> dict[str, Tensor]:
    """The state dict of such a copy under the names and with the weights of the model it was made of."""
    prefix = f"{layer}." if layer else ""
    stored = {f"{prefix}parametrizations.{part}.original": f"{prefix}{part}" for part in ("weight", "bias")}
    scale = math.sqrt(rate)
    return {stored.get(name, name): scale * tensor if name in stored else tensor for name, tensor in state.items()}


def _parts(layer: nn.Module) -> list[str]:
    return [part for part in ("weight", "bias") if getattr(layer, part) is not None]
