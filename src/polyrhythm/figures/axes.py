"""What curves are drawn against, with its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from polyrhythm.runs.costs import bytes_of

Against = Literal[
    "version",
    "time",
    "wall",
    "client_updates",
    "visits",
    "local_steps",
    "samples",
    "flops",
    "joules",
    "bytes",
    "bytes_up",
    "bytes_down",
    "compute_seconds",
    "link_seconds",
    "waiting_seconds",
]
"""A horizontal axis."""

AXES: Mapping[Against, str] = {
    "version": "server version",
    "time": "virtual time (s)",
    "wall": "wall-clock time (s)",
    "client_updates": "client updates",
    "visits": "client visits",
    "local_steps": "local steps",
    "samples": "samples trained on",
    "flops": "floating-point operations",
    "joules": "energy (J)",
    "bytes": "traffic (bytes)",
    "bytes_up": "bytes sent by clients",
    "bytes_down": "bytes sent to clients",
    "compute_seconds": "clients' time computing (s)",
    "link_seconds": "clients' time on links (s)",
    "waiting_seconds": "clients' time waiting (s)",
}
"""Their titles, in the order in which a reader wants them."""

SETS: Mapping[str, str] = {
    "test": "test set",
    "validation": "validation set",
    "train": "sample of training data",
    "clients": "clients' own test sets",
}
"""What a model is measured on, by its column in the record."""


def across(row: Mapping[str, Any], against: Against) -> float | None:
    """Where a version lies on an axis; None where an older record does not say."""
    value = bytes_of(row) if against == "bytes" else row[against]
    return None if value is None else float(value)
