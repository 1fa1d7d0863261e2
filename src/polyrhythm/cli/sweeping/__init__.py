"""Sweeps as they are written in a file, and as they look in the terminal."""

from __future__ import annotations

import tomllib
from pathlib import Path


def is_sweep(file: Path) -> bool:
    """Whether a file describes a sweep; one that cannot be read does not."""
    try:
        return "sweep" in tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
