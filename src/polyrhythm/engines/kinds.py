"""The engines by name. Imports no torch."""

from __future__ import annotations

from typing import Literal

Asked = Literal["auto", "torch", "native", "stacked"]
Named = Literal["torch", "native", "stacked"]

Precision = Literal["float32", "tf32", "bfloat16"]
"""What the stacked engine's products are computed in; see `exactness.computing`."""
