"""What a run's model says of new rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file
from polyrhythm.base.output_file import check_output
from polyrhythm.base.plain import in_cell
from polyrhythm.cli.output import Screen
from polyrhythm.data.labels import as_text
from polyrhythm.data.sources.table_files import raw_table
from polyrhythm.data.sources.text_files import WHAT as TEXTS
from polyrhythm.data.sources.text_files import texts_in
from polyrhythm.results import Run
from polyrhythm.results.predicting import Predicting
from polyrhythm.results.using import Use

_WHAT = "rows: a .csv or .parquet table with the columns of the training table, or a .npy array"


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
    _check_output(output)
    run, screen = Run.open(reference, out), Screen(stderr=True)
    use = Use.read(run.path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        predicting = Predicting(use, _rows(data, of_texts=use.texts is not None))
        predicting.by(run.model(which, trust=trust))
        found = predicting.probabilities() if probabilities else predicting.labels()
    for note in (warning for warning in told if warning.category is UserWarning):
        screen.note(str(note.message))
    if output.suffix == ".npy":
        np.save(output, found)
    else:
        found = np.array([as_text(label) for label in found]) if found.dtype.kind == "S" else found
        one = "perplexity" if predicting.of_texts else "prediction"
        columns = [one] if found.ndim == 1 else [f"{one}_{i}" for i in _named(use, found.shape[1])]
        table = pd.DataFrame(found.reshape(len(found), -1), columns=columns)
        likely = None if probabilities else predicting.likelihoods()
        if found.dtype.kind in "OU":
            cells = table.map(lambda cell: in_cell(cell) if isinstance(cell, str) else cell)
            if not cells.equals(table):
                screen.note("names of classes that a spreadsheet would take for formulas are changed in the file")
            table = cells
        if likely is not None:
            table["probability"] = likely
        table.to_csv(output, index=False)


def _check_output(output: Path) -> None:
    if output.suffix not in (".csv", ".npy"):
        raise UserError(
            f"cannot write predictions as {output.name!r}",
            expected="a name that ends in .csv or .npy",
            why="the ending decides the format",
            fix=f"write them as {output.stem or 'predictions'}.csv, for example",
        )
    check_output(output, "the predictions")


def _named(use: Use, count: int) -> Sequence[object]:
    """What the columns of predictions are of: classes or tags, if they have names."""
    classes = use.classes
    return classes if len(classes) == count else range(count)


def _rows(path: Path, *, of_texts: bool) -> Any:
    if "(" in str(path) and not path.exists():
        raise UserError(
            f"--data {str(path)!r}",
            expected=f"the path of {_WHAT if not of_texts else TEXTS}",
            why="how rows are read is known from the training data",
            fix="give the path alone, such as --data new.csv",
        )
    try:
        if path.suffix == ".npy":
            check_file(path)
            return np.load(path, allow_pickle=False)
        if of_texts:
            return texts_in(path)
        return raw_table(path, separator="", encoding="", wanted=()).frame
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError, RecursionError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise UserError(
            f"{path}: {'no such file' if missing else f'not readable ({error})'}",
            expected=_WHAT if not of_texts else TEXTS,
            why="there is nothing to predict for",
            fix="check the path",
        ) from None
