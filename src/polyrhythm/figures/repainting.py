"""A picture of the light theme in the colours of the dark one, which is much sooner done than to draw it again."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from polyrhythm.figures.theme import counterparts

_TAG = re.compile(r"<[^<>]*>")
_PAINT = re.compile(r' (fill|stroke|stop-color)="([^"<>]*)"')
_BARE = frozenset({"none", "transparent"})


def by_night(svg: str) -> str | None:
    """The same picture as the dark theme draws it; None where a colour has no counterpart there, as in a gradient.

    Themes differ in colours alone, except where a scale of shades is read from the background: then it is drawn again.

    Args:
        svg: of the light theme.
    """
    pairs, strange = _pairs(), False

    def repainted(found: re.Match[str]) -> str:
        nonlocal strange
        name, colour = found.groups()
        if colour in _BARE:
            return found[0]
        strange = strange or colour not in pairs
        return f' {name}="{pairs.get(colour, colour)}"'

    # Tags alone: what a run is called stands between them, and may look like a colour.
    dark = _TAG.sub(lambda tag: _PAINT.sub(repainted, tag[0]), svg)
    return None if strange else dark


@functools.cache
def _pairs() -> Mapping[str, str]:
    return counterparts()


def numbered(svg: str) -> str:
    """The same picture, whose names of clips and gradients count from nought: one process gives them on and on."""
    names = dict[str, str]()

    def renamed(found: re.Match[str]) -> str:
        kind, old = found[2], found[2] + found[3]
        return found[1] + names.setdefault(old, f"{kind}{sum(name.startswith(kind) for name in names.values())}")

    return _TAG.sub(lambda tag: re.sub(r'((?: id="|url\(#))(clip|gradient_)(\d+)', renamed, tag[0]), svg)
