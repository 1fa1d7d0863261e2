"""Samples: inputs and targets held once in memory and shared by every client, read in batches by index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.streams import seeded_torch
from polyrhythm.data.items import (
    Adapt,
    Labels,
    check_dataset,
    check_finite,
    check_lengths,
    item_of,
    kept,
    labels_of,
    not_usable,
    tensors_of,
    transforms_of,
)
from polyrhythm.data.transforms import Augmentation, Normalise, Transform, apply

# A set that would need more memory than this as float32 stays as it came and is transformed batch by batch instead:
# the same values, a little slower. 1 GiB: CIFAR-10 and Fashion-MNIST are held as floats, Tiny-ImageNet as bytes.
HELD_AS_FLOAT = 2**30


class Samples(Protocol):
    """What a run reads: batches of transformed inputs with their targets.

    Attributes:
        shape: shape of one transformed input, without the batch axis.
        targets: all targets: [n] int64 class numbers, [n, C] float32 multi-hot, or [n] or [n, d] float32.
        augmented: True if `batch` draws when it is given a generator.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def targets(self) -> Tensor: ...

    @property
    def augmented(self) -> bool: ...

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Reads some samples.

        Args:
            indices: int64 [B].
            generator: draws the augmentation; None reads without augmentation (tests, scores, measurements).

        Returns:
            Inputs [B, *shape] and targets [B, ...], both freshly allocated.
        """
        ...


def _line(samples: Samples) -> str:
    """Samples in a line, for whoever prints them."""
    targets, kind = list(samples.targets.shape[1:]), str(samples.targets.dtype).removeprefix("torch.")
    each = f"of shape {targets}, {kind}" if targets else kind
    many = f"{len(samples):,} of shape {list(samples.shape)}"
    return f"<{type(samples).__name__}: {many}, targets {each}>"


@final
class ArraySamples:
    """Samples held as two tensors.

    Without augmentation the transforms are applied once, here. With augmentation they are applied at each access,
    after the augmentation, so that a crop pads with raw black pixels as the papers' pipelines do.

    Args:
        inputs: [n, ...], one row a sample.
        targets: [n] or [n, C], already class numbers or floats.
        transforms: deterministic, applied in this order.
        augmentations: random, applied before the transforms when a batch is read with a generator.
        done: transforms that inputs have been through before they came here.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        transforms: Sequence[Transform] = (),
        augmentations: Sequence[Augmentation] = (),
        done: Sequence[Transform] = (),
    ) -> None:
        check_lengths(len(inputs), len(targets))
        # Engines round by how numbers lie in memory, and in another process they lie one after the other.
        inputs, targets = inputs.contiguous(), targets.contiguous()
        self.shape: tuple[int, ...] = tuple(apply(transforms, inputs[:1]).shape[1:])
        self.targets = targets
        self._augmentations = tuple(augmentations)
        self.transforms = (*done, *transforms)
        as_floats = 4 * len(inputs) * int(np.prod(self.shape))
        if augmentations or as_floats > HELD_AS_FLOAT:
            self.inputs, self._transforms = inputs, tuple(transforms)
        else:
            self.inputs, self._transforms = _applied(transforms, inputs, self.shape), ()

    @property
    def augmented(self) -> bool:
        return bool(self._augmentations)

    def scaled_as(self, scaling: Normalise) -> ArraySamples:
        """The same samples, scaled by other statistics than those of their own that they are scaled by."""
        (own,) = (step for step in self.transforms if isinstance(step, Normalise) and step.fitted)
        changed = ArraySamples.__new__(ArraySamples)
        changed.__dict__ |= self.__dict__
        changed.transforms = tuple(scaling if step is own else step for step in self.transforms)
        if any(step is own for step in self._transforms):
            changed._transforms = tuple(scaling if step is own else step for step in self._transforms)
        else:
            # In one step of double precision; what is stored was rounded once already.
            (mean, std), (its, other) = own.along(self.inputs), scaling.along(self.inputs)
            changed.inputs = ((self.inputs.double() * std + mean - its) / other).to(self.inputs.dtype)
        return changed

    @property
    def as_read(self) -> bool:
        """Whether a batch is just some rows of `inputs`."""
        return not self._transforms and not self._augmentations

    __repr__ = _line

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        inputs = self.inputs.index_select(0, indices)
        if generator is not None:
            for augmentation in self._augmentations:
                inputs = augmentation(inputs, generator)
        return apply(self._transforms, inputs), self.targets.index_select(0, indices)


@final
class WindowSamples:
    """Windows over one long sequence: `length` symbols in, the next symbol as the target. The text is held once.

    Args:
        codes: [T] uint8 or int64, the symbols.
        starts: [n] int64, where each window begins; `starts + length` must be inside the text.
        length: symbols a window.
    """

    augmented = False

    def __init__(self, codes: Tensor, starts: Tensor, length: int) -> None:
        self.shape: tuple[int, ...] = (length,)
        self._codes, self._starts = codes, starts
        self._steps = torch.arange(length)
        self.targets = codes.index_select(0, starts + length).to(torch.int64)

    __repr__ = _line

    def __len__(self) -> int:
        return len(self._starts)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        places = self._starts.index_select(0, indices)[:, None] + self._steps  # [B, length]
        inputs = self._codes.take(places).to(torch.int64)
        return inputs, self.targets.index_select(0, indices)


@final
class BagSamples:
    """Bags of words: each input is the mean of the one-hot vectors of a text's known words, made when it is read.

    Ten thousand words a sample would need 40 kB each if they were held densely.

    Args:
        words: [T] int64, word numbers of all texts one after another.
        offsets: [n + 1] int64, text i holds words[offsets[i] : offsets[i + 1]]; a text without known words is all zero.
        targets: [n, C] float32 multi-hot, or [n] int64 classes.
        vocabulary: number of words.
        unit: scales each text's vector to length 1, in place of the mean.
    """

    augmented = False

    def __init__(self, words: Tensor, offsets: Tensor, targets: Tensor, vocabulary: int, *, unit: bool = False) -> None:
        check_lengths(len(offsets) - 1, len(targets))
        self.shape: tuple[int, ...] = (vocabulary,)
        self.targets = targets
        self._words, self._offsets, self._unit = words, offsets, unit

    @classmethod
    def of(
        cls, texts: Sequence[Sequence[str]], vocabulary: Mapping[str, int], targets: np.ndarray, *, unit: bool = False
    ) -> BagSamples:
        """Those of texts as words; words that the vocabulary does not have are dropped.

        Args:
            texts: the words of each.
            vocabulary: the number of each word, 0 to its size.
            targets: as in the class.
            unit: likewise.
        """
        known = [[vocabulary[word] for word in text if word in vocabulary] for text in texts]
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum([len(k) for k in known])]).astype(np.int64))
        words = torch.tensor([word for k in known for word in k], dtype=torch.int64)
        return cls(words, offsets, torch.from_numpy(targets), len(vocabulary), unit=unit)

    __repr__ = _line

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        begins = self._offsets.index_select(0, indices)
        counts = self._offsets.index_select(0, indices + 1) - begins
        rows = torch.repeat_interleave(torch.arange(len(indices)), counts)
        # Position of each word inside its own text, added to where that text begins.
        inside = torch.arange(len(rows)) - (counts.cumsum(0) - counts).index_select(0, rows)
        words = self._words.index_select(0, begins.index_select(0, rows) + inside)
        inputs = torch.zeros(len(indices), *self.shape)
        cells = rows * self.shape[0] + words
        inputs.view(-1).scatter_add_(0, cells, 1.0 / counts.index_select(0, rows))
        if self._unit:
            inputs /= inputs.square().sum(1, keepdim=True).sqrt().clamp(min=1e-12)
        return inputs, self.targets.index_select(0, indices)


@final
class DatasetSamples:
    """Any torch `Dataset` with a length, read item by item at each access.

    Its labels are those that the items give, and are asked for when this is built: see `dataset`. Whenever an item is
    read, its label must still be the same.

    Args:
        dataset: maps 0 .. n - 1 to (input, target).
        adapt: turns an item of another form into (input, target).
        encode: turns raw targets [n] or [n, C] into the tensor a run uses (class numbers); identity if None.
        labels: of all items, if they are known; they are asked for here if None.
        augmented: True if the dataset's own transforms draw from torch's default generator. Each batch then runs with
            that generator forked and seeded, so a run stays repeatable; without a generator every item always gives
            the same draw.

    Raises:
        UserError: the first sample is not an (input, target) pair of tensors, arrays or numbers.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        adapt: Adapt | None = None,
        encode: Callable[[np.ndarray], Tensor] | None = None,
        augmented: bool = False,
        labels: Labels | None = None,
    ) -> None:
        check_dataset(dataset)
        self._dataset, self._adapt = dataset, adapt
        self.transforms = transforms_of(dataset)
        self.augmented = augmented
        with seeded_torch(0, "augment", "first"):
            first, _ = self._item(0)
        self.shape: tuple[int, ...] = tuple(first.shape)
        self._dtype = first.dtype
        self._labels = labels or labels_of(dataset, adapt)
        raw = self._labels.values
        self.targets = encode(raw) if encode is not None else torch.from_numpy(raw)

    __repr__ = _line

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        known = None if self._adapt is not None or self.augmented else tensors_of(self._dataset)
        if known is None or tuple(known[0].shape[1:]) != self.shape:
            return self._one_by_one(indices, generator), self.targets.index_select(0, indices)
        where, inputs = indices.tolist(), known[0][indices]
        self._labels.check(where, known[1][indices])
        check_finite(inputs, where)
        return inputs, self.targets.index_select(0, indices)

    def _one_by_one(self, indices: Tensor, generator: torch.Generator | None) -> Tensor:
        """The inputs of some items, each read by itself."""
        drawn = generator is not None and self.augmented
        seed = int(torch.randint(2**62, (), generator=generator)) if drawn else 0
        labels, where = [], indices.tolist()
        if not where:
            return torch.zeros(0, *self.shape)
        inputs = torch.empty(len(where), *self.shape, dtype=self._dtype)
        for place, index in enumerate(where):
            with seeded_torch(seed, "augment", place if drawn else index) if self.augmented else nullcontext():
                item, label = self._item(index)
            if tuple(item.shape) != self.shape:
                raise not_usable(
                    f"sample {index} has shape {tuple(item.shape)}, sample 0 has {self.shape}",
                    "inputs of one shape",
                    "add a transform that resizes or crops, or `adapt=` a function that does",
                )
            if item.dtype != self._dtype:
                raise not_usable(
                    f"sample {index} is of {item.dtype}, sample 0 of {self._dtype}",
                    "inputs of one type",
                    "add a transform that makes them so, e.g. lambda x: x.float()",
                )
            inputs[place] = item.detach()  # at once: a data set may use one tensor for all its items
            labels.append(kept(label))
        self._labels.check(where, labels)
        check_finite(inputs, where)
        return inputs

    def _item(self, index: int) -> tuple[Tensor, Any]:
        return item_of(self._dataset, index, self._adapt)


@final
class Selected:
    """Some samples of another set, by index: the hold-outs. Nothing is copied.

    Args:
        samples: where they are held.
        indices: int64 [n], which of them.
    """

    def __init__(self, samples: Samples, indices: Tensor) -> None:
        self._samples, self._indices = samples, indices
        self.shape: tuple[int, ...] = samples.shape
        self.targets = samples.targets.index_select(0, indices)

    @property
    def augmented(self) -> bool:
        return self._samples.augmented

    __repr__ = _line

    def __len__(self) -> int:
        return len(self._indices)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        return self._samples.batch(self._indices.index_select(0, indices), generator)


def _applied(transforms: Sequence[Transform], inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Transforms all inputs in blocks that fit the cache and are too small for torch to start threads for."""
    if not transforms:
        return inputs
    block = max(1, 2**15 // max(int(np.prod(shape)), 1))
    whole = torch.empty(len(inputs), *shape, dtype=apply(transforms, inputs[:1]).dtype)
    for begin in range(0, len(inputs), block):
        whole[begin : begin + block] = apply(transforms, inputs[begin : begin + block])
    return whole
