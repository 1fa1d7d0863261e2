"""Samples of several arrays as a source gives them: whole arrays in memory, or items of a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import seeded_torch
from polyrhythm.data.items import Adapt, check_dataset, not_usable, tensors_of
from polyrhythm.data.structured import Padding, Structure, as_tensor, fields_of, is_structured, structure_of


def are_several(inputs: Any, padding: Padding | None) -> bool:
    """Whether inputs of all samples are several arrays, or sequences to be padded, and not one array.

    A tuple is taken for several only if it holds arrays: one of rows is an array like a list of them.
    """
    held = isinstance(inputs, tuple) and all(isinstance(of, (np.ndarray, Tensor)) and of.ndim for of in inputs)
    alike = held and len({len(of) for of in inputs}) == 1
    frame = hasattr(inputs, "columns")
    return (
        padding is not None or (isinstance(inputs, Mapping) and not frame) or (alike and len(inputs[0]) != len(inputs))
    )


Columns = Mapping[str, Any]


def columns_of_inputs(inputs: Any) -> tuple[Columns, bool]:
    """Inputs of all samples by array, each a tensor [n, ...] or a list of sequences; and whether they have names.

    Raises:
        UserError: arrays of different numbers of samples, or of something else than numbers.
    """
    columns = {name: _column(values, name) for name, values in fields_of(inputs).items()}
    if len({len(column) for column in columns.values()}) != 1:
        sizes = ", ".join(f"{name} of {len(column):,}" for name, column in columns.items()) or "no array"
        raise UserError(
            f"inputs of several arrays: {sizes}",
            expected="arrays of one length: a row for each sample in each of them",
            why="a sample is a row of each",
            fix="check that all come from the same samples",
        )
    return columns, isinstance(inputs, Mapping)


def _column(values: Any, name: str) -> Tensor | list[Any]:
    """One array of all samples; as a list where samples have different lengths."""
    if isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.dtype == object):
        rows = [_usual(as_tensor(value, name)) for value in values]
        return torch.stack(rows) if len({(row.shape, row.dtype) for row in rows}) == 1 else rows
    column = as_tensor(values, name)
    if not column.dim():
        raise not_usable(f"inputs {name!r} that are one number", "an array with a row for each sample", "give [n, ...]")
    return _usual(column)


def _usual(values: Tensor) -> Tensor:
    """Floats as float32, bytes and truth values as they are, other whole numbers as int64."""
    if values.is_floating_point():
        return values.float()
    return values if values.dtype in (torch.bool, torch.uint8) else values.long()


def packed(inputs: Any, test: Any, padding: Padding | None) -> tuple[np.ndarray, Any, Structure]:
    """Inputs of several arrays as rows of bytes, [n, width], the test likewise if it is given; and what they are.

    Args:
        inputs: of all samples, or those to train on.
        test: (inputs, targets), or something else, which is not touched.
        padding: as for `arrays`.

    Raises:
        UserError: arrays that do not go together.
    """
    columns, keyed = columns_of_inputs(inputs)
    given = isinstance(test, (tuple, list)) and len(test) == 2
    parts = [columns, *([columns_of_inputs(test[0])[0]] if given else [])]
    structure = structure_of_columns(parts, keyed, padding)
    rows = [structure.pack(part).numpy() for part in parts]
    return rows[0], (rows[1], test[1]) if given else test, structure


def rows_of(inputs: Any, structure: Structure) -> tuple[Tensor, Structure]:
    """New samples as rows of bytes, uint8 [n, width], and what these consist of: some may be longer than all before.

    Args:
        inputs: arrays of all samples, in a mapping or a tuple; or a list of samples, each a mapping, a tuple, or, where
            a sample is one sequence, that.
        structure: of the training samples.

    Raises:
        UserError: other arrays than the training samples have.
    """
    if isinstance(inputs, (list, np.ndarray, Tensor)):
        if len(inputs) and is_structured(inputs[0]):
            samples = [fields_of(sample) for sample in inputs]
            names = dict.fromkeys(name for sample in samples for name in sample)
            wide = structure.widened({name: [sample.get(name, ()) for sample in samples] for name in names})
            return wide.pack_samples(list(inputs)), wide
        columns: Columns = {"0": _column(inputs, "0")}
    else:
        columns, _ = columns_of_inputs(inputs)
    wide = structure.widened(columns)
    return wide.pack(columns), wide


def no_scaling(setting: str) -> UserError:
    """The error for what is done to one array and not to several."""
    return UserError(
        f"{setting} for inputs of several arrays, or that are padded",
        expected=f"inputs of one array, or no {setting}",
        why="nobody has said which of the arrays are numbers to scale or images to turn, and which are tokens or masks",
        fix=f"leave {setting} out, and prepare the arrays before you give them",
    )


def structure_of_columns(parts: Sequence[Columns], keyed: bool, padding: Padding | None) -> Structure:
    """What the samples of training and tests consist of; the longest of all decides about padding."""
    samples = (dict(zip(of, row, strict=True)) for of in parts for row in zip(*of.values(), strict=True))
    found = structure_of(samples, padding)
    return found if keyed else Structure(fields=found.fields, keyed=False, mask=found.mask, trims=found.trims)


@final
class Packing:
    """Turns items into (row of bytes, target); in the place of `adapt`, after the user's own.

    Args:
        adapt: the user's, None for none.
        structure: of the inputs.
    """

    def __init__(self, adapt: Adapt | None, structure: Structure) -> None:
        self._adapt, self.structure = adapt, structure

    def __call__(self, item: Any) -> tuple[Tensor, Any]:
        value, target = item if self._adapt is None else self._adapt(item)
        return self.structure.pack_samples([value])[0], target


def structure_of_items(train: Any, test: Any, adapt: Adapt | None, padding: Padding | None) -> Structure | None:
    """What the items of two data sets consist of; None where each input is one array and none is padded.

    Raises:
        UserError: no data sets, or samples that are no (input, target).
    """
    for items in (train, test):
        check_dataset(items)
    if adapt is None and padding is None and tensors_of(train) is not None:
        return None
    with seeded_torch(0, "augment", "first"):
        first = _input(train, 0, adapt)
        if first is None or not (padding is not None or is_structured(first)):
            return None
    with seeded_torch(0, "augment", "structure"):
        pairs = ((items, place) for items in (train, test) for place in range(len(items)))
        return structure_of((_some_input(items, place, adapt) for items, place in pairs), padding)


def _input(items: Any, place: int, adapt: Adapt | None) -> Any:
    """The input of an item; None where it cannot be read, of which others say more."""
    try:
        item = items[place]
        value, _ = item if adapt is None else adapt(item)
    except Exception:
        return None
    return None if isinstance(item, Mapping) and adapt is None else value


def _some_input(items: Any, place: int, adapt: Adapt | None) -> Any:
    value = _input(items, place, adapt)
    if value is None:
        raise not_usable(
            f"item {place}, which is no (input, target)",
            "a pair, the input an array, a tuple or a mapping of arrays",
            "give `adapt=`, a function that turns an item into (input, target)",
        )
    return value
