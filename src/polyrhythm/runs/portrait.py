"""What a run's record says of its data, in two small files: who holds which labels, and how hard samples are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyrhythm.base.input_file import json_of
from polyrhythm.runs.files import write_whole

LABELS, SAMPLES = "labels.json", "samples.json"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the losses of single samples."""
HARDNESS = ("easiest", "hardest")


def labels_of(folder: Path) -> dict[str, Any] | None:
    """Who held which labels in a run, as `label_counts` gives it; None if it was not written down."""
    return _read(folder / LABELS)


def samples_of(folder: Path) -> dict[str, Any] | None:
    """How hard samples were in a run: `versions`, with the quantiles of their losses, and `images`; None if unknown."""
    return _read(folder / SAMPLES)


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Writes one of them."""
    write_whole(path, [json.dumps(value, separators=(",", ":")).encode()], durable=False)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json_of(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
