"""Spaces: what a search may set, and how settings are drawn from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.base.streams import stream

Setting = Mapping[str, Any]
"""A value for each key."""
_DIGITS = 6  # of a drawn number: nobody can read more of them, and no result depends on them


@final
@dataclass(frozen=True, kw_only=True)
class Range(Settings):
    """All numbers from `low` to `high`, both included; whole ones if both are.

    Args:
        low: the least.
        high: the largest.
        log: whether its logarithm is drawn, so that each order of magnitude is as likely as any other.

    Raises:
        UserError: nothing lies between them, or the logarithm of what is not positive.
    """

    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high or (self.log and self.low <= 0):
            raise UserError(
                f"a range from {self.low} to {self.high}{', log = true' if self.log else ''}",
                expected="low < high" + (", both above 0" if self.log else ""),
                why="values are drawn from between them",
                fix="exchange or correct them; a single value needs no range",
            )

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, place: float) -> int | float:
        """The number at a place between 0 and 1.

        >>> Range(low=0.001, high=10.0, log=True).at(0.5), Range(low=1, high=4).at(0.99)
        (0.1, 4)
        """
        if self.whole:
            low, high = self.low - 0.5, self.high + 0.5
            value = math.exp(_between(math.log(low), math.log(high), place)) if self.log else _between(low, high, place)
            return int(min(max(round(value), self.low), self.high))
        if self.log:
            return self.rounded(math.exp(_between(math.log(self.low), math.log(self.high), place)))
        return self.rounded(_between(self.low, self.high, place))

    def rounded(self, value: float) -> float:
        """A number to six digits, still inside."""
        return float(min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high))


Space = Mapping[str, Range | tuple[Any, ...]]
"""For each key the values it may have: those of a tuple, or all of a range."""


def size(space: Space) -> int | None:
    """How many settings there are; None if nobody can count them."""
    lists = [values for values in space.values() if isinstance(values, tuple)]
    return math.prod(map(len, lists)) if len(lists) == len(space) else None


def grid(space: Space) -> Iterator[Setting]:
    """Every setting, the last key changing fastest. There must be no ranges.

    >>> [tuple(setting.values()) for setting in grid({"lr": (0.1, 1.0), "epochs": (1, 2)})]
    [(0.1, 1), (0.1, 2), (1.0, 1), (1.0, 2)]
    """
    lists = [values for values in space.values() if isinstance(values, tuple)]
    return (dict(zip(space, values, strict=True)) for values in itertools.product(*lists))


def drawn(space: Space, trials: int, seed: int) -> list[Setting]:
    """Settings at random: the first `trials` of one sequence, so that asking for more changes none.

    Each value has a draw of its own, named by its trial and key. From lists alone settings are drawn without
    replacement, so that none comes twice.
    """
    many = size(space)
    if many is not None:
        order = stream(seed, "search", "grid").permutation(many)[:trials]
        return [_numbered(space, int(number)) for number in order]
    return [
        {key: _draw(values, float(stream(seed, "search", number, key).random())) for key, values in space.items()}
        for number in range(trials)
    ]


def _numbered(space: Space, number: int) -> Setting:
    """The setting of a number in the grid."""
    found: dict[str, Any] = {}
    for key, values in reversed(list(space.items())):
        assert isinstance(values, tuple)
        number, place = divmod(number, len(values))
        found[key] = values[place]
    return {key: found[key] for key in space}


def _draw(values: Range | tuple[Any, ...], place: float) -> Any:
    return values.at(place) if isinstance(values, Range) else values[int(place * len(values))]


def _between(low: float, high: float, place: float) -> float:
    return low + (high - low) * place
