"""A text in the place of an experiment file that is none: what was meant by it, and how one says that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from polyrhythm.config import names
from polyrhythm.config.data_paths import of_file
from polyrhythm.data import PARTITIONS, SOURCES
from polyrhythm.models.catalogue import MODELS

_KEYS: Mapping[str, Collection[str]] = {
    "method": names.RECIPES,
    "data": SOURCES,
    "partition": PARTITIONS,
    "model": MODELS,
    "fleet": {**names.DEVICES, **names.FLEETS},
}
_TABLES = {".csv", ".tsv", ".parquet", ".feather", ".npz"}


def instead_of_file(text: str) -> str:
    """What to write in place of it; empty if it looks like nothing else than a file with an experiment.

    >>> instead_of_file("fedavg(cohort=5)")
    '--method "fedavg(cohort=5)"'
    """
    if Path(text).suffix.lower() in _TABLES:
        how, _, about = of_file(Path(text)).partition(", where")
        return f'--data "{how}"' + (f", where{about}" if about else "")
    name = text.partition("(")[0].partition("|")[0].strip().replace("-", "_")
    keys = [key for key, known in _KEYS.items() if name in {one.replace("-", "_") for one in known}]
    return f'--{keys[0]} "{text}"' if keys else ""
