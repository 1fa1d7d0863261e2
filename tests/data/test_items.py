"""Labels are those that the items give, whatever else a data set says of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset, random_split

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.data import items
from polyrhythm.data.items import Labels, labels_of
from polyrhythm.experiments.session import carry_out
from small import prepared

N = 120


class Noise(Dataset[tuple[Tensor, Any]]):
    """Items whose labels are others than `targets` from number 60 on."""

    def __init__(self, label: Callable[[int], Any] = lambda i: (i + (i >= 60)) % 3, count: int = N) -> None:
        self.targets: Any = torch.arange(count) % 3
        self.label, self.reads = label, 0

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        self.reads += 1
        return torch.full((4,), float(index)), self.label(index)


class TargetTransform(Noise):
    labels = tuple(range(N))


class Derived(TensorDataset):
    """A TensorDataset by name, whose items are relabelled from number 1 on."""

    def __getitem__(self, index: int) -> Any:
        inputs, label = super().__getitem__(index)
        return inputs, (label + (index > 0)) % 3


class DerivedSubset(Subset[Any]):
    def __getitem__(self, index: Any) -> Any:
        inputs, label = super().__getitem__(index)
        return inputs, (label + (index > 0)) % 3

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[i] for i in indices]


class Around:
    """Passes all that it does not know on to the set inside, whose items it gives in another order."""

    def __init__(self, inside: Any, order: Sequence[int]) -> None:
        self.inside, self.order = inside, order

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Any:
        return self.inside[self.order[index]]


def plain(count: int = N) -> TensorDataset:
    return TensorDataset(torch.arange(float(count))[:, None].repeat(1, 4), torch.arange(count) % 3)


def halves(data: Any) -> list[Any]:
    return list(random_split(data, [0.5, 0.5], generator=torch.Generator().manual_seed(0)))


DATA: dict[str, Callable[[], Any]] = {
    "noise from number 60 on": Noise,
    "a target_transform": lambda: TargetTransform(lambda i: 2 - i % 3 if i else 0),
    "a wrapper that shuffles": lambda: Around(plain(), [0, *range(N - 1, 0, -1)]),
    "a wrapper that filters": lambda: Around(plain(), range(0, N, 3)),
    "a wrapper that passes tensors on": lambda: Around(Derived(*plain().tensors), range(N)),
    "a derived TensorDataset": lambda: Derived(*plain().tensors),
    "a TensorDataset": plain,
    "a Subset, reversed and repeated": lambda: Subset(plain(), [5, 4, 3, 3, 3, -1, 0, 7]),
    "a Subset of a Subset of noise": lambda: Subset(Subset(Noise(), range(50, 80)), [29, 0, 12, 12]),
    "a derived Subset": lambda: DerivedSubset(plain(), list(range(N - 1, -1, -1))),
    "a Subset of a derived one": lambda: Subset(Derived(*plain().tensors), [3, 2, 1, 0]),
    "random_split, twice": lambda: halves(halves(plain())[1])[0],
    "random_split of noise": lambda: halves(Noise())[1],
    "ConcatDataset": lambda: ConcatDataset([plain(7), Subset(plain(), [4, 2]), Noise(), Derived(*plain().tensors)]),
    "ConcatDataset of plain ones": lambda: ConcatDataset([plain(7), halves(plain())[0], plain(1)]),
    "StackDataset": lambda: StackDataset(plain().tensors[0], [(i * i) % 3 for i in range(N)]),
    "a list": lambda: [(torch.full((4,), float(i)), (i * i) % 3) for i in range(N)],
    "a tuple of names": lambda: tuple((np.ones(4, dtype=np.float32) * i, "abc"[i % 3]) for i in range(N)),
    "labels that are tensors": lambda: Noise(lambda i: torch.tensor(i * i % 3)),
    "labels that are NumPy's": lambda: Noise(lambda i: np.int32(i * i % 3)),
    "targets of another length": lambda: Around(plain(), range(7)),
    "names": lambda: Noise(lambda i: "ab"[i % 2] * (1 + i % 3)),
    "bytes": lambda: Noise(lambda i: b"ab"[i % 2 : i % 2 + 1]),
    "truths": lambda: Noise(lambda i: i % 5 == 0),
    "one place for all labels": lambda: Noise(OnePlace()),
    "one tensor for all labels": lambda: Noise(OneTensor()),
}


class OnePlace:
    """A label that lies where the last one lay."""

    def __init__(self) -> None:
        self.place = np.zeros((), dtype=np.int64)

    def __call__(self, index: int) -> np.ndarray:
        self.place[...] = index * index % 3
        return self.place


class OneTensor:
    """A label in the tensor of the last one."""

    def __init__(self) -> None:
        self.place = torch.zeros((), dtype=torch.int64)

    def __call__(self, index: int) -> Tensor:
        return self.place.fill_(index * index % 3)


class Giving:
    """Items whose inputs a function gives."""

    def __init__(self, give: Callable[[int], Any]) -> None:
        self.give = give

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.give(index), index % 3


@pytest.mark.parametrize("place", [torch.zeros(4), np.zeros(4, dtype=np.float32)])
def test_inputs_that_lie_where_the_last_one_lay_are_each_its_own(place: Any) -> None:
    def give(index: int) -> Any:
        place[:] = index
        return place

    read, _ = pr.data.dataset(Giving(give), Giving(give)).train.batch(torch.tensor([5, 0, 7]))
    assert read.tolist() == [[5.0] * 4, [0.0] * 4, [7.0] * 4]


def raising(error: Exception) -> Any:
    raise error


ODD: dict[str, tuple[Callable[[int], Any], str]] = {
    "a file that is not there": (lambda i: raising(FileNotFoundError("7.png")), "cannot be read: FileNotFoundError"),
    "fewer items than it says": (lambda i: [0, 1][i], "item"),
    "text": (lambda i: np.array("a"), "an input of type ndarray of <U1"),
    "several kinds": (lambda i: np.array([None, 1]), "missing"),
    "sparse": (lambda i: torch.eye(3).to_sparse(), "sparse tensor"),
    "nothing": (lambda i: torch.ones(3, device="meta"), "without numbers"),
}


@pytest.mark.parametrize("name", ODD)
def test_items_that_cannot_be_used_are_refused_in_words(name: str) -> None:
    give, said = ODD[name]
    with pytest.raises(UserError, match=said):
        pr.data.dataset(*[Giving(give)] * 2)


def test_what_is_wrong_in_the_test_set_is_said_to_be_there() -> None:
    right, wrong = Giving(lambda i: torch.zeros(2)), Giving(lambda i: torch.full((2,), torch.nan if i == 7 else 0.0))
    with pytest.raises(UserError, match=r"^the test set: item 7 has inputs that are NaN"):
        pr.data.dataset(right, wrong)
    with pytest.raises(UserError, match=r"^item 7 has inputs"):
        pr.data.dataset(wrong, right)


@pytest.mark.parametrize("turn", [lambda x: x[::-1], lambda x: x.astype(">f4"), lambda x: x.astype(np.uint16)])
def test_arrays_of_every_make_are_inputs(turn: Callable[[np.ndarray], np.ndarray]) -> None:
    right = [turn(np.arange(i, i + 4, dtype=np.float32)).tolist() for i in range(N)]
    given = Giving(lambda i: turn(np.arange(i, i + 4, dtype=np.float32)))
    assert pr.data.dataset(given, given).train.batch(torch.arange(N))[0].tolist() == right


def test_inputs_of_several_types_are_refused_when_they_are_used() -> None:
    found = pr.data.dataset(*[Giving(lambda i: torch.zeros(2, dtype=torch.int64 if i == 7 else torch.float32))] * 2)
    with pytest.raises(UserError, match=r"sample 7 is of torch.int64, sample 0 of torch.float32"):
        found.train.batch(torch.arange(9))


def test_stated_texts_are_held_to_items_that_give_numbers() -> None:
    with pytest.raises(UserError, match="item 0 has label 0"):
        labels_of([(torch.zeros(2), 0), (torch.zeros(2), "b")], None, ["a", "b"])


@pytest.mark.parametrize("name", DATA)
def test_labels_are_those_of_the_items(name: str) -> None:
    data = DATA[name]()
    found = pr.data.dataset(data, data)
    given = [copy.deepcopy(data[i][1]) for i in range(len(data))]
    said = [
        g.decode() if isinstance(g, bytes) else str(g) if isinstance(g, (str, bool)) else str(int(g)) for g in given
    ]
    for part in (found.train, found.test):
        assert [found.classes[int(number)] for number in part.targets] == said
        where = torch.tensor([len(data) - 1, 0, len(data) // 2])
        inputs, targets = part.batch(where)
        assert torch.equal(targets, part.targets[where])
        for place, row in zip(where.tolist(), inputs, strict=True):
            assert torch.equal(row, torch.as_tensor(data[place][0]))


def test_an_adapter_gives_the_labels() -> None:
    class Pictures(Noise):
        def __getitem__(self, index: int) -> Any:
            inputs, label = super().__getitem__(index)
            return {"image": inputs, "label": label, "weight": 0.5}

    found = pr.data.dataset(Pictures(), Pictures(), adapt=lambda item: (item["image"], (item["label"] + 1) % 3))
    assert found.train.targets.tolist() == [(i + (i >= 60) + 1) % 3 for i in range(N)]


def test_the_last_of_three_tensors_may_be_weights() -> None:
    inputs, labels = plain().tensors
    data = TensorDataset(inputs, labels, torch.arange(N) % 3)
    with pytest.raises(UserError, match="3 values") as error:
        pr.data.dataset(data, data)
    assert "adapt" in error.value.fix
    weights = torch.where(torch.arange(N) == 0, 0, (torch.arange(N) + 1) % 3)
    data = TensorDataset(inputs, labels, weights)
    found = pr.data.dataset(data, data, adapt=lambda item: item[:2])
    assert torch.equal(found.train.targets, labels)


def test_labels_of_other_kinds_are_read_too() -> None:
    smooth = Noise(lambda i: float(i % 2) if i < 60 else 0.5)
    found = pr.data.dataset(smooth, smooth)
    assert found.task == "regression"
    assert found.train.targets.tolist() == [float(i % 2) if i < 60 else 0.5 for i in range(N)]
    column = Noise(lambda i: torch.tensor([i / 2]))
    assert pr.data.dataset(column, column).train.targets.tolist() == [[i / 2] for i in range(N)]
    tag = Noise(lambda i: torch.tensor([i % 2]))
    assert pr.data.dataset(tag, tag, task="multilabel").classes == ("0",)
    tags = Noise(lambda i: [i % 2, 1, (i // 60) % 2])
    found = pr.data.dataset(tags, tags)
    assert found.task == "multilabel"
    assert found.train.targets[[0, 61]].tolist() == [[0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]


LISTS = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (lambda i: LISTS[i % 3], "exactly one 1 in every row"),
        (lambda i: [0.9, 0.1] if i % 2 else [0.1, 0.9], r"shares of 2 classes"),
        (lambda i: -100 if i == 77 else i % 3, "label -100 in 2 items"),
        (lambda i: None if i == 77 else i % 3, "a label of type NoneType"),
        (lambda i: {"boxes": i}, "a label of type dict"),
        (lambda i: "cat" if i == 77 else i % 3, "item 77 has label 'cat', item 0 has 0"),
        (lambda i: [1, 2] if i == 77 else [1, 2, 3], r"item 77 has label \[1, 2\], item 0 has \[1, 2, 3\]"),
        (lambda i: [[1], [2, 3]], "a label of type list"),
        (lambda i: torch.tensor(1 + 2j), "a label of type complex"),
    ],
)
def test_labels_that_mean_nothing_alone_are_refused(label: Callable[[int], Any], said: str) -> None:
    data = Noise(label)
    with pytest.raises(UserError, match=said):
        pr.data.dataset(data, data)


def test_what_looks_like_left_out_items_is_a_class_if_the_user_says_so() -> None:
    data = Noise(lambda i: -100 if i == 77 else i % 2)
    assert pr.data.dataset(data, data, classes=[0, 1, -100]).train.targets[77] == 2
    signs = Noise(lambda i: -1 if i % 2 else 1)
    assert pr.data.dataset(signs, signs).classes == ("-1", "1")


# Labels that are not the same in each read.


def by_torch(i: int) -> int:
    return int(torch.randint(3, ()))


def by_numpy(i: int) -> int:
    return int(np.random.default_rng().integers(3))


def seldom(i: int) -> Tensor:
    return torch.tensor(i % 3) if torch.rand(()) < 0.9 else torch.tensor((i + 1) % 3)


@pytest.mark.parametrize("label", [by_torch, by_numpy, seldom])
@pytest.mark.parametrize("augmented", [False, True])
def test_labels_drawn_at_each_read_are_refused_before_a_run(label: Callable[[int], Any], augmented: bool) -> None:
    before = torch.get_rng_state()
    with pytest.raises(UserError, match="when it was first read") as error:
        pr.data.dataset(Noise(label), plain(), augmented=augmented)
    assert "draw labels once" in error.value.fix
    assert torch.equal(torch.get_rng_state(), before)


def test_a_label_that_changes_later_ends_the_run_in_words() -> None:
    data = Noise()
    found = pr.data.dataset(data, plain())
    data.label = lambda i: 2 if i == 119 else (i + (i >= 60)) % 3
    assert found.train.batch(torch.arange(119))[1].tolist() == [(i + (i >= 60)) % 3 for i in range(119)]
    with pytest.raises(UserError, match="item 119 has label 2, and had 0 when it was first read"):
        found.train.batch(torch.tensor([3, 119]))
    split, recipe = pr.federate(found, pr.data.Iid(), 4, 0), pr.fedavg(cohort=4, epochs=1)
    with pytest.raises(pr.PolyrhythmError, match="when it was first read"):
        carry_out(prepared(federation=split, recipe=recipe), [])


def test_tensors_that_are_changed_later_do_not_go_unnoticed() -> None:
    data = plain()
    found = pr.data.dataset(data, data)
    data.tensors[1][7] = 0
    assert found.train.targets[7] == 1
    with pytest.raises(UserError, match="item 7"):
        found.train.batch(torch.tensor([7]))


def test_no_number_is_the_same_as_no_number() -> None:
    labels = Labels(np.array([np.nan, 1.0]))
    labels.check([0, 1], [float("nan"), 1.0])
    with pytest.raises(UserError):
        labels.check([1], [float("nan")])


# What the user states.


def test_stated_labels_are_taken_without_reading_every_item() -> None:
    data = Noise(count=5000)
    stated = [(i + (i >= 60)) % 3 for i in range(5000)]
    found = pr.data.dataset(data, plain(), targets=stated)
    assert found.train.targets.tolist() == stated
    assert data.reads <= items.READ_AGAIN + 4  # the first one, too, to see what an input is
    tests = pr.data.dataset(plain(), data, test_targets=torch.tensor(stated))
    assert tests.test.targets.tolist() == stated


def test_stated_labels_that_the_items_do_not_have_are_refused() -> None:
    with pytest.raises(UserError, match=r"item \d+ has label \d, and \d is stated for it") as error:
        pr.data.dataset(Noise(), plain(), targets=Noise().targets)
    assert "targets=" in error.value.fix
    for given, shape in ((range(N - 1), r"\(119,\)"), (3, r"\(\)")):
        with pytest.raises(UserError, match=f"stated labels of shape {shape} for 120 items"):
            pr.data.dataset(Noise(), plain(), targets=given)


def test_one_wrong_among_many_is_found_when_it_is_used() -> None:
    data = Noise(count=5000)
    stated = np.array([(i + (i >= 60)) % 3 for i in range(5000)])
    used = sorted(set(range(5000)) - set(checked(5000)))[:1]
    stated[used] = (stated[used] + 1) % 3
    found = pr.data.dataset(data, plain(), targets=stated)
    with pytest.raises(UserError, match=f"item {used[0]} has label"):
        found.train.batch(torch.tensor([1, *used]))


def checked(count: int) -> list[int]:
    data = Noise(count=count)
    seen = list[int]()
    data.label = lambda i: seen.append(i) or i % 3  # type: ignore[func-returns-value]
    labels_of(data, stated=[i % 3 for i in range(count)])
    return seen


def test_stated_numbers_may_be_more_exact_than_those_of_the_items() -> None:
    data = Noise(lambda i: torch.tensor(i / 7, dtype=torch.float32))
    found = pr.data.dataset(data, data, targets=[i / 7 for i in range(N)], test_targets=[i / 7 for i in range(N)])
    assert found.train.batch(torch.tensor([5]))[1].tolist() == [np.float32(5 / 7)]


# The cost.


def test_rows_of_two_tensors_are_read_at_once_and_are_the_same() -> None:
    for data in (plain(), TensorDataset(torch.arange(6).view(3, 2), torch.tensor([[0.5], [1.0], [2.0]]))):
        quick, slow = (pr.data.DatasetSamples(d) for d in (data, Same(*data.tensors)))
        for where in (torch.tensor([2, 0, 2]), torch.tensor([], dtype=torch.int64)):
            one, other = quick.batch(where), slow.batch(where)
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
            assert one[0].dtype == other[0].dtype or not len(where)


class Same(TensorDataset):
    """One that changes nothing, which nobody can know."""


def test_only_what_is_surely_known_is_not_read() -> None:
    for data, read in ((plain(), False), (Subset(plain(), [2, 1]), False), (Derived(*plain().tensors), True)):
        assert (items._known(data) is None) == read
    few = Noise()
    pr.data.dataset(few, plain())
    assert few.reads <= 2 * N + 3


def test_slow_reading_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(items.time, "perf_counter", lambda: next(clock))
    labels_of(Noise(count=50))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "note: reading each item's label: 6 of 50 in 6 s; targets= states them"
    assert len(said) == 4
    labels_of(plain())
    assert not capsys.readouterr().err


def test_a_loader_is_answered_with_what_takes_the_place_of_its_settings() -> None:
    items = [(torch.zeros(2), 0), (torch.ones(2), 1)] * 4
    loader = torch.utils.data.DataLoader(items, collate_fn=list, sampler=[0, 1, 2])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="type DataLoader") as refused:
        pr.data.dataset(loader, items)
    for word in ("adapt=", "padding=", "pr.extend.Order"):
        assert word in refused.value.fix


def test_a_share_in_place_of_a_test_set_is_refused_with_how_to_split() -> None:
    given = TensorDataset(torch.zeros(10, 2), torch.arange(10) % 2)
    with pytest.raises(UserError, match=r"test = 0\.2 for a data set") as error:
        pr.data.dataset(given, 0.2)
    assert "random_split" in error.value.fix
