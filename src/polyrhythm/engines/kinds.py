"""The engines by name. Imports no torch."""

from __future__ import annotations

from typing import Literal

Asked = Literal["auto", "torch", "native", "stacked"]
Named = Literal["torch", "native", "stacked"]
