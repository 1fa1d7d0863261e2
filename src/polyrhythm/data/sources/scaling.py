"""Inputs become float32: scaled before that, since afterwards large numbers with small differences are all the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.transforms import Normalise, ToFloat, Transform

SCALED = "inputs are scaled by the mean and standard deviation of all training samples"


def in_float32(
    train: np.ndarray,
    test: np.ndarray,
    *,
    scaling: bool,
    columns: Sequence[str] = (),
    places: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, tuple[Transform, ...], tuple[Transform, ...]]:
    """Inputs as they are held, the transforms that remain to be done, and those that are done.

    Wide floats and whole numbers are scaled in float64 and then become float32; float32 and bytes are held as they came
    and scaled when they are read.

    Args:
        train: [n, ...], numbers.
        test: likewise.
        scaling: whether to give each channel or feature mean 0 and variance 1 over the training samples.
        columns: names of the features, for messages.
        places: where training and test samples stood before they were split, for messages.

    Raises:
        UserError: inputs that are NaN, infinite, or too large for float32.
    """
    steps: tuple[Transform, ...] = (ToFloat(scale=255.0),) if train.dtype == np.uint8 else ()
    done: tuple[Transform, ...] = ()
    held_exactly = all(part.dtype in (np.float16, np.float32, np.uint8) for part in (train, test))
    if not scaling:
        train, test = (part if part.dtype.kind != "f" else _float32(part) for part in (train, test))
    elif held_exactly:
        train, test = (part if part.dtype == np.uint8 else _float32(part) for part in (train, test))
        mean, std = _moments(train)
        scale = 255.0 if train.dtype == np.uint8 else 1.0
        std = np.where(_varies(mean, std), std, scale)
        finite = bool(np.isfinite(mean).all() and np.isfinite(std).all())
        if finite:  # otherwise what is not finite is refused below
            steps = (*steps, _fitted(mean / scale, std / scale))
    else:
        train, test, done = _standardised(train, test)
    for number, part in enumerate((train, test)):
        _check_finite(part, ("training", "test")[number], columns, None if places is None else places[number])
    return train, test, steps, done


def _fitted(mean: np.ndarray, std: np.ndarray) -> Normalise:
    return Normalise(mean=tuple(mean.tolist()), std=tuple(std.tolist()), fitted=True)


def _moments(train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel or feature."""
    axes = (0, *range(2, train.ndim))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.atleast_1d(train.mean(axis=axes, dtype=np.float64))
        return mean, np.atleast_1d(train.std(axis=axes, dtype=np.float64))


def _varies(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Which features do not have one value throughout: their std would be 0, or what rounding left of it."""
    varies: np.ndarray = std > 1e-12 * np.maximum(np.abs(mean), 1.0)
    return varies


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[Transform, ...]]:
    mean, std = _moments(train)
    std = np.where(_varies(mean, std), std, 1.0)
    std = np.where(np.isfinite(std), std, np.nan)  # of numbers whose squares have no end, it would make all of them 0
    shape = (1, -1, *[1] * (train.ndim - 2)) if train.ndim > 1 else (-1,)
    with np.errstate(over="ignore", invalid="ignore"):
        train, test = ((part.astype(np.float64) - mean.reshape(shape)) / std.reshape(shape) for part in (train, test))
    # What is not finite is refused once it is float32.
    done = (_fitted(mean, std),) if np.isfinite(mean).all() and np.isfinite(std).all() else ()
    return _float32(train), _float32(test), done


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False)


def _check_finite(held: np.ndarray, part: str, columns: Sequence[str], places: np.ndarray | None) -> None:
    # The sum is NaN or infinite where any entry is: no second array of the inputs' size.
    if held.dtype.kind != "f" or np.isfinite(held.sum(dtype=np.float64)):
        return
    bad = ~np.isfinite(held)
    first = int(np.argmax(bad.reshape(len(held), -1).any(axis=1)))
    where = f"{part} sample {first}" if places is None else f"sample {places[first]}"
    if columns:
        wrong = [name for name, any_bad in zip(columns, bad.any(axis=0), strict=True) if any_bad]
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        where = f"column {', '.join(map(repr, wrong[:5]))}{more}"
    raise UserError(
        f"{int(bad.sum()):,} {part} inputs that are NaN or infinite, or do not fit float32 ({where} first)",
        expected="finite numbers up to 3.4e38, which is where float32 ends",
        why="models compute in float32, and one such number makes every weight it touches NaN",
        fix="drop those samples, fill the cells, or divide that column",
    )
