"""What a run's model says of new rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from polyrhythm.base.errors import UserError
from polyrhythm.cli.output import Screen
from polyrhythm.data.sources.table_files import raw_table
from polyrhythm.results import Run


def predict_rows(
    reference: str,
    data: Path,
    output: Path,
    out: str,
    *,
    which: Literal["final", "best"],
    probabilities: bool,
    trust: list[str],
) -> None:
    """Writes a prediction for each row of a file."""
    run, screen = Run.open(reference, out), Screen(stderr=True)
    rows = _rows(data)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = run.predict(rows, which, probabilities=probabilities, trust=trust)
    for note in (warning for warning in told if warning.category is UserWarning):
        screen.note(str(note.message))
    if output.suffix == ".npy":
        np.save(output, found)
    else:
        columns = ["prediction"] if found.ndim == 1 else [f"prediction_{i}" for i in range(found.shape[1])]
        pd.DataFrame(found.reshape(len(found), -1), columns=columns).to_csv(output, index=False)


def _rows(path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        return raw_table(path, separator="", encoding="", wanted=()).frame
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise UserError(
            f"{path}: {'no such file' if missing else f'not readable ({error})'}",
            expected="rows: a .csv or .parquet table with the columns of the training table, or a .npy array",
            why="there is nothing to predict for",
            fix="check the path",
        ) from None
