"""What becomes of a part where the server has the sum of updates, and no single one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

NEEDS_SINGLE = "needs single updates, which the server never has"
"""Why a part is refused where only sums are known."""


@final
@dataclass(frozen=True, kw_only=True)
class SumEffect:
    """Effect of a part under `secagg`.

    Args:
        words: what it does there, as the end of "it …" or, if refused, why it cannot be.
        refused: whether it cannot be.
        fix: what to do then.
    """

    words: str
    refused: bool = False
    fix: str = ""


def works_in_sums(words: str = "never looks at what a single client sends") -> SumEffect:
    """What works where only sums are known."""
    return SumEffect(words=words)


def needs_single(what: str = "", fix: str = "") -> SumEffect:
    """What does not.

    Args:
        what: which of them, and what for.
        fix: what to do instead.
    """
    return SumEffect(words=f"{NEEDS_SINGLE}{': ' if what else ''}{what}", refused=True, fix=fix)


BLIND = works_in_sums()
"""The effect of what never looks at what a single client sends."""
ONLY_FACTS = works_in_sums("looks at who was heard, how much was done and how long it took, which the server knows")
"""The effect of what looks at the facts of a report."""
UNSAID = needs_single(
    "it looks at reports, and does not say at what in them",
    "if it looks at no more than who was heard and how much was done, say so: `in_sums = ONLY_FACTS` of "
    "polyrhythm.extend in its class",
)
"""The effect of a part that looks at reports and says nothing."""
