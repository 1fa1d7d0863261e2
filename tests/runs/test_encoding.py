"""Values come back from JSON and tensors with every bit, and nothing else comes back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from polyrhythm.base.errors import UserError
from polyrhythm.runs.encoding import Codec


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0


CODEC = Codec([Point])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(KEYS, inner).map(Map)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=20,
)


def there_and_back(value: Any) -> Any:
    tree, tensors = CODEC.encode(value)
    text = json.dumps(tree, allow_nan=False)
    return CODEC.decode(json.loads(text), [t.clone() for t in tensors].__getitem__)


def told(value: Any) -> str:
    """Every bit and type of a value, and the order of its parts, in a text."""
    if isinstance(value, Map):
        return f"Map{sorted((told(k), told(v)) for k, v in value.items())}"
    if isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else value
        return f"{type(value).__name__}{[told(item) for item in items]}"
    if isinstance(value, Point):
        return f"Point{told(value.x)}{told(value.y)}"
    return f"{type(value).__name__}:{value.hex() if isinstance(value, float) and math.isfinite(value) else value!r}"


@given(value=VALUES)
def test_plain_values_come_back_with_their_types_and_order(value: Any) -> None:
    assert told(there_and_back(value)) == told(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_tensors_come_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype) if shape else torch.tensor(2).to(dtype)
    (back,) = there_and_back([tensor])
    assert (back.dtype, back.shape) == (dtype, tensor.shape)
    assert torch.equal(back, tensor)


def test_numpy_comes_back() -> None:
    array, number, data = there_and_back([np.array([[1.5, math.nan]]), np.int64(3), b"\0ab"])
    assert array.dtype == np.float64
    assert array.tobytes() == np.array([[1.5, math.nan]]).tobytes()
    assert type(number) is np.int64
    assert (int(number), data) == (3, b"\0ab")


def test_one_tensor_in_two_places_is_one_tensor() -> None:
    tensor = torch.ones(2)
    one, other, third = there_and_back([tensor, {"a": tensor}, torch.ones(2)])
    assert one is other["a"]
    assert third is not one


def test_what_no_state_is_made_of_is_not_written() -> None:
    for value in ({1, 2}, object(), np.random.default_rng, print, 1j):
        with pytest.raises(TypeError, match="only plain values"):
            CODEC.encode([value])


@pytest.mark.parametrize(
    "classes", [{"Path": ["x"]}, {"Point": ["x"]}, {"Point": ["x", "y", "z"]}, {"builtins.eval": []}]
)
def test_other_classes_and_fields_are_refused(classes: dict[str, list[str]]) -> None:
    with pytest.raises(UserError, match="another version"):
        CODEC.decode({"classes": classes, "value": None}, [].__getitem__)


def test_a_class_that_was_not_announced_is_not_made() -> None:
    with pytest.raises(KeyError):
        CODEC.decode({"classes": {}, "value": {"Other": []}}, [].__getitem__)
