"""What is held out is never trained on, and every client's samples are those of the data set."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.data import (
    ArraySamples,
    ByColumn,
    Collection,
    Dirichlet,
    Federation,
    Iid,
    Keys,
    QuantitySkew,
    Shards,
    arrays,
    digits,
    federate,
)
from polyrhythm.data.holdout import held_out
from polyrhythm.data.labels import by_first_appearance, classes_of, encode


def collection(samples: int = 120, classes: int = 4, **extra: Any) -> Collection:
    """Inputs are the sample's own number, so that any sample can be told wherever it turns up."""
    numbers = np.arange(samples, dtype=np.float32)[:, None]
    tests = 1000 + np.arange(12, dtype=np.float32)[:, None]
    labels = np.arange(samples) % classes
    return arrays(numbers, labels, test=(tests, np.arange(12) % classes), **extra)


def seen(federation: Federation, client: int) -> list[int]:
    inputs, _ = federation.train.batch(federation.indices(client))
    return inputs.flatten().int().tolist()


@given(
    clients=st.integers(1, 12),
    validation=st.sampled_from([0.0, 0.1, 0.34]),
    local_test=st.sampled_from([0.0, 0.2, 0.5]),
    seed=st.integers(0, 5),
)
@settings(max_examples=40)
def test_training_validation_and_tests_share_no_sample(
    clients: int, validation: float, local_test: float, seed: int
) -> None:
    data = collection()
    made = federate(data, Dirichlet(alpha=0.5, min_size=0), clients, seed, validation=validation, local_test=local_test)
    trained = [number for client in range(clients) for number in seen(made, client)]
    chosen: list[int] = []
    if made.validation is not None:
        chosen = made.validation.batch(torch.arange(len(made.validation)))[0].flatten().int().tolist()
    own: list[int] = []
    if made.local_tests is not None:
        own = made.local_tests.samples.batch(made.local_tests.order)[0].flatten().int().tolist()
    assert sorted(trained + chosen + own) == list(range(120))
    assert max(trained) < 1000  # the planted test samples reached nobody
    assert (made.validation is None) == (validation == 0)
    assert (made.local_tests is None) == (local_test == 0)


def test_targets_go_with_their_inputs() -> None:
    made = federate(collection(), Iid(), 5, 0, validation=0.1)
    for client in range(5):
        inputs, targets = made.train.batch(made.indices(client))
        assert (inputs.flatten().int() % 4).tolist() == targets.tolist()
    counts = made.histogram()
    assert counts.shape == (5, 4)
    assert counts.sum(axis=1).tolist() == made.sizes.tolist()
    assert counts[2].tolist() == np.bincount(made.train.targets[made.indices(2)].numpy(), minlength=4).tolist()
    assert made.histogram([4, 1]).tolist() == counts[[4, 1]].tolist()
    assert made.by_class().tolist() == counts.sum(axis=0).tolist()


def test_tags_are_counted_for_some_clients_and_for_all() -> None:
    tags = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 1]])
    samples = ArraySamples(torch.zeros(6, 2), tags.float())
    data = Collection(name="tags", task="multilabel", classes=("a", "b", "c"), train=samples, test=samples)
    made = federate(data, Iid(), 3, 0)
    counts = made.histogram()
    assert made.histogram([2]).tolist() == counts[[2]].tolist() == [tags[made.indices(2)].sum(0).tolist()]
    assert made.by_class().tolist() == counts.sum(axis=0).tolist() == [3, 2, 3]


def test_the_test_set_does_not_depend_on_the_seed_or_the_split() -> None:
    data = digits()
    for seed in (0, 1):
        made = federate(data, Iid(), 10, seed, validation=0.2, local_test=0.2)
        assert made.test is data.test


def test_validation_is_spread_over_the_classes() -> None:
    made = federate(collection(1000, 10), Iid(), 10, 3, validation=0.1)
    assert made.validation is not None
    assert np.bincount(made.validation.targets.numpy()).tolist() == [10] * 10


def test_asking_for_local_tests_leaves_validation_and_partition_alone() -> None:
    plain, more = (federate(collection(), Iid(), 6, 0, validation=0.1, local_test=t) for t in (0.0, 0.25))
    assert more.local_tests is not None
    for client in range(6):
        both = [*more.indices(client).tolist(), *more.local_tests.indices(client).tolist()]
        assert sorted(both) == plain.indices(client).tolist()
    assert (plain.sizes >= more.sizes).all()


def test_clients_of_one_sample_keep_it_to_train_on() -> None:
    made = federate(collection(30), Iid(), 30, 0, local_test=0.5)
    assert made.sizes.tolist() == [1] * 30
    assert "30 of 30 clients have no test samples of their own" in made.notes


def test_empty_clients_are_counted() -> None:
    made = federate(collection(40), QuantitySkew(alpha=0.05, min_size=0), 20, 0)
    empty = int((made.sizes == 0).sum())
    assert empty > 0
    assert f"{empty} of 20 clients hold no samples and are never invited" in made.notes
    assert len(made.indices(int(np.argmin(made.sizes)))) == 0


def test_indices_are_views_of_one_tensor() -> None:
    made = federate(collection(), Iid(), 6, 0)
    begins = {made.indices(c).untyped_storage().data_ptr() for c in range(6)}
    assert len(begins) == 1
    assert made.indices(0).dtype == torch.int64


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_shares_that_leave_nothing_are_refused(share: float) -> None:
    with pytest.raises(UserError, match="validation"):
        federate(collection(), Iid(), 4, 0, validation=share)
    with pytest.raises(UserError, match="local_test"):
        federate(collection(), Iid(), 4, 0, local_test=share)


def test_natural_tests_go_by_the_clients_own_value() -> None:
    data = collection(12, columns={"w": list("aabbccddeeff")}, test_columns={"w": list("fbbdaazzzzcc")})
    made = federate(data, ByColumn(column="w"), None, 0, local_test="natural")
    assert made.names == tuple("abcdef")
    assert made.local_tests is not None
    assert made.local_tests.samples is data.test
    assert [made.local_tests.indices(c).tolist() for c in range(6)] == [[4, 5], [1, 2], [10, 11], [3], [], [0]]
    some = federate(data, ByColumn(column="w"), 3, 0, local_test="natural")
    assert some.local_tests is not None
    for client, name in enumerate(some.names):
        assert some.local_tests.indices(client).tolist() == [i for i, v in enumerate("fbbdaazzzzcc") if v == name]


def test_natural_tests_need_a_natural_partition() -> None:
    with pytest.raises(UserError, match="natural"):
        federate(collection(), Iid(), 4, 0, local_test="natural")


def test_overlapping_windows_are_held_out_from_the_end() -> None:
    data = collection(40, columns={"role": ["x"] * 10 + ["y"] * 30})
    ordered = Collection(
        name="plays",
        task="classification",
        classes=data.classes,
        train=data.train,
        test=data.test,
        columns=data.columns,
        ordered_by="role",
    )
    made = federate(ordered, ByColumn(column="role"), None, 0, validation=0.2)
    assert made.validation is not None
    assert made.validation.batch(torch.arange(8))[0].flatten().int().tolist() == [8, 9, 34, 35, 36, 37, 38, 39]


def test_relabelled_data_gives_the_same_federation() -> None:
    x = np.arange(90, dtype=np.float32)[:, None]
    y = stream(0, "sample").integers(0, 3, 90)
    makes = [
        federate(arrays(x, called, test=0.2), Dirichlet(alpha=0.5, min_size=0), 6, 1, validation=0.2, local_test=0.2)
        for called in (y, y * 10 + 10, np.array(["cat", "deer", "truck"])[y], y - 1, torch.tensor(y))
    ]
    assert [m.classes for m in makes][:3] == [("0", "1", "2"), ("10", "20", "30"), ("cat", "deer", "truck")]
    for made in makes[1:]:
        assert made.shares.order.tolist() == makes[0].shares.order.tolist()
        assert torch.equal(made.train.targets, makes[0].train.targets)
        assert torch.equal(made.test.targets, makes[0].test.targets)


def test_classes_are_those_of_the_whole_data_never_of_one_client() -> None:
    data = arrays(np.zeros((6, 1)), [7, 7, 7, 7, 9, 9], test=(np.zeros((2, 1)), [8, 7]))
    assert data.classes == ("7", "8", "9")
    assert data.train.targets.tolist() == [0, 0, 0, 0, 2, 2]
    counts = federate(data, Shards(per_client=1), 3, 0).histogram()
    assert sorted(counts.tolist()) == [[0, 0, 2], [2, 0, 0], [2, 0, 0]]


def test_a_collection_that_does_not_fit_together_is_refused() -> None:
    good = ArraySamples(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]))
    parts: dict[str, Any] = {"name": "x", "task": "classification", "classes": ("a", "b"), "train": good, "test": good}
    Collection(**parts)
    for wrong, said in (
        ({"test": ArraySamples(torch.zeros(4, 3), torch.tensor([0, 1, 1, 0]))}, "shape"),
        ({"train": ArraySamples(torch.zeros(2, 2), torch.tensor([0, 2]))}, "class numbers 0 to 1"),
        ({"train": ArraySamples(torch.zeros(2, 2), torch.tensor([0.0, 1.0]))}, "class numbers"),
        ({"task": "multilabel"}, "float32"),
        ({"task": "regression", "classes": ()}, "float32"),
        ({"columns": {"w": Keys.of([1, 2])}}, "2 values for 4 train samples"),
    ):
        with pytest.raises(UserError, match=said):
            Collection(**{**parts, **wrong})


# Hold-outs and labels.


@given(
    groups=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    share=st.floats(0, 0.95),
    classes=st.integers(1, 4),
    ordered=st.booleans(),
)
def test_each_group_gives_its_share_and_keeps_one(groups: list[int], share: float, classes: int, ordered: bool) -> None:
    who = np.array(groups)
    labels = np.arange(len(who)) % classes
    out = held_out(who, labels, share, stream(0, "split"), ordered=ordered)
    for group in np.unique(who):
        size, taken = int((who == group).sum()), int(out[who == group].sum())
        assert taken < size
        assert abs(taken - share * size) <= 1
        if ordered:
            assert out[who == group].tolist() == [False] * (size - taken) + [True] * taken


@given(st.integers(1, 8), st.floats(0.1, 0.9), st.integers(0, 3))
def test_hold_outs_are_spread_over_the_classes(classes: int, share: float, seed: int) -> None:
    labels = np.arange(40 * classes) % classes
    out = held_out(np.zeros(len(labels), dtype=np.int64), labels, share, stream(seed, "split"))
    assert np.abs(np.bincount(labels[out], minlength=classes) - 40 * share).max() <= 1


@given(st.lists(st.integers(-5, 5), min_size=1))
def test_numbers_by_first_appearance_do_not_see_names(codes: list[int]) -> None:
    found = by_first_appearance(np.array(codes))
    assert found[0] == 0
    assert (np.maximum.accumulate(found)[1:] - np.maximum.accumulate(found)[:-1] <= 1).all()
    assert found.tolist() == by_first_appearance(-np.array(codes)).tolist()


def test_labels_follow_the_order_that_is_given() -> None:
    assert encode(np.array(["b", "a"]), ["b", "a", "c"]).tolist() == [0, 1]
    assert classes_of([3, 1], [2]).tolist() == [1, 2, 3]
    with pytest.raises(UserError, match="label 'z' in 2 samples"):
        encode(np.array(["z", "a", "z"]), ["a", "b"])


# The digits.


def test_the_digits_are_split_by_a_fixed_seed_over_all_classes() -> None:
    data = digits()
    assert (len(data.train), len(data.test), data.train.shape) == (1437, 360, (1, 8, 8))
    counts, tested = (np.bincount(samples.targets.numpy()) for samples in (data.train, data.test))
    assert np.abs(tested - 360 / 1797 * (counts + tested)).max() <= 1
    for samples in (data.train, data.test):
        inputs, _ = samples.batch(torch.arange(len(samples)))
        assert [float(inputs.min()), float(inputs.max())] == [0.0, 1.0]


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")
def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    theirs = load_digits()
    ours = digits()
    images = np.concatenate([s.batch(torch.arange(len(s)))[0].numpy()[:, 0] for s in (ours.train, ours.test)])
    labels = np.concatenate([ours.train.targets.numpy(), ours.test.targets.numpy()])
    rows = [(*image.ravel().tolist(), label) for image, label in zip(images * 16, labels, strict=True)]
    expected = [(*i.ravel().tolist(), t) for i, t in zip(theirs.images, theirs.target, strict=True)]
    assert sorted(rows) == sorted(expected)
