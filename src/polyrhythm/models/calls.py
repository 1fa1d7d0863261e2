"""Calls of torch's functions, as the rules for widths see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from polyrhythm.models.unifying import Dims


class Refused(Exception):
    """Something whose widths nobody knows how to follow; says what."""


@final
@dataclass(frozen=True, kw_only=True)
class Seen:
    """A call of a function.

    Args:
        args, kwargs, out: what it was given, and gave.
        dims: the dimensions of a tensor as they were before.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Any
    dims: Callable[[Tensor], Dims]

    def arg(self, place: int, name: str, default: Any = None) -> Any:
        """An argument by its place, or by its name."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)

    @property
    def first(self) -> Tensor:
        """Its first tensor."""
        return next(a for a in (*self.args, *self.kwargs.values()) if isinstance(a, Tensor))


Rule = Callable[[Seen], Sequence[Dims]]


def results(out: Any) -> list[Tensor]:
    """The tensors that a function gave."""
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, (tuple, list)):
        return [t for inner in out for t in results(inner)]
    return []
