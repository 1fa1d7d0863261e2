"""Tables before they are HTML, Markdown or LaTeX: plain text in cells, and numbers as people write them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.runs.costs import MEASURED, decimals
from polyrhythm.runs.paired import Difference

NONE = "–"
"""What stands where there is no number."""

_NOISE = 1e-12  # of a mean: what rounding leaves of numbers that are equal
_PREFIXES = {1e-9: "n", 1e-6: "µ", 1e-3: "m", 1.0: "", 1e3: "k", 1e6: "M", 1e9: "G", 1e12: "T", 1e15: "P"}


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """A table in plain text. Its first column says what a row is about.

    Args:
        name: short, unique in a report; in LaTeX the label.
        caption: what is in it, as a sentence.
        head: of the columns.
        rows: their texts.
        marked: (row, column) of texts that are to stand out.
        numbers: whether all columns but the first hold numbers; else they hold words.
        code: whether words are what a computer reads.
    """

    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[tuple[int, int]] = frozenset()
    numbers: bool = True
    code: bool = False


def marked(method: str, unfinished: int) -> str:
    """The name of a method; with a dagger if some of its runs did not end as planned."""
    return f"{method} †" if unfinished else method


HOLDS_ZERO = "°"
"""Behind an interval that holds 0."""

UNFINISHED = "† not all of its runs ended as planned."


def score(value: float | None) -> str:
    """A metric, with four digits."""
    return NONE if value is None else decimals(value).replace("-", "−", 1) if value < 0 else decimals(value)


def signed(value: float, *, digits: int, plus: bool = True) -> str:
    """A number with a true minus sign, and a plus for a gain; none for what rounds to zero."""
    text = f"{abs(value):.{digits}f}"
    if not float(text):
        return text
    return f"−{text}" if value < 0 else f"+{text}" if plus else text


def scores(spread: Mapping[str, Any], of: int) -> str:
    """A metric over seeds: mean ± sample standard deviation, and of how many if not of all."""
    if spread["mean"] is None:
        return NONE
    sd = "" if spread["sd"] is None else f" ± {decimals(spread['sd'])}"
    return f"{score(spread['mean'])}{sd}" + (f" ({spread['n']} of {of})" if spread["n"] < of else "")


def gain(found: Difference) -> str:
    """A paired difference and its interval, and a mark if that holds 0."""
    if found.mean is None:
        return NONE
    mean = signed(found.mean, digits=4)
    if found.low is None or found.high is None:
        return mean
    interval = f"[{signed(found.low, digits=4)}, {signed(found.high, digits=4)}]"
    return f"{mean} {interval}{HOLDS_ZERO if found.holds_zero else ''}"


def chance(p: float | None) -> str:
    """A p-value.

    >>> chance(0.0421), chance(0.00004), chance(1.0), chance(None)
    ('0.042', '< 0.001', '1.000', '–')
    """
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def scale(values: Iterable[float | None], unit: str) -> float:
    """What to divide numbers of a unit by, so that the largest lies between 1 and 1,000; seconds stay seconds."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    fits = [step for step in _PREFIXES if step <= largest and (unit != "s" or step <= 1.0)]
    return max(fits, default=1.0) if unit in MEASURED else 1.0


def headed(name: str, unit: str, divisor: float) -> str:
    """The head of numbers that are given in a unit: traffic (MB)."""
    return f"{name} ({_PREFIXES[divisor]}{unit})" if unit in (*MEASURED, "%") else name


def amounts(spread: Mapping[str, Any], divisor: float = 1.0, factor: float = 1.0) -> str:
    """A cost over seeds, rounded to where its deviation begins, three digits without one."""
    if spread["mean"] is None:
        return NONE
    mean, sd = spread["mean"] * factor / divisor, (spread["sd"] or 0.0) * factor / divisor
    if sd <= _NOISE * abs(mean):
        sd = 0.0
    digits = _digits(sd, 2) if sd else _digits(mean, 3)
    return f"{mean:,.{digits}f}" + (f" ± {sd:,.{digits}f}" if sd else "")


def _digits(value: float, meant: int) -> int:
    """Decimals that show so many digits of a number; none that say nothing."""
    if not value or (float(value).is_integer() and meant > 2):
        return 0
    return min(6, max(0, meant - 1 - math.floor(math.log10(abs(value)))))


def rows(lines: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Rows of a table."""
    return tuple(tuple(line) for line in lines)
