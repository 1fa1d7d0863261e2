"""What targets mean, decided here for every source alike: by their values, whatever holds them.

- Text, booleans and whole numbers [n] are classes, one for each value that occurs; so are columns of them [n, 1].
- Floats are numbers to predict, unless they are whole and of at most 50 values: then they are class numbers that
  something, such as a column with an empty cell, has made floats.
- Rows of 0 and 1 [n, C] are tags. Rows with exactly one 1 may be either, and rows of shares as well: they are refused.
- A time and an event of 0 or 1 [n, 2] only where the task survival is named.
- Rows of tokens [n, L], −100 where nothing is asked, only where the task next_token is named.
- All other rows of numbers [n, d] are d numbers to predict.

A task that is named is taken at its word, and what cannot be it is refused. Near a border, a note says what was taken.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.collection import Task
from polyrhythm.data.given import check_ends, plain_array
from polyrhythm.data.labels import as_text, classes_of, encode

MOST_WHOLE_FLOATS = 50  # values of whole floats that are still class numbers
MANY = 50  # classes from which on a note is due, however many samples each has
FEW_EACH = 10  # samples a class below which a note is due, where there are more than as many classes
_LEFT_OUT = -100  # what torch's losses leave out
_TASKS = ("classification", "multilabel", "next_token", "regression", "survival")


class Meaning(NamedTuple):
    """What targets mean: the task, its classes as text, how raw targets become a tensor, and what must be said."""

    task: Task
    classes: tuple[str, ...]
    encode: Callable[[np.ndarray], Tensor]
    notes: tuple[str, ...] = ()


def as_targets(values: Any) -> np.ndarray:
    """Targets as an array of numbers or text, [n] or [n, C].

    Args:
        values: a tensor, an array, a column of a table, or a list.

    Raises:
        UserError: some are missing, they are of several kinds, or neither numbers nor text.
    """
    if isinstance(values, Tensor):
        array = plain_array(values if values.layout == torch.strided else values.to_dense(), "targets")
    elif isinstance(values, np.ma.MaskedArray):
        _check_there(np.ma.getmaskarray(values))
        array = np.asarray(values.data)
    else:
        array = _as_array(values)
    if array.dtype.kind == "O":
        array = _of_one_kind(array)
    if array.dtype.kind not in "buifUS":
        raise _no_targets(f"targets of {array.dtype}", "numbers or text")
    if array.ndim not in (1, 2):
        raise _no_targets(f"targets of shape {array.shape}", "one row a sample: [n], or [n, C]")
    if array.dtype.kind == "f" and array.size:
        _check_there(np.isnan(array))
        if len(odd := np.flatnonzero(np.isinf(array.reshape(len(array), -1)).any(axis=1))):
            raise _no_targets(
                f"an infinite target, of sample {odd[0]:,}" + (f" and {len(odd) - 1:,} more" if len(odd) > 1 else ""),
                "finite numbers",
            )
    return array


def meaning_of(
    train: np.ndarray, test: np.ndarray, *, task: str | None = None, classes: Sequence[object] | None = None
) -> Meaning:
    """Finds out what targets mean; those of train and test together decide.

    Args:
        train: targets as `as_targets` gives them.
        test: likewise.
        task: that is meant; None to go by the targets.
        classes: the labels in the order of class numbers; None sorts those that occur.

    Raises:
        UserError: what may be one task as well as another, or cannot be the one that was named.
    """
    train, test = as_targets(train), as_targets(test)
    _check_alike(train, test)
    values = np.concatenate([train, test])
    kind = task_of(values, task, named=classes is not None)
    notes = () if task is not None or classes is not None else tuple(_notes(kind, values))
    if kind == "next_token":
        return _of_tokens(values)
    if kind == "survival" and (values.shape[1:] != (2,) or values.dtype.kind not in "buif"):
        raise _unfit(kind, values, "a time and an event of 0 or 1 for each sample, [n, 2]")
    if kind in ("regression", "survival"):
        if values.dtype.kind not in "buif":
            raise _unfit(kind, values, "numbers, [n] or [n, d]")
        return Meaning(cast(Task, kind), (), lambda raw: torch.from_numpy(_floats(raw)), notes)
    if kind == "multilabel":
        if values.ndim != 2 or values.dtype.kind not in "buif" or not _binary(values):
            raise _unfit(kind, values, "0/1 tags [n, C]")
        names = tuple(as_text(c) for c in (classes if classes is not None else range(values.shape[1])))
        return Meaning("multilabel", names, lambda raw: torch.from_numpy(_floats(raw)), notes)
    if values.ndim == 2 and values.shape[1] > 1:
        return _of_one_hot(values, classes)
    known = np.asarray(classes) if classes is not None else classes_of(column(train), column(test))
    if len(known) == 1:
        notes += (f"all targets are {as_text(known[0])!r}: one class, which every model predicts",)
    return Meaning("classification", tuple(as_text(c) for c in known), lambda raw: encode(column(raw), known), notes)


def task_of(values: np.ndarray, task: str | None = None, *, named: bool = False) -> str:
    """The task that targets are for.

    Args:
        values: targets as `as_targets` gives them.
        task: that is meant, if anybody said so.
        named: whether classes are named.

    Raises:
        UserError: another task, or targets that may be one as well as another.
    """
    if task is not None:
        if task not in _TASKS:
            raise unknown("task", task, _TASKS)
        return task
    flat = column(values)
    if not named and flat.ndim == 1 and flat.dtype.kind in "if" and (left_out := int((flat == _LEFT_OUT).sum())):
        raise UserError(
            f"label {_LEFT_OUT} in {left_out:,} items",
            expected="a class for each item",
            why="torch's losses leave such items out (ignore_index), and here it would be a class of its own",
            fix="leave these items out, e.g. with a Subset; or name all classes in classes=, if it is one",
        )
    if flat.ndim == 1:
        if flat.dtype.kind != "f" or named:
            return "classification"
        few = _whole(flat) and len(np.unique(flat)) <= MOST_WHOLE_FLOATS
        return "classification" if few else "regression"
    return _task_of_rows(values)


def strata(values: Any, task: str | None = None, *, named: bool = False) -> np.ndarray | None:
    """By what a share of samples for tests is spread, one number a sample: their classes; None for amounts and rows.

    Args:
        values: targets.
        task: that is meant, if anybody said so.
        named: whether classes are named.
    """
    flat = column(as_targets(values))
    if flat.ndim != 1 or (flat.dtype.kind == "f" and task_of(flat, task, named=named) == "regression"):
        return None
    return np.asarray(np.unique(flat, return_inverse=True)[1])


def column(values: np.ndarray) -> np.ndarray:
    """Targets [n, 1] as [n], and all others as they are."""
    return values[:, 0] if values.shape[1:] == (1,) else values


def _task_of_rows(values: np.ndarray) -> str:
    if values.dtype.kind in "US":
        raise _no_targets(
            f"{values.shape[1]} texts a sample, {values[0].tolist()!r} for instance",
            "one label a sample, or a 0/1 matrix of tags",
        )
    if is_one_hot(values):
        raise UserError(
            f"targets of shape {values.shape} with exactly one 1 in every row",
            expected="class numbers [n], or task='classification' or task='multilabel' said in words",
            why="one-hot labels and tags look the same but are trained and scored differently",
            fix="targets.argmax(axis=1) gives class numbers, and so does task='classification'",
        )
    if _are_shares(values):
        raise UserError(
            f"labels of shape {values.shape} that are shares of {values.shape[1]} classes",
            expected="class numbers, or task='regression' said in words",
            why="smoothed labels and numbers to predict look the same, and are trained and scored differently",
            fix="give class numbers, and smooth in the loss: Experiment(task=pr.task('classification', smoothing=0.1))",
        )
    return "multilabel" if _binary(values) else "regression"


def _of_one_hot(values: np.ndarray, classes: Sequence[object] | None) -> Meaning:
    """Rows with one 1 as classes, which somebody has said they are."""
    if values.dtype.kind in "US" or not is_one_hot(values):
        raise _unfit("classification", values, "one label a sample, [n], or rows with exactly one 1")
    names = tuple(as_text(c) for c in (classes if classes is not None else range(values.shape[1])))
    if len(names) != values.shape[1]:
        raise UserError(
            f"{len(names)} classes for targets of {values.shape[1]} columns",
            expected="a class for each column",
            why="the column with the 1 says which class a sample is of",
            fix="name all classes, in the order of the columns",
        )
    return Meaning("classification", names, lambda raw: torch.from_numpy(np.argmax(raw, axis=1).astype(np.int64)))


def _of_tokens(values: np.ndarray) -> Meaning:
    """Rows of tokens, which are no classes: a model's vocabulary is its own."""
    if values.ndim != 2 or values.dtype.kind not in "iu":
        raise _unfit("next_token", values, "whole numbers [n, L], tokens of one text a row")
    odd = values[(values < 0) & (values != _LEFT_OUT)]
    if len(odd):
        raise UserError(
            f"token {int(odd[0])} in the targets",
            expected=f"tokens from 0 on, or {_LEFT_OUT} where nothing is asked",
            why="tokens are numbers of a model's outputs",
            fix="make them with the model's own tokenizer",
        )
    silent = int((values[:, 1:] == _LEFT_OUT).all(axis=1).sum())
    notes = (f"{silent:,} of {len(values):,} texts have no answer token: nothing is learnt of them",) if silent else ()
    return Meaning("next_token", (), lambda raw: torch.from_numpy(raw.astype(np.int64)), notes)


def padded_rows(*parts: Any) -> list[Any]:
    """Texts of different lengths as rows of one length, filled up with −100; what holds no rows as it is."""
    rows = [part if _are_rows(part) else None for part in parts]
    longest = max((len(row) for part in rows if part is not None for row in part), default=0)
    return [part if found is None else _filled(found, longest) for part, found in zip(parts, rows, strict=True)]


def _are_rows(values: Any) -> bool:
    held = isinstance(values, (list, tuple, np.ndarray, Tensor)) and len(values) > 0
    return held and all(
        hasattr(row, "__len__") and not isinstance(row, (str, bytes)) and np.ndim(row) for row in values
    )


def _filled(rows: Sequence[Any], longest: int) -> np.ndarray:
    found = np.full((len(rows), longest), _LEFT_OUT, dtype=np.int64)
    for place, row in enumerate(rows):
        tokens = np.asarray(row)
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            raise _unfit("next_token", tokens, "whole numbers, tokens of one text a row")
        found[place, : len(tokens)] = tokens
    return found


def _notes(kind: str, values: np.ndarray) -> list[str]:
    """What to say of a decision that others might take otherwise."""
    flat = column(values)
    number = flat.dtype.kind in "iuf"
    if flat.ndim == 2:
        if kind == "regression" and _whole(flat):
            return [
                f"targets are rows of {flat.shape[1]} whole numbers, taken as {flat.shape[1]} numbers to predict "
                "(regression)"
            ]
        return []
    count = len(np.unique(flat))
    what = f"targets are {count:,} different {'whole numbers' if number else 'texts'}"
    if kind == "regression":
        as_classes = "task='classification' makes each of them a class"
        return [f"{what}, taken as amounts to predict (regression); {as_classes}"] if _whole(flat) else []
    many = count > MANY or (count > FEW_EACH and len(flat) < FEW_EACH * count)
    if many:
        each = f"{len(flat) / count:.1f} samples of each on average"
        amounts = "; if they are amounts to predict, say task='regression'" if number else ""
        return [f"{what}, taken as {count:,} classes with {each}{amounts}"]
    if flat.dtype.kind != "f":
        return []
    return [
        f"targets are whole numbers held as floats, taken as {count:,} classes; if they are amounts to predict, say "
        "task='regression'"
    ]


def _check_alike(train: np.ndarray, test: np.ndarray) -> None:
    """Refuses test targets of another kind or form than the training targets."""
    kinds = [values.dtype.kind if values.dtype.kind in "US" else "numbers" for values in (train, test)]
    words = {"U": "text", "S": "bytes", "numbers": "numbers"}
    if kinds[0] != kinds[1] or train.shape[1:] != test.shape[1:]:
        shapes = ["[" + ", ".join(map(str, ("n", *values.shape[1:]))) + "]" for values in (train, test)]
        forms = [f"{words[kind]} {shape}" for kind, shape in zip(kinds, shapes, strict=True)]
        raise UserError(
            f"training targets that are {forms[0]}, and test targets that are {forms[1]}",
            expected="targets of one kind and form in both",
            why="a label is the same class in training and in tests only if it is written alike",
            fix="convert one of them, or take both from one set with test=0.2",
        )


def _as_array(values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:  # such as rows of several lengths
        raise _no_targets(
            f"targets that are no array: {' '.join(str(error).split())[:80]}", "one row a sample, all of one length"
        ) from None
    # NumPy makes text of [1, "1"], and of None as well.
    return np.asarray(values, dtype=object) if array.dtype.kind in "US" and isinstance(values, (list, tuple)) else array


def _of_one_kind(array: np.ndarray) -> np.ndarray:
    """An array of objects as one of numbers or text."""
    import pandas as pd

    _check_there(np.asarray(pd.isna(array)))
    items = array.reshape(-1).tolist()
    for kind in (str, bytes):
        if all(isinstance(item, kind) for item in items):
            check_ends(items, "targets")
            return array.astype(kind)
    if all(isinstance(item, (bool, np.bool_)) for item in items):
        return array.astype(bool)
    odd = next((item for item in items if not isinstance(item, (numbers.Real, Decimal, np.bool_))), None)
    if odd is not None:
        other = next((item for item in items if type(item) is not type(odd)), None)
        found = f"a target that is {odd!r:.60}" if other is None else f"targets {odd!r:.60} and {other!r:.60}"
        raise _no_targets(found, "all of them numbers, or all of them text")
    try:
        return array.astype(np.int64 if all(isinstance(item, numbers.Integral) for item in items) else np.float64)
    except OverflowError:
        raise _no_targets(f"a target as large as {max(items, key=abs)!r:.60}", "numbers that fit 64 bits") from None


def _check_there(missing: np.ndarray) -> None:
    """Refuses targets of which some are missing."""
    there = missing.ndim > 0 and missing.size > 0
    rows = np.flatnonzero(missing.reshape(len(missing), -1).any(axis=1)) if there else np.empty(0)
    if not len(rows):
        return
    which = f"that of sample {rows[0]:,}" + (" first" if len(rows) > 1 else "")
    raise UserError(
        f"{len(rows):,} of {len(missing):,} targets missing (NaN, None or masked): {which}",
        expected="a target for every sample",
        why="nothing can be learned from a sample without one, and NaN makes every weight NaN",
        fix="leave these samples out, or fill in their targets",
    )


def _binary(values: np.ndarray) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def is_one_hot(values: np.ndarray) -> bool:
    """Whether each row has exactly one 1, and 0 elsewhere."""
    return _binary(values) and bool((values.sum(axis=1) == 1).all())


def _are_shares(values: np.ndarray) -> bool:
    """Whether each row has no negative numbers and adds up to 1, and they are not all 0 or 1."""
    if values.dtype.kind != "f" or not bool((values >= 0).all()):
        return False
    return bool(np.isclose(values.sum(axis=1, dtype=np.float64), 1.0, atol=1e-3).all()) and not _binary(values)


def _whole(values: np.ndarray) -> bool:
    return values.dtype.kind in "biu" or (values.dtype.kind == "f" and bool((values == np.rint(values)).all()))


def _floats(raw: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(raw, dtype=np.float32)
    if not np.isfinite(floats).all():
        raise _no_targets(f"a target as large as {np.abs(raw).max():g}", "numbers up to 3.4e38, where float32 ends")
    return floats


def _no_targets(found: str, expected: str) -> UserError:
    return UserError(
        found,
        expected=expected,
        why="labels become class numbers, tags or numbers to predict, which the loss compares with the model's outputs",
        fix="convert the targets before you give them",
    )


def _unfit(task: str, targets: np.ndarray, expected: str) -> UserError:
    return UserError(
        f"targets of {targets.dtype} and shape {targets.shape} for {task}",
        expected=expected,
        why="the loss and the metrics follow from the task",
        fix="give another task=, or targets of that form",
    )
