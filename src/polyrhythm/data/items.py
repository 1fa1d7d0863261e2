"""The items of a torch Dataset: what each of them says its input and its label are.

Labels are those that the items give. What else a data set says of them, such as its `targets`, may be from before a
transform, a filter or noise, or belong to another set that it wraps; so it is believed only of torch's own classes that
surely give nothing else. Of all others every item is read once, or the user states the labels. Either way some items
are read again at once, and every item whenever it is used, and each must still say the same.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from polyrhythm.base.errors import PolyrhythmError, UserError
from polyrhythm.base.streams import seeded_torch, stream
from polyrhythm.data.given import plain_array

Adapt = Callable[[Any], tuple[Any, Any]]
READ_AGAIN = 100  # items that are held to their labels before a run, drawn by chance, beside the first and the last
SLOW = 5.0  # seconds of reading after which something is said


@final
class Labels:
    """The label of each item.

    Args:
        values: [n] or [n, ...], numbers or text.
        stated: whether the user says so, and not the items.
    """

    def __init__(self, values: np.ndarray, *, stated: bool = False) -> None:
        self.values, self.stated = values, stated

    def check(self, places: Sequence[int], found: Sequence[Any] | Tensor) -> None:
        """Holds items to their labels.

        Args:
            places: which items were read.
            found: what they say.

        Raises:
            UserError: one of them says something else.
        """
        held = self.values[list(places)]
        read = as_label(found) if isinstance(found, Tensor) else _together(found)
        if read is None:
            pairs = zip(map(as_label, found), held, strict=True)
            wrong = np.array([_differ(r[None], np.asarray(h)[None])[0] for r, h in pairs], dtype=bool)
        else:
            wrong = _differ(read, held)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise self._other(places[first], as_label(found[first]).tolist(), held[first].tolist())

    def _other(self, place: int, found: object, held: object) -> UserError:
        if self.stated:
            return UserError(
                f"item {place} has label {found!r}, and {held!r} is stated for it",
                expected="stated labels that are those of the items",
                why="data are dealt out by the stated labels, and models trained and judged by them",
                fix="correct targets= or test_targets=, or leave it out: then every item is read once",
            )
        return UserError(
            f"item {place} has label {found!r}, and had {held!r} when it was first read",
            expected="an item whose label is the same whenever it is read",
            why="data are dealt out by one label for each item, and models trained and judged by it",
            fix="draw labels once, when the data set is made; only inputs may be drawn anew (augmented=True)",
        )


def labels_of(dataset: Any, adapt: Adapt | None = None, stated: Any = None) -> Labels:
    """The labels of all items.

    Args:
        dataset: maps 0 .. n - 1 to items.
        adapt: turns an item into (input, target).
        stated: the labels as the user knows them, [n] or [n, ...]; None to ask the items.

    Raises:
        UserError: no data set with a length; items or labels that cannot be used; labels that are not as stated, or
            differ from one read to the next.
    """
    check_dataset(dataset)
    # A data set may draw from torch's generator, which is the user's.
    with seeded_torch(0, "augment", "labels"):
        if stated is not None:
            values = _stated(stated, len(dataset))
        else:
            known = _known(dataset) if adapt is None else None
            values = _read(dataset, adapt) if known is None else known
            if known is not None and (tensors := tensors_of(dataset)) is not None:
                check_finite(tensors[0], range(len(dataset)))
    labels = Labels(values, stated=stated is not None)
    drawn = stream(0, "sample", "labels").permutation(len(dataset))[:READ_AGAIN].tolist()
    places = sorted({0, len(dataset) - 1, *drawn})
    with seeded_torch(0, "augment", "labels", "again"):
        labels.check(places, [kept(_checked_pair(dataset, i, adapt)[1]) for i in places])
    return labels


def _checked_pair(dataset: Any, place: int, adapt: Adapt | None) -> tuple[Tensor, Any]:
    """An item as (input, target); its input holds no NaN."""
    value, target = item_of(dataset, place, adapt)
    check_finite(value, [place])
    return value, target


def _known(dataset: Any) -> np.ndarray | None:
    """The labels of a data set whose class surely gives just these; None if its items must be asked.

    Only of these very classes: one that is derived from them may give anything.
    """
    if (tensors := tensors_of(dataset)) is not None:
        return as_label(tensors[1]).copy()  # the user may change the tensor, which must not go unnoticed
    if type(dataset) is Subset:
        whole = _known(dataset.dataset)
        return None if whole is None else whole[np.asarray(dataset.indices, dtype=np.int64)]
    if type(dataset) is ConcatDataset:
        pieces = [piece for piece in map(_known, dataset.datasets) if piece is not None]
        alike = len({(piece.dtype, piece.shape[1:]) for piece in pieces}) == 1
        return np.concatenate(pieces) if alike and len(pieces) == len(dataset.datasets) else None
    return None


def tensors_of(dataset: Any) -> tuple[Tensor, Tensor] | None:
    """Inputs and labels of a data set whose items surely are the rows of two tensors; None of any other."""
    if type(dataset) is not TensorDataset or len(dataset.tensors) != 2:
        return None
    inputs, labels = dataset.tensors
    return inputs, labels


def transforms_of(dataset: Any) -> tuple[Any, ...]:
    """What a data set, or those that it wraps, does to its items, where it says so as torchvision's do."""
    while dataset is not None:
        given = (getattr(dataset, "transform", None), getattr(dataset, "target_transform", None))
        if any(step is not None for step in given):
            return tuple(step for step in given if step is not None)
        several: Sequence[Any] = getattr(dataset, "datasets", None) or (None,)
        dataset = getattr(dataset, "dataset", several[0])
    return ()


def _stated(stated: Any, items: int) -> np.ndarray:
    """The labels that the user gives, one for each item."""
    values = as_label(stated)
    if values.ndim == 0 or len(values) != items:
        raise UserError(
            f"stated labels of shape {values.shape} for {items:,} items",
            expected=f"one label for each item, [{items}] or [{items}, ...], in the order of the items",
            why="an item and its label belong together by their place",
            fix="give the labels of this very data set: of a Subset or a filtered set, those of its own items",
        )
    return values.copy()


def _read(dataset: Any, adapt: Adapt | None) -> np.ndarray:
    """The labels that the items give, of which each is read once."""
    found, begun, after = list[Any](), time.perf_counter(), SLOW
    for i in range(len(dataset)):
        label = _checked_pair(dataset, i, adapt)[1]
        if isinstance(label, Tensor):
            label = label.item() if label.dim() == 0 and not label.is_meta else as_label(label)
        found.append(kept(label))
        if (taken := time.perf_counter() - begun) > after:
            _say(f"reading each item's label: {i + 1:,} of {len(dataset):,} in {taken:.0f} s; targets= states them")
            after *= 2
    if (values := _together(found)) is not None:
        return values
    first = as_label(found[0])
    other = next(i for i, label in enumerate(map(as_label, found)) if _form(label) != _form(first))
    raise _no_label(
        f"item {other} has label {_short(found[other])}, item 0 has {_short(found[0])}",
        "labels of one kind and shape: all of them numbers, or all text",
    )


_PLAIN = (int, float, str, bool)


def kept(label: Any) -> Any:
    """A label that stays what it is: the array or tensor in which one lies may be used again for the next."""
    if isinstance(label, Tensor):
        return label.clone()
    return label if type(label) in _PLAIN else as_label(label).copy()


def _together(labels: Sequence[Any]) -> np.ndarray | None:
    """Some labels as one array; None if they are not of one kind and shape. As quick as reading a batch must be."""
    kinds = {type(label) for label in labels}
    if kinds == {Tensor}:
        with contextlib.suppress(RuntimeError):  # of several shapes
            return as_label(torch.stack(list(labels)))
    if len(kinds) == 1 and kinds <= set(_PLAIN):
        return as_label(list(labels))
    arrays = [as_label(label) for label in labels]
    return np.stack(arrays) if len({_form(array) for array in arrays}) == 1 else None


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"note: {text}\n")
        sys.stderr.flush()


def as_label(label: Any) -> np.ndarray:
    """A label, or many of them, as an array of numbers or text.

    Raises:
        UserError: it is neither.
    """
    try:
        if isinstance(label, Tensor):
            tensor = label.detach().cpu()
            array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        else:
            array = np.asarray(label)
    except (ValueError, RuntimeError):  # rows of several lengths, tensors that carry a gradient
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "buifSU":
        raise _no_label(
            f"a label of type {type(label).__name__}: {_short(label)}", "a number, a text, or a row of them"
        )
    return array


def _kind(array: np.ndarray) -> str:
    """Numbers, text or bytes, which never equal one another."""
    return array.dtype.kind if array.dtype.kind in "SU" else "numbers"


def _form(array: np.ndarray) -> tuple[str, tuple[int, ...]]:
    return _kind(array), array.shape


def _differ(found: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Which labels differ, [n]; NaN is the same as NaN."""
    if found.shape != held.shape or _kind(found) != _kind(held):
        return np.ones(len(held), dtype=bool)
    if found.dtype.kind == held.dtype.kind == "f":  # 0.1 may be stated more exactly than a float32 item gives it
        least = min(found.dtype, held.dtype, key=lambda dtype: dtype.itemsize)
        found, held = found.astype(least), held.astype(least)
    wrong = found != held
    if found.dtype.kind == held.dtype.kind == "f":
        wrong &= ~(np.isnan(found) & np.isnan(held))
    each: np.ndarray = wrong.any(axis=tuple(range(1, wrong.ndim)))
    return each


def _short(value: object) -> str:
    text = " ".join(repr(value.tolist() if isinstance(value, np.ndarray) else value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _no_label(found: str, expected: str) -> UserError:
    return UserError(
        found,
        expected=expected,
        why="labels become class numbers, tags or numbers to predict, which the loss compares with the model's outputs",
        fix="give `adapt=`, a function that turns an item into (input, target) with such a target",
    )


def check_lengths(inputs: int, targets: int) -> None:
    """Refuses inputs and targets that do not go together, and empty sets."""
    if inputs != targets or inputs == 0:
        raise UserError(
            f"{inputs:,} inputs and {targets:,} targets",
            expected="as many inputs as targets, and at least one",
            why="each sample is one input with one target",
            fix="check that both come from the same file and that nothing was cut off",
        )


def check_finite(inputs: Tensor, places: Sequence[int]) -> None:
    """Refuses inputs that are NaN or infinite, with the item that has them.

    Args:
        inputs: of one item, or of several, [B, ...].
        places: which items these are.

    Raises:
        UserError: one of them has.
    """
    if not inputs.is_floating_point() or torch.isfinite(inputs.sum(dtype=torch.float64)):
        return  # the sum is NaN or infinite where any entry is
    rows = ~torch.isfinite(inputs.reshape(len(places), -1)).all(dim=1)
    if not rows.any():
        return
    first = places[int(rows.nonzero()[0])]
    raise UserError(
        f"item {first} has inputs that are NaN or infinite",
        expected="finite numbers",
        why="in training one of them makes every weight it touches NaN, and in a test the loss of all samples",
        fix="leave such items out, e.g. with a Subset, or fill in the values",
    )


def check_dataset(dataset: Any) -> None:
    """Refuses objects that are no map-style dataset (iterable ones, samplers, loaders)."""
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise not_usable(
            f"an object of type {type(dataset).__name__}",
            "a dataset with __len__ and __getitem__",
            "give the map-style dataset itself (not a sampler, loader or iterable dataset), since the recipe makes the "
            "batches; what a collate_fn does to an item goes into adapt=, lengths that differ into padding=, and a "
            "sampler is an order, pr.extend.Order; an iterable one can be read into a list of (input, target) first",
        )
    check_lengths(len(dataset), len(dataset))


def item_of(dataset: Any, place: int, adapt: Adapt | None) -> tuple[Tensor, Any]:
    """One item of a dataset as (input tensor, target).

    Raises:
        UserError: reading it fails, or it is nothing of that kind.
    """
    try:
        item = dataset[place]
        item = item if adapt is None else adapt(item)
    except PolyrhythmError:
        raise
    except Exception as error:
        raise not_usable(
            f"item {place} of {len(dataset):,}, which cannot be read: {type(error).__name__}: {_short(str(error))}",
            "an item for each number below the data set's length",
            "read it yourself, dataset[i], to see where it fails; `adapt=` is given one such item",
        ) from error
    if isinstance(item, Mapping) or not isinstance(item, (tuple, list)) or len(item) != 2:
        what = f"a mapping with keys {sorted(map(str, item))}" if isinstance(item, Mapping) else type(item).__name__
        if isinstance(item, (tuple, list)):
            what = f"{len(item)} values"
        raise not_usable(
            f"a sample that is {what}",
            "an (input, target) pair",
            "give `adapt=`, a function that turns one such sample into (input, target), "
            "e.g. adapt=lambda item: (item['image'], item['label'])",
        )
    value, target = item
    if isinstance(value, Tensor):
        if value.layout is torch.strided and not value.is_quantized and not value.is_meta:
            return value, target
        plain_array(value, "inputs")  # which refuses it
    if isinstance(value, (int, float)) and not isinstance(value, np.generic) and abs(value) < 2**63:
        return torch.as_tensor(value), target
    if isinstance(value, (np.ndarray, np.generic, int, float)):
        array = plain_array(value, "inputs")
        if array.dtype.kind in "buifc":
            return torch.from_numpy(array), target
        value = array
    raise not_usable(
        f"an input of type {type(value).__name__}" + (f" of {value.dtype}" if isinstance(value, np.ndarray) else ""),
        "a tensor, an array or a number",
        "give the dataset a transform that makes tensors, or `adapt=` a function that does",
    )


def not_usable(found: str, expected: str, fix: str) -> UserError:
    """What is said of items that are no samples."""
    return UserError(found, expected=expected, why="samples are stacked into batches by their index", fix=fix)
