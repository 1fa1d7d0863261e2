"""The tensors of a module by name, as in the plain model: whatever a wrapper or a `state_dict` of its own calls them.

`torch.compile`, `nn.DataParallel`, FSDP and checkpointing put a model inside of another module, under names
(`_orig_mod.0.weight`, `module.0.weight`) that the model itself would not load. Here such a wrapper adds nothing to a
name, wherever in a module it is. A tensor that is held twice (tied weights) has all of its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

_INSIDE: Mapping[tuple[str, str], str] = {  # by name, since importing the compiler takes seconds
    ("torch._dynamo.eval_frame", "OptimizedModule"): "_orig_mod",
    ("torch.nn.parallel.data_parallel", "DataParallel"): "module",
    ("torch.nn.parallel.distributed", "DistributedDataParallel"): "module",
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"): "_fsdp_wrapped_module",
    ("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "CheckpointWrapper"): "_checkpoint_wrapped_module",
}


def named_parts(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """A module and all parts of it, in the order of `named_modules`; those that are held twice under all names."""
    yield prefix, module
    kinds = ((kind.__module__, kind.__name__) for kind in type(module).__mro__)
    inside = next((_INSIDE[kind] for kind in kinds if kind in _INSIDE), None)
    for name, part in module._modules.items():
        if part is not None:
            yield from named_parts(part, prefix if name == inside else joined(prefix, name))


def joined(prefix: str, name: str) -> str:
    """The name of something in a part."""
    return f"{prefix}.{name}" if prefix else name


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and persistent buffers, not copied; what `state_dict` gives of a plain model."""
    found = dict[str, Tensor]()
    for prefix, part in named_parts(module):
        kept = {n: b for n, b in part._buffers.items() if n not in part._non_persistent_buffers_set}
        found |= {joined(prefix, n): t.detach() for n, t in {**part._parameters, **kept}.items() if t is not None}
    return found


def frozen_in(module: nn.Module) -> dict[str, Tensor]:
    """What of the state nobody changes: parameters that take no gradient, and whatever shares their memory."""
    frozen = {p.data_ptr() for p in module.parameters() if not p.requires_grad and p.numel()}
    return {name: tensor for name, tensor in state_of(module).items() if tensor.data_ptr() in frozen}


def fill(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copies a state into a module that has exactly these names."""
    with torch.no_grad():
        for name, tensor in state_of(module).items():
            tensor.copy_(state[name])


_ADDED = frozenset(_INSIDE.values()) - {"module"}
"""Names that nobody else gives to a part."""


def plain(name: str, own: Mapping[str, Tensor]) -> str:
    """A name without the wrappers in it, if only so it is one of a module's own."""
    parts = name.split(".")
    shorter = ".".join(part for part in parts if part not in _ADDED)
    for other in (name, shorter, shorter.removeprefix("module.")):
        if other in own:
            return other
    return name
