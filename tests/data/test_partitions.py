"""Laws of every partition: disjoint, complete, repeatable, blind to what classes are called, bounded in work."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.data import (
    PARTITIONS,
    ByColumn,
    ClassesPerClient,
    Dirichlet,
    DirichletPerClient,
    Iid,
    IidFraction,
    Keys,
    Partition,
    QuantitySkew,
    Shards,
    View,
)
from polyrhythm.data.labels import classes_of, encode
from polyrhythm.data.partitions.base import whole
from polyrhythm.data.partitions.minimum import _repaired

# One of each, lenient enough to succeed on any small data.
EVERY: list[Partition] = [
    Iid(),
    Dirichlet(alpha=0.3, min_size=0),
    Dirichlet(alpha=0.05, min_size=0, balance=False),
    DirichletPerClient(beta=0.2, min_size=0),
    Shards(per_client=1),
    IidFraction(share=0.3),
    QuantitySkew(alpha=0.5, min_size=0),
]
# Those in which no class comes before another.
SYMMETRIC: list[Partition] = [
    Iid(),
    Dirichlet(alpha=0.3, min_size=0),
    DirichletPerClient(beta=0.2, min_size=0),
    ClassesPerClient(classes=2),
    QuantitySkew(alpha=0.5),
]
text = Partition.text


def view(labels: np.ndarray | list[int], **columns: object) -> View:
    return View(targets=np.asarray(labels), labelled=True, columns={k: Keys.of(v) for k, v in columns.items()})


def labels(samples: int, classes: int, seed: int = 0) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, classes, samples)


def histogram(split_indices: list[np.ndarray], y: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(y[i], minlength=int(y.max()) + 1) for i in split_indices])


def distances(partition: Partition, y: np.ndarray, clients: int, seed: int = 0) -> np.ndarray:
    """Total variation of each client's label distribution from that of all."""
    split = partition.split(view(y), clients, seed)
    counts = histogram([split.indices(c) for c in range(clients)], y)
    mixes = counts / counts.sum(axis=1, keepdims=True)
    found: np.ndarray = 0.5 * np.abs(mixes - np.bincount(y) / len(y)).sum(axis=1)
    return found


def test_every_partition_is_listed_by_its_name() -> None:
    assert list(PARTITIONS) == [
        "iid",
        "dirichlet",
        "dirichlet_per_client",
        "shards",
        "classes_per_client",
        "quantity_skew",
        "iid_fraction",
        "by_column",
        "difficulty",
    ]


@pytest.mark.parametrize("partition", EVERY, ids=text)
@given(y=st.lists(st.integers(0, 4), min_size=1, max_size=60), share=st.floats(0, 1), seed=st.integers(0, 5))
@settings(max_examples=30)
def test_disjoint_and_complete(partition: Partition, y: list[int], share: float, seed: int) -> None:
    clients = max(1, int(share * len(y)))
    split = partition.split(view(y), clients, seed)
    assert sorted(split.order.tolist()) == list(range(len(y)))
    assert len(split.sizes) == clients
    assert split.sizes.sum() == len(y)
    for client in range(clients):
        own = split.indices(client)
        assert len(own) == split.sizes[client]
        assert (np.diff(own) > 0).all()


@pytest.mark.parametrize("partition", EVERY, ids=text)
def test_the_seed_names_the_split(partition: Partition) -> None:
    y = labels(200, 5)
    first, again, other = (partition.split(view(y), 8, seed).order.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("partition", SYMMETRIC, ids=text)
@given(order=st.permutations(range(5)), seed=st.integers(0, 3))
@settings(max_examples=15)
def test_what_classes_are_called_changes_nothing(partition: Partition, order: list[int], seed: int) -> None:
    y = labels(120, 5, seed)
    plain = partition.split(view(y), 6, seed)
    names = np.array(["cat", "truck", "bird", "deer", "ship"])[np.array(order)]
    for called in (y * 10 + 10, np.array(order)[y], names[y]):
        numbers = encode(called, classes_of(called)).numpy()
        other = partition.split(view(numbers), 6, seed)
        assert other.order.tolist() == plain.order.tolist()
        assert other.sizes.tolist() == plain.sizes.tolist()


@pytest.mark.parametrize("partition", [Shards(), IidFraction(share=0.2)], ids=text)
def test_partitions_in_class_order_only_look_at_that_order(partition: Partition) -> None:
    y = labels(120, 5)
    ordered = np.array(["a", "bb", "c", "d", "z"])[y]
    numbers = encode(ordered, classes_of(ordered)).numpy()
    assert partition.split(view(numbers), 6, 0).order.tolist() == partition.split(view(y), 6, 0).order.tolist()


@pytest.mark.parametrize("clients", [1, 7, 10])
@pytest.mark.parametrize(
    "partition",
    [
        Iid(),
        IidFraction(share=1.0),
        Dirichlet(alpha=1e6),
        Dirichlet(alpha=1e6, balance=False),
        DirichletPerClient(beta=1e6),
    ],
    ids=text,
)
def test_the_mild_end_is_iid(partition: Partition, clients: int) -> None:
    y = np.sort(np.concatenate([labels(4000, 10), np.zeros(400, dtype=np.int64)]))
    sizes = partition.split(view(y), clients, 0).sizes
    # Random dealing itself is off by about sqrt(classes / size); the Dirichlet ones at 1e6 are closer than that.
    assert distances(partition, y, clients).max() < 0.1
    assert sizes.max() - sizes.min() <= 0.1 * len(y) / clients


@pytest.mark.parametrize("make", [lambda a: Dirichlet(alpha=a), lambda a: DirichletPerClient(beta=a)])
def test_the_distance_from_iid_falls_as_the_concentration_grows(make: Callable[[float], Partition]) -> None:
    y = labels(6000, 10)
    found = [distances(make(a), y, 10).mean() for a in (0.1, 1.0, 10.0, 1000.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.5
    assert found[-1] < 0.05


@pytest.mark.parametrize("make", [DirichletPerClient, lambda beta, min_size: Dirichlet(alpha=beta, min_size=min_size)])
def test_however_small_the_concentration_it_is_no_nearer_to_iid(make: Any) -> None:
    """Also where nobody, or nobody who may still have one, has drawn a class at all."""
    y = labels(6200, 62)
    found = [distances(make(beta=b, min_size=0), y, 8).mean() for b in (1e-300, 1e-6, 1e-4, 0.0016, 0.05, 1.0)]
    assert found == sorted(found, reverse=True) or min(found[:4]) > 0.99 * max(found)
    assert min(found[:3]) > 0.8


def test_the_two_dirichlets_differ_in_sizes() -> None:
    y = labels(20_000, 10)
    over_clients = Dirichlet(alpha=0.1, min_size=0).split(view(y), 50, 0).sizes
    over_classes = DirichletPerClient(beta=0.1, min_size=0).split(view(y), 50, 0).sizes
    assert over_clients.max() / max(over_clients.min(), 1) > 20
    assert over_classes.max() / over_classes.min() < 5


def test_balance_evens_sizes_out() -> None:
    y = labels(6000, 10)
    with_mask = Dirichlet(alpha=0.1, min_size=0).split(view(y), 20, 0).sizes
    without = Dirichlet(alpha=0.1, min_size=0, balance=False).split(view(y), 20, 0).sizes
    assert with_mask.std() < without.std()


@pytest.mark.parametrize("alpha", [1e-3, 1e-2])
@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet_per_client"])
def test_tiny_concentrations_give_no_nan_and_lose_nothing(kind: str, alpha: float) -> None:
    partition = (
        Dirichlet(alpha=alpha, min_size=0) if kind == "dirichlet" else DirichletPerClient(beta=alpha, min_size=0)
    )
    y = labels(1000, 3)
    for seed in range(20):
        assert partition.split(view(y), 40, seed).sizes.sum() == 1000


def test_classes_run_out_without_loss() -> None:
    # Unequal classes and two clients: priors over what is left must never become 0/0.
    y = np.repeat(np.arange(5), [1, 2, 3, 100, 400])
    for beta in (0.2, 100.0, 10_000.0):
        assert DirichletPerClient(beta=beta).split(view(y), 2, 0).sizes.sum() == len(y)


@pytest.mark.parametrize("clients", [3, 20, 40])
@pytest.mark.parametrize("partition", EVERY, ids=text)
def test_any_number_of_clients_goes_with_any_number_of_classes(partition: Partition, clients: int) -> None:
    assert partition.split(view(labels(300, 10)), clients, 0).sizes.sum() == 300


# Smallest sizes: bounded work, honest refusals, reported repair.


def test_an_impossible_minimum_is_refused_at_once() -> None:
    with pytest.raises(UserError, match=r"100 parts of at least 20 samples need 2,000, there are 1,000"):
        Dirichlet(alpha=0.3, min_size=20, tries=10**9).split(view(labels(1000, 10)), 100, 0)


def test_a_minimum_that_is_not_reached_names_the_best_one() -> None:
    hard = Dirichlet(alpha=0.05, min_size=40, balance=False, tries=30)
    with pytest.raises(UserError, match=r"in 30 draws the smallest of 100 parts held \d+ samples at most") as error:
        hard.split(view(labels(60_000, 10)), 100, 0)
    assert "min_size=" in error.value.fix
    best = int(error.value.fix.split("min_size=")[1].split(",")[0])
    reached = Dirichlet(alpha=0.05, min_size=best, balance=False, tries=30).split(view(labels(60_000, 10)), 100, 0)
    assert reached.sizes.min() == best


@pytest.mark.parametrize(
    "make",
    [
        lambda **s: Dirichlet(alpha=0.05, **s),
        lambda **s: DirichletPerClient(beta=0.05, **s),
        lambda **s: QuantitySkew(alpha=0.2, **s),
    ],
)
def test_a_repair_reaches_the_minimum_and_says_so(make: Callable[..., Partition]) -> None:
    y = labels(1000, 10)
    split = make(min_size=18, tries=2, repair=True).split(view(y), 50, 0)
    assert split.sizes.min() >= 18
    assert sorted(split.order.tolist()) == list(range(1000))
    assert any("repaired" in note and "samples moved" in note for note in split.notes)


def test_a_repair_that_is_not_needed_changes_nothing() -> None:
    y = labels(2000, 10)
    plain, repaired = (Dirichlet(alpha=1.0, repair=r).split(view(y), 10, 0) for r in (False, True))
    assert plain.order.tolist() == repaired.order.tolist()
    assert not repaired.notes


@given(st.integers(1, 100))
def test_the_default_minimum_is_ten_but_no_more_than_a_tenth_of_the_mean(clients: int) -> None:
    y = labels(1437, 10)
    sizes = QuantitySkew(alpha=50.0).split(view(y), clients, 0).sizes
    assert sizes.min() >= min(10, 1437 // (10 * clients))


def test_the_quick_start_split_works_for_every_seed() -> None:
    y = labels(1437, 10)
    for seed in range(50):
        Dirichlet(alpha=0.3).split(view(y), 20, seed)


def test_a_repair_takes_from_the_largest_only() -> None:
    owner = np.repeat([0, 1], [10, 6])
    for seed in range(10):
        repaired, moved, filled = _repaired(owner, 3, 2, stream(seed, "partition"))
        assert (np.bincount(repaired).tolist(), moved, filled) == ([8, 6, 2], 2, 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 50), st.integers(0, 5))
def test_whole_counts_sum_up_and_stay_within_one_of_their_share(raw: list[float], samples: int, seed: int) -> None:
    shares = (np.array(raw) + 1e-9) / (np.array(raw) + 1e-9).sum()
    counts = whole(shares, samples, stream(seed, "partition"))
    assert counts.sum() == samples
    assert np.abs(counts - shares * samples).max() < 1 + 1e-6


def test_left_over_samples_favour_nobody() -> None:
    counts = [whole(np.full(4, 0.25), 1, stream(seed, "partition")) for seed in range(400)]
    assert np.abs(np.mean(counts, axis=0) - 0.25).max() < 0.08


def test_shares_that_sum_to_a_little_less_than_one_lose_nothing() -> None:
    class Zero:
        def random(self) -> float:
            return 0.0

    assert np.cumsum(np.full(10, 0.1))[-1] < 1
    assert whole(np.full(10, 0.1), 10, cast(np.random.Generator, Zero())).sum() == 10


# Shards.


def test_mirrored_shards_pair_the_ends_of_the_label_order() -> None:
    y = np.tile(np.arange(10), 60)  # 600 samples, 20 clients: 40 shards of 15, four a class
    split = Shards(pairing="mirrored").split(view(y), 20, 0)
    held = [sorted(set(y[split.indices(c)].tolist())) for c in range(20)]
    assert held == [[c // 4, 9 - c // 4] for c in range(20)]
    assert split.sizes.tolist() == [30] * 20


def test_a_share_of_the_clients_can_be_mirrored() -> None:
    y = np.tile(np.arange(10), 600)
    split = Shards(pairing="mirrored", mirrored_share=0.1).split(view(y), 100, 0)
    held = [sorted(set(y[split.indices(c)].tolist())) for c in range(100)]
    assert held[:10] == [[0, 9]] * 10
    assert held[10:20] != [[0, 9]] * 10
    assert sorted(split.order.tolist()) == list(range(6000))


@pytest.mark.parametrize("per_client", [1, 2, 5])
def test_random_shards_are_equal_and_class_pure_where_they_divide(per_client: int) -> None:
    y = np.tile(np.arange(10), 100)
    split = Shards(per_client=per_client).split(view(y), 20, 3)
    assert set(split.sizes.tolist()) == {50}
    assert max(len(set(y[split.indices(c)].tolist())) for c in range(20)) <= per_client


def test_clients_with_one_class_are_counted() -> None:
    y = np.tile(np.arange(2), 100)
    split = Shards().split(view(y), 10, 0)
    single = sum(len(set(y[split.indices(c)].tolist())) == 1 for c in range(10))
    assert single > 0
    assert f"{single} of 10 parts hold a single class: all their shards are of it" in split.notes


def test_shards_that_do_not_divide_are_reported() -> None:
    split = Shards().split(view(labels(101, 5)), 10, 0)
    assert any("do not divide into 20 shards" in note for note in split.notes)
    assert split.sizes.max() - split.sizes.min() <= 2


def test_impossible_shards_are_refused() -> None:
    with pytest.raises(UserError, match="30 shards of 20 samples"):
        Shards(per_client=3).split(view(labels(20, 4)), 10, 0)
    with pytest.raises(UserError, match="per_client=2"):
        Shards(pairing="mirrored", per_client=3).split(view(labels(60, 4)), 5, 0)


# Classes per client.


@given(classes=st.integers(1, 6), clients=st.integers(1, 30), seed=st.integers(0, 20))
@settings(max_examples=60)
def test_every_client_holds_exactly_the_promised_classes(classes: int, clients: int, seed: int) -> None:
    y = np.tile(np.arange(6), 40)
    partition = ClassesPerClient(classes=classes)
    if classes * clients < 6:
        with pytest.raises(UserError, match="holdings"):
            partition.split(view(y), clients, seed)
        return
    split = partition.split(view(y), clients, seed)
    counts = histogram([split.indices(c) for c in range(clients)], y)
    assert ((counts > 0).sum(axis=1) == classes).all()
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    assert sorted(split.order.tolist()) == list(range(len(y)))
    if clients * classes % 6 == 0:
        assert split.sizes.max() - split.sizes.min() <= classes
    elif split.sizes.max() - split.sizes.min() > classes:
        assert any("sizes run from" in note for note in split.notes)


def test_promises_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(UserError, match="a class of 3 samples would have"):
        ClassesPerClient(classes=2).split(view(np.repeat(np.arange(3), [3, 100, 100])), 30, 0)
    with pytest.raises(UserError, match="at most 3 classes"):
        ClassesPerClient(classes=4).split(view(labels(90, 3)), 5, 0)


# The share that is IID.


def test_the_rest_of_an_iid_fraction_is_in_label_order() -> None:
    y = labels(8000, 10)
    split = IidFraction(share=0.0).split(view(y), 8, 0)
    blocks = [y[split.indices(c)] for c in range(8)]
    assert all(a.max() <= b.min() for a, b in itertools.pairwise(blocks))
    assert set(split.sizes.tolist()) == {1000}


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_every_class_gives_its_share_to_everybody(share: float) -> None:
    y = np.tile(np.arange(10), 800)
    split = IidFraction(share=share).split(view(y), 8, 0)
    counts = histogram([split.indices(c) for c in range(8)], y)
    # A class far from a client's own block comes from the pool only.
    assert abs(np.median(counts) - share * 100) < 12
    assert split.sizes.max() - split.sizes.min() <= 2


# Quantity, columns, parts.


def test_quantity_skew_skews_sizes_not_labels() -> None:
    y = labels(20_000, 5)
    split = QuantitySkew(alpha=0.5).split(view(y), 20, 0)
    assert split.sizes.max() > 5 * split.sizes.min()
    large = split.sizes > 500
    assert distances(QuantitySkew(alpha=0.5), y, 20)[large].max() < 0.1


def test_a_column_gives_natural_clients() -> None:
    writers = ["w3", "w1", "w3", "w2", "w1", "w3"]
    split = ByColumn(column="writer").split(view([0] * 6, writer=writers), None, 0)
    assert split.names == ("w1", "w2", "w3")
    assert [split.indices(c).tolist() for c in range(3)] == [[1, 4], [3], [0, 2, 5]]


def test_natural_clients_are_drawn_at_random_with_their_names() -> None:
    writers = np.arange(200) % 40
    drawn = [ByColumn(column="w").split(view([0] * 200, w=writers), 5, seed) for seed in range(3)]
    assert len({split.names for split in drawn}) == 3
    for split in drawn:
        for client, name in enumerate(split.names):
            assert set(writers[split.indices(client)]) == {int(name)}


def test_small_values_of_a_column_are_left_out_and_counted() -> None:
    split = ByColumn(column="w", min_size=2).split(view([0] * 6, w=[3, 1, 3, 2, 1, 3]), None, 0)
    assert split.names == ("1", "3")
    assert split.notes == ("1 values of 'w' with fewer than 2 samples are left out (1 samples)",)


def test_a_column_that_is_not_there_or_too_short_is_refused() -> None:
    data = view([0] * 4, writer=[0, 0, 1, 1])
    with pytest.raises(UserError, match="did you mean 'writer'"):
        ByColumn(column="writers").split(data, None, 0)
    with pytest.raises(UserError, match="3 clients, but the data has 2 parts"):
        ByColumn(column="writer").split(data, 3, 0)
    with pytest.raises(UserError, match="parts=3"):
        ByColumn(column="writer", parts=3).split(data, 2, 0)


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_unused_parts_are_reported(name: str) -> None:
    needs: dict[str, dict[str, Any]] = {
        "dirichlet": {"alpha": 1.0, "min_size": 0},
        "dirichlet_per_client": {"beta": 1.0, "min_size": 0},
        "classes_per_client": {"classes": 2},
        "quantity_skew": {"alpha": 1.0, "min_size": 0},
        "iid_fraction": {"share": 0.5},
        "by_column": {"column": "w"},
        "difficulty": {"inner": Shards(per_client=2), "column": "w"},
    }
    y = labels(400, 10)
    data = view(y, w=np.arange(400) % 20)
    partition = PARTITIONS[name](parts=20, **needs.get(name, {}))
    few, more = partition.split(data, 5, 0), partition.split(data, 8, 0)
    assert len(few.sizes) == 5
    assert len(set(few.order.tolist())) == few.sizes.sum() < 400
    used = few.sizes.sum() / 400
    assert any(note.startswith(f"5 of 20 parts are used; {1 - used:.1%} of the training samples") for note in few.notes)
    # Fewer clients are the first of more: comparisons over the number of clients are paired.
    assert [few.indices(c).tolist() for c in range(5)] == [more.indices(c).tolist() for c in range(5)]


@pytest.mark.parametrize("partition", EVERY, ids=text)
def test_more_clients_than_samples_are_refused(partition: Partition) -> None:
    with pytest.raises(UserError, match="11 clients for 10 training samples"):
        partition.split(view(labels(10, 2)), 11, 0)
    with pytest.raises(UserError, match="0 clients"):
        partition.split(view(labels(10, 2)), 0, 0)


@pytest.mark.parametrize(
    "partition",
    [
        Dirichlet(alpha=1.0),
        DirichletPerClient(beta=1.0),
        Shards(),
        ClassesPerClient(classes=2),
        IidFraction(share=0.5),
    ],
    ids=text,
)
def test_targets_that_are_no_classes_are_refused_with_what_fits(partition: Partition) -> None:
    floats = View(
        targets=np.linspace(0, 1, 40, dtype=np.float32), labelled=False, columns={"band": Keys.of(np.arange(40) // 10)}
    )
    with pytest.raises(UserError, match="float32") as error:
        partition.split(floats, 4, 0)
    assert "iid, quantity_skew, by_column" in error.value.fix
    assert f"{partition.label()}(by='band')" in error.value.fix


@pytest.mark.parametrize(
    "partition", [Iid(), QuantitySkew(alpha=5.0), Shards(by="band"), Dirichlet(alpha=9.0, by="band")]
)
def test_partitions_that_fit_floats_take_them(partition: Partition) -> None:
    floats = View(targets=np.linspace(0, 1, 80), labelled=False, columns={"band": Keys.of(np.arange(80) // 20)})
    assert partition.split(floats, 4, 0).sizes.sum() == 80


def test_a_partition_reads_as_it_is_written() -> None:
    assert Dirichlet(alpha=0.3).text() == "dirichlet(alpha=0.3)"
    assert Iid().text() == "iid"
    assert Shards(pairing="mirrored", parts=4).text() == "shards(parts=4, pairing='mirrored')"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Dirichlet(alpha=0.0),
        lambda: Dirichlet(alpha=float("nan")),
        lambda: Dirichlet(alpha=1.0, min_size=-1),
        lambda: Shards(pairing="sideways"),  # type: ignore[arg-type]
        lambda: IidFraction(share=1.5),
        lambda: Iid(parts=0),
    ],
)
def test_settings_out_of_range_are_refused(wrong: Callable[[], Partition]) -> None:
    with pytest.raises(UserError):
        wrong()


@pytest.mark.parametrize(
    "partition",
    [
        Iid(),
        Dirichlet(alpha=0.3, repair=True, tries=2),
        DirichletPerClient(beta=0.3, min_size=0),
        Shards(),
        ClassesPerClient(classes=2),
        QuantitySkew(alpha=1.0, min_size=0),
        IidFraction(share=0.2),
        ByColumn(column="user"),
    ],
    ids=text,
)
def test_a_hundred_thousand_clients_take_seconds(partition: Partition) -> None:
    data = view(labels(300_000, 10), user=np.arange(300_000) % 100_000)
    start = time.process_time()
    split = partition.split(data, 100_000, 0)
    assert time.process_time() - start < 10
    assert len(split.sizes) == 100_000
    assert split.sizes.sum() == 300_000
