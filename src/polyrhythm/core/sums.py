"""Sums at the server: who was invited to be in one, and what is read of it when a version is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor

from polyrhythm.base.messages import Assignment, Facts, Report, Roster, State
from polyrhythm.base.vectors import Layout
from polyrhythm.core.sealing import summed, without
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum import summands

Cohort = tuple[tuple[int, int], ...]
"""(dispatch, client) of all that were invited to be in a sum, in order."""


def with_cohort(recipe: Recipe, parts: Mapping[str, State], assignments: Sequence[Assignment]) -> Mapping[str, State]:
    """The mechanisms' states once these are invited to be in the next sum."""
    key = recipe.key_of(recipe.compression)
    invited = tuple((a.dispatch, a.client) for a in assignments if a.kind == "train")
    return {**parts, key: {**parts[key], "cohort": invited}}


def with_clip(recipe: Recipe, parts: Mapping[str, State]) -> Mapping[str, State]:
    """The mechanisms' states with what clients of the next sum must clip to, where they are hidden in it."""
    if (hiding := recipe.releasing.hiding) is None:
        return parts
    key = recipe.key_of(recipe.compression)
    return {**parts, key: {**parts[key], "clip": hiding[1].clip_in_sums(parts[hiding[0]])}}


def cohort_of(recipe: Recipe, parts: Mapping[str, State]) -> Cohort:
    """Who was invited to be in the next sum."""
    cohort: Cohort = parts[recipe.key_of(recipe.compression)]["cohort"]
    return cohort


@final
@dataclass(frozen=True, kw_only=True)
class Opened:
    """A sum that the server has read.

    Args:
        reports: those whose updates are in it, without them.
        total: the sum, float64 [P]; None where it cannot be read.
        why: why not.
        tally: what is counted beside it.
    """

    reports: tuple[Report, ...]
    total: Tensor | None
    why: str = ""
    tally: float = 0.0


def opened(
    recipe: Recipe, setup: Setup, layout: Layout, roster: Roster, version: int, reports: tuple[Report, ...]
) -> Opened:
    """The sum of a version's updates, which clients help to read."""
    bare, shared = tuple(map(without, reports)), recipe.scope.shared(layout)
    if not reports:
        return Opened(reports=(), total=layout.zeros().double())
    numbers = roster.unmask(version, tuple(r.client for r in reports), summed(reports))
    if numbers is None:
        why = f"secagg: too few clients are left to read the sum of {len(reports)} updates"
        if recipe.releasing.private:  # as of nobody: there is always a version, or it would tell of who took part
            return Opened(reports=(), total=layout.zeros().double(), why=f"{why}, so it is of noise alone")
        return Opened(reports=bare, total=None, why=why)
    total, tally = summands.total(recipe, setup, shared, numbers)
    return Opened(reports=bare, total=total, tally=tally)


def noted(recipe: Recipe, setup: Setup, layout: Layout, parts: Mapping[str, State], heard: int) -> dict[str, State]:
    """The mechanisms' states with what is told of a sum: who was missing, and what it cost each client."""
    key = recipe.key_of(recipe.compression)
    part, cohort = summands.part_of(recipe), cohort_of(recipe, parts)
    cost = part.ceremony(len(cohort), recipe.scope.shared(layout).parameters) if len(cohort) > 1 else None
    told = {"cohort": (), "missing": len(cohort) - heard, "seconds": 0.0 if cost is None else cost.seconds}
    return {**parts, key: {**parts[key], **told}}


def counted(recipe: Recipe, setup: Setup, facts: Sequence[Facts], shares: Sequence[float]) -> float:
    """By what a sum is divided to be the mean."""
    return summands.counted(recipe, facts, shares, setup.most_samples)
