"""What curves are drawn against, with its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from polyrhythm.runs.costs import COSTS, bytes_of

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
    "time": COSTS["virtual_seconds"].title,
    "wall": "wall-clock time (s)",
    "client_updates": COSTS["client_updates"].title,
    "visits": "client visits",
    "local_steps": COSTS["local_steps"].title,
    "samples": COSTS["samples"].title,
    "flops": COSTS["flops"].title,
    "joules": COSTS["joules"].title,
    "bytes": "traffic (bytes)",
    "bytes_up": COSTS["bytes_up"].title,
    "bytes_down": COSTS["bytes_down"].title,
    "compute_seconds": COSTS["compute_seconds"].title,
    "link_seconds": COSTS["link_seconds"].title,
    "waiting_seconds": COSTS["waiting_seconds"].title,
}
"""Their titles, in the order in which a reader wants them."""

SETS: Mapping[str, str] = {
    "test": "test set",
    "validation": "validation set",
    "train": "sample of training data",
    "clients": "clients' own test sets",
}
"""What a model is measured on, by its column in the record."""


def across(row: Mapping[str, Any], against: Against) -> float:
    """Where a version lies on an axis."""
    return float(bytes_of(row) if against == "bytes" else row[against])
