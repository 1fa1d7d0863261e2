"""What of a module is laid out once, before the first client trains: no pass may add to it, replace or remove it.

A parameter that appears in a pass would never be trained, one that was replaced no longer is; a buffer that appears
would stay with whoever computed last; and hooks would add up from visit to visit.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.tensor_names import joined, named_parts

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@final
class Structure:
    """A module's parts, parameters, buffers and hooks as they are now.

    Args:
        module: it.
        places: its trained parameters that have to stay where they are in memory.
    """

    def __init__(self, module: nn.Module, places: Sequence[nn.Parameter]) -> None:
        self._module, self._learns = module, {id(p) for p in module.parameters() if p.requires_grad}
        self._places = [(p, p.data_ptr()) for p in places]
        self._note()

    def _note(self) -> None:
        parts = list(self._module.modules())
        self._named = _named(self._module)
        self._held = [(s, tuple(s.values())) for m in parts for s in (m._parameters, m._modules)]
        self._buffers = [(m._buffers, len(m._buffers)) for m in parts]
        self._frozen = [p for p in self._module.parameters() if id(p) not in self._learns]
        self._hooks = [getattr(m, name) for m in parts for name in _HOOKS]
        self._hooked = [p for p in self._module.parameters() if id(p) in self._learns]
        self._hooks_then = self._count()

    def check(self) -> None:
        """Goes on if nothing of it has changed.

        Raises:
            UserError: something has, with what.
        """
        if not all(map(_same, self._held)) or any(len(store) != size for store, size in self._buffers):
            self._refuse(_named(self._module))
            self._note()  # a part without parameters and buffers may come and go
        for parameter, place in self._places:
            if parameter.data_ptr() != place:
                raise self._error(f"gives its parameter {self._name_of(parameter)} other memory in a pass", _IN_PLACE)
        for parameter in self._frozen:
            if parameter.requires_grad:
                found = f"thaws its parameter {self._name_of(parameter)} in a pass"
                raise self._error(found, "thaw it before you give the model: parameter.requires_grad_(True)")
        if self._count() > self._hooks_then:
            raise self._error("registers hooks in a pass and leaves them", "register hooks in __init__, once")

    def frozen_sums(self) -> dict[str, float]:
        """A sum over each parameter that does not learn, by name: equal as long as nothing changes it."""
        return {self._name_of(p): _sum(p.detach()) for p in self._frozen}

    def _count(self) -> int:
        return sum(map(len, self._hooks)) + sum(len(p._backward_hooks or ()) for p in self._hooked)

    def _name_of(self, tensor: Tensor) -> str:
        return next((name for name, (_, known) in self._named.items() if known is tensor), "")

    def _refuse(self, now: Mapping[str, tuple[str, Any]]) -> None:
        then = self._named
        for name, (kind, tensor) in now.items():
            if name not in then:
                made = (
                    "make it in __init__ (as None, if a pass fills it)" if kind == "buffer" else "make it in __init__"
                )
                raise self._error(
                    f"makes its {kind} {name} in {'its first batch' if kind == 'parameter' else 'a pass'}",
                    f"{made}; or run one batch through the model, and give that model",
                )
            if kind == "parameter" and tensor is not then[name][1]:
                raise self._error(f"puts another tensor in place of its parameter {name} in a pass", _IN_PLACE)
        if gone := next((name for name in then if name not in now), ""):
            raise self._error(f"removes its {then[gone][0]} {gone} in a pass", "leave it where it is")

    def _error(self, found: str, fix: str) -> UserError:
        return UserError(
            f"{type(self._module).__name__} {found}",
            expected="a model whose parameters, buffers and hooks all exist from the start, and stay",
            why="weights are laid out once, before the first client trains: the rest would neither learn nor travel",
            fix=fix,
        )


_IN_PLACE = "change it in place, under torch.no_grad(): parameter.mul_(…), parameter.copy_(…)"


def _same(held: tuple[Mapping[str, Any], tuple[Any, ...]]) -> bool:
    store, then = held
    return len(store) == len(then) and all(map(operator.is_, store.values(), then))


def _named(module: nn.Module) -> dict[str, tuple[str, Any]]:
    """Parameters and buffers by name: which of the two, and the tensor."""
    found = dict[str, tuple[str, Any]]()
    for prefix, part in named_parts(module):
        found |= {joined(prefix, n): ("parameter", p) for n, p in part._parameters.items() if p is not None}
        found |= {joined(prefix, n): ("buffer", b) for n, b in part._buffers.items()}
    return found


def _sum(tensor: Tensor) -> float:
    flat = tensor.reshape(-1)
    if not flat.is_floating_point():
        return float(flat.real.double().sum()) if flat.is_complex() else float(flat.sum())
    return float(torch.sum(flat, dtype=torch.float64)) + float(torch.linalg.vector_norm(flat, dtype=torch.float64))
