"""What a study needs at its own size that is not at hand: data, and time."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from polyrhythm.config.expressions import Call, parse_call
from polyrhythm.data.sources import cifar, idx
from polyrhythm.studies.definition import Study

COSTS = "costs.json"
_LONG = 24.0  # hours of one processor from which on a study is slow

_IN_THE_CACHE: Mapping[str, Callable[[], bool]] = {
    "cifar10": lambda: cifar.at_hand("cifar10"),
    "cifar100": lambda: cifar.at_hand("cifar100"),
    "fashion-mnist": lambda: idx.at_hand("fashion-mnist"),
    "mnist": lambda: idx.at_hand("mnist"),
}


def data(of: Study) -> dict[str, bool]:
    """The data of the paper's scale by name, and whether they are on this machine. Nothing is read or fetched."""
    return {call.name.replace("_", "-"): _at_hand(call) for call in _calls(of, "data", "digits")}


@functools.cache
def costs() -> Mapping[str, Any]:
    """What the papers' studies take at their own size, by `docs/measure_costs.py`: when, on what machine, and each."""
    text = importlib.resources.files(__package__).joinpath(COSTS).read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def hours(of: Study) -> float | None:
    """Hours of one processor that the paper's scale takes, as measured on the machine of `costs`; None if unknown."""
    found = costs()["studies"].get(of.name)
    return None if found is None else float(found["hours"])


def duration(hours: float) -> str:
    """Hours in words.

    >>> duration(0.251), duration(3.14), duration(1234.5)
    ('15 min', '3.1 h', '1,234 h')
    """
    return f"{60 * hours:.0f} min" if hours < 1.0 else f"{hours:.1f} h" if hours < 10.0 else f"{hours:,.0f} h"


def slow(of: Study) -> bool:
    """Whether the paper's scale takes more than a day of one processor, as measured."""
    return (hours(of) or 0.0) > _LONG


def in_words(of: Study, *, everywhere: bool = False) -> str:
    """What the paper's scale needs beside what is here; "" if nothing.

    Args:
        of: the study.
        everywhere: whether its words are for a reader elsewhere: then what is here does not matter.
    """
    if of.unknown:
        return ""
    lacking = [] if everywhere else [f"{name}, which is not here" for name, here in data(of).items() if not here]
    known = hours(of)
    return "; ".join(lacking + ([] if known is None else [f"{duration(known)} of one processor"]))


def _calls(of: Study, key: str, default: str) -> Iterator[Call]:
    """What a key is anywhere in a file, without what scales put in its place."""
    if of.program:
        return
    own = [of.make.values.get(key, default), *(s[key] for s in (*of.rows.values(), *of.columns.values()) if key in s)]
    for text in dict.fromkeys(map(str, own)):
        yield parse_call(text)


def _at_hand(call: Call) -> bool:
    name = call.name.replace("_", "-")
    given = [call.named[key] for key in ("folder", "path") if call.named.get(key) is not None] or list(call.positional)
    if given:
        return Path(str(given[0])).expanduser().exists()
    return _IN_THE_CACHE[name]() if name in _IN_THE_CACHE else True
