"""Samples of several arrays are rows of bytes that give back what went in; what does not go together is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.data.structured import Structure, structure_of

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16]
LABELS = np.arange(30) % 3
TEXTS = [list(range(1, 2 + i % 5)) for i in range(30)]


def drawn(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 50).abs().to(dtype)


@given(
    fields=some.lists(
        some.tuples(some.sampled_from(DTYPES), some.lists(some.integers(1, 3), max_size=2)), min_size=1, max_size=4
    ),
    count=some.integers(1, 5),
    keyed=some.booleans(),
)
def test_every_bit_comes_back(fields: list[tuple[torch.dtype, list[int]]], count: int, keyed: bool) -> None:
    columns = {f"a{i}": drawn(dtype, (count, *shape), i) for i, (dtype, shape) in enumerate(fields)}
    samples = [{name: column[i] for name, column in columns.items()} for i in range(count)]
    structure = structure_of(samples if keyed else [tuple(s.values()) for s in samples], None)
    structure = Structure.of(structure.plain())  # as a record has it
    names = columns if keyed else {str(i): column for i, column in enumerate(columns.values())}
    for rows in (
        structure.pack(names),
        structure.pack_samples(samples if keyed else [tuple(s.values()) for s in samples]),
    ):
        arguments, named = structure.unpack(rows)
        found = list(named.values()) if keyed else list(arguments)
        assert [t.dtype for t in found] == [c.dtype for c in columns.values()]
        assert all(map(torch.equal, found, columns.values()))


@pytest.mark.parametrize("to", ["longest", "batch", 7])
def test_sequences_are_filled_up_and_masked(to: Any) -> None:
    data = pr.data.arrays(
        TEXTS, LABELS, test=(TEXTS[:9], LABELS[:9]), padding=pr.data.Padding(value=-1, to=to, mask="m")
    )
    structure = data.structure
    assert structure is not None
    places = torch.tensor([0, 6, 2])  # of lengths 1, 2 and 3
    (words, mask), named = structure.unpack(data.train.batch(places)[0])
    long = {"longest": 5, "batch": 3, 7: 7}[to]
    expected = torch.full((3, long), -1)
    for row, place in enumerate(places.tolist()):
        expected[row, : len(TEXTS[place])] = torch.tensor(TEXTS[place])
    assert torch.equal(words, expected)
    assert torch.equal(mask, (expected >= 0).long())
    assert not named
    assert structure.shapes == ((structure.fields[0].shape[0],),) * 2


def test_items_are_read_as_whole_arrays_are() -> None:
    padding = pr.data.Padding(value={"words": 0}, mask="mask")
    extra = np.arange(60, dtype=np.float32).reshape(30, 2)
    items = [({"words": t, "extra": e}, y) for t, e, y in zip(TEXTS, extra, LABELS, strict=True)]
    of_items = pr.data.dataset(items, items[:9], padding=padding)
    given_arrays = {"words": TEXTS, "extra": extra}
    test = {"words": TEXTS[:9], "extra": extra[:9]}
    of_arrays = pr.data.arrays(given_arrays, LABELS, test=(test, LABELS[:9]), padding=padding)
    assert of_items.structure == of_arrays.structure
    assert of_items.features == of_arrays.features
    everything = torch.arange(30)
    assert torch.equal(of_items.train.batch(everything)[0], of_arrays.train.batch(everything)[0])
    assert of_items.structure is not None
    assert of_items.structure.words == ("words int64 [5], padded with 0", "extra float32 [2]", "mask, the mask")


def test_a_share_for_tests_takes_rows_of_every_array() -> None:
    number = np.arange(30, dtype=np.float32)
    data = pr.data.arrays((number[:, None], -number[:, None]), LABELS, test=0.2)
    assert data.structure is not None
    for part in (data.train, data.test):
        (one, other), _ = data.structure.unpack(part.batch(torch.arange(len(part)))[0])
        assert torch.equal(one, -other)
    assert (len(data.train), len(data.test)) == (24, 6)


ONE = np.zeros((30, 2), dtype=np.float32)
PAIRS = [({"a": ONE[0], "b": [1]}, 0)] * 29


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pr.data.arrays({"a": ONE, "b": ONE[:7]}, LABELS), "a of 30, b of 7"),
        (lambda: pr.data.arrays({"a": TEXTS}, LABELS), r"a of shape \[2\] in sample 1\n.*\[1\].*\n.*\n.*padding="),
        (lambda: pr.data.arrays({"a": ["x"] * 30}, LABELS), "numbers"),
        (lambda: pr.data.arrays({"a": ONE / 0.0}, LABELS), "NaN or infinity"),
        (lambda: pr.data.arrays({}, LABELS), "no array"),
        (lambda: pr.data.arrays({"a": ONE}, LABELS, scaling="train"), "scaling for inputs of several arrays"),
        (lambda: pr.data.arrays({"a": ONE}, LABELS, test=({"b": ONE}, LABELS)), "with no a and b beside"),
        (lambda: pr.data.arrays({"a": ONE}, LABELS, test=({"a": ONE > 0}, LABELS)), "a of bool in the samples"),
        (
            lambda: pr.data.arrays(TEXTS, LABELS, padding=pr.data.Padding(to=3)),
            r"shape \[4\] in sample 3\n.*\[3\] at most",
        ),
        (lambda: pr.data.arrays(ONE, LABELS, padding=pr.data.Padding(value={"b": 0})), "padding of b"),
        (lambda: pr.data.arrays({"m": TEXTS}, LABELS, padding=pr.data.Padding(mask="m")), "a mask called m"),
        (lambda: pr.data.dataset([*PAIRS, ({"a": ONE[0]}, 1)], PAIRS), "sample 0 with no b|with no b"),
        (lambda: pr.data.dataset([*PAIRS, ({"a": ONE[0], "b": [1, 2]}, 1)], PAIRS), r"b of shape \[2\]"),
        (lambda: pr.data.dataset([*PAIRS, ({"a": ONE[0], "b": [0.5]}, 1)], PAIRS), "b of float32"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Any, words: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(UserError, match=words):
        make()
