"""Values as JSON and tensors, without pickle: reading a file makes values of known classes and runs nothing.

What can be written is what states are made of: numbers, texts, tensors, arrays, lists, tuples, dicts, persistent maps,
bytes, and dataclasses that are known by name. All come back with their types, every bit of a number, the order of
dicts, and one tensor that stood in several places as one tensor.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from immutables import Map
from torch import Tensor

from polyrhythm.base.errors import UserError

Fetch = Callable[[int], Tensor]
"""Gives a tensor by its number."""


@final
class Codec:
    """Writes and reads values of some classes.

    Args:
        classes: dataclasses that may occur.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = {kind.__name__: kind for kind in classes}
        self._fields = {name: [f.name for f in dataclasses.fields(kind)] for name, kind in self._classes.items()}

    def encode(self, value: object) -> tuple[Mapping[str, Any], list[Tensor]]:
        """A value as a tree of what JSON has, and the tensors in it, as they are.

        Raises:
            TypeError: there is something in it that states are not made of.
        """
        writer = Writer(self._fields)
        tree = writer.put(value)
        return {"classes": {name: self._fields[name] for name in sorted(writer.used)}, "value": tree}, writer.tensors

    def decode(self, tree: Mapping[str, Any], tensor: Fetch) -> Any:
        """The value that was encoded.

        Raises:
            UserError: a class or a field that this version does not have.
        """
        for name, fields in tree["classes"].items():
            if fields != self._fields.get(name):
                raise UserError(
                    f"a {name} with {', '.join(fields)}",
                    expected=f"one with {', '.join(self._fields[name])}" if name in self._fields else "a known class",
                    why="it was written by another version of polyrhythm, or is no file of a run at all",
                    fix="use the version that wrote it",
                )
        return self._made(tree["value"], tensor)

    def _made(self, tree: Any, tensor: Fetch) -> Any:
        if isinstance(tree, list):
            return [self._made(item, tensor) for item in tree]
        if not isinstance(tree, dict):
            return tree
        ((kind, inner),) = tree.items()
        if kind == "float":
            return float(inner)
        if kind == "tensor":
            return tensor(inner)
        if kind == "array":
            return tensor(inner).numpy()
        if kind == "number":
            return tensor(inner).numpy()[()]
        if kind == "bytes":
            return tensor(inner).numpy().tobytes()
        items = [self._made(item, tensor) for item in inner]
        if kind == "tuple":
            return tuple(items)
        if kind in ("dict", "map"):
            pairs = dict(zip(items[::2], items[1::2], strict=True))
            if 2 * len(pairs) != len(items):
                raise ValueError("a key twice")
            return pairs if kind == "dict" else Map(pairs)
        made: Any = object.__new__(self._classes[kind])  # checked when it was made first
        made.__dict__.update(zip(self._fields[kind], items, strict=True))
        return made


@final
class Writer:
    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields
        self._places: dict[int, int] = {}
        self.tensors: list[Tensor] = []
        self.used: set[str] = set()

    def put(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return [self.put(item) for item in value]
        if kind is tuple:
            return {"tuple": [self.put(item) for item in value]}
        if kind in (dict, Map):
            pairs = [self.put(item) for pair in value.items() for item in pair]
            return {"dict" if kind is dict else "map": pairs}
        if kind.__name__ in self._fields:
            self.used.add(kind.__name__)
            return {kind.__name__: [self.put(getattr(value, name)) for name in self._fields[kind.__name__]]}
        if isinstance(value, Tensor):
            return {"tensor": self._place(value)}
        if isinstance(value, np.ndarray):
            return {"array": self._place(torch.from_numpy(value.copy()))}
        if isinstance(value, np.generic):
            return {"number": self._place(torch.from_numpy(np.array(value)))}
        if kind is bytes:
            return {"bytes": self._place(torch.from_numpy(np.frombuffer(value, dtype=np.uint8).copy()))}
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} in a state, where only plain values may be")

    def _place(self, tensor: Tensor) -> int:
        # By identity; `tensors` keeps each of them, so that no identity is given to another one meanwhile.
        if id(tensor) not in self._places:
            self._places[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return self._places[id(tensor)]
