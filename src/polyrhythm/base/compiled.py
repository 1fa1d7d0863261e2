"""The compiled side, if there is one: sums of vectors, and what the native engine computes with."""

from __future__ import annotations

import functools
import importlib
from typing import Any


@functools.cache
def extension() -> Any:
    """The compiled module, or None where the package was installed without it."""
    try:
        return importlib.import_module("polyrhythm.base._native")
    except ImportError:
        return None
