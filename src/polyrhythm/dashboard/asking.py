"""What a browser asks for, as the text of an address says it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.figures.lens import WIDEST

_LONGEST = 40  # characters of a number


def lens_of(asked: Mapping[str, str]) -> dict[str, Any]:
    """How closely curves are to be looked at, for `figures.draw`; nothing of what was not asked for.

    Raises:
        UserError: a number that is none.
    """
    found: dict[str, Any] = {}
    if "smooth" in asked:
        found["smooth"] = whole("smooth", asked["smooth"], 1, WIDEST)
    if "seeds" in asked:
        found["seeds"] = asked["seeds"] == "1"
    if "from" in asked or "to" in asked:
        found["span"] = (number("from", asked.get("from", "")), number("to", asked.get("to", "")))
    return found


def whole(name: str, text: str, least: int, most: int) -> int:
    """A whole number.

    Raises:
        UserError: it is none, or out of its range.
    """
    if text.isdecimal() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    raise UserError(
        f"{name} = {text!r}",
        expected=f"a whole number, {least} to {most}",
        why="figures are drawn by it",
        fix="leave it out",
    )


def number(name: str, text: str) -> float:
    """A finite number.

    Raises:
        UserError: it is none.
    """
    try:
        value = float(text) if len(text) <= _LONGEST else math.nan
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    raise UserError(
        f"{name} = {text[:_LONGEST]!r}",
        expected="a number; `from` and `to` go together",
        why="they are where the horizontal axis begins and ends",
        fix="leave both out",
    )
