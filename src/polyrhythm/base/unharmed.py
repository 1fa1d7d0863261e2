"""A module whose passes are tried out before anybody knows whether they change what they must not."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


def unharmed(module: nn.Module) -> contextlib.AbstractContextManager[object]:
    """A block after which the frozen parameters of a module are what they were.

    Copies of a module share their memory, the one that a user gave included. What a pass writes into it is undone here,
    so that a model that does so can be refused, and is left as it was given.
    """
    frozen = [p.detach() for p in module.parameters() if not p.requires_grad]
    return _Undone(frozen) if frozen else contextlib.nullcontext()


@final
class _Undone(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__
    """Keeps the values of tensors before an operation first writes into them: memory is taken by those alone."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._of = {t.untyped_storage().data_ptr(): t for t in tensors}
        self._kept: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        for place, argument in enumerate(func._schema.arguments) if func._schema.is_mutable else ():
            given = args[place] if place < len(args) else named.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in given if isinstance(given, (list, tuple)) else [given]:
                    if isinstance(tensor, Tensor):
                        self._keep(tensor.untyped_storage().data_ptr())
        return func(*args, **named)

    def _keep(self, where: int) -> None:
        if where in self._of and where not in self._kept:
            self._kept[where] = self._of[where].clone()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for where, value in self._kept.items():
                self._of[where].copy_(value)
