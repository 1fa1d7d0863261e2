"""Colours and what stands around the data, light and dark.

The hues are Okabe and Ito's, with brown for their black. Their shades are such that on each theme any two are told
apart by people with every kind of colour vision, and none is faint: tests simulate it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

Theme = Literal["light", "dark"]
"""What a figure is drawn on."""

THEMES: tuple[Theme, ...] = get_args(Theme)

HUES: Mapping[str, Mapping[Theme, str]] = {
    "blue": {"light": "#0D629E", "dark": "#4DA6DB"},
    "vermilion": {"light": "#9E1A02", "dark": "#EB7A27"},
    "green": {"light": "#18A662", "dark": "#1FBF92"},
    "orange": {"light": "#C36402", "dark": "#E69F00"},
    "sky": {"light": "#079CF3", "dark": "#8CCBF2"},
    "purple": {"light": "#9D3D6F", "dark": "#DC93BF"},
    "brown": {"light": "#836037", "dark": "#A5714A"},
    "yellow": {"light": "#8EA03A", "dark": "#F0E442"},
    "grey": {"light": "#BBBBBB", "dark": "#6E6E6E"},
    "ink": {"light": "#000000", "dark": "#FFFFFF"},
}
"""Shades by hue and theme. Grey is for what did not happen, ink for words and rules: never for a method, since what
is black on one theme and white on the other is no colour that a reader could remember."""

_OF_METHODS = [hue for hue in HUES if hue not in ("grey", "ink")]
_DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3))
_SHAPES = ("circle", "square", "triangle-up", "diamond")
_FILLS = (1.0, 0.5, 0.2, 0.0)
PAPER: Mapping[Theme, str] = {"light": "#FFFFFF", "dark": "#15181C"}
WORDS: Mapping[Theme, str] = {"light": "#1A1A1A", "dark": "#ECECEC"}
ASIDE: Mapping[Theme, str] = {"light": "#777777", "dark": "#A0A0A0"}
"""Of what goes along with the data, and is none of it."""
_FAINT: Mapping[Theme, str] = {"light": "#555555", "dark": "#B4B4B4"}
_GRID: Mapping[Theme, str] = {"light": "#E4E4E4", "dark": "#31363C"}


class Style(NamedTuple):
    """How a method looks, wherever it is drawn."""

    colour: str
    dash: tuple[int, ...]
    """Of lines."""
    shape: str
    """Of points."""
    fill: str
    """Of areas, whose edges have the colour: the paler, the later."""


def style(place: int, theme: Theme = "light") -> Style:
    """The look of the method that came first, second, … in a folder: eight colours, then dashes, shapes and fills."""
    hue, again = _OF_METHODS[place % len(_OF_METHODS)], place // len(_OF_METHODS) % len(_DASHES)
    colour = HUES[hue][theme]
    return Style(colour, _DASHES[again], _SHAPES[again], mixed(colour, PAPER[theme], _FILLS[again]))


def mixed(one: str, two: str, share: float) -> str:
    """A shade between two, with a share of the first.

    >>> mixed("#FF0000", "#FFFFFF", 0.5)
    '#FF8080'
    """
    parts = ((int(one[i : i + 2], 16), int(two[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02X}" for a, b in parts)


LOOKS = len(_OF_METHODS) * len(_DASHES)
"""How many methods have a look of their own."""


def counterparts() -> dict[str, str]:
    """Each colour of the light theme with the one that stands for it on the dark theme."""
    pairs = [(of["light"], of["dark"]) for of in (*HUES.values(), PAPER, WORDS, ASIDE, _FAINT, _GRID)]
    fills = [(style(place, "light").fill, style(place, "dark").fill) for place in range(LOOKS)]
    return dict(pairs) | dict(fills)


def shades(hues: Sequence[str], theme: Theme) -> list[str]:
    """The shades of some hues on a theme."""
    return [HUES[hue][theme] for hue in hues]


def config(theme: Theme) -> dict[str, Any]:
    """Vega's configuration for a theme: background, text and grid; nothing of the data."""
    ink, faint, grid = WORDS[theme], _FAINT[theme], _GRID[theme]
    text = {"labelColor": faint, "titleColor": ink, "labelFontSize": 11, "titleFontSize": 12}
    return {
        "background": PAPER[theme],
        "font": "sans-serif",
        "padding": 10,
        "aria": False,  # descriptions of each mark for screen readers make a file thrice as large
        "title": {
            "color": ink,
            "subtitleColor": faint,
            "fontSize": 14,
            "subtitleFontSize": 11,
            "fontWeight": "bold",
            "anchor": "start",
            "offset": 10,
        },
        # What a picture was measured with is not always what it is shown with: room for a wider font.
        "axis": {
            **text,
            "labelSeparation": 8,
            "titleFontWeight": "normal",
            "gridColor": grid,
            "domainColor": faint,
            "tickColor": faint,
        },
        "legend": {
            **text,
            "orient": "bottom",
            "labelLimit": 0,
            "columnPadding": 32,
            "symbolSize": 120,
            "titleFontWeight": "normal",
        },
        "header": {"labelColor": ink, "titleColor": ink},
        "view": {"stroke": None},
    }
