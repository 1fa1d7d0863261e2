"""Findings of a study, before they are written on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from polyrhythm.results.tables import Table

__all__ = ["Findings", "Outcome", "Picture", "Table"]

Verdict = Literal["holds", "holds on average", "holds, one seed", "not decided", "differs", "differs, one seed"]


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a claim.

    Args:
        says: the claim.
        verdict: of the weakest column. "holds" and "differs" where the confidence interval lies on that side of what is
            claimed; "holds on average" and "not decided" where the mean agrees or does not, and chance could have made
            it so; with a single seed there is no interval.
        evidence: the numbers, in words.
        ours: whether the study adds it to what the paper claims.
    """

    says: str
    verdict: Verdict
    evidence: str
    ours: bool = False


def holding(outcomes: Sequence[Outcome]) -> str:
    """How many claims hold, in words; those that hold on average only are counted apart, and so are those of ours."""
    own = [outcome for outcome in outcomes if outcome.ours]
    told = _counted([outcome for outcome in outcomes if not outcome.ours], "claims hold")
    return "; ".join(filter(None, (told, _counted(own, "of ours"))))


def _counted(outcomes: Sequence[Outcome], what: str) -> str:
    if not outcomes:
        return ""
    on_average = sum(outcome.verdict == "holds on average" for outcome in outcomes)
    surely = sum(outcome.verdict.startswith("holds") for outcome in outcomes) - on_average
    return f"{surely} of {len(outcomes)} {what}" + (f", {on_average} more on average" if on_average else "")


@final
@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure.

    Args:
        title: of it.
        file: of it, an SVG.
        about: how to read it.
    """

    title: str
    file: Path
    about: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was found.

    Args:
        verdict: in a few words.
        tables: numbers.
        claims: what came of them.
        pictures: figures.
        notes: what a reader should know.
        so_far: how far the runs are, in words, of a page that was made before they were over.
    """

    verdict: str = ""
    tables: tuple[Table, ...] = ()
    claims: tuple[Outcome, ...] = ()
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()
    so_far: tuple[str, ...] = ()
