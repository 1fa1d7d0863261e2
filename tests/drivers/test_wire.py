"""Messages between a server and nodes: every bit gets through, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.drivers.coding import Uncodable, decode, encode
from polyrhythm.drivers.wire import (
    Answer,
    Greeting,
    Malformed,
    Order,
    Parcel,
    Present,
    Refusal,
    pack,
    unpack,
)
from polyrhythm.wires import Assignment, Report

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)
wholes = st.integers(-(2**53), 2**53)
numbers = st.floats(width=64)


@st.composite
def tensors(draw: st.DrawFn, dimensions: int = 3) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=dimensions))
    size = int(np.prod(shape)) * dtype.itemsize
    if dtype == torch.bool:
        raw = bytes(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    else:
        raw = draw(st.binary(min_size=size, max_size=size))  # NaNs of every kind among them
    return (
        torch.tensor(list(raw), dtype=torch.uint8).view(dtype).reshape(shape) if size else torch.empty(shape).to(dtype)
    )


vectors = tensors(dimensions=1).filter(lambda t: t.dim() == 1)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), wholes, numbers, st.text(max_size=5), tensors()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)
states = st.dictionaries(st.text(max_size=8), st.dictionaries(st.text(max_size=8), plain, max_size=3), max_size=3)
assignments = st.builds(
    Assignment,
    dispatch=wholes,
    client=wholes,
    visit=wholes,
    accepted=wholes,
    kind=st.sampled_from(["train", "measure"]),
    version=wholes,
    horizon=st.none() | wholes,
    weights=vectors,
    buffers=st.lists(tensors(), max_size=2).map(tuple),
    briefs=states,
    recipe=st.text(max_size=64),
    samples=st.none() | wholes,
)
reports = st.builds(
    Report,
    dispatch=wholes,
    client=wholes,
    visit=wholes,
    version=wholes,
    kind=st.sampled_from(["train", "measure"]),
    recipe=st.text(max_size=64),
    held=wholes,
    update=st.none() | vectors,
    buffers=st.lists(tensors(), max_size=2).map(tuple),
    steps=wholes,
    substitute=st.sampled_from(["", "movement", "model", "silence"]),
    rate=numbers,
    travel=numbers,
    pull=numbers,
    idle=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3).map(tuple),
    loss=st.none() | numbers,
    extras=states,
    measures=st.dictionaries(st.text(max_size=8), numbers, max_size=3),
    packed=st.none() | wholes,
)
orders = st.builds(
    Order,
    run=st.text(max_size=9),
    seed=wholes,
    population=wholes,
    eligible=wholes,
    keep=st.lists(wholes, max_size=3).map(tuple),
    assignment=assignments,
)
answers = st.builds(Answer, seconds=numbers, report=reports)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the last bit, types and the order of dicts included."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, torch.Tensor):
        raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*raw)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or repr(one) == repr(other) == "nan"


@given(orders | answers, st.integers(1, 40))
def test_every_bit_of_a_message_gets_through(message: Any, piece: int) -> None:
    parcel = pack(message, piece=piece)
    assert all(array.nbytes <= max(piece, 8) for array in parcel.arrays)
    assert same(unpack(parcel, Order, Answer), message)


def test_small_messages_get_through() -> None:
    greeting = Greeting(recipe="d", title="FedAvg", layout="x", classes=("ä", "b"), population=3)
    refusal = Refusal(client=1, found="a", expected="b", why="c", fix="d")
    for message in (greeting, refusal, Present(client=0, held=3, engine="torch")):
        assert unpack(pack(message), type(message), Order) == message
    assert refusal.error().fix == "d"


def test_a_tensor_comes_into_memory_that_kernels_want() -> None:
    order = unpack(pack(an_order()), Order, Answer)
    assert isinstance(order, Order)
    assert order.assignment.weights.data_ptr() % 64 == 0
    order.assignment.weights.add_(1.0)  # and it is its own


def an_order(**changes: Any) -> Order:
    values: dict[str, Any] = {
        **{"dispatch": 1, "client": 2, "visit": 3, "accepted": 2, "kind": "train", "version": 4, "horizon": 9},
        **{"weights": torch.arange(40.0), "buffers": (), "briefs": {"m": {"c": torch.ones(3)}}, "recipe": "r"},
    }
    assignment = Assignment(**values | changes)
    return Order(run="r", seed=0, population=3, eligible=3, keep=(1,), assignment=assignment)


WRONG: dict[str, Any] = {
    "dispatch": "1",
    "client": True,
    "visit": 1.5,
    "kind": "both",
    "horizon": "soon",
    "weights": None,
    "buffers": (1,),
    "briefs": {"m": 3},
    "recipe": None,
}


@pytest.mark.parametrize("field", WRONG)
def test_a_field_of_another_type_is_refused(field: str) -> None:
    with pytest.raises(Malformed, match=r"of an? |buffers|no state"):
        unpack(pack(an_order(**{field: WRONG[field]})), Order, Answer)


def test_another_kind_of_message_is_refused() -> None:
    with pytest.raises(Malformed, match="a Order, where a Present or a Refusal is expected"):
        unpack(pack(an_order()), Present, Refusal)
    hidden = an_order(briefs={"m": {"c": Present(client=0, held=1, engine="")}})
    with pytest.raises(Malformed, match="no state of a mechanism"):
        unpack(pack(hidden), Order, Answer)


@given(st.data())
def test_whatever_is_no_message_is_refused_in_words(data: st.DataObject) -> None:
    parcel = pack(an_order())
    text, arrays = parcel.text, list(parcel.arrays)
    change = data.draw(st.sampled_from(["cut", "letter", "json", "drop", "more", "dtype", "shorter", "shape"]))
    if change == "cut":
        text = text[: data.draw(st.integers(0, len(text) - 1))]
    elif change == "letter":
        place = data.draw(st.integers(0, len(text) - 1))
        text = text[:place] + data.draw(st.characters(codec="ascii")) + text[place + 1 :]
    elif change == "json":
        inner = st.none() | st.integers() | st.text(max_size=3)
        text = json.dumps(data.draw(st.recursive(inner, lambda i: st.lists(i) | st.dictionaries(st.text(), i))))
    elif change == "drop":
        arrays.pop()
    elif change == "more":
        arrays.append(arrays[0])
    elif change == "dtype":
        arrays[0] = arrays[0].astype(np.float64)
    elif change == "shorter":
        arrays[0] = arrays[0][1:]
    else:
        arrays[0] = arrays[0].reshape(2, -1)
    try:
        order = unpack(Parcel(text=text, arrays=tuple(arrays)), Order, Answer)
    except Malformed:
        pass
    else:  # a letter of a number or a text may be another one
        assert change == "letter"
        assert isinstance(order, Order)


def test_nothing_large_is_made_of_a_few_bytes() -> None:
    tree = json.loads(pack(an_order()).text)
    tree["tensors"][0][1] = [2**36]
    with pytest.raises(Malformed, match=r"a tensor of 274,877,906,944 bytes in 160"):
        unpack(Parcel(text=json.dumps(tree), arrays=pack(an_order()).arrays), Order, Answer)
    tree["tensors"][0][2] = "sparse"
    with pytest.raises(Malformed, match=r"a tensor of 274,877,906,944 bytes in 160"):
        unpack(Parcel(text=json.dumps(tree), arrays=pack(an_order()).arrays), Order, Answer)


spans = st.just(((0, 300), (304, 5), (320, 700)))


@given(spans, st.integers(0, 2**32 - 1), st.sampled_from(["zeros", "levels", "all"]))
def test_a_code_keeps_every_bit(spans: tuple[tuple[int, int], ...], seed: int, kind: str) -> None:
    draws = np.random.Generator(np.random.PCG64(seed))
    values = np.zeros(1024, dtype=np.float32)
    for offset, size in spans:
        part = draws.standard_normal(size).astype(np.float32)
        if kind == "zeros":
            part[draws.random(size) < 0.9] = 0.0
        elif kind == "levels":
            part = np.round(part * 20).astype(np.float32) / 20
        values[offset : offset + size] = part
    values[2] = -0.0
    vector = torch.from_numpy(values)
    code, arrays = encode(vector, spans)
    assert code == {"zeros": "sparse", "levels": "levels", "all": "plain"}[kind]
    again = decode(code, arrays, vector.dtype, vector.shape, spans)
    assert torch.equal(again.view(torch.int32), vector.view(torch.int32))
    if kind != "all":
        assert sum(array.nbytes for array in arrays) < vector.numel() * 3
    spoiled = [array.copy() for array in arrays]
    spoiled[0] = spoiled[0][:-1]
    with pytest.raises(Uncodable):
        decode(code, spoiled, vector.dtype, vector.shape, spans)
