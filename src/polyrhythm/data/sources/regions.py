"""Breast cancer by region: how long patients survive."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.files import corrupt, existing, located
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.sources.table_files import raw_table

REFERENCE = (
    "The Cancer Genome Atlas, BRCA; as prepared and split over regions in du Terrail et al., "
    '"FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic Healthcare Settings", NeurIPS 2022'
)
TABLES = ("brca.csv", "tcga_brca.csv")
SPLITS = ("train_test_split.csv", "tcga_brca_split.csv")
WHAT = "FLamby's brca.csv and train_test_split.csv, in a folder"


def tcga_brca(path: str | Path) -> Collection:
    """Breast cancer (TCGA-BRCA): 1,088 patients of 6 regions, 39 features; survival.

    Reads FLamby's brca.csv (pid, features, E for an event, T for the time in days) and train_test_split.csv (pid, fold,
    fold2), whose own split it keeps: the test of each region. They may lie in folders inside, as in FLamby's
    repository. Features are scaled by the training patients of all regions. Partition with
    `by_column(column="region")`; regions are numbered as there, from 0.

    Args:
        path: of the folder.

    Raises:
        UserError: no such files, other columns, or patients without a fold.

    Reference: du Terrail et al., "FLamby", NeurIPS 2022.
    """
    place = existing(path, what=WHAT)
    folders = [place, place / "dataset_creation_scripts", place / "flamby" / "datasets" / "fed_tcga_brca"]
    folders.append(folders[-1] / "dataset_creation_scripts")
    table, split = located(TABLES, folders), located(SPLITS, folders)
    if table is None or split is None:
        raise corrupt(place, f"has no {(TABLES if table is None else SPLITS)[0]}", WHAT)
    found = raw_table(table, separator=",", encoding="", wanted=["pid", "E", "T"]).frame
    folds = raw_table(split, separator=",", encoding="", wanted=["pid", "fold2"]).frame
    for frame, columns, file in ((found, ("pid", "E", "T"), table), (folds, ("pid", "fold2"), split)):
        if missing := [column for column in columns if column not in frame.columns]:
            raise corrupt(file, f"has no column {missing[0]}", ", ".join(columns))
    where = dict(zip(folds["pid"].tolist(), folds["fold2"].tolist(), strict=True))
    patients = found["pid"].tolist()
    kept = np.array([patient in where for patient in patients])
    parts = [str(where[patient]).partition("_") for patient in patients if patient in where]
    if (
        not parts
        or len(set(patients)) != len(patients)
        or any(fold not in ("train", "test") or not region.isdecimal() for fold, _, region in parts)
    ):
        raise corrupt(split, "patients that are there twice, in no fold or in another one", "train_0, test_0 and so on")
    tested = np.array([fold == "test" for fold, _, _ in parts])
    region = np.array([int(of) for _, _, of in parts])
    features = [column for column in found.columns if column not in ("pid", "E", "T")]
    numbers = _numbers(found[[*features, "T", "E"]].to_numpy()[kept], table)
    inputs, goals = numbers[:, :-2], numbers[:, -2:]
    if not tested.any() or tested.all():
        raise corrupt(split, f"{int(tested.sum()):,} test patients of {len(tested):,}", "patients of both folds")
    return arrays(
        inputs[~tested],
        goals[~tested],
        test=(inputs[tested], goals[tested]),
        task="survival",
        scaling="train",
        columns={"region": region[~tested]},
        test_columns={"region": region[tested]},
        name="tcga-brca",
        reference=REFERENCE,
        notes=() if kept.all() else (f"{int((~kept).sum()):,} patients are in no fold and left out",),
        features=features,
    )


def _numbers(cells: np.ndarray, table: Path) -> np.ndarray:
    try:
        numbers = cells.astype(np.float64)
    except ValueError as error:
        raise corrupt(
            table, f"a cell that is no number ({str(error)[:80]})", "numbers in all columns but pid"
        ) from None
    if not np.isfinite(numbers).all() or not np.isin(numbers[:, -1], (0, 1)).all():
        raise UserError(
            f"{table}: a cell that is not finite, or an event that is neither 0 nor 1",
            expected="numbers, and 1 for an event or 0 for none",
            why="features and times are trained on as they are",
            fix="get the table from where it was published",
        )
    return numbers
