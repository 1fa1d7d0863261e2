"""Samples are held once, read by index, and augmented only where a generator is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import torch_generator
from polyrhythm.data import ArraySamples, BagSamples, DatasetSamples, Selected, WindowSamples, samples
from polyrhythm.data.transforms import Normalise, Pad, RandomCrop, RandomFlip, ToFloat, apply

IMAGES = torch.arange(5 * 3 * 6 * 6, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(5, 3, 6, 6)
SCALED = (ToFloat(), Normalise(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)))


def generator(name: int = 0) -> torch.Generator:
    return torch_generator(0, "augment", name)


# Transforms.


def test_bytes_become_zero_to_one_exactly() -> None:
    assert ToFloat()(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]


def test_normalise_goes_by_channel() -> None:
    floats = torch.rand(7, 3, 4, 4, generator=generator())
    mean, std = floats.mean(dim=(0, 2, 3)), floats.std(dim=(0, 2, 3))
    done = Normalise(mean=tuple(mean.tolist()), std=tuple(std.tolist()))(floats)
    torch.testing.assert_close(done.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(done.std(dim=(0, 2, 3)), torch.ones(3), atol=1e-5, rtol=0)


def test_a_standard_deviation_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="std"):
        Normalise(mean=(0.5, 0.5), std=(1.0, 0.0))
    with pytest.raises(UserError):
        Normalise(mean=(0.5, 0.5), std=(1.0,))


def test_padding_puts_the_image_in_the_middle_of_black() -> None:
    padded = Pad(amount=2)(IMAGES)
    assert padded.shape == (5, 3, 10, 10)
    assert torch.equal(padded[:, :, 2:8, 2:8], IMAGES)
    assert padded.sum(dtype=torch.int64) == IMAGES.sum(dtype=torch.int64)


@pytest.mark.parametrize("border", ["zeros", "reflect"])
@given(padding=st.integers(0, 5), name=st.integers(0, 50))
@settings(max_examples=30)
def test_a_crop_is_a_window_of_the_padded_image(border: Any, padding: int, name: int) -> None:
    cropped = RandomCrop(padding=padding, border=border)(IMAGES, generator(name))
    mode = {"zeros": "constant", "reflect": "reflect"}[border]
    padded = torch.nn.functional.pad(IMAGES.float(), [padding] * 4, mode=mode).to(torch.uint8)
    windows = padded.unfold(2, 6, 1).unfold(3, 6, 1)  # [B, C, shifts, shifts, 6, 6]
    for image, choices in zip(cropped, windows, strict=True):
        assert (choices == image[:, None, None]).all(dim=0).all(dim=(-1, -2)).any()
    assert cropped.dtype == torch.uint8
    if padding == 0:
        assert torch.equal(cropped, IMAGES)


def test_each_sample_has_its_own_draw() -> None:
    same = IMAGES[:1].expand(64, -1, -1, -1)
    assert len({tuple(image.flatten().tolist()) for image in RandomCrop(padding=2)(same, generator())}) > 10


def test_flips_are_mirror_images() -> None:
    flipped = RandomFlip(probability=1.0)(IMAGES, generator())
    assert torch.equal(flipped, IMAGES.flip(3))
    assert torch.equal(RandomFlip(probability=0.0)(IMAGES, generator()), IMAGES)
    half = RandomFlip()(IMAGES[:1].expand(400, -1, -1, -1), generator())
    share = (half == IMAGES[:1]).all(dim=(1, 2, 3)).float().mean()
    assert 0.4 < share < 0.6


# Arrays.


def test_transforms_are_applied_once_where_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    held = ArraySamples(IMAGES, torch.arange(5), transforms=SCALED)
    monkeypatch.setattr(samples, "HELD_AS_FLOAT", 0)
    late = ArraySamples(IMAGES, torch.arange(5), transforms=SCALED)
    assert held.inputs.dtype == torch.float32
    assert late.inputs.dtype == torch.uint8
    where = torch.tensor([4, 0, 2, 2])
    for one, other in zip(held.batch(where), late.batch(where), strict=True):
        assert torch.equal(one, other)
    assert held.shape == late.shape == (3, 6, 6)


def test_augmentation_needs_a_generator_and_comes_before_the_transforms() -> None:
    augmented = ArraySamples(
        IMAGES, torch.arange(5), transforms=SCALED, augmentations=(RandomCrop(padding=2), RandomFlip())
    )
    plain = ArraySamples(IMAGES, torch.arange(5), transforms=SCALED)
    everything = torch.arange(5)
    assert augmented.augmented
    assert not plain.augmented
    assert torch.equal(augmented.batch(everything)[0], plain.batch(everything)[0])
    first, second = augmented.batch(everything, generator(0))[0], augmented.batch(everything, generator(1))[0]
    assert not torch.equal(first, second)
    assert torch.equal(first, augmented.batch(everything, generator(0))[0])
    # Shifted-in pixels are black before scaling, so they have the scaled value of black.
    black = apply(SCALED, torch.zeros(1, 3, 1, 1, dtype=torch.uint8))
    assert (first == black).all(dim=1).any()


def test_a_batch_is_a_copy() -> None:
    held = ArraySamples(torch.zeros(3, 2), torch.arange(3))
    inputs, targets = held.batch(torch.tensor([0, 1]))
    inputs += 1
    targets += 1
    assert held.inputs.sum() == 0
    assert held.targets.tolist() == [0, 1, 2]


@pytest.mark.parametrize("turned", [lambda x: x.t().contiguous().t(), lambda x: x.repeat_interleave(2, 0)[::2]])
def test_how_numbers_lie_in_memory_changes_no_bit(turned: Any, tmp_path: Path) -> None:
    inputs, digests = torch.rand(30, 6, generator=generator()), []
    for held in (inputs, turned(inputs)):
        collection = pr.data.arrays(held, torch.arange(30) % 3, test=(held, torch.arange(30) % 3))
        assert collection.train.inputs.is_contiguous()  # type: ignore[attr-defined]
        federation = pr.federate(collection, pr.data.Iid(), clients=3, seed=0)
        experiment = pr.Experiment(federation=federation, model="logistic", recipe=pr.fedavg(cohort=2), rounds=1)
        digests.append(pr.run(experiment, out=tmp_path).summary["digest"])
    assert digests[0] == digests[1]


def test_lengths_must_agree() -> None:
    with pytest.raises(UserError, match="5 inputs and 4 targets"):
        ArraySamples(IMAGES, torch.arange(4))
    with pytest.raises(UserError, match="0 inputs"):
        ArraySamples(IMAGES[:0], torch.arange(0))


def test_a_selection_reads_the_samples_it_names() -> None:
    held = ArraySamples(torch.arange(10).float()[:, None], torch.arange(10))
    some = Selected(held, torch.tensor([7, 3, 9]))
    inputs, targets = some.batch(torch.tensor([2, 0]))
    assert targets.tolist() == [9, 7]
    assert inputs.flatten().tolist() == [9.0, 7.0]
    assert some.targets.tolist() == [7, 3, 9]
    assert len(some) == 3


# Windows and bags.


@given(length=st.integers(1, 6), where=st.lists(st.integers(0, 3), max_size=4))
def test_windows_are_slices_and_the_next_symbol(length: int, where: list[int]) -> None:
    text = torch.arange(20, dtype=torch.uint8)
    starts = torch.tensor([0, 3, 5, 13])
    windows = WindowSamples(text, starts, length)
    inputs, targets = windows.batch(torch.tensor(where, dtype=torch.int64))
    assert inputs.dtype == torch.int64
    assert inputs.tolist() == [list(range(int(starts[i]), int(starts[i]) + length)) for i in where]
    assert targets.tolist() == [int(starts[i]) + length for i in where]


@given(st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=6), st.data())
def test_a_bag_is_the_mean_of_its_words(texts: list[list[int]], data: st.DataObject) -> None:
    offsets = torch.tensor(np.concatenate([[0], np.cumsum([len(t) for t in texts])]))
    words = torch.tensor([w for t in texts for w in t], dtype=torch.int64)
    bags = BagSamples(words, offsets, torch.zeros(len(texts), 2), 7)
    where = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=5))
    inputs, _ = bags.batch(torch.tensor(where, dtype=torch.int64))
    for row, index in zip(inputs, where, strict=True):
        expected = np.bincount(texts[index], minlength=7) / max(len(texts[index]), 1)
        np.testing.assert_allclose(row.numpy(), expected, atol=1e-6)


# Torch datasets.


class Counting:
    """A dataset that counts how often it is asked."""

    def __init__(self, items: list[Any], **extra: Any) -> None:
        self.items, self.asked = items, 0
        for name, value in extra.items():
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return self.items[index]


def pairs(number: int = 4) -> list[Any]:
    return [(torch.full((2,), float(i)), i % 2) for i in range(number)]


def test_a_dataset_is_read_at_each_access() -> None:
    data = Counting(pairs(), targets=[0, 1, 0, 1])
    read = DatasetSamples(data)
    before = data.asked
    inputs, targets = read.batch(torch.tensor([3, 1]))
    assert data.asked == before + 2
    assert inputs.tolist() == [[3.0, 3.0], [1.0, 1.0]]
    assert targets.tolist() == [1, 1]
    assert before == 1 + 2 * 4  # the shape of one; all labels, and again as there are few


def test_targets_that_the_items_do_not_have_are_not_believed() -> None:
    read = DatasetSamples(Counting(pairs(), targets=[9, 9, 9, 9]))
    assert read.targets.tolist() == [0, 1, 0, 1]


def test_a_tensor_dataset_gives_its_targets() -> None:
    held = torch.utils.data.TensorDataset(torch.rand(3, 2, generator=generator()), torch.tensor([2, 0, 1]))
    assert DatasetSamples(held).targets.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"image": 1, "label": 2}, r"a mapping with keys \['image', 'label'\]"),
        ((1.0, 2, 3), "3 values"),
        ("text", "a sample that is str"),
        (("text", 1), "an input of type str"),
    ],
)
def test_items_of_other_forms_are_refused_before_the_start(item: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        DatasetSamples(Counting([item, item]))
    assert "adapt" in error.value.fix


def test_an_adapter_takes_any_form() -> None:
    data = Counting([{"x": np.ones(3, dtype=np.float32), "y": 1}] * 2)
    read = DatasetSamples(data, adapt=lambda item: (item["x"], item["y"]))
    assert read.shape == (3,)
    assert read.batch(torch.tensor([0]))[1].tolist() == [1]


def test_what_has_no_length_is_refused() -> None:
    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from pairs()

    with pytest.raises(UserError, match="Endless"):
        DatasetSamples(Endless())
    with pytest.raises(UserError, match="RandomSampler"):
        DatasetSamples(torch.utils.data.RandomSampler(pairs()))


def test_images_of_varied_size_are_named() -> None:
    data = Counting([(torch.zeros(2), 0), (torch.zeros(3), 1)], targets=[0, 1])
    with pytest.raises(UserError, match=r"sample 1 has shape \(3,\)"):
        DatasetSamples(data).batch(torch.tensor([0, 1]))


class Noisy:
    """A dataset whose own transform draws from torch's default generator."""

    targets = (0, 1, 2)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(4) + index, index


def test_a_datasets_own_draws_are_repeatable_and_leave_torch_alone() -> None:
    read = DatasetSamples(Noisy(), augmented=True)
    state, where = torch.random.get_rng_state(), torch.tensor([0, 1, 1])
    first = read.batch(where, generator(0))[0]
    assert torch.equal(first, read.batch(where, generator(0))[0])
    assert not torch.equal(first, read.batch(where, generator(1))[0])
    assert not torch.equal(first[1], first[2])
    # Without a generator an item is always the same, wherever it stands in the batch.
    assert torch.equal(read.batch(where)[0][1], read.batch(torch.tensor([1]))[0][0])
    assert torch.equal(torch.random.get_rng_state(), state)
