"""Heart disease at four hospitals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.sources.files import content, corrupt, existing
from polyrhythm.data.sources.members import members
from polyrhythm.data.sources.memory import arrays

REFERENCE = (
    "Janosi, Steinbrunn, Pfisterer and Detrano, UCI Heart Disease, 1988, CC BY 4.0; split over hospitals as in "
    'du Terrail et al., "FLamby", NeurIPS 2022'
)
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
)
LEFT_OUT = ("slope", "ca", "thal")
SEVERAL = {"cp": (2, 3, 4), "restecg": (1, 2)}
"""Columns of kinds, and the values that have a feature of their own: all but the first."""
WHAT = "processed.HOSPITAL.data of the four hospitals, in a folder or the .zip of UCI, or one .csv with a column site"


def heart_disease(path: str | Path, *, test: float = 0.34) -> Collection:
    """Heart disease (UCI): 740 patients of 4 hospitals, 13 features, ill or not.

    Reads processed.cleveland.data and the like as UCI publishes them, in a folder or a .zip; or one .csv of the same
    columns with a column site before them. As in FLamby: slope, ca and thal are left out, then patients with an empty
    cell; cp and restecg become one 0/1 feature for each value but the first. A share of each hospital's patients tests,
    spread over ill and healthy, the same for every seed; features are scaled by the training patients of all hospitals
    (FLamby: by each hospital's own). Partition with `by_column(column="hospital")`.

    Args:
        path: of the folder, the .zip or the .csv.
        test: share of each hospital's patients that test; 0.34 is FLamby's.

    Raises:
        UserError: no such files, not one for each hospital, or rows of other cells.

    Reference: Janosi et al., UCI Heart Disease, 1988; du Terrail et al., "FLamby", NeurIPS 2022.
    """
    check_share("test", test)
    place = existing(path, what=WHAT)
    names, rows = list[str](), list[list[float]]()
    for name, cells, where in _of_table(place) if place.suffix == ".csv" else _of_files(place):
        if (row := _row(cells, where, place)) is not None:
            names.append(name)
            rows.append(row)
    if not rows:
        raise corrupt(place, "has no patient without an empty cell", WHAT)
    table, hospital = np.array(rows), np.array(names)
    kept = [column for column in COLUMNS[:-1] if column not in LEFT_OUT]
    values = dict(zip((*kept, "num"), table.T, strict=True))
    features = {column: values[column] for column in kept if column not in SEVERAL}
    features |= {f"{column}={kind}": values[column] == kind for column, kinds in SEVERAL.items() for kind in kinds}
    ill = np.where(values["num"] > 0, "ill", "healthy")
    groups = np.unique(hospital, return_inverse=True)[1]
    out = held_out(groups, (ill == "ill").astype(np.int64), test, stream(0, "split", "hospitals"))
    inputs = np.stack(list(features.values()), axis=1).astype(np.float64)
    return arrays(
        inputs[~out],
        ill[~out],
        test=(inputs[out], ill[out]),
        classes=("healthy", "ill"),
        scaling="train",
        columns={"hospital": hospital[~out]},
        test_columns={"hospital": hospital[out]},
        name="heart-disease",
        reference=REFERENCE,
        features=tuple(features),
    )


def _row(cells: list[str], where: str, place: Path) -> list[float] | None:
    """The columns that are kept and the diagnosis; None with an empty one.

    Raises:
        UserError: more or fewer cells, or one that is no number.
    """
    if len(cells) != len(COLUMNS):
        raise corrupt(place, f"{where}: {len(cells):,} cells", f"{len(COLUMNS)}: {', '.join(COLUMNS)}")
    kept = [cell.strip() for name, cell in zip(COLUMNS, cells, strict=True) if name not in LEFT_OUT]
    if any(cell in ("", "?") for cell in kept):
        return None
    try:
        row = [float(cell) for cell in kept]
    except ValueError as error:
        raise corrupt(place, f"{where}: {str(error)[:80]}", "numbers, or ? where nothing is known") from None
    if not np.isfinite(row).all():
        raise corrupt(place, f"{where}: a number that is not finite", "numbers, or ? where nothing is known")
    return row


def _lines(raw: bytes, place: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise corrupt(place, f"is no text ({error})"[:120], "a table as text") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line[:10_000].split(",")


def _of_files(place: Path) -> Iterator[tuple[str, list[str], str]]:
    missing = [*HOSPITALS]
    for name, raw in members(place, rf"processed\.({'|'.join(HOSPITALS)})\.data", what=WHAT):
        missing.remove(name.split(".")[1])
        for number, cells in _lines(raw, place):
            yield name.split(".")[1], cells, f"{name}, line {number}"
    if missing:  # there would be fewer clients than anybody thinks
        raise corrupt(place, f"has no {' and no '.join(f'processed.{one}.data' for one in missing)}", WHAT)


def _of_table(place: Path) -> Iterator[tuple[str, list[str], str]]:
    lines = _lines(content(place), place)
    header = next(lines, (1, []))[1]
    if [name.strip().strip('"') for name in header] != ["site", *COLUMNS]:
        raise corrupt(place, f"begins with {','.join(header)[:80]!r}", f"the header site,{','.join(COLUMNS)}")
    for number, cells in lines:
        yield cells[0].strip().strip('"'), cells[1:], f"line {number}"
