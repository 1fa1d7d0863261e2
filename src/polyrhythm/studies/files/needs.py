"""What an experiment needs that is not at hand: data, or a faster machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from polyrhythm.config.expressions import Call, parse_call
from polyrhythm.data.sources import cifar, idx
from polyrhythm.models.catalogue import AROUND
from polyrhythm.studies.definition import Study

_SLOW = ("alexnet", "vgg11", "resnet9", "resnet18", "resnet50", "char_lstm")
"""Models that take days at a paper's own size without a GPU."""

_IN_THE_CACHE: Mapping[str, Callable[[], bool]] = {
    "cifar10": lambda: cifar.at_hand("cifar10"),
    "cifar100": lambda: cifar.at_hand("cifar100"),
    "fashion-mnist": lambda: idx.at_hand("fashion-mnist"),
    "mnist": lambda: idx.at_hand("mnist"),
}


def data(of: Study) -> dict[str, bool]:
    """The data of the paper's scale by name, and whether they are on this machine. Nothing is read or fetched."""
    return {call.name.replace("_", "-"): _at_hand(call) for call in _calls(of, "data", "digits")}


def slow(of: Study) -> bool:
    """Whether the paper's scale takes days without a GPU, by its models."""
    return any(_inner(call) in _SLOW for call in _calls(of, "model", "mlp"))


def in_words(of: Study, *, everywhere: bool = False) -> str:
    """What the paper's scale needs beside what is here; "" if nothing.

    Args:
        of: the study.
        everywhere: whether its words are for a reader elsewhere: then what is here does not matter.
    """
    if of.unknown:
        return ""
    lacking = [] if everywhere else [f"{name}, which is not here" for name, here in data(of).items() if not here]
    return "; ".join(lacking + (["days, or a GPU"] if slow(of) else []))


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


def _inner(call: Call) -> str:
    """The name of a model, or of what it is built around."""
    inside: Any = call.positional[0] if call.positional else call.named.get("model")
    if call.name.replace("-", "_") in AROUND:
        return _inner(inside) if isinstance(inside, Call) else str(inside).replace("-", "_")
    return call.name.replace("-", "_")
