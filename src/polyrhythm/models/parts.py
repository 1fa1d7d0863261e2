"""The module that a client with a part of a model trains."""

from __future__ import annotations

from torch import nn

from polyrhythm.base.axes import Narrower
from polyrhythm.base.depths import Shallower
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.portions import Portion
from polyrhythm.models.exits import cut_short
from polyrhythm.models.narrowing import narrow


def part_of(module: nn.Module, portion: Portion, scale: float = 1.0) -> nn.Module:
    """A copy of a module with what a portion has of it; of single weights, all of it.

    Args:
        module: the whole model.
        portion: what to keep of it.
        scale: as in `narrow`.
    """
    if isinstance(portion, Narrower):
        return narrow(module, portion, scale)
    return cut_short(module, portion.depth) if isinstance(portion, Shallower) else copy_of(module)
