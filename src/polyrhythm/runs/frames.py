"""Records of a run as data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrhythm.runs import costs
from polyrhythm.runs.database import read_records, unpacked
from polyrhythm.runs.schema import COLUMNS, Table

if TYPE_CHECKING:
    import pandas as pd

# `train_loss` is the loss of local models while they train, so the global model's on training data needs another name.
_PREFIXES = {
    "test": "test",
    "validation": "validation",
    "train": "global_train",
    "clients": "clients",
    "groups": "groups",
    "faults": "faults",
    "measures": "measures",
}


def frame(folder: Path, table: Table, number: int) -> pd.DataFrame:
    """The rows of one of a run's tables; what a row has several of under a name is in a column each.

    Args:
        folder: the output folder.
        table: its name.
        number: of the run.
    """
    import pandas as pd

    rows = [_flat(row) for row in read_records(folder, table, number)]
    found = pd.DataFrame(rows, columns=None if rows else [c for c in COLUMNS[table] if c not in _PREFIXES])
    counts = [c for c in found if str(c).startswith("faults_")]
    return found.fillna(dict.fromkeys(counts, 0)).astype(dict.fromkeys(counts, int))  # of a kind until it happens


def answers_frame(folder: Path, number: int) -> pd.DataFrame:
    """What the server was told of who is there, with clients as numbers."""
    import pandas as pd

    rows = read_records(folder, "answers", number)
    told = [{**row, "clients": None if row["clients"] is None else unpacked(row["clients"])} for row in rows]
    return pd.DataFrame(told, columns=COLUMNS["answers"]).set_index(["event", "place"])


def costs_frame(versions: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """What a run has cost by the last of its versions: total and unit of each cost."""
    import pandas as pd

    units = {cost.name: cost.unit for cost in costs.TOTALS}
    known = costs.totals(versions[-1]) if versions else dict.fromkeys(units)
    table = pd.DataFrame({"total": pd.Series(known, dtype=object), "unit": pd.Series(units)})
    table.index.name = "cost"
    return table


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in _PREFIXES:
            flat |= {f"{_PREFIXES[name]}_{key}": number for key, number in (value or {}).items()}
        else:
            flat[name] = value
    return flat
