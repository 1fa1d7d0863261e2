"""What can go wrong with a visit, by kind and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, final

FaultKind = Literal[
    "away",
    "battery",
    "crash",
    "dropout",
    "lost",
    "transit",
    "unfit",
    "duplicate",
    "not_asked",
    "other_version",
    "damaged",
    "dtype",
    "late",
    "missing",
    "no_step",
    "not_finite",
    "recipe",
    "samples",
    "shape",
    "too_far",
    "outlier",
]
"""What can go wrong with a visit, as it is counted: it was lost; its report was ignored, as nobody waits for it; it was
refused; or it was accepted and is only talked about."""


@final
class Fault(NamedTuple):
    """One thing that went wrong, in words."""

    kind: FaultKind
    words: str


WORDS: Mapping[FaultKind, str] = {
    "dropout": "given up",
    "crash": "device failed",
    "away": "went away",
    "battery": "battery empty",
    "transit": "lost on the way",
    "lost": "lost",
    "unfit": "of no use",
    "late": "late",
    "recipe": "of another recipe",
    "damaged": "damaged on the way",
    "shape": "of another shape",
    "dtype": "of another dtype",
    "missing": "incomplete",
    "samples": "impossible number of samples",
    "no_step": "without a step",
    "not_finite": "not finite",
    "too_far": "beyond the limit",
    "duplicate": "came again",
    "not_asked": "not asked for",
    "other_version": "of another version",
    "outlier": "accepted, but an outlier",
}
"""What each kind of fault is called, in the order in which they are told: lost, refused, ignored, talked about."""

LOST: frozenset[FaultKind] = frozenset({"dropout", "crash", "away", "battery", "transit", "lost"})
"""Visits of which nothing came. Of any other that is lost an answer has come, and was no good."""

IGNORED: tuple[FaultKind, ...] = ("duplicate", "not_asked", "other_version")
"""Reports that nobody waits for."""


def told(faults: Mapping[str, int]) -> str:
    """Such as "3 not finite, 2 came again"; empty if nothing went wrong."""
    return ", ".join(f"{faults[kind]:,} {words}" for kind, words in WORDS.items() if faults.get(kind))
