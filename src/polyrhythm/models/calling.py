"""What a model is called with, and what is read of its answer: several arrays, and outputs that are no tensor.

Both stand in hooks of the module, so that whoever calls it gives a batch of samples and has a tensor of outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.vectors import CPU
from polyrhythm.data.structured import Structure


@final
@dataclass(frozen=True)
class Unpacking:
    """Forward pre-hook that gives a model the arrays of a batch, in place of rows of bytes."""

    structure: Structure

    def __call__(
        self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        (rows,) = given
        return self.structure.unpack(rows)


@final
@dataclass(frozen=True)
class Reading:
    """Forward hook that gives the outputs, where a model gives more than these."""

    def __call__(self, module: nn.Module, given: Any, found: Any) -> Any:
        return outputs_in(found)


def outputs_in(found: Any) -> Any:
    """The outputs in what a model gives: `.logits`, "logits" of a mapping, the first of a tuple; else that itself."""
    if isinstance(found, Tensor):
        return found
    named = found.get("logits") if isinstance(found, Mapping) else getattr(found, "logits", None)
    if isinstance(named, Tensor):
        return named
    first = found[0] if isinstance(found, tuple) and found else None
    return first if isinstance(first, Tensor) and first.dim() else found


def calls(module: nn.Module, structure: Structure) -> nn.Module:
    """A copy of a model that takes rows of bytes.

    Raises:
        UserError: it takes no such arrays.
    """
    kind = type(module).__name__
    arguments, named = structure.unpack(torch.zeros(1, structure.width, dtype=torch.uint8))
    try:
        inspect.signature(module.forward).bind(*arguments, **named)
    except TypeError as error:
        how = f"{', '.join(named)} by name" if structure.keyed else f"{len(arguments)} arrays in order"
        raise UserError(
            f"{kind} does not take the arrays of a sample: {error}",
            expected=f"a forward that takes {how}",
            why="a mapping is given to a model by name, model(**arrays), a tuple in order, model(*arrays)",
            fix="name the arrays as forward does, and give it no others",
        ) from None
    except ValueError:
        pass  # a forward that says nothing of what it takes
    copied = copy_of(module, one_base=CPU)
    copied.register_forward_pre_hook(Unpacking(structure), with_kwargs=True)
    copied.register_forward_hook(Reading())
    return copied


def reads(module: nn.Module) -> nn.Module:
    """A copy of a model that gives its outputs alone."""
    copied = copy_of(module, one_base=CPU)
    copied.register_forward_hook(Reading())
    return copied


def bare(module: nn.Module) -> nn.Module:
    """A module without these hooks, which are taken off: what `call` calls."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        own = [key for key, hook in hooks.items() if isinstance(hook, Unpacking | Reading)]
        for key in own:
            for known in (hooks, module._forward_pre_hooks_with_kwargs):
                known.pop(key, None)
    return module


def structure_taken(module: nn.Module) -> Structure | None:
    """What a model takes as rows of bytes, if it does."""
    hooks = module._forward_pre_hooks.values()
    return next((hook.structure for hook in hooks if isinstance(hook, Unpacking)), None)


def call(module: nn.Module, rows: Tensor, structure: Structure | None) -> Any:
    """What a model without these hooks gives for a batch of samples."""
    arguments, named = ((rows,), {}) if structure is None else structure.unpack(rows)
    return outputs_in(module(*arguments, **named))
