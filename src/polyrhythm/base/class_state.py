"""What modules of a class share: data that a pass may change, which no instance of it holds.

Looked at are attributes of the class and, of its methods, defaults, variables around them, and global variables that
they name; and the same of functions, classes and objects that are found there, if they are defined in the same file.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
import torch

_MANY = 10_000  # elements of a container beyond which it is a table, and nothing to count with
_SIZED = (list, dict, set, tuple, collections.deque, collections.Counter, collections.defaultdict)
_STREAMS = {
    *(("itertools", "count"), ("random", "Random")),
    *(("numpy.random._generator", "Generator"), ("numpy.random.mtrand", "RandomState")),
}
_WRAPPERS = {property: "fget", classmethod: "__func__", staticmethod: "__func__", functools.cached_property: "func"}

Found = Iterator[tuple[str, Any]]


def shared_by(kind: type) -> Found:
    """Such data by name, each in a form that can be compared with what it is later."""
    return _of_class(kind, "", kind.__module__, set())


def _of_class(kind: type, prefix: str, home: str, visited: set[int]) -> Found:
    if id(kind) in visited:
        return
    visited.add(id(kind))
    for name, value in vars(kind).items():
        inside = getattr(value, _WRAPPERS.get(type(value), ""), value)
        if isinstance(inside, FunctionType):
            yield from _of_function(inside, name, home, visited)
        elif not name.startswith("__"):
            yield from _of(inside, f"{prefix}{name}", home, visited)


def _of_function(function: FunctionType, name: str, home: str, visited: set[int]) -> Found:
    if id(function) in visited:
        return
    visited.add(id(function))
    named = {word: function.__globals__[word] for word in _words(function.__code__) if word in function.__globals__}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    named |= {word: _inside(cell) for word, cell in cells}
    for word, value in named.items():
        yield from _of(value, word, home, visited)
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _of(default, f"{name}'s default", home, visited)


def _words(code: CodeType) -> Iterator[str]:
    """The names in a function, also in those that it makes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)


def _inside(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def _of(value: Any, name: str, home: str, visited: set[int]) -> Found:
    if isinstance(value, FunctionType | type):
        if value.__module__ == home and not (isinstance(value, type) and issubclass(value, torch.nn.Module)):
            look = _of_function if isinstance(value, FunctionType) else _of_class
            yield from look(value, name if isinstance(value, FunctionType) else f"{name}.", home, visited)  # type: ignore[arg-type]
    elif isinstance(value, torch.Generator):
        yield name, value.get_state().numpy().tobytes()
    elif _is_data(value):
        yield name, value
    elif type(value).__module__ == home and not isinstance(value, torch.nn.Module) and id(value) not in visited:
        visited.add(id(value))
        yield from _of_class(type(value), f"{name}.", home, visited)
        for attribute, inside in getattr(value, "__dict__", {}).items():
            yield from _of(inside, f"{name}.{attribute}", home, visited)


def _is_data(value: Any) -> bool:
    if type(value) in _SIZED:
        return len(value) <= _MANY
    if isinstance(value, np.ndarray):
        return value.size <= _MANY
    return type(value) in (bool, int, float, str) or (type(value).__module__, type(value).__name__) in _STREAMS
