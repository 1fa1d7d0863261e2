"""Long curves are thinned before they are drawn: no eye tells thousands of points apart, and a page gets slow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 400
"""Points of a curve that still make a difference to the eye."""


def thin(rows: Sequence[dict[str, Any]], extremes: Sequence[str] = ("y",), *, most: int = MOST) -> list[dict[str, Any]]:
    """At most so many rows, in their order: of each stretch of a curve its ends, and where it is lowest and highest.

    So a spike of one version stays, however long the run. A curve that is short enough is returned as it is.

    Args:
        rows: the points, from left to right.
        extremes: the fields whose least and greatest values are kept.
        most: how many points there may be.
    """
    if len(rows) <= most:
        return list(rows)
    stretches = max(1, most // (2 + 2 * len(extremes)))
    borders = [round(i * len(rows) / stretches) for i in range(stretches + 1)]
    kept: set[int] = set()
    for start, end in itertools.pairwise(borders):
        kept |= {start, end - 1}
        for field in extremes:
            known = [i for i in range(start, end) if rows[i][field] is not None]
            kept |= {pick(known, key=lambda i: _number(rows[i], field)) for pick in (min, max) if known}
    return [rows[i] for i in sorted(kept)]


def evenly(names: Sequence[T], most: int) -> list[T]:
    """At most so many of some names, in their order, from all over.

    >>> evenly(range(10), 3)
    [0, 3, 6]
    """
    if len(names) <= most:
        return list(names)
    return [names[i * len(names) // most] for i in range(most)]


def _number(row: Mapping[str, Any], field: str) -> float:
    return float(row[field])
