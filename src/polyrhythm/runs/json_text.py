"""Records as text that any JSON reader takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> str:
    """Strict JSON on one line. A number that is not finite becomes null, since JSON has no word for it.

    >>> to_json({"loss": float("nan"), "sizes": (1, 2)})
    '{"loss": null, "sizes": [1, 2]}'
    """
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy and torch numbers and arrays
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
