"""What becomes of raw rows before a model reads them: kept with a run, so that new rows are read in the same way."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.given import as_inputs
from polyrhythm.data.sources.cells import of_values, written
from polyrhythm.data.sources.table_files import raw_table
from polyrhythm.data.transforms import Normalise, Pad, ToFloat, Transform

if TYPE_CHECKING:
    import pandas as pd

_STEPS: Mapping[str, type[Transform]] = {kind.__name__: kind for kind in (Normalise, Pad, ToFloat)}


class Feature(NamedTuple):
    """One input of a table: a column of numbers, or whether a column of text has a value.

    Attributes:
        column: its name.
        value: that is 1, where all others are 0; None for a column of numbers.
    """

    column: str
    value: str | None = None

    @property
    def text(self) -> str:
        """As in `features=[…]`."""
        return self.column if self.value is None else f"{self.column}={self.value}"

    def read(self, cells: np.ndarray) -> np.ndarray:
        """It, of cells that fit. float64 [n]"""
        return (cells if self.value is None else cells.astype(str) == self.value).astype(np.float64)


@final
@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How raw rows become what a model reads.

    Args:
        shape: of one raw row; of a table, of its features.
        channels: where those of raw images are: "first", "last", or "none" where they have no axis for them.
        dtype: of raw rows: float32, int64 or uint8.
        features: of a table, in order.
        steps: transforms of the numbers, in this order.
        target: the column that is predicted, of a table.
        threshold: of a table whose target it makes two classes of.
        decimal: what stands before the fraction in text, of a table.
    """

    shape: tuple[int, ...]
    channels: Literal["first", "last", "none"] = "first"
    dtype: str = "float32"
    features: tuple[Feature, ...] = ()
    steps: tuple[Transform, ...] = ()
    target: str = ""
    threshold: float | None = None
    decimal: str = "."

    @classmethod
    def of_arrays(
        cls,
        train: np.ndarray,
        steps: Sequence[Transform],
        *,
        shape: tuple[int, ...] | None = None,
    ) -> Self:
        """That of training inputs [n, ...], as they are before the transforms.

        Args:
            train: the inputs.
            steps: transforms.
            shape: of one input with its channels in front; None if they are there.
        """
        channels: Literal["first", "last", "none"] = "first"
        if shape not in (None, train.shape[1:]):
            channels = "last" if train.ndim == 4 else "none"
        kind = "float32" if train.dtype.kind == "f" else str(train.dtype)
        return cls(shape=tuple(train.shape[1:]), channels=channels, dtype=kind, steps=tuple(steps))

    def apply(self, rows: Any) -> Tensor:
        """What the model reads of some rows. [n, ...]

        Args:
            rows: an array, a tensor or lists, [n, ...]; of a table also a DataFrame, or columns by name, in any order.
                Images of one channel with or without an axis for it, or flat; of images that were bytes also shares of
                white, floats in [0, 1].

        Raises:
            UserError: columns that are missing, rows of another shape or type, values that are no finite numbers.
        """
        if hasattr(rows, "columns") or isinstance(rows, Mapping):
            values = self._of_table(rows)
        else:
            values = self._fitting(as_inputs(rows))
        if self.channels != "first":
            values = np.moveaxis(values, -1, 1) if self.channels == "last" else values[:, None]
        inputs = torch.from_numpy(np.ascontiguousarray(values))
        shares = self.dtype == "uint8" and inputs.is_floating_point()
        for step in self.steps:
            if shares and isinstance(step, ToFloat):
                continue  # they are what it makes of bytes
            # In double precision, as large numbers with small differences need it.
            inputs = step(inputs) if not isinstance(step, Normalise) else _normalised(step, inputs)
        inputs = inputs.float() if inputs.dtype == torch.float64 else inputs
        if inputs.is_floating_point() and not bool(inputs.isfinite().all()):
            raise _unfit("rows with numbers that do not fit float32", "numbers up to 3.4e38", "correct those cells")
        return inputs

    def prepared_by(self, other: Preprocessing) -> Callable[[Tensor], Tensor]:
        """What makes of inputs that another one has prepared those that this one would have made of the raw rows.

        A normalisation of the other's is undone, in double precision.

        Raises:
            UserError: they differ in more than a normalisation at the end.
        """
        if self.steps == other.steps:
            return lambda inputs: inputs
        ours, theirs = (_normalisation(of.steps) for of in (self, other))
        plain = [tuple(step for step in of.steps if not isinstance(step, Normalise)) for of in (self, other)]
        if False in (ours, theirs) or plain[0] != plain[1] or self.dtype != other.dtype:
            words = [", ".join(step.label() for step in of.steps) or "nothing" for of in (other, self)]
            raise _unfit(
                f"a collection of {other.dtype} prepared by {words[0]}",
                f"{self.dtype} prepared by {words[1]}, as the training data were",
                "make the collection as the training data were made, or give raw rows: run.evaluate((inputs, targets))",
            )

        def anew(inputs: Tensor) -> Tensor:
            raw = inputs.double()
            if theirs:
                mean, std = theirs.along(raw)
                raw = raw * std + mean
            return _normalised(ours, raw) if ours else raw.float()

        return anew

    def _of_table(self, rows: pd.DataFrame | Mapping[str, Any]) -> np.ndarray:
        if not self.features:
            raise _unfit("a table", f"rows of shape {self.shape}, as the training data had", "give an array")
        frame = _frame(rows)
        cells = dict[str, np.ndarray]()
        for column in dict.fromkeys(feature.column for feature in self.features):
            if column not in frame:
                near = unknown("column", column, map(str, frame)).fix
                raise _unfit(
                    f"rows without the column {column!r}",
                    f"all columns that the model has learned from; there are {', '.join(map(str, frame))[:300]}",
                    f"{near} Then rename it" if near.startswith("did you mean") else "add it to the rows",
                )
            values = np.asarray(frame[column].to_numpy(dtype=object))
            if any(written(value) == "" for value in values) or frame[column].isna().any():
                raise _unfit(f"empty or infinite cells in {column!r}", "a value in every row", "fill the cells")
            known = [feature.value for feature in self.features if feature.column == column]
            if known == [None]:
                cells[column] = _numbers(column, of_values(frame[column], values, column, "the rows")[0], self.decimal)
            else:
                cells[column] = _texts(column, values, known)
        return np.stack([feature.read(cells[feature.column]) for feature in self.features], axis=1)

    def _fitting(self, rows: np.ndarray) -> np.ndarray:
        rows = self._of_one_channel(rows)
        if tuple(rows.shape[1:]) != self.shape or rows.ndim < 1:
            single = " A single row needs an axis in front: row[None]" if tuple(rows.shape) == self.shape else ""
            raise _unfit(f"rows of {rows.dtype} and shape {tuple(rows.shape)}", self._wanted, f"reshape them.{single}")
        whole = rows.dtype.kind in "biu"
        if self.dtype == "float32" and rows.dtype == np.uint8 and rows.ndim > 2:
            fix = (
                "prepare them likewise, such as rows / 255; or rows.astype('float32') if floats of 0 to 255 were given"
            )
            raise _unfit("images of bytes", "floats, as the training data had", fix)
        if self.dtype == "float32" and (whole or rows.dtype.kind == "f"):
            if not np.isfinite(rows.sum(dtype=np.float64)):
                raise _unfit("rows with NaN or infinity", "finite numbers", "fill the cells, or leave those rows out")
            return rows.astype(np.float64 if rows.dtype != np.float32 else np.float32)
        if self.dtype == "uint8":
            return self._bytes(rows)
        if whole:
            return rows.astype(self.dtype)
        raise _unfit(f"rows of {rows.dtype}", self._wanted, "give numbers of that type")

    def _bytes(self, rows: np.ndarray) -> np.ndarray:
        """Rows where the training data had bytes: bytes, or floats that are shares of white."""
        if not len(rows):
            return rows.astype(np.uint8)
        low, high = float(rows.min()), float(rows.max())  # NaN, if there is any
        whole = rows.dtype.kind in "biu" or bool((rows == np.rint(rows)).all())
        if rows.dtype.kind == "f" and whole and 0.0 <= low < high == 1.0:
            fix = f"rows * {self._white:g} if 1 is white, or rows.astype('uint8') if 1 is the darkest grey"
            raise _unfit("floats that are all 0 or 1", self._wanted, fix)
        if whole and low >= 0.0 and high <= self._white:
            return rows.astype(np.uint8)
        if not whole and low >= 0.0 and high <= 1.0:
            return rows.astype(np.float32)
        raise _unfit(f"rows of {rows.dtype} from {low:g} to {high:g}", self._wanted, "give numbers in that range")

    def _of_one_channel(self, rows: np.ndarray) -> np.ndarray:
        """Images of one channel as the training data had them: with an axis for it, without, or flat."""
        sides = tuple(size for size in self.shape if size != 1)
        if len(sides) != 2 or (self.channels != "none" and len(self.shape) != 3) or not rows.ndim or not len(rows):
            return rows
        given = tuple(rows.shape[1:])
        alike = tuple(size for size in given if size != 1) == sides or given == (sides[0] * sides[1],)
        return rows.reshape(len(rows), *self.shape) if alike else rows

    @property
    def _white(self) -> float:
        """The largest number of bytes."""
        return next((step.scale for step in self.steps if isinstance(step, ToFloat)), 255.0)

    @property
    def _wanted(self) -> str:
        """What raw rows are, in words."""
        range_, other = "", ""
        if self.dtype == "uint8":
            range_, other = f", 0 to {self._white:g}", "; or floats in 0 to 1, shares of white"
        return f"{self.dtype} [{', '.join(map(str, ('n', *self.shape)))}]{range_}, as the training data had{other}"

    def plain(self) -> dict[str, Any]:
        """The same as plain data."""
        steps = [{"step": type(step).__name__, **dataclasses.asdict(step)} for step in self.steps]
        return {**dataclasses.asdict(self), "features": [list(f) for f in self.features], "steps": steps}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """It, from plain data.

        Raises:
            ValueError, KeyError, TypeError: that is no such data.
        """
        steps = [_STEPS[s["step"]](**{k: frozen(v) for k, v in s.items() if k != "step"}) for s in plain["steps"]]
        features = [Feature(str(column), None if value is None else str(value)) for column, value in plain["features"]]
        kept = ("shape", "channels", "dtype", "target", "threshold", "decimal")
        rest = {key: frozen(plain[key]) for key in kept}
        return cls(features=tuple(features), steps=tuple(steps), **rest)


_TRUTH = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}


def _frame(rows: Any) -> pd.DataFrame:
    """Rows as a table with names that are text and differ."""
    import pandas as pd

    if isinstance(rows, Mapping):
        try:
            rows = pd.DataFrame({str(name): np.atleast_1d(np.asarray(cells)) for name, cells in rows.items()})
        except ValueError as error:
            raise _unfit(f"columns that make no table ({error})", "columns of one length", "make them so") from None
    return raw_table(rows, separator="", encoding="", wanted=()).frame


def _numbers(column: str, cells: np.ndarray, decimal: str) -> np.ndarray:
    """A column of numbers, which may be written as text. float64 [n]"""
    try:
        if cells.dtype.kind not in "biuf":
            texts = [str(cell).strip() for cell in cells]
            points = [text.replace(",", ".") for text in texts] if decimal == "," else texts
            cells = np.array([_TRUTH.get(text, text) for text in points], dtype=object)
        numbers: np.ndarray = cells.astype(np.float64)
    except (TypeError, ValueError):
        raise _unfit(f"text in the column {column!r}", "numbers", "write them as numbers") from None
    if not np.isfinite(numbers).all():
        raise _unfit(f"empty or infinite cells in {column!r}", "finite numbers", "fill the cells")
    return numbers


def _texts(column: str, cells: np.ndarray, known: Sequence[str | None]) -> np.ndarray:
    """A column of text. [n]"""
    found = np.array([written(cell) for cell in cells])
    if unseen := sorted(set(found.tolist()) - {*known}):
        rows = int(np.isin(found, unseen).sum())
        warnings.warn(
            f"{rows:,} rows have values of {column!r} that no training row had, "
            f"{', '.join(map(repr, unseen[:5]))}: all its features are 0 there",
            stacklevel=5,
        )
    return found


def _normalised(step: Normalise, inputs: Tensor) -> Tensor:
    mean, std = step.along(inputs)
    return ((inputs.double() - mean) / std).float()


def _normalisation(steps: Sequence[Transform]) -> Normalise | Literal[False] | None:
    """The normalisation that steps end with; None without one, False if there are more, or others after it."""
    places = [place for place, step in enumerate(steps) if isinstance(step, Normalise)]
    if not places:
        return None
    last = steps[-1]
    return last if isinstance(last, Normalise) and len(places) == 1 else False


def frozen(value: Any) -> Any:
    """What was read of JSON, with tuples in place of lists."""
    if isinstance(value, dict):
        return {key: frozen(of) for key, of in value.items()}
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def _unfit(found: str, expected: str, fix: str) -> UserError:
    return UserError(found, expected=expected, why="the model has learned from such rows, and reads no others", fix=fix)
