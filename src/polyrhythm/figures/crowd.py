"""Lines of many methods: those that end best in colour, the others in grey behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyrhythm.figures.theme import HUES, Style, Theme, style

MANY = 8
"""Lines that can still be told apart by colour: as many as there are hues for methods."""
BEST = 5
"""Lines in colour where there are more, beside that of the method that others are compared with."""


def foremost(ends: Mapping[str, float], falling: bool, baseline: str) -> list[str]:
    """The methods that end best, the best one first, and the baseline; none where all can be told apart.

    >>> foremost({str(i): i / 10 for i in range(9)}, falling=False, baseline="0")
    ['8', '7', '6', '5', '4', '0']

    Args:
        ends: what each method came to.
        falling: whether less is better.
        baseline: the method that others are compared with.
    """
    if len(ends) <= MANY:
        return []
    best = sorted(ends, key=lambda name: ends[name], reverse=not falling)[:BEST]
    return best if baseline in best or baseline not in ends else [*best, baseline]


def set_apart(styles: Mapping[str, Style], chosen: Sequence[str], theme: Theme) -> dict[str, Style]:
    """The looks of methods of which some are chosen: each of these of a hue that no other has, solid; all others grey.

    A hue is the method's own wherever no better one has it.
    """
    grey = HUES["grey"][theme]
    looks = {name: look._replace(colour=grey, dash=(1, 0), fill=grey) for name, look in styles.items()}
    free = [style(place, theme) for place in range(MANY)]
    for name in chosen:
        look = next((one for one in free if one.colour == styles[name].colour), free[0])
        free.remove(look)
        looks[name] = look
    return looks


def in_words(chosen: Sequence[str], count: int, baseline: str) -> str:
    """What is in colour, for those who look."""
    others = f"grey: {count - len(chosen)} others"
    if baseline in chosen[:BEST]:
        return f"in colour: the {BEST} that end best; {others}"
    return f"in colour: the {BEST} that end best, and {baseline}; {others}"
