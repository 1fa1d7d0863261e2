"""Easy and hard clients: class counts stay, difficulty moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.data import (
    ByColumn,
    ClassesPerClient,
    Difficulty,
    DirichletPerClient,
    Iid,
    IidFraction,
    Keys,
    Partition,
    QuantitySkew,
    Split,
    View,
)

INNER: tuple[Partition, ...] = (
    Iid(),
    DirichletPerClient(beta=0.2, min_size=0),
    QuantitySkew(alpha=0.5, min_size=0),
    IidFraction(share=0.3),
    ByColumn(column="site"),
)
CLASSES = 3


def view(samples: int, seed: int) -> View:
    """Classes, sites and difficulties at random; few distinct difficulties, so that there are ties."""
    random = np.random.default_rng(seed)
    columns = {"site": Keys.of(np.arange(samples) % 4), "difficulty": Keys.of(random.integers(9, size=samples) / 7)}
    return View(targets=random.integers(CLASSES, size=samples), labelled=True, columns=columns)


def counts(data: View, split: Split) -> np.ndarray:
    """Samples of each class that each client holds, [clients, C]."""
    dealt = [np.bincount(data.targets[split.indices(c)], minlength=CLASSES) for c in range(len(split.sizes))]
    return np.stack(dealt)


def hardness(data: View) -> np.ndarray:
    keys = data.columns["difficulty"]
    values: np.ndarray = keys.values[keys.codes]
    return values


def between(data: View, split: Split) -> float:
    """Standard deviation of the clients' mean difficulty."""
    return float(np.std([hardness(data)[split.indices(c)].mean() for c in range(len(split.sizes))]))


partitions = st.builds(Difficulty, inner=st.sampled_from(INNER), ordered=st.sampled_from((0.0, 0.3, 0.5, 1.0)))


@settings(max_examples=40)
@given(partition=partitions, samples=st.integers(8, 60), seed=st.integers(0, 5))
def test_every_client_keeps_its_class_counts_and_nobody_shares(partition: Difficulty, samples: int, seed: int) -> None:
    data = view(samples, seed)
    split, inner = partition.split(data, 4, seed), partition.inner.split(data, 4, seed)
    assert counts(data, split).tolist() == counts(data, inner).tolist()
    assert split.names == inner.names
    assert sorted(split.order) == sorted(inner.order)  # the same samples, so complete, and each once
    assert len(set(split.order.tolist())) == len(split.order)


@settings(max_examples=30)
@given(inner=st.sampled_from(INNER), samples=st.integers(8, 60), seed=st.integers(0, 5))
def test_wholly_ordered_is_one_stretch_of_each_class(inner: Partition, samples: int, seed: int) -> None:
    """Of the samples dealt, no client's are harder than the next client's, class by class."""
    data = view(samples, seed)
    split = Difficulty(inner=inner, ordered=1.0).split(data, 4, seed)
    for number in range(CLASSES):
        hardest = -np.inf
        for client in range(4):
            mine = split.indices(client)
            values = hardness(data)[mine[data.targets[mine] == number]]
            if len(values):
                assert values.min() >= hardest
                hardest = values.max()


def test_unordered_is_random() -> None:
    """No client is easier than another beyond chance, over many draws; ordered, the first is always the easiest."""
    data, clients = view(600, 1), 6
    ordered, random = (Difficulty(inner=Iid(), ordered=share) for share in (1.0, 0.0))
    first = [hardness(data)[random.split(data, clients, seed).indices(0)].mean() for seed in range(30)]
    chance = hardness(data).std() / np.sqrt(600 / clients) / np.sqrt(30)
    assert abs(np.mean(first) - hardness(data).mean()) < 4 * chance
    assert between(data, random.split(data, clients, 0)) < 0.2 * between(data, ordered.split(data, clients, 0))
    assert between(data, random.split(data, clients, 0)) > 0


def test_more_order_spreads_more_and_the_notes_say_how_much() -> None:
    data = view(600, 2)
    splits = [Difficulty(inner=Iid(), ordered=share).split(data, 6, 0) for share in (0.0, 0.5, 1.0)]
    spreads = [between(data, split) for split in splits]
    assert spreads == sorted(spreads)
    for split, spread in zip(splits, spreads, strict=True):
        assert f"difficulty: standard deviation {spread:.3g} between clients" in split.notes[-1]


def test_the_share_is_of_every_class_of_every_client() -> None:
    """With a share of 0.5, each client has half of each class from its own stretch, rounded to the nearest whole."""
    data = View(
        targets=np.zeros(40, dtype=np.int64), labelled=True, columns={"difficulty": Keys.of(np.arange(40) / 40)}
    )
    split = Difficulty(inner=Iid(), ordered=0.5).split(data, 4, 0)
    for client in range(4):
        chunk = set(range(10 * client, 10 * client + 5))  # the first half of ten samples
        assert chunk <= set(split.indices(client).tolist())


def test_parts_go_to_the_outside() -> None:
    with pytest.raises(UserError, match="parts"):
        Difficulty(inner=Iid(parts=8))
    data = view(80, 0)
    used = Difficulty(inner=Iid(), parts=8).split(data, 4, 0)
    assert len(used.order) == 40


def test_what_cannot_be_ordered_is_refused() -> None:
    data = view(30, 0)
    bare = View(targets=data.targets, labelled=True)
    words = View(targets=data.targets, labelled=True, columns={"level": Keys.of(["a", "b"] * 15)})
    for partition, look, found in (
        (Difficulty(inner=Iid()), bare, "without an expert"),
        (Difficulty(inner=Iid(), column="level"), bare, "level"),
        (Difficulty(inner=Iid(), column="level"), words, "values such as"),
    ):
        with pytest.raises(UserError, match=found):
            partition.split(look, 3, 0)


def test_an_impossible_partition_inside_says_so() -> None:
    with pytest.raises(UserError, match="classes_per_client"):
        Difficulty(inner=ClassesPerClient(classes=5)).split(view(30, 0), 3, 0)


def test_it_is_written_as_it_is_read() -> None:
    from polyrhythm.config.data_names import partition

    whole = Difficulty(inner=DirichletPerClient(beta=0.2), ordered=0.25)
    assert partition(whole.text()) == whole
    assert partition("difficulty(inner=iid)") == Difficulty(inner=Iid())
    with pytest.raises(UserError, match="dirichlett"):
        partition("difficulty(inner=dirichlett(beta=0.2))")
