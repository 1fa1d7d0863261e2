"""Named randomness: the name decides, and nothing else does."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from polyrhythm.base import streams
from polyrhythm.base.compiled import extension
from polyrhythm.base.streams import (
    Purpose,
    compiled_normals,
    normals,
    proportionally,
    seeded_torch,
    stream,
    torch_generator,
    torch_seed,
)
from polyrhythm.methods.mechanism import Visit
from polyrhythm.methods.order.base import Progress, Shuffled

PURPOSES: tuple[Purpose, ...] = (
    "partition",
    "split",
    "init",
    "cohort",
    "order",
    "augment",
    "network",
    "sample",
    "labels",
    "measure",
)
names = st.lists(st.integers(-(2**40), 2**40) | st.text(max_size=6), max_size=4)
keys = st.tuples(st.integers(0, 2**40), st.sampled_from(PURPOSES), names)


@given(keys)
def test_equal_names_draw_equal_numbers(key: tuple[int, Purpose, list[int | str]]) -> None:
    seed, purpose, rest = key
    first, second = (stream(seed, purpose, *rest).integers(2**60, size=4) for _ in range(2))
    assert (first == second).all()
    one, two = (torch_generator(seed, purpose, *rest) for _ in range(2))
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=two))
    assert 0 <= torch_seed(seed, purpose, *rest) < 2**63


@given(keys, keys)
def test_other_names_draw_other_numbers(
    one: tuple[int, Purpose, list[int | str]], two: tuple[int, Purpose, list[int | str]]
) -> None:
    assume(one != two)
    (seed, purpose, rest), (other_seed, other_purpose, other_rest) = one, two
    assert stream(seed, purpose, *rest).integers(2**60) != stream(other_seed, other_purpose, *other_rest).integers(
        2**60
    )
    assert torch_seed(seed, purpose, *rest) != torch_seed(other_seed, other_purpose, *other_rest)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((1, 2), (2, 1)),
        ((1,), ("1",)),
        ((12,), (1, 2)),
        (("ab", "c"), ("a", "bc")),
        ((), ("",)),
        (("a', 'b",), ("a", "b")),
        ((0,), (0, 0)),
    ],
)
def test_names_that_look_alike_stay_apart(one: tuple[int | str, ...], two: tuple[int | str, ...]) -> None:
    assert torch_seed(0, "order", *one) != torch_seed(0, "order", *two)


def test_seed_and_client_do_not_add_up() -> None:
    draws = {int(stream(seed, "order", client).integers(2**60)) for seed in range(20) for client in range(20)}
    assert len(draws) == 400


def test_numpys_integers_name_the_same_stream() -> None:
    seed: Any = np.int64(3)
    client: Any = np.int32(7)
    assert torch_seed(seed, "order", client) == torch_seed(3, "order", 7)


def test_draws_are_what_they_always_were() -> None:
    """Decisions of old runs must be repeatable; a change here changes every result and belongs in the changelog."""
    assert stream(0, "cohort", 0).permutation(8).tolist() == [6, 4, 7, 2, 0, 3, 1, 5]
    assert stream(3, "order", 7, "visit", 2, 0).permutation(6).tolist() == [5, 1, 4, 2, 3, 0]
    assert torch_seed(0, "init") == 2994650953587724592


def test_no_generator_outside_is_touched() -> None:
    held = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    stream(0, "order").random(100)
    torch.rand(100, generator=torch_generator(0, "augment"))
    assert torch.equal(torch.get_rng_state(), held[0])
    assert (np.random.get_state()[1] == held[1]).all()  # type: ignore[index]


def draw(*name: int) -> torch.Tensor:
    with seeded_torch(0, "network", *name):
        return torch.nn.functional.dropout(torch.ones(50), 0.5)


def test_a_seeded_block_depends_on_its_name_only_and_leaves_no_trace() -> None:
    first = draw(1)
    torch.rand(17)
    held = torch.get_rng_state()
    assert torch.equal(draw(1), first)
    assert torch.equal(torch.get_rng_state(), held)
    assert not torch.equal(draw(2), first)
    with seeded_torch(0, "network", 1):
        draw(9)  # a block inside a block
        assert torch.equal(torch.nn.functional.dropout(torch.ones(50), 0.5), first)


def test_a_seeded_block_that_fails_leaves_no_trace_either() -> None:
    held = torch.get_rng_state()

    def fail() -> None:
        with seeded_torch(0, "network"):
            torch.rand(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(torch.get_rng_state(), held)


def test_a_seeded_block_seeds_the_gpus_that_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.Generator()  # stands for that of a GPU
    monkeypatch.setattr(torch.cuda, "default_generators", (gpu,))

    def drawn() -> torch.Tensor:
        with seeded_torch(0, "measure", "test", 1):
            return torch.rand(3, generator=gpu)

    assert not torch.equal(drawn(), drawn())  # nobody uses it yet
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    held = gpu.get_state()
    assert torch.equal(drawn(), drawn())
    assert torch.equal(gpu.get_state(), held)


def test_draws_do_not_depend_on_the_process() -> None:
    code = (
        "from polyrhythm.base.streams import *; print(torch_seed(5, 'order', 'a', 1), stream(5, 'cohort', 2).random())"
    )
    mine = f"{torch_seed(5, 'order', 'a', 1)} {stream(5, 'cohort', 2).random()}"
    for salt in ("0", "1"):
        other = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        assert other.stdout.strip() == mine


def order(client: int, visit: int, epoch: int, seed: int = 0) -> list[int]:
    where = Visit(
        seed=seed, client=client, visit=visit, version=0, total_rounds=None, num_samples=30, batch=1, epoch_steps=30
    )
    start = Progress(step=0, steps=30)
    return [int(position) for position in Shuffled().one_pass(where, ("visit", visit, epoch), None, start)]


def test_orders_differ_by_visit_pass_client_and_seed_and_repeat_by_run() -> None:
    base = order(0, 0, 0)
    assert sorted(base) == list(range(30))
    assert base == order(0, 0, 0)
    others = [order(0, 1, 0), order(0, 0, 1), order(1, 0, 0), order(0, 0, 0, seed=1)]
    assert all(other != base for other in others)


def test_first_draws_over_clients_are_uniform() -> None:
    """Chi squared with 9 degrees of freedom stays below 27.9 in 99.9 % of all cases; the draws are fixed."""
    counts = Counter(int(stream(0, "order", client, 0).integers(10)) for client in range(2000))
    assert sum((counts[i] - 200) ** 2 / 200 for i in range(10)) < 27.9


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.frozensets(st.integers(0, 11), max_size=6),
    st.integers(0, 12),
    st.integers(0, 99),
)
def test_a_proportional_draw_gives_every_wanted_place_once(
    weights: list[int], unwanted: frozenset[int], among: int, seed: int
) -> None:
    sums, among = np.cumsum(weights).tolist(), min(among, len(weights))
    places = list(proportionally(sums, stream(seed, "cohort"), lambda place: place not in unwanted, among))
    assert sorted(places) == [p for p in range(among) if p not in unwanted]
    if any(weights[p] == 0 for p in places):  # those without weight come last
        assert {weights[p] for p in places[min(i for i, p in enumerate(places) if weights[p] == 0) :]} == {0}


@pytest.mark.parametrize("misses", [32, 0], ids=["by trying", "by a race"])
def test_places_are_drawn_one_after_the_other_by_what_is_left(misses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the probabilities of ordered pairs, w_i / W * w_j / (W - w_i), with a place that is passed over."""
    monkeypatch.setattr("polyrhythm.base.streams._MISSES", misses)
    weights, draws = {0: 1.0, 1: 2.0, 3: 5.0}, 8000
    sums, total = [1.0, 3.0, 7.0, 12.0], sum(weights.values())
    counts = Counter(
        tuple(itertools.islice(proportionally(sums, stream(0, "cohort", i), lambda place: place != 2), 2))
        for i in range(draws)
    )
    for one, other in itertools.permutations(weights, 2):
        share = weights[one] / total * weights[other] / (total - weights[one])
        assert abs(counts[one, other] - draws * share) < 5 * math.sqrt(draws * share * (1 - share))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("compiled", [True, False])
def test_many_normal_numbers_are_those_of_numpy(
    dtype: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, layers, edges and tail of the ziggurat; of seeds with a small half, too."""
    if not compiled:
        monkeypatch.setattr(streams, "compiled_normals", lambda: None)
    elif hasattr(extension(), "standard_normals"):
        assert compiled_normals() is not None
    for name in range(3):
        expected = torch.from_numpy(stream(name, "noise", name).standard_normal(200_003)).to(dtype)
        assert torch.equal(normals(200_003, dtype, name, "noise", name), expected)
    if compiled and (fill := compiled_normals()):
        for high, low in ((0, 0), (0, 5), (2**64 - 1, 2**64 - 1), (1, 2**32)):
            fill(drawn := torch.empty(1_001, dtype=torch.float64), high, low)
            known = np.random.Generator(np.random.PCG64(high * 2**64 + low)).standard_normal(1_001)
            assert np.array_equal(drawn.numpy(), known)


def test_another_numpy_draws_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a draw is not that of the NumPy that is installed, the compiled one is not used."""

    class Other:
        standard_normals = staticmethod(lambda out, high, low: out.zero_())

    monkeypatch.setattr(streams, "extension", Other)
    assert compiled_normals.__wrapped__() is None
