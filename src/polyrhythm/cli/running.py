"""`polyrhythm run`: what a person, a pipe or a program sees."""

from __future__ import annotations

