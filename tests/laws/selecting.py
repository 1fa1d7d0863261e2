"""Policies that choose by what they have heard, asked without a server: whom they invite, and what they are told."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any, final

import numpy as np
import torch

from polyrhythm.base.messages import Report, State
from polyrhythm.base.streams import Integers
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.participation.base import Either, InvitationContext, Invitations, Participation
from polyrhythm.methods.participation.critical_periods import CriticalPeriods
from polyrhythm.methods.recipe import Recipe
from polyrhythm.simulation.roster import OpenRoster


@final
class Present:
    """A roster of which some are away."""

    def __init__(self, num_samples: Sequence[int], away: Iterable[int] = ()) -> None:
        self._open, self.away = OpenRoster(len(num_samples), range(len(num_samples)), num_samples), frozenset(away)
        self.population = self.eligible = len(num_samples)

    def draw(self, count: int, generator: Integers, exclude: Container[int]) -> tuple[int, ...]:
        return self._open.draw(count, generator, Either(exclude, self.away))

    def draw_by_samples(self, count: int, generator: np.random.Generator, exclude: Container[int]) -> tuple[int, ...]:
        return self._open.draw_by_samples(count, generator, Either(exclude, self.away))

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(c for c in clients if c not in self.away)

    def samples(self) -> tuple[int, ...]:
        return self._open.samples()

    def all(self) -> tuple[int, ...]:
        return self._open.all()


def setup(population: int, seed: int = 0) -> Setup:
    return Setup(size=1, dtype=torch.float32, population=population, total_rounds=None, seed=seed)


def call(roster: Present, version: int = 0, **changes: Any) -> InvitationContext:
    return InvitationContext(
        **{"version": version, "weights": torch.zeros(1), "buffers": (), "roster": roster} | changes
    )


def report(client: int, version: int = 0, **changes: Any) -> Report:
    """A visit of one step that trained."""
    made: dict[str, Any] = {
        "dispatch": client,
        "client": client,
        "visit": 0,
        "version": version,
        "kind": "train",
        "recipe": "",
        "num_samples": 10,
        "update": torch.zeros(1),
        "steps": 1,
        "measures": {"squared_loss": 1.0},
    }
    return Report(**made | changes)


def told(policy: Participation, state: State, version: int, reports: Sequence[Report]) -> State:
    """The policy's state after a version made of these reports."""
    fixed, count = setup(1000), len(reports)
    for heard in reports:
        state = policy.accept(fixed, state, heard)
    release = Release(
        version=version,
        reports=tuple(reports),
        shares=(1 / max(1, count),) * count,
        scales=(1.0,) * count,
        weights=torch.zeros(1),
    )
    return policy.after_step(fixed, state, release)


def who(invitations: Invitations, kind: str = "train") -> list[int]:
    """Who is invited for that."""
    return [i.client for i in invitations if i.kind == kind]


def most(recipe: Recipe) -> int:
    """How many may be at work at the same time, for a cohort of 3; critical periods double it once."""
    doubled = any(isinstance(part, CriticalPeriods) for part in recipe.parts())
    return math.ceil((6 if doubled else 3) * recipe.releasing.surplus)
