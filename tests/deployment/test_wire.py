"""Messages between a server and nodes: every bit gets through, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mutations import assignment_in
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.data.schema import Schema
from polyrhythm.deployment.coding import Uncodable, decode, encode
from polyrhythm.deployment.messages import Answer, Greeting, Malformed, Order, Present, Refusal
from polyrhythm.deployment.wire import Parcel, pack, unpack

SCHEMA = Schema(
    task="classification",
    classes=("ä", "b"),
    target="y",
    outputs=2,
    shape=(2,),
    dtype="float32",
    features=("age", "colour=blue"),
    transforms=("ToFloat(scale=255.0)",),
    scaling=((0.1, 1e-300), (1.5, 0.2)),
)
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
    total_rounds=st.none() | wholes,
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
    num_samples=wholes,
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
    greeting = Greeting(recipe="d", title="FedAvg", layout="x", schema=SCHEMA, population=3)
    refusal = Refusal(client=1, found="a", expected="b", why="c", fix="d")
    for message in (greeting, refusal, Present(client=0, num_samples=3, engine="torch")):
        assert unpack(pack(message), type(message), Order) == message
    assert refusal.error().fix == "d"


def test_a_tensor_comes_into_memory_that_kernels_want() -> None:
    order = unpack(pack(an_order()), Order, Answer)
    assert isinstance(order, Order)
    assert order.assignment.weights.data_ptr() % 64 == 0
    order.assignment.weights.add_(1.0)  # and it is its own


def an_order(**changes: Any) -> Order:
    values: dict[str, Any] = {
        **{"dispatch": 1, "client": 2, "visit": 3, "accepted": 2, "kind": "train", "version": 4, "total_rounds": 9},
        **{"weights": torch.arange(40.0), "buffers": (), "briefs": {"m": {"c": torch.ones(3)}}, "recipe": "r"},
    }
    assignment = Assignment(**values | changes)
    return Order(run="r", seed=0, population=3, eligible=3, keep=(1,), assignment=assignment)


WRONG: dict[str, Any] = {
    "dispatch": "1",
    "client": True,
    "visit": 1.5,
    "kind": "both",
    "total_rounds": "soon",
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
    hidden = an_order(briefs={"m": {"c": Present(client=0, num_samples=1, engine="")}})
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


def edited(change: Callable[[dict[str, Any]], None], order: Order | None = None) -> Parcel:
    """A message whose text says something else, with the sums that belong to it."""
    parcel = pack(order or an_order())
    tree = json.loads(parcel.text)
    change(tree)
    del tree["sum"]
    text = json.dumps({**tree, "sum": zlib.crc32(json.dumps(tree, ensure_ascii=False).encode("utf-8", "replace"))})
    return Parcel(text=text, arrays=parcel.arrays)


@pytest.mark.parametrize("counts", [[2**40], [2**70], [10**6] * 3, [1, 10**9]])
def test_pieces_are_counted_before_anything_is_made_of_them(counts: list[int]) -> None:
    text = json.dumps({"format": 1, "tensors": [["float32", [], "plain", counts]], "classes": {}, "value": 1})
    assert len(text) < 130
    tracemalloc.start()
    with pytest.raises(Malformed, match=r"fewer arrays than were announced|a tensor of the shape"):
        unpack(Parcel(text=text, arrays=(np.zeros(1, np.int32),)), Order, Answer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**6


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "not announced as"),
        (["float32", [1], "plain"], "not announced as"),
        (None, "not announced as"),
        (["object", [1], "plain", [1]], "a tensor of 'object'"),
        ([["float32"], [1], "plain", [1]], "in the code"),
        (["float32", [1], "zip", [1]], "in the code 'zip'"),
        (["float32", [1], {}, [1]], "in the code"),
        (["float32", [-1], "plain", [1]], "of the shape"),
        (["float32", [True], "plain", [1]], "of the shape"),
        (["float32", [1.0], "plain", [1]], "of the shape"),
        (["float32", [1] * 33, "plain", [1]], "of the shape"),
        (["float32", "1", "plain", [1]], "of the shape"),
        (["float32", [2**63], "plain", [1]], "of the shape"),
        (["float32", [2**40] * 3, "plain", [1]], "bytes in 160"),
        (["float32", [0, 2**40], "plain", [1]], "0 bytes in 160"),
        (["float32", [40], "plain", []], "fewer arrays"),
        (["float32", [40], "plain", [0]], "fewer arrays"),
        (["float32", [40], "plain", [2]], "fewer arrays"),
        (["float32", [40], "plain", [True]], "of the shape"),
        (["float32", [40], "plain", "1"], "of the shape"),
        (["float64", [40], "plain", [1]], "320 bytes in 160"),
    ],
)
def test_what_is_announced_of_a_tensor_is_held_against_what_came(row: Any, words: str) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tensors"][0] = row

    with pytest.raises(Malformed, match=words):
        unpack(edited(change), Order, Answer)


def test_no_number_of_codes_makes_more_than_the_model_is_large() -> None:
    spans = ((0, 10**6),)
    none, nothing = np.zeros(0, np.int32), np.zeros(0, np.int32)
    rows = [["float32", [10**6], "sparse", [1, 1]] for _ in range(1000)]
    text = json.dumps({"format": 1, "tensors": rows, "classes": {}, "value": None})
    with pytest.raises(Malformed, match="more than 2 vectors of the model's length"):
        unpack(Parcel(text=text, arrays=(none, nothing) * 1000), Order, Answer, spans=spans, vectors=2)
    rows = [["float32", [2 * 10**6], "sparse", [1, 1]]]
    text = json.dumps({"format": 1, "tensors": rows, "classes": {}, "value": None})
    with pytest.raises(Malformed, match="a tensor of 8,000,000 bytes in 0"):
        unpack(Parcel(text=text, arrays=(none, nothing)), Order, Answer, spans=spans)


def test_one_tensor_is_not_used_over_and_over() -> None:
    def change(tree: dict[str, Any]) -> None:
        fields = assignment_in(tree["value"]["Order"])
        fields[9] = {"dict": ["m", {"dict": ["c", [{"bytes": 0}] * 10_000]}]}

    large = an_order(weights=torch.zeros(10**5))
    with pytest.raises(Malformed, match="the same tensor over and over"):
        unpack(edited(change, large), Order, Answer)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "JSONDecodeError"),
        ("[" * 10**5, "RecursionError|JSONDecodeError"),
        ('{"a":' * 10**5, "RecursionError|JSONDecodeError"),
        ("[1, 2]", "no message in format 1"),
        ('{"format": true, "tensors": []}', "no message in format 1"),
        ('{"format": 1.0, "tensors": []}', "no message in format 1"),
        ('{"format": 1, "format": 1}', "a name stands twice"),
        ('{"format": NaN}', "NaN, which is no JSON"),
        ('{"format": 1, "more": 1}', "a message with 'more'"),
        ('{"format": 1}', "KeyError"),
        ('{"format": 1, "tensors": null}', "without its tensors"),
        ('{"format": 1, "tensors": [], "classes": [], "value": 1}', "cannot be read"),
        ('{"format": 1, "tensors": [], "classes": {}, "value": {"float": 1' + "0" * 400 + "}}", "OverflowError"),
        ('{"format": 1, "tensors": [], "classes": {}, "value": 1' + "0" * 5000 + "}", "cannot be read"),
        ('{"format": 1, "tensors": [], "classes": {}, "value": {"tensor": 0}}', "tensor 0 of 0"),
        ('{"format": 1, "tensors": [], "classes": {}, "value": {"tensor": -1}}', "tensor -1 of 0"),
        ('{"format": 1, "tensors": [], "classes": {}, "value": {"dict": ["a", 1, "a", 2]}}', "a key twice"),
        ('{"format": 1, "tensors": [], "classes": {}, "value": {"Order": [1]}}', "cannot be read"),
        (" " * (2**23 + 1), "a text of 8,388,609 characters"),
    ],
)
def test_whatever_a_text_says_it_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(Malformed, match=words) as caught:
        unpack(Parcel(text=text), Order, Answer)
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()


def test_a_message_that_was_damaged_is_not_taken() -> None:
    parcel = pack(an_order())
    for place in range(160):
        raw = parcel.arrays[0].copy()
        raw.view(np.uint8)[place] ^= 4
        with pytest.raises(Malformed, match="was damaged on the way") as caught:
            unpack(Parcel(text=parcel.text, arrays=(raw, *parcel.arrays[1:])), Order, Answer)
        assert caught.value.kind == "damaged"
    text = parcel.text.replace('"train", 4', '"train", 5')
    assert text != parcel.text
    with pytest.raises(Malformed, match="was damaged on the way"):
        unpack(Parcel(text=text, arrays=parcel.arrays), Order, Answer)
    # How it is written is no damage.
    spaced = json.dumps(json.loads(parcel.text), indent=3, ensure_ascii=True)
    assert same(unpack(Parcel(text=spaced, arrays=parcel.arrays), Order, Answer), an_order())
    without = {name: part for name, part in json.loads(parcel.text).items() if name != "sum"}
    with pytest.raises(Malformed, match="was damaged on the way"):
        unpack(Parcel(text=json.dumps(without), arrays=parcel.arrays), Order, Answer)


def test_half_a_character_is_no_text() -> None:
    parcel = pack(an_order(recipe="HERE"))
    text = parcel.text.replace("HERE", "\\ud800")
    with pytest.raises(Malformed, match="UnicodeEncodeError"):
        unpack(Parcel(text=text, arrays=parcel.arrays), Order, Answer)


def test_weights_that_go_to_many_are_summed_once() -> None:
    sums: dict[tuple[int, int], int] = {}
    weights = torch.arange(40.0)
    texts = {pack(an_order(weights=weights), sums=sums).text for _ in range(3)}
    assert len(texts) == 1
    assert (weights.data_ptr(), 160) in sums
    known = sums[weights.data_ptr(), 160]
    assert known == zlib.crc32(weights.numpy().tobytes())


def test_a_buffer_beside_a_compressed_update_travels_as_it_is() -> None:
    spans = ((0, 300), (304, 5), (320, 700))
    vector = torch.zeros(1024)
    vector[3] = 1.0
    report = Report(
        **{"dispatch": 0, "client": 0, "visit": 0, "version": 0, "kind": "train", "recipe": "", "num_samples": 1},
        update=vector,
        buffers=(torch.ones(64), torch.zeros(16)),
    )
    answer = Answer(seconds=0.0, report=report)
    assert same(unpack(pack(answer, spans), Answer, Answer, spans=spans), answer)
