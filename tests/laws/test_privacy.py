"""What hides a client: nothing where it is off, a bound on what one client does, noise whatever comes, an account."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import or_
from typing import Any, final

import torch
from hypothesis import strategies as st

from polyrhythm import parts
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.settings import Settings
from polyrhythm.core import server as core_server
from polyrhythm.core import versions
from polyrhythm.fleet import Faults, Fleet, Markov
from polyrhythm.methods import papers
from polyrhythm.methods.mechanism import Mechanism, Release, Setup
from polyrhythm.methods.papers import fedavg, fedbuff
from polyrhythm.methods.participation.at_most import AtMost
from polyrhythm.methods.participation.base import Sweep, Uniform
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, GradientNorm, RandomResize, ReleasedNorm
from polyrhythm.methods.participation.poisson import Poisson
from polyrhythm.methods.participation_intervals import ParticipationIntervals
from polyrhythm.methods.privacy import accounting, laws
from polyrhythm.methods.privacy.account import counted
from polyrhythm.methods.privacy.accounting import Sampling
from polyrhythm.methods.privacy.effects import AFTER, LAWS, PrivacyEffect, timed
from polyrhythm.methods.privacy.laws import law_of
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release import differential_privacy
from polyrhythm.methods.release.base import Deadline, MinReports, ReleaseModifier
from polyrhythm.methods.release.differential_privacy import Dp, noise
from polyrhythm.methods.server_step import Adam
from polyrhythm.methods.weighing import BySamples, Equal, PerStep
from polyrhythm.simulation.roster import OpenRoster

from .law import law, swap
from .test_participation import asked, call_of
from .trials import Misfortune, Trial, misfortunes, spoiled, trials
from .world import Federation, Run, near, play, run, same

# What mutants wrap.
_MEAN, _INVITE, _EFFECT = Dp.private_mean, Poisson.invite, Mechanism.under_privacy

FOUR = Federation(sizes=(5, 12, 7, 9))
SETUP = Setup(size=6, dtype=torch.float64, population=20, total_rounds=None, seed=0, places=((0, 5),))
SAMPLING = Sampling(law="poisson", population=20, cohort=4.0, rate=0.2)


def private(*more: Settings, clip: float = 0.5, sigma: float = 0.3, cohort: int = 3) -> Recipe:
    """FedAvg of equal clients that are hidden."""
    recipe = fedavg(cohort=cohort, epochs=1, batch=4) | Equal() | Dp(noise=sigma, clip=clip)
    for part in more:
        recipe = recipe | part
    return recipe


def _shortened(self: Dp, setup: Setup, state: Any, release: Release) -> Any:
    state, mean = _MEAN(self, setup, state, release)
    return state, mean * 0.999


def _all_the_same(weight: float) -> Any:
    return lambda self, release, clip: (release.updates(), [weight] * len(release.updates()), 0)


def _of_those_heard(self: Dp, setup: Setup, state: Any, release: Release) -> Any:
    heard = {**state, "cohort": float(max(1, len(release.reports)))}
    return {**state, "versions": state["versions"] + 1}, _MEAN(self, setup, heard, release)[1]


@law(
    trial=trials(everybody=True),
    rest=st.sampled_from(((), (PerStep(),), (Adam(lr=0.01),))),
    broken_by={
        "a hair shorter": swap(Dp, "private_mean", _shortened),
        "clips all the same": swap(Dp, "clipped", _all_the_same(0.5)),
    },
)
def test_without_noise_and_with_a_wide_clip_it_is_the_plain_mean(trial: Trial, rest: tuple[Settings, ...]) -> None:
    plain = trial.recipe(Equal(), *rest)
    hidden = run(plain | Dp(noise=0, clip=1e9), trial.federation)
    assert near(hidden.weights, run(plain, trial.federation).weights, 1e-4)


@law(
    trial=trials(everybody=True),
    broken_by={"a hair shorter": swap(Dp, "private_mean", _shortened)},
)
def test_a_coin_that_always_falls_on_one_side_invites_everybody(trial: Trial) -> None:
    everybody = trial.recipe(Equal())
    assert near(run(everybody | Poisson(rate=1.0), trial.federation).weights, run(everybody, trial.federation).weights)
    hidden = everybody | Dp(noise=0.1, clip=0.5)
    assert near(run(hidden | Poisson(rate=1.0), trial.federation).weights, run(hidden, trial.federation).weights)
    plain = near(run(hidden, trial.federation).weights, run(everybody | Dp(noise=0), trial.federation).weights)
    assert not plain, "noise does something"


@law(
    clip=st.sampled_from((0.01, 0.1, 1.0)),
    cohort=st.integers(1, 4),
    examples=8,
    broken_by={"no clip": swap(Dp, "clipped", _all_the_same(1.0))},
)
def test_no_version_moves_further_than_its_clients_may(clip: float, cohort: int) -> None:
    story = run(private(clip=clip, sigma=0, cohort=cohort), FOUR)
    for before, after in zip(story.states, story.states[1:], strict=False):
        assert float((after.weights - before.weights).double().norm()) <= clip * (1 + 1e-5) + 1e-6


def heard(draws: Sequence[tuple[int, float, int]], scales: Sequence[float], *, without: int = -1) -> Release:
    """A release of updates of six weights, by (client, length, samples); one client's are nothing."""
    reports = []
    for number, (client, length, samples) in enumerate(draws):
        direction = torch.sin(torch.arange(6, dtype=torch.float64) * (client + 2) + number)
        direction[5] = 0.0
        update = direction * (0.0 if client == without else length / float(direction.norm()))
        given: dict[str, Any] = {"visit": 0, "version": 0, "kind": "train", "recipe": ""}
        reports.append(Report(dispatch=number, client=client, num_samples=samples, update=update, **given))
    count = len(reports)
    return Release(
        version=3,
        reports=tuple(reports),
        shares=(1 / count,) * count if count else (),
        scales=tuple(scales[:count]),
        weights=torch.zeros(6, dtype=torch.float64),
    )


_CLIENTS = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e6), st.integers(1, 1_000_000)), min_size=1, max_size=6)


def _clips_before_it_weighs(self: Dp, release: Release, clip: float) -> Any:
    updates = release.updates()
    short = [min(1.0, clip / max(1e-12, float(u.norm()))) for u in updates]
    return updates, [a * b for a, b in zip(short, release.scales, strict=True)], 0


def _by_samples(self: Dp, release: Release, clip: float) -> Any:
    return release.updates(), [float(report.num_samples) for report in release.reports], 0


@law(
    draws=_CLIENTS,
    scales=st.lists(st.floats(0, 100), min_size=6, max_size=6),
    cap=st.sampled_from((None, 1, 100)),
    adds=st.sampled_from((0.0, 0.7)),
    examples=60,
    broken_by={
        "clips before it scales": swap(Dp, "clipped", _clips_before_it_weighs),
        "divides by those heard": swap(Dp, "private_mean", _of_those_heard),
        "samples without a cap": swap(Dp, "clipped", _by_samples),
    },
)
def test_one_client_more_or_less_moves_the_mean_by_a_clip_at_most(
    draws: list[tuple[int, float, int]], scales: list[float], cap: int | None, adds: float
) -> None:
    part, clip, expected = Dp(noise=adds, clip=0.25, cap=cap), 0.25, SAMPLING.cohort
    state = part.server_start(replace(SETUP, sampling=SAMPLING))
    _, with_it = part.private_mean(SETUP, state, heard(draws, scales))
    for client in {client for client, *_ in draws}:
        # Its data are nothing: it answers zero. Or its coin falls on the other side: it does not answer.
        _, nothing = part.private_mean(SETUP, state, heard(draws, scales, without=client))
        rest = [(d, s) for d, s in zip(draws, scales, strict=False) if d[0] != client]
        fewer = heard([d for d, _ in rest], [s for _, s in rest])
        fewer = replace(fewer, reports=tuple(r for r in heard(draws, scales).reports if r.client != client))
        _, away = part.private_mean(SETUP, state, fewer)
        for other in (nothing, away):
            assert float((with_it - other).norm()) <= clip / expected * (1 + 1e-9)


@law(
    seed=st.integers(0, 20),
    version=st.integers(0, 5),
    cases=[{"seed": seed, "version": version} for seed, version in ((0, 0), (1, 3), (2, 1), (3, 5), (7, 2), (11, 4))],
    broken_by={
        "too little": swap(differential_privacy, "noise", lambda *given: noise(*given) * 0.99),
        "the same in every version": swap(
            differential_privacy, "noise", lambda setup, version, dtype: noise(setup, 0, dtype)
        ),
        "of those heard": swap(Dp, "private_mean", _of_those_heard),
    },
)
def test_noise_is_normal_and_of_the_stated_length_on_every_weight_and_on_no_padding(seed: int, version: int) -> None:
    from scipy.stats import kstest

    size, part = 80_000, Dp(noise=1.5, clip=0.4)
    setup = replace(SETUP, size=size, places=((0, 36_000), (40_000, 36_000)), seed=seed, sampling=SAMPLING)
    state, drawn = part.server_start(setup), []
    for number in (version, version + 1):
        empty = Release(
            version=number, reports=(), shares=(), scales=(), weights=torch.zeros(size, dtype=torch.float64)
        )
        state, mean = part.private_mean(replace(setup, sampling=None), state, empty)
        assert not mean[36_000:40_000].any()
        assert not mean[76_000:].any()
        drawn.append(torch.cat([mean[:36_000], mean[40_000:76_000]]) / (1.5 * 0.4 / SAMPLING.cohort))
    assert state["versions"] == 2
    for one in drawn:
        assert kstest(one.double().numpy(), "norm").pvalue > 0.01
    both = torch.cat(drawn).double()
    # Two-sided, p > 0.01 for the variance of 144,000 draws; of the seeds here, which are fixed, none is beyond.
    assert abs(float(both.square().mean()) - 1) < 2.576 * math.sqrt(2 / len(both))
    assert abs(float((drawn[0] * drawn[1]).mean())) < 4 / math.sqrt(18_000)


def _fills_up(self: Poisson, setup: Setup, state: Any, context: Any) -> Any:
    count = sum(c < self.chance(setup.holders) for c in context.stream(setup).random(setup.population))
    return Uniform(cohort=max(1, count)).invite(setup, state, context)


def _new_for_every_rate(self: Poisson, setup: Setup, state: Any, context: Any) -> Any:
    return _INVITE(self, replace(setup, seed=int(self.chance(setup.holders) * 1000)), state, context)


@law(
    rates=st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0)),
    seed=st.integers(0, 50),
    examples=12,
    broken_by={
        "as many as the coins say, of those there": swap(Poisson, "invite", _fills_up),
        "other coins for every rate": swap(Poisson, "invite", _new_for_every_rate),
    },
)
def test_a_larger_rate_draws_a_superset_and_who_is_away_is_not_made_up_for(
    rates: tuple[float, float], seed: int
) -> None:

    population = 40
    setup = replace(SETUP, population=population, seed=seed)

    @final
    class HalfAway(OpenRoster):
        def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(c for c in clients if c % 2)

        def draw(self, count: int, generator: Any, exclude: Any) -> tuple[int, ...]:
            return tuple(c for c in super().draw(population, generator, exclude) if c % 2)[:count]

    everybody = OpenRoster(population, range(population))

    def drawn(rate: float, roster: OpenRoster = everybody) -> list[set[int]]:
        return [set(asked(Poisson(rate=rate), setup, {}, call_of(roster, v))[1]) for v in range(40)]

    few, many = drawn(min(rates)), drawn(max(rates))
    assert all(a <= b for a, b in zip(few, many, strict=True))
    away = drawn(max(rates), HalfAway(population, range(population)))
    assert away == [{c for c in some if c % 2} for some in many]
    # 1,600 coins: within 4.5 standard deviations of the rate.
    share = sum(map(len, many)) / (40 * population)
    assert abs(share - max(rates)) <= 4.5 * math.sqrt(max(rates) * (1 - max(rates)) / (40 * population)) + 1e-9


@law(
    seed=st.integers(0, 30),
    examples=6,
    broken_by={
        "stands still": swap(Dp, "private", property(lambda self: False)),
        "no noise on nothing": swap(
            Dp,
            "private_mean",
            lambda self, setup, state, release: (
                _MEAN(self, setup, state, release) if release.reports else (state, torch.zeros(setup.size))
            ),
        ),
    },
)
def test_a_version_of_nobody_is_of_noise_alone(seed: int) -> None:
    federation = replace(FOUR, seed=seed)
    story = run(private(Poisson(rate=0.2)), federation, versions=12)
    assert len(story.released) == 12
    empty = [r for r in story.released if r.release is None or not r.release.reports]
    # 1 in 40 million seeds has nobody in none of 12 versions, and 30 are tried.
    assert empty
    for released in empty:
        before, after = (story.states[v].weights for v in (released.version - 1, released.version))
        assert not same(before, after)
    bare = run(fedavg(epochs=1, batch=4) | Poisson(rate=0.2), federation, versions=12)
    still = [r.version for r in bare.released if r.release is None]
    assert still == [r.version for r in empty]
    assert all(same(bare.states[v - 1].weights, bare.states[v].weights) for v in still)


@law(
    happening=misfortunes(),
    seed=st.integers(0, 5),
    examples=6,
    broken_by={"a report that is no number makes room": swap(core_server, "of_no_use", lambda kind: False)},
)
def test_a_report_of_no_use_counts_as_nothing_and_keeps_its_place(happening: Misfortune, seed: int) -> None:
    """With it refused, who else is in a version would tell what its client's data are like."""
    recipe = private(parts.buffer(size=2), sigma=0.0)

    def zero(assignment: Assignment, report: Report) -> Any:
        found = happening(assignment, report)
        if isinstance(found, Report) and found is not report:
            assert report.update is not None
            return replace(report, update=torch.zeros_like(report.update))
        return found

    other = Misfortune(happening.fates)

    def broken(assignment: Assignment, report: Report) -> Any:
        return other(assignment, report)

    one, two = (play(recipe, replace(FOUR, seed=seed), happening=how, versions=3) for how in (zero, broken))
    assert [r.release and [x.client for x in r.release.reports] for r in one.released] == [
        r.release and [x.client for x in r.release.reports] for r in two.released
    ]
    # A client goes on from its last accepted visit, so that only the first versions' models need be the same.
    assert same(one.states[1].weights, two.states[1].weights)
    whole = spoiled(next(iter(one.reports.values())))
    assert whole.update is not None
    assert not bool(torch.isfinite(whole.update).all())


def _versions(story: Run) -> list[Any]:
    return [state.parts["dp"]["versions"] for state in story.states]


@law(
    seed=st.integers(0, 5),
    examples=4,
    broken_by={
        "skipped versions are free": swap(
            Dp,
            "private_mean",
            lambda self, setup, state, release: (
                {**_MEAN(self, setup, state, release)[0], "versions": state["versions"] + bool(release.reports)},
                _MEAN(self, setup, state, release)[1],
            ),
        ),
        "nobody is counted": swap(
            Dp,
            "private_mean",
            lambda self, setup, state, release: (
                {**_MEAN(self, setup, state, release)[0], "visits": state["visits"]},
                _MEAN(self, setup, state, release)[1],
            ),
        ),
    },
)
def test_every_version_is_charged_and_whoever_was_in_it_is_counted(seed: int) -> None:
    federation = replace(FOUR, seed=seed)
    assert _versions(run(private(Poisson(rate=0.2)), federation, versions=8)) == list(range(9))
    story = run(private(Sweep(cohort=3)), federation, versions=5)
    books = story.states[-1].parts["dp"]["visits"]
    in_versions = [{x.client for x in r.release.reports} for r in story.released if r.release is not None]
    assert dict(books) == {c: sum(c in some for some in in_versions) for c in set().union(*in_versions)}
    assert counted(story.states[-1].parts["dp"]) == max(books.values())


def _busiest(state: Any) -> int:
    return max(state["visits"].values(), default=0)


FOLLOWS = CriticalPeriods(detector=ReleasedNorm(), floor=0.5)


@law(
    seed=st.integers(0, 5),
    visits=st.sampled_from((None, 2)),
    examples=4,
    broken_by={
        "charged for who came": swap(differential_privacy, "counted", _busiest),
        "a schedule like any other": swap(CriticalPeriods, "under_privacy", lambda self: timed("by chance")),
    },
)
def test_a_schedule_that_follows_released_models_costs_what_it_may_have_been(seed: int, visits: int | None) -> None:
    """How often anybody came follows from the data then, and is no bound that may be told."""
    federation = Federation(sizes=(5, 12, 7, 9, 3, 8, 4, 6), seed=seed)
    limit = () if visits is None else (AtMost(visits=visits),)
    story = run(private(FOLLOWS, *limit, cohort=2), federation, versions=4)
    part = Dp(noise=0.3)
    for version, state in enumerate(story.states):
        may = min(version, version if visits is None else visits)
        expected = 0.0 if may == 0 else accounting.epsilon(replace(SAMPLING, law="bounded"), 0.3, may, part.delta)
        assert math.isclose(part.spent(state.parts["dp"]), expected)
    words = refusal(private(CriticalPeriods(), cohort=2))
    assert "without noise" in words
    assert "without noise" in refusal(private(replace(FOLLOWS, watch=(GradientNorm(),))))


@law(
    seed=st.integers(0, 5),
    size=st.sampled_from((RandomResize(up=0.5, down=0.5), replace(FOLLOWS, delta=-1e9))),
    examples=6,
    broken_by={
        "divides by as many as ever": swap(versions, "wanted_in", lambda recipe, parts: None),
    },
)
def test_a_version_is_divided_by_as_many_as_it_was_to_have(seed: int, size: Any) -> None:
    plain = fedavg(cohort=2, epochs=1, batch=4) | Equal() | size
    federation = replace(FOUR, seed=seed)
    one, other = run(plain, federation, versions=4), run(plain | Dp(noise=0, clip=1e9), federation, versions=4)
    assert near(one.weights, other.weights, 1e-4)


def _open(self: Mechanism) -> PrivacyEffect:
    return AFTER


PARTS: Mapping[str, type[Mechanism]] = {
    name: made
    for name in parts.__all__
    if isinstance(made := getattr(parts, name), type) and issubclass(made, Mechanism) and name != "dp"
}


@law(
    name=st.sampled_from(sorted(PARTS)),
    cases=[{"name": name} for name in sorted(PARTS)],
    broken_by={"says nothing": swap(Equal, "privacy", Mechanism.privacy)},
)
def test_every_part_says_what_it_does_to_privacy(name: str) -> None:
    """That of a part is checked on its own class: what it inherits might have been meant for another."""
    part = PARTS[name]
    said = part.under_privacy is not Mechanism.under_privacy or part.privacy is not Mechanism.privacy
    assert said, f"{name}: give its class `privacy`, see methods/privacy/effects.py"


@law(
    hooks=st.sampled_from(("before_step", "after_step", "accept")),
    cases=[{"hooks": "before_step"}, {"hooks": "after_step"}, {"hooks": "accept"}],
    broken_by={"whoever says nothing is let in": swap(Mechanism, "under_privacy", _open)},
)
def test_a_part_that_says_nothing_is_refused(hooks: str) -> None:
    own: Any = type("Own", (ReleaseModifier,), {})
    assert refusal(private() | own()).startswith("own with dp: ")


def refusal(recipe: Recipe, *more: Settings) -> str:
    """What is wrong with a recipe and parts piped onto it, and why; empty if nothing is."""
    try:
        functools.reduce(or_, more, recipe).whole()
    except UserError as refused:
        return f"{refused.found}: {refused.why}" if refused.why else ""
    return ""


def _any_law(recipe: Any, *, steady: bool = True) -> Any:
    found = law_of(recipe, steady=steady)
    return "poisson" if found == "bounded" else found


@law(
    steady=st.booleans(),
    cases=[{"steady": True}, {"steady": False}],
    broken_by={
        "coins for everybody": swap(laws, "law_of", _any_law),
        "a count tells nothing": swap(
            ParticipationIntervals, "privacy", timed("scales by how many are there", *sorted(LAWS))
        ),
        "whoever is away is no matter": swap(Fleet, "steady", property(lambda self: True)),
    },
)
def test_what_tells_of_coins_is_accounted_for_without_them(steady: bool) -> None:
    assert laws.law_of(private(Poisson(rate=0.2)), steady=steady) == "poisson"
    assert laws.law_of(private(Poisson(rate=0.2), Deadline(seconds=1.0)), steady=steady) == "poisson"
    assert laws.law_of(private(), steady=steady) == ("fixed_size" if steady else "bounded")
    for others in (
        (Poisson(rate=0.2), ParticipationIntervals()),
        (Poisson(rate=0.2), parts.buffer(size=2)),
        (Sweep(),),
        (RandomResize(),),
        (Deadline(seconds=1.0),),
        (MinReports(),),
    ):
        assert laws.law_of(private(*others), steady=steady) == "bounded"
    assert laws.law_of(fedbuff() | Dp(), steady=steady) == "bounded"
    assert Fleet().steady
    assert not (Fleet() | Markov(mean_on=1, mean_off=1)).steady
    assert not (Fleet() | Faults(lost=0.1)).steady


RECIPES = sorted(name for name in papers.__all__ if name not in ("Common", "centralised", "local_only"))
REFUSED = {
    *("ace", "aced", "area", "ca2fl", "fedcl", "feddyn", "fedexp", "fednova", "fedstale", "fedvarp", "mifa", "oort"),
    *("power_of_choice", "scaffold", "vrl_sgd", "clustered_sampling", "divfl", "f3ast", "fedcm", "optimal_sampling"),
    *(
        "fedper",
        "lg_fedavg",
        "fedbn",
        "fedrep",
        "fedbabu",
        "fedlalr",
        "refl",
        "heterofl",
        "fiarse",
        "depthfl",
        "fedrolex",
        "federated_dropout",
    ),
    *("fedproto", "rolora", "fedsa_lora", "fedex_lora", "flora", "flexlora", "hetlora"),
}


@law(
    name=st.sampled_from(RECIPES),
    cases=[{"name": name} for name in RECIPES],
    broken_by={"everything is let in": swap(Mechanism, "under_privacy", _open)},
)
def test_a_paper_with_noise_is_accounted_for_or_refused_in_words(name: str) -> None:
    recipe = getattr(papers, name)() | Equal() | Dp()
    if name not in REFUSED:
        assert law_of(recipe.whole()) in LAWS
        return
    assert re.search(r" with dp[:;]", refusal(recipe))


@law(
    broken_by={"any weight is good": swap(Recipe, "whole", lambda self: self)},
)
def test_a_client_counts_by_its_samples_up_to_a_cap_or_not_at_all() -> None:
    base = fedavg() | BySamples()
    assert refusal(base | Dp()).startswith("dp with by_samples: ")
    assert refusal(base | Equal() | Dp(cap=20)).startswith("dp(cap=20) with equal: ")
    assert refusal(base | Dp(cap=20)) == ""
    for one in ("local_only", "centralised"):
        assert refusal(getattr(papers, one)(), Equal(), Dp()).startswith("dp in a recipe where ")
