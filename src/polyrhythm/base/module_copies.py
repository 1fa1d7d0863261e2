"""Copies of modules, hooks on parameters included: these change gradients in a copy as in the module that was given."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.tensor_names import joined, named_parts
from polyrhythm.base.vectors import ALIGNMENT

Hooks = Mapping[str, tuple[Callable[[Tensor], Tensor | None], ...]]


def hooks_of(module: nn.Module) -> Hooks:
    """The hooks on a module's parameters, by the parameter's name: copies and pickles of parameters have none."""
    hooked = ((name, p._backward_hooks) for name, p in module.named_parameters() if p.requires_grad)
    return {name: tuple(hooks.values()) for name, hooks in hooked if hooks}


def hang(hooks: Hooks, module: nn.Module) -> nn.Module:
    """Registers hooks on a module's parameters."""
    for name, some in hooks.items():
        for hook in some:
            parameter: Any = module.get_parameter(name)  # torch has no types for this
            parameter.register_hook(hook)
    return module


def copy_of(module: nn.Module, *, one_base: torch.device | None = None) -> nn.Module:
    """A deep copy, hooks on parameters included.

    Args:
        module: it.
        one_base: where the copy is to compute; there its frozen parameters lie in the very memory of the module's, as
            nobody changes them: all copies of a large model then take the memory of its trainable part. None copies
            everything.

    Raises:
        UserError: it cannot be copied.
    """
    _refuse_computed(module)
    memo: dict[int, Any] = {}
    if one_base is not None:  # in parameters of their own: what a pass thaws or replaces, it does in its copy
        memo |= {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in _base(module, one_base)}
    try:
        # With the same memo: a hook that is a method of a part of the module becomes one of the copy's.
        return hang(copy.deepcopy(hooks_of(module), memo), copy.deepcopy(module, memo))
    except Exception as error:
        raise UserError(
            f"{type(module).__name__} cannot be copied: {error}",
            expected="a module that copy.deepcopy can copy",
            why="training must leave the module you gave as it is",
            fix="give it before its first forward pass if it keeps activations as attributes; use "
            "torch.nn.utils.parametrizations in place of the old weight_norm",
        ) from error


def _base(module: nn.Module, device: torch.device) -> list[nn.Parameter]:
    """The frozen parameters that copies may share, as they lie where a copy of them would.

    One off a border of 64 bytes, such as a part of a mapped file, is copied: kernels may give other bits there.
    """
    frozen = (p for p in module.parameters() if not p.requires_grad and p.device == device)
    plain = (p for p in frozen if type(p) is nn.Parameter and p.layout is torch.strided)
    return [p for p in plain if p.data_ptr() % ALIGNMENT == 0 and p.is_contiguous() and not p.is_inference()]


def refuse_lazy(module: nn.Module) -> None:
    """Goes on if all parameters and buffers have a shape, and values in this machine's memory.

    Raises:
        UserError: a layer takes its shape in its first pass only, or a tensor lies elsewhere.
    """
    kinds = {nn.parameter.UninitializedParameter: "parameter", nn.parameter.UninitializedBuffer: "buffer"}
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        if type(tensor) in kinds:
            raise UserError(
                f"{type(module).__name__}: {kinds[type(tensor)]} {name!r} has no shape yet",
                expected="a model whose parameters all exist",
                why="the weights are laid out once, before the first client trains",
                fix="run one batch through the model (lazy layers take their shape then), and give that model",
            )
        if tensor.device.type != "cpu":
            raise UserError(
                f"{type(module).__name__}: {name!r} is on the device {tensor.device}",
                expected="a model on the processor, with values in all its parameters and buffers",
                why="every client begins with a copy of them, in the memory of this machine",
                fix="give it values: model.to_empty(device='cpu'), then load or initialise them"
                if tensor.is_meta
                else "give model.cpu(); `device` of Execution says where it computes",
            )


def _refuse_computed(module: nn.Module) -> None:
    """Refuses a layer whose weights are no parameters, but computed before each pass, and cannot be copied then."""
    for name, part in named_parts(module):
        for hook in part._forward_pre_hooks.values():
            kind = next((k for k in type(hook).__mro__ if k.__module__ in _COMPUTING), None)
            if kind is not None:
                tensor = str(getattr(hook, "_tensor_name", getattr(hook, "name", "weight")))
                raise UserError(
                    f"{type(module).__name__} cannot be copied: {joined(name, tensor)} is computed before each pass "
                    f"by {kind.__module__}",
                    expected="a module that copy.deepcopy can copy",
                    why="training must leave the module you gave as it is",
                    fix=_COMPUTING[kind.__module__],
                )


_COMPUTING = {
    "torch.nn.utils.weight_norm": "use torch.nn.utils.parametrizations.weight_norm",
    "torch.nn.utils.spectral_norm": "use torch.nn.utils.parametrizations.spectral_norm",
    "torch.nn.utils.prune": "make the pruning permanent, with torch.nn.utils.prune.remove; what is to stay at zero in "
    "training needs a parametrization (torch.nn.utils.parametrize) that masks it",
}
"""Where torch's hooks are that compute weights, and what to do in place of them."""
