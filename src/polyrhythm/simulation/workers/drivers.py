"""Those who can carry out visits, by name. Imports no torch."""

from __future__ import annotations

from typing import Literal

Asked = Literal["auto", "inline", "processes", "threads", "ray"]
Named = Literal["inline", "processes", "threads", "ray"]
