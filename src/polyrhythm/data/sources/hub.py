"""Data sets of the Hugging Face hub, through the extra `polyrhythm[hub]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.images import channels_first
from polyrhythm.data.sources.memory import Arrays, arrays


def hub(
    name: str,
    *,
    config: str | None = None,
    revision: str | None = None,
    inputs: str | Sequence[str] = "image",
    target: str = "label",
    client: str = "",
    train: str = "train",
    test: str | float = "test",
    task: str | None = None,
    scaling: str = "none",
    augment: bool = False,
) -> Collection:
    """A data set of the Hugging Face hub with images or numbers as inputs; read into memory once.

    Args:
        name: on the hub, e.g. "ylecun/mnist", or a format such as "parquet" with `config` a folder of files.
        config: the data set's configuration, if it has several.
        revision: a commit or tag of it; without one, results can change when the data set does.
        inputs: column of images or vectors, or several columns of numbers.
        target: column to predict.
        client: column that names the client; partition with `by_column`.
        train: name of the training split.
        test: name of the test split, or the share of the training split to hold out.
        task: "classification", "multilabel" or "regression"; None goes by the targets.
        scaling: "none" (bytes still become [0, 1]), or "train" for zero mean and unit variance over all training
            samples.
        augment: random crop and flip in training, for images.

    Raises:
        UserError: the extra is not installed, the data set cannot be loaded, or has no such split or column.

    Reference: the data set's page on the hub.
    """
    try:
        import datasets
    except ImportError:
        raise UserError(
            "the package datasets is not installed",
            expected="the extra polyrhythm[hub]",
            why="data sets of the hub are fetched and read by it",
            fix='pip install "polyrhythm[hub]"',
        ) from None
    try:
        splits: Any = datasets.load_dataset(name, config, revision=revision)
    except Exception as error:  # network, missing names, formats: many kinds
        raise UserError(
            f"data set {name!r} cannot be loaded from the hub ({error})",
            expected="a data set that exists, with a connection or in the hub's own cache",
            why="the run reads it before round 1",
            fix="check the name and the configuration, or load it once while connected",
        ) from None
    columns = [inputs] if isinstance(inputs, str) else list(inputs)
    used = (*columns, target, *([client] if client else []))
    for split in (train, *([test] if isinstance(test, str) else [])):
        if split not in splits:
            raise unknown("split", split, map(str, splits), where=name)
        for column in used:
            if column not in splits[split].column_names:
                raise unknown("column", column, splits[split].column_names, where=f"{name}, split {split}")
    held: Arrays | float = test if not isinstance(test, str) else (
        _inputs(splits[test], columns, name), np.asarray(splits[test][target][:])
    )  # fmt: skip
    tested = splits[test] if isinstance(test, str) else None
    return arrays(
        _inputs(splits[train], columns, name),
        np.asarray(splits[train][target][:]),
        test=held,
        task=task,
        scaling=scaling,
        augment=augment,
        columns={client: np.asarray(splits[train][client][:])} if client else None,
        test_columns={client: np.asarray(tested[client][:])} if client and tested is not None else None,
        name=name.rsplit("/", 1)[-1],
        features=columns if len(columns) > 1 else (),
        notes=() if revision else (f"{name}: no revision given; the data set may change on the hub",),
    )


def _inputs(split: Any, columns: list[str], name: str) -> np.ndarray:
    if len(columns) > 1:
        return np.stack([np.asarray(split[column][:], dtype=np.float32) for column in columns], axis=1)
    rows = [np.asarray(row) for row in split[columns[0]][:]]
    shapes = {row.shape for row in rows}
    if len(shapes) != 1 or rows[0].dtype.kind not in "buif":
        raise UserError(
            f"{name}: column {columns[0]!r} has {rows[0].dtype} inputs of shapes {sorted(shapes)[:3]}",
            expected="images or vectors of one shape",
            why="samples are stacked into batches",
            fix="resize them first and use `dataset(...)` or `npz(...)`",
        )
    stacked = np.stack(rows)
    return channels_first(stacked, name) if stacked.dtype == np.uint8 and stacked.ndim >= 3 else stacked
