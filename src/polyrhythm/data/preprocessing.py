"""What becomes of raw rows before a model reads them: kept with a run, so that new rows are read in the same way."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.transforms import Normalise, Pad, ToFloat, Transform

if TYPE_CHECKING:
    import pandas as pd

_STEPS: Mapping[str, type[Transform]] = {kind.__name__: kind for kind in (Normalise, Pad, ToFloat)}


class Feature(NamedTuple):
    """A column of a table.

    Attributes:
        name: of the column.
        categories: its texts in the order of their 0/1 features; None for a column of numbers.
    """

    name: str
    categories: tuple[str, ...] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How raw rows become what a model reads.

    Args:
        shape: of one raw row; of a table, of its features.
        dtype: of raw rows: float32, int64 or uint8.
        columns: of a table, in the order of the features.
        steps: transforms of the numbers, in this order.
        target: the column that is predicted, of a table.
        labels: what the class numbers stand for, as in the targets that were given.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    columns: tuple[Feature, ...] = ()
    steps: tuple[Transform, ...] = ()
    target: str = ""
    labels: tuple[Any, ...] = ()

    @classmethod
    def of_arrays(
        cls, train: np.ndarray, targets: np.ndarray, classes: Sequence[str], steps: Sequence[Transform]
    ) -> Self:
        """That of training inputs [n, ...], as they are before the transforms."""
        kind = "float32" if train.dtype.kind == "f" else str(train.dtype)
        whole = targets.dtype.kind in "iu" and all(text.lstrip("-").isdigit() for text in classes)
        labels: tuple[Any, ...] = tuple(map(int, classes)) if whole else tuple(classes)
        if targets.dtype.kind == "b":
            labels = tuple(text == "True" for text in classes)
        return cls(shape=tuple(train.shape[1:]), dtype=kind, steps=tuple(steps), labels=labels)

    def apply(self, rows: Any) -> Tensor:
        """What the model reads of some rows. [n, ...]

        Args:
            rows: an array, a tensor or lists, [n, ...]; of a table also a DataFrame, or columns by name, in any order.

        Raises:
            UserError: columns that are missing, rows of another shape or type, values that are no finite numbers.
        """
        if hasattr(rows, "columns") or isinstance(rows, Mapping):
            values = self._of_table(rows)
        else:
            values = self._fitting(rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows))
        inputs = torch.from_numpy(np.ascontiguousarray(values))
        for step in self.steps:
            # In double precision, as large numbers with small differences need it.
            inputs = step(inputs) if not isinstance(step, Normalise) else _normalised(step, inputs)
        return inputs.float() if inputs.dtype == torch.float64 else inputs

    def _of_table(self, rows: pd.DataFrame | Mapping[str, Any]) -> np.ndarray:
        if not self.columns:
            raise _unfit("a table", f"rows of shape {self.shape}, as the training data had", "give an array")
        there = {str(name): np.atleast_1d(np.asarray(rows[name])) for name in rows}
        for feature in self.columns:
            if feature.name not in there:
                raise unknown("column", feature.name, there, where="the rows, which lack it")
        return np.concatenate([_encoded(feature, there[feature.name]) for feature in self.columns], axis=1)

    def _fitting(self, rows: np.ndarray) -> np.ndarray:
        if tuple(rows.shape[1:]) != self.shape or rows.ndim < 1:
            single = " A single row needs an axis in front: row[None]" if tuple(rows.shape) == self.shape else ""
            raise _unfit(
                f"rows of shape {tuple(rows.shape)}",
                f"[n, {', '.join(map(str, self.shape))}]",
                f"reshape them.{single}",
            )
        whole = rows.dtype.kind in "biu"
        if self.dtype == "float32" and (whole or rows.dtype.kind == "f"):
            if not np.isfinite(rows.sum(dtype=np.float64)):
                raise _unfit("rows with NaN or infinity", "finite numbers", "fill the cells, or leave those rows out")
            return rows.astype(np.float64 if rows.dtype != np.float32 else np.float32)
        if whole and (self.dtype == "int64" or (len(rows) == 0 or (rows.min() >= 0 and rows.max() <= 255))):
            return rows.astype(self.dtype)
        raise _unfit(f"rows of {rows.dtype}", f"{self.dtype}, as the training data had", "give numbers of that type")

    def plain(self) -> dict[str, Any]:
        """The same as plain data."""
        steps = [{"step": type(step).__name__, **dataclasses.asdict(step)} for step in self.steps]
        return {**dataclasses.asdict(self), "columns": [list(c) for c in self.columns], "steps": steps}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """It, from plain data.

        Raises:
            ValueError, KeyError, TypeError: that is no such data.
        """
        steps = [_STEPS[s["step"]](**{k: _frozen(v) for k, v in s.items() if k != "step"}) for s in plain["steps"]]
        columns = [Feature(str(name), _frozen(categories)) for name, categories in plain["columns"]]
        rest = {key: _frozen(plain[key]) for key in ("shape", "dtype", "target", "labels")}
        return cls(columns=tuple(columns), steps=tuple(steps), **rest)


def features_of(frame: pd.DataFrame, others: Sequence[str]) -> tuple[Feature, ...]:
    """The columns of training rows that are features: numbers, or the texts that occur."""
    found = []
    for name in (c for c in frame.columns if c not in others):
        values = frame[name].to_numpy()
        numbers = values.dtype.kind in "biuf"
        found.append(Feature(str(name), None if numbers else tuple(np.unique(values.astype(str)).tolist())))
    return tuple(found)


def _encoded(feature: Feature, values: np.ndarray) -> np.ndarray:
    """A column as features, float64 [n, d]."""
    if feature.categories is None:
        try:
            numbers = values.astype(np.float64)
        except (TypeError, ValueError):
            raise _unfit(f"text in the column {feature.name!r}", "numbers", "write them as numbers") from None
        if not np.isfinite(numbers).all():
            raise _unfit(f"empty or infinite cells in {feature.name!r}", "finite numbers", "fill the cells")
        return numbers[:, None]
    cells = values.astype(str)
    known = np.asarray(feature.categories)
    if unseen := sorted(set(cells.tolist()) - set(feature.categories)):
        rows = int(np.isin(cells, unseen).sum())
        warnings.warn(
            f"{rows:,} rows have values of {feature.name!r} that no training row had, "
            f"{', '.join(map(repr, unseen[:5]))}: all its features are 0 there",
            stacklevel=5,
        )
    found: np.ndarray = (cells[:, None] == known).astype(np.float64)
    return found


def _normalised(step: Normalise, inputs: Tensor) -> Tensor:
    shape = (1, -1, *[1] * (inputs.dim() - 2))
    mean, std = (torch.tensor(v, dtype=torch.float64).reshape(shape) for v in (step.mean, step.std))
    return ((inputs.double() - mean) / std).float()


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _unfit(found: str, expected: str, fix: str) -> UserError:
    return UserError(found, expected=expected, why="the model has learned from such rows, and reads no others", fix=fix)
