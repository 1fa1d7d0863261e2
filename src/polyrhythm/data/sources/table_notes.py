"""What is to be said of a table that is read as it is: answers among its features, and names that look alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_FIRST = 64  # rows that tell most columns from the target
_LEAST = 10


def notes_of(frame: pd.DataFrame, target: str, client: str) -> tuple[str, ...]:
    """Notes on typed training rows.

    Args:
        frame: the rows.
        target, client: columns; `client` is empty where none is.
    """
    names = [str(column) for column in frame.columns]
    notes = [f"columns {words}, and are two features" for words in look_alikes(names)]
    for column in names:
        values = frame[column].to_numpy()
        if values.dtype.kind not in "biuf":
            what = {target: "classes", client: "clients"}.get(column, "features")
            words = look_alikes(map(str, dict.fromkeys(values.tolist())))
            notes += [f"values of {column!r} {each}, and are {what} of their own" for each in words[:1]]
    for column in names:
        if column not in (target, client) and _answers(frame[column].to_numpy(), frame[target].to_numpy()):
            notes.append(
                f"column {column!r} has one value for each of {target!r} in all training rows: if it is the answer in "
                f"other words, drop=[{column!r}] leaves it out"
            )
    return tuple(notes)


def look_alikes(names: Iterable[str]) -> list[str]:
    """In words, each group of different texts that look the same but for capitals and how letters are encoded."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(unicodedata.normalize("NFKC", name).casefold().strip(), []).append(name)
    return [
        f"{' and '.join(repr(name[:40]) for name in group[:3])} differ only in "
        + ("how letters are encoded" if len({unicodedata.normalize("NFKC", n) for n in group}) == 1 else "capitals")
        for group in groups.values()
        if len(group) > 1
    ]


def _answers(column: np.ndarray, target: np.ndarray) -> bool:
    """Whether a column says what the target is: it is equal, or has one value for each of a few."""
    import pandas as pd

    if len(target) < _LEAST:
        return False
    for rows in (slice(_FIRST), slice(None)):
        codes, known = pd.factorize(column[rows])
        others, classes = pd.factorize(target[rows])
        if len(known) != len(classes) or not np.array_equal(codes, others):
            return False
    if len(classes) < 2:
        return False
    # Where each row has a value of its own, as numbers of rows have, that says nothing of another.
    return 2 * len(classes) <= len(target) or bool(np.array_equal(column, target))
