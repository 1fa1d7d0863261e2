"""Turns in a fixed order, a limit on visits, and the noise that they allow to be correlated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from hypothesis import strategies as st

from polyrhythm import parts
from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.papers import fedavg, fedbuff
from polyrhythm.methods.participation.at_most import AtMost
from polyrhythm.methods.participation.base import InvitationContext, Uniform, to_train
from polyrhythm.methods.participation.cycle import Cycle
from polyrhythm.methods.privacy import correlated
from polyrhythm.methods.privacy.accounting import Sampling
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release import differential_privacy
from polyrhythm.methods.release.differential_privacy import Dp, noise
from polyrhythm.methods.weighing import Equal
from polyrhythm.simulation.roster import OpenRoster

from .law import law, swap
from .test_participation import asked, call_of
from .trials import Trial, trials
from .world import Federation, near, run, same

SETUP = Setup(size=6, dtype=torch.float64, population=20, total_rounds=9, seed=0, places=())
FOUR = Federation(sizes=(5, 12, 7, 9))


def _shuffled_anew(self: Cycle, s: Setup, state: Any, context: InvitationContext) -> Any:
    everybody, turns = context.roster.all(), max(1, len(context.roster.all()) // self.size)
    order = stream(s.seed, "cohort", "cycle", context.version // turns).permutation(len(everybody))
    first = context.version % turns * self.size
    return state, to_train(everybody[i] for i in order[first : first + self.size])


def _makes_up(self: Cycle, s: Setup, state: Any, context: InvitationContext) -> Any:
    order = stream(s.seed, "cohort", "cycle").permutation(s.population)
    rest = [int(c) for c in np.roll(order, -context.version * self.size)]
    return state, to_train(context.roster.present(tuple(rest))[: self.size])


@final
class OddAway(OpenRoster):
    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(c for c in clients if c % 2 == 0)


@law(
    population=st.integers(2, 30),
    cohort=st.integers(1, 8),
    seed=st.integers(0, 20),
    examples=30,
    broken_by={
        "shuffled anew in every cycle": swap(Cycle, "invite", _shuffled_anew),
        "whoever is away is made up for": swap(Cycle, "invite", _makes_up),
    },
)
def test_turns_of_a_client_are_so_many_versions_apart_and_nobody_takes_them(
    population: int, cohort: int, seed: int
) -> None:
    cohort, setup = min(cohort, population), replace(SETUP, population=population, seed=seed)
    part, everybody = Cycle(cohort=cohort), range(population)
    drawn = [asked(part, setup, {}, call_of(OpenRoster(population, everybody), v))[1] for v in range(3 * population)]
    assert all(len(set(turn)) == cohort for turn in drawn)
    for client in everybody:
        versions = [v for v, turn in enumerate(drawn) if client in turn]
        assert len(versions) == 3 * cohort, "everybody equally often"
        assert min(np.diff(versions), default=population) >= population // cohort
    away = [asked(part, setup, {}, call_of(OddAway(population, everybody), v))[1] for v in range(3 * population)]
    assert away == [tuple(c for c in turn if c % 2 == 0) for turn in drawn]
    busy = asked(part, setup, {}, call_of(OpenRoster(population, everybody), 0, frozenset(drawn[0][:1])))[1]
    assert busy == drawn[0][1:]


@law(
    trial=trials(everybody=True),
    broken_by={"one short": swap(Cycle, "size", property(lambda self: max(1, (self.cohort or 2) - 1)))},
)
def test_turns_of_everybody_are_the_plain_round(trial: Trial) -> None:
    everybody = trial.recipe(Equal())
    population = len(trial.federation.sizes)
    turns = run(everybody | Cycle(cohort=population), trial.federation)
    assert near(turns.weights, run(everybody, trial.federation).weights, 1e-5)


def _never_full(self: AtMost, s: Setup, state: Any, context: InvitationContext) -> InvitationContext:
    return context


def _visits(story: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for client, record in story.states[-1].clients.items():
        found[client] = record.visits
    return found


@law(
    limit=st.integers(1, 3),
    recipe=st.sampled_from(
        (fedavg(cohort=2, epochs=1, batch=4), fedbuff(concurrency=2, buffer=2, epochs=1, batch=4)),
    ),
    seed=st.integers(0, 10),
    examples=8,
    broken_by={"nobody has been often enough": swap(AtMost, "asked", _never_full)},
)
def test_nobody_is_invited_more_often_than_that_and_a_wide_limit_changes_nothing(
    limit: int, recipe: Recipe, seed: int
) -> None:
    federation, versions = replace(FOUR, seed=seed), 2 * limit - 1
    story = run(recipe | AtMost(visits=limit), federation, versions=versions)
    assert max(_visits(story).values()) <= limit
    free = run(recipe, federation, versions=versions)
    assert same(run(recipe | AtMost(visits=99), federation, versions=versions).weights, free.weights)


def empty(version: int) -> Release:
    return Release(version=version, reports=(), shares=(), scales=(), weights=torch.zeros(6, dtype=torch.float64))


def released(part: Dp, seed: int, versions: int = 9) -> torch.Tensor:
    """What `dp` adds in versions of nobody, in clips on the sum [T, P]."""
    setup = replace(SETUP, seed=seed, total_rounds=versions, sampling=SAMPLING)
    state, found = part.server_start(setup), []
    for version in range(versions):
        state, mean = part.private_mean(setup, state, empty(version))
        found.append(mean * SAMPLING.cohort / part.clip)  # type: ignore[operator]
    return torch.stack(found)


SAMPLING = Sampling(law="banded", population=20, cohort=4.0, bands=3)


@law(
    seed=st.integers(0, 20),
    bands=st.sampled_from((2, 3, 5)),
    examples=6,
    broken_by={
        "nothing is taken back": swap(correlated, "after", lambda fresh, earlier, bands: fresh),
        "columns of any length": swap(correlated, "length", lambda bands, version, versions: 1.0),
        "a version's draw in all of them": swap(
            differential_privacy, "noise", lambda setup, version, dtype: noise(setup, 0, dtype)
        ),
    },
)
def test_times_c_it_is_independent_noise_again(seed: int, bands: int) -> None:
    part = Dp(noise=2.0, clip=0.25, bands=bands)
    found = released(part, seed)
    fresh = torch.stack([noise(replace(SETUP, seed=seed), version, torch.float64) for version in range(9)])
    matrix = torch.zeros(9, 9, dtype=torch.float64)
    for column in range(9):
        band = torch.tensor(correlated.coefficients(bands)[: 9 - column], dtype=torch.float64)
        matrix[column : column + bands, column] = band / band.norm()
    assert near(matrix @ found, 2.0 * fresh, 1e-9)
    plain = released(Dp(noise=2.0, clip=0.25), seed)
    assert near(released(Dp(noise=2.0, clip=0.25, bands=1), seed), plain, 1e-12)
    assert not near(found, plain, 1e-6)


def _refusal(recipe: Recipe, setup: Setup | None = None) -> str:
    try:
        whole = recipe.whole()
        if setup is not None:
            whole.server_start(setup)
    except UserError as refused:
        return f"{refused.found}: {refused.why}" if refused.why else ""
    return ""


TURNS = fedavg(cohort=3) | Equal() | Cycle()
BANDED = TURNS | Dp(bands=4)
WITH: dict[str, tuple[Settings, ...]] = {
    "uniform": (Uniform(),),
    "sweep": (parts.sweep(),),
    "buffer": (parts.buffer(size=2),),
    "rolling": (parts.rolling(), parts.buffer(size=2)),
    "over_select": (parts.over_select(),),
    "random_resize": (parts.random_resize(),),
    "an adaptive clip": (Dp(bands=4, clip=Adaptive()),),
}


@law(
    name=st.sampled_from(sorted(WITH)),
    cases=[{"name": name} for name in WITH],
    broken_by={"whatever": swap(Dp, "correlates", property(lambda self: False))},
)
def test_bands_are_refused_where_visits_may_be_nearer(name: str) -> None:
    recipe = TURNS
    for part in WITH[name]:
        recipe = recipe | part
    recipe = recipe if name == "an adaptive clip" else recipe | Dp(bands=4)
    assert _refusal(recipe).startswith(f"dp(bands=4) with {name}: ")


@law(broken_by={"any number of bands": swap(Dp, "correlates", property(lambda self: False))})
def test_more_bands_than_there_are_turns_are_refused() -> None:
    setup = replace(SETUP, population=11)
    assert _refusal(BANDED, setup).startswith("dp(bands=4), where 11 clients take turns of 3: ")
    assert _refusal(BANDED, replace(SETUP, population=12)) == ""
    assert BANDED.sampling(replace(SETUP, population=12)).law == "banded"
