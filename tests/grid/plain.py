"""States as plain data: what a checkpoint has to be made of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from polyrhythm.core.memory import ClientState, Memory
from polyrhythm.core.server import Flight, Record, ServerState
from polyrhythm.wires import Model, Report

_CORES = {kind.__name__: kind for kind in (ServerState, Flight, Record, Report, Memory, ClientState, Model)}
"""What the cores themselves remember. A mechanism's state has none of them."""


def restored(value: Any) -> Any:
    """A state after it was written as JSON and a list of tensors, and read again.

    Raises:
        TypeError: there is something in it that is neither.
    """
    tensors: list[Tensor] = []
    text = json.dumps(_written(value, tensors, own=True))
    return _read(json.loads(text), [t.clone() for t in tensors])


def _written(value: Any, tensors: list[Tensor], *, own: bool) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if own and type(value).__name__ in _CORES and dataclasses.is_dataclass(value):
        fields = [(f.name, f.name in ("parts", "extras", "optimiser"), getattr(value, f.name)) for f in _fields(value)]
        return {type(value).__name__: {n: _written(v, tensors, own=not theirs) for n, theirs, v in fields}}
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int)) for key in value):
            raise TypeError(f"keys {list(value)} in a state")
        return {"dict": [[k, _written(v, tensors, own=own)] for k, v in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_written(v, tensors, own=own) for v in value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"{type(value)} in a state")


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


def _read(written: Any, tensors: list[Tensor]) -> Any:
    if not isinstance(written, dict):
        return written
    ((kind, inside),) = written.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "dict":
        return {key: _read(value, tensors) for key, value in inside}
    if kind in ("list", "tuple"):
        values = [_read(value, tensors) for value in inside]
        return tuple(values) if kind == "tuple" else values
    return _CORES[kind](**{name: _read(value, tensors) for name, value in inside.items()})
