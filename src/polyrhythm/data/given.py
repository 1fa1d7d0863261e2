"""What users give as inputs and keys: arrays, tensors, lists and frames as plain NumPy arrays, or a reason why not."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError

_NUMBERS = (int, float, Decimal, np.number, np.bool_)  # bool is an int


def as_inputs(values: Any) -> np.ndarray:
    """Inputs as floats, bytes (uint8), or int64, one row a sample.

    Raises:
        UserError: no numbers, or no array.
    """
    array = plain_array(values, "inputs")
    if array.dtype.kind not in "buif" or array.ndim < 1:
        raise UserError(
            f"inputs of {array.dtype} and shape {array.shape}",
            expected="numbers in one array, one row a sample",
            why="inputs of different shapes or of text cannot be stacked into batches",
            fix="make all samples one shape, or give a torch Dataset to `dataset(...)`",
        )
    if len(array) and not array.size:
        raise _unusable(
            f"inputs of shape {array.shape}", "at least one number in each sample", "give the features, too"
        )
    if array.dtype == np.uint64 and array.size and (largest := int(array.max())) >= 2**63:
        raise _unusable(f"inputs as large as {largest:,}", "whole numbers below 2^63", "make floats of them")
    return array if array.dtype.kind == "f" or array.dtype == np.uint8 else array.astype(np.int64)


def plain_array(values: Any, what: str) -> np.ndarray:
    """An array of numbers or text that torch can take: no masks, no negative strides, not another one's bytes.

    Args:
        values: an array, a tensor, a list, a Series or a DataFrame.
        what: its name in messages, such as "inputs".

    Raises:
        UserError: missing or mixed values, rows of several lengths, a sparse tensor, anything else than an array.
    """
    if isinstance(values, Tensor):
        array = _of_tensor(values, what)
    elif isinstance(values, np.ma.MaskedArray):
        if missing := int(np.ma.getmaskarray(values).sum()):
            raise _unusable(f"{missing:,} {what} that are masked", "a value in every cell", "drop or fill them")
        array = values.data
    elif hasattr(values, "tocsr") or hasattr(values, "todense"):
        raise _unusable(f"{what} in a sparse matrix", "a dense array", "give values.toarray()")
    else:
        try:
            array = np.asarray(values)
            if array.dtype.kind in "US" and isinstance(values, (list, tuple)):
                array = np.asarray(values, dtype=object)  # NumPy makes text of [1, "1"] and of NaN among texts as well
        except (ValueError, TypeError, RuntimeError) as error:
            shown = str(error).split(". ")[0]
            raise _unusable(
                f"{what} that make no array ({shown})", "rows of one length", "make all of them so"
            ) from None
    if array.dtype.kind == "O":
        if not array.ndim:  # what NumPy takes for one object: a generator, a set, a dict, None
            raise _unusable(f"{what} of type {type(values).__name__}", "an array, one row a sample", "give an array")
        array = _of_objects(array, what)
    # Torch takes no arrays that are turned round, and warns of those that must not be written to.
    usable = array.dtype.isnative and array.flags.writeable and min(array.strides, default=0) >= 0
    return array if usable else np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def _of_tensor(values: Tensor, what: str) -> np.ndarray:
    if values.is_nested:
        raise _unusable(
            f"{what} in a nested tensor", "rows of one length", "pad them: torch.nested.to_padded_tensor(values, 0)"
        )
    if values.device.type == "meta":
        raise _unusable(f"{what} in a tensor without numbers (on the device meta)", "a plain tensor", "give its values")
    if values.layout is not torch.strided:
        raise _unusable(f"{what} in a sparse tensor", "a dense tensor", "give values.to_dense()")
    if values.is_quantized:
        raise _unusable(f"{what} in a quantised tensor", "a plain tensor", "give values.dequantize()")
    # NumPy has no bfloat16, nor the eight-bit floats.
    odd = values.is_floating_point() and values.dtype not in (torch.float16, torch.float32, torch.float64)
    held = (values.detach().float() if odd else values.detach()).cpu().resolve_conj().resolve_neg()
    array: np.ndarray = held.numpy()
    return array


def _of_objects(array: np.ndarray, what: str) -> np.ndarray:
    """Python objects as numbers or text, if all of them are."""
    flat = array.reshape(-1).tolist()
    if not flat or any(isinstance(value, (list, tuple, np.ndarray, Tensor, dict, set)) for value in flat):
        raise _unusable(
            f"{what} of Python objects, {_named(array, 0)} for instance" if flat else f"{what} of nothing",
            "numbers or text in one array, rows of one length",
            "make all samples one shape, or give a torch Dataset to `dataset(...)`",
        )
    missing = [place for place, value in enumerate(flat) if _is_missing(value)]
    if missing:
        raise _unusable(
            f"{len(missing):,} {what} that are missing, {_named(array, missing[0])} first",
            "a value for each sample",
            "leave those samples out, or fill the cells",
        )
    if all(isinstance(value, _NUMBERS) for value in flat):
        numbers = np.array(flat)
        return (numbers if numbers.dtype.kind in "buif" else array.astype(np.float64)).reshape(array.shape)
    for kind in (str, bytes):
        if all(isinstance(value, kind) for value in flat):
            check_ends(flat, what)
            return np.array(flat).reshape(array.shape)
    other = next((place for place, value in enumerate(flat) if type(value) is not type(flat[0])), None)
    if other is None:
        named = _named(array, 0)
        raise _unusable(f"{what} of type {type(flat[0]).__name__}, {named}", "numbers or text", "make them so")
    raise _unusable(
        f"{what} of several kinds, {_named(array, 0)} and {_named(array, other)}",
        "all of them numbers, or all text",
        f"make them one kind, such as [str(v) for v in {what}]",
    )


def check_ends(texts: Iterable[str | bytes], what: str) -> None:
    """Refuses texts that NumPy would hold as others.

    Raises:
        UserError: one of them ends in a zero character, which NumPy takes for its padding.
    """
    odd = next((text for text in texts if text[-1:] in ("\0", b"\0")), None)
    if odd is not None:
        raise _unusable(f"{what} that end in a zero character, {odd!r:.60}", "text", "take it off: text.rstrip('\\0')")


def _is_missing(value: object) -> bool:
    if value is None or (isinstance(value, (float, np.floating)) and value != value):
        return True
    return type(value).__name__ in ("NAType", "NaTType")  # pandas' own, without importing it


def _named(array: np.ndarray, place: int) -> str:
    value = repr(array.reshape(-1)[place])
    shown = value if len(value) <= 40 else f"{value[:37]}..."
    return f"{shown} of sample {place // max(1, array[:1].size)}" if array.ndim else shown


def _unusable(found: str, expected: str, fix: str) -> UserError:
    return UserError(
        found,
        expected=expected,
        why="samples are stacked into batches and dealt out by their keys, so each must be there and of one kind",
        fix=fix,
    )
