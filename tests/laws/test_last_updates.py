"""Old updates: scaled by their age, measured from the model of now, or remembered until the client is heard again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.settings import Settings
from polyrhythm.core import versions
from polyrhythm.fleet import Fleet
from polyrhythm.methods.local.schedules import Power
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.papers import afl, fedavg, mifa
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.server_step import Adam, Sgd
from polyrhythm.methods.weighing import Equal, PerStep, Rule, Staleness
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate, SkipSilently

from .fleets import fleets
from .law import law, swap
from .test_asynchrony import SIZES, releases
from .trials import Trial, arrivals, shuffled, trials
from .world import Federation, Run, alike, near, play, run, same

# What mutants wrap.
_SCALE, _FROM, _REMEMBER = Staleness.scale, FromCurrent.before_step, LastUpdates.before_step

FALLING = Power(unit="version", alpha=1.0, power=1.0)


def asynchronous(concurrency: int, size: int, *parts: Settings, **common: Any) -> Recipe:
    whole = fedavg(**{"epochs": 1, "batch": 4, **common}) | Equal() | Rolling(concurrency=concurrency)
    for part in (Buffer(size=size), *parts):
        whole = whole | part
    return whole


def by_hand(rule: Rule, a: float, b: float, staleness: int) -> float:
    """The papers' formulas."""
    if rule == "polynomial":
        return 1 / math.pow(staleness + 1, a)
    if rule == "constant":
        return 1.0
    over = max(0.0, staleness - b)
    return {
        "hinge": 1 / (a * over + 1),
        "cutoff": 0.0 if over else 1.0,
        "catch_up": 1.0 + staleness,
        "delay_adaptive": min(1.0, b / staleness) if staleness else 1.0,
    }[rule]


HAS: dict[Rule, tuple[str, ...]] = {
    "polynomial": ("a",),
    "hinge": ("a", "b"),
    "cutoff": ("b",),
    "delay_adaptive": ("b",),
    "constant": (),
}


@law(
    rule=st.sampled_from(list(HAS)),
    a=st.floats(0.1, 10),
    b=st.floats(0, 10),
    staleness=st.integers(0, 30),
    examples=100,
    broken_by={
        "one more": swap(Staleness, "scale", lambda self, staleness: _SCALE(self, staleness + 1)),
        "never cut off": swap(Staleness, "scale", lambda self, staleness: _SCALE(self, staleness) or 0.1),
    },
)
def test_the_scales_by_staleness_are_the_papers(rule: Rule, a: float, b: float, staleness: int) -> None:
    given = {name: value for name, value in (("a", a), ("b", b)) if name in HAS[rule]}
    policy = Staleness(rule=rule, **given)
    assert math.isclose(policy.scale(staleness), by_hand(rule, a, b, staleness), rel_tol=1e-12)
    assert 0 <= policy.scale(staleness) <= policy.scale(0) == 1
    hinge, root = Staleness(rule="hinge"), Staleness()
    assert [hinge.scale(t) for t in (0, 4, 5, 6)] == [1, 1, 1 / 11, 1 / 21]
    assert [Staleness(rule="cutoff").scale(t) for t in (4, 5)] == [1, 0]
    assert [root.scale(t) for t in (0, 3, 15)] == [1, 0.5, 0.25]


@law(
    trial=trials(travels=False),
    rule=st.sampled_from(("polynomial", "hinge", "cutoff", "constant")),
    broken_by={"fresh is old": swap(Staleness, "scale", lambda self, staleness: _SCALE(self, staleness + 5) - 0.01)},
)
def test_where_nothing_is_stale_nothing_is_scaled(trial: Trial, rule: Rule) -> None:
    assert alike(run(trial.recipe(Staleness(rule=rule)), trial.federation), run(trial.recipe(), trial.federation))


@law(
    fleet=fleets(),
    concurrency=st.integers(2, 6),
    size=st.integers(1, 3),
    broken_by={"constant is not": swap(Staleness, "scale", lambda self, staleness: 0.5 if staleness else 1.0)},
)
def test_a_constant_scale_changes_no_bit_and_another_does(fleet: Fleet, concurrency: int, size: int) -> None:
    federation = Federation(sizes=SIZES, fleet=fleet)
    plain, constant, falling = (
        run(asynchronous(concurrency, size, *parts), federation, versions=8)
        for parts in ((), (Staleness(rule="constant"),), (Staleness(),))
    )
    assert alike(plain, constant)
    stale = any(r.version < release.version for release in releases(plain) for r in release.reports)
    assert alike(plain, falling) == (not stale)


@law(
    fleet=fleets(),
    concurrency=st.integers(3, 6),
    broken_by={"shares are made up": swap(versions, "shares", lambda claims: [1.0 for _ in claims])},
)
def test_what_is_cut_off_keeps_its_place_in_the_buffer_and_its_share(fleet: Fleet, concurrency: int) -> None:
    recipe = asynchronous(concurrency, 2, Staleness(rule="cutoff", b=0.0))
    story = run(recipe, Federation(sizes=SIZES, fleet=fleet), versions=8)
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        assert release.shares == (0.5, 0.5)
        assert release.scales == tuple(float(r.version == release.version) for r in release.reports)
        moved = [u for u, s in zip(release.updates(), release.scales, strict=True) if s]
        mean = sum((u / 2 for u in moved), torch.zeros_like(before.weights))
        assert near(after.weights, before.weights + mean)


def _from_zero(self: FromCurrent, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    return _FROM(self, setup, state, replace(release, weights=torch.zeros_like(release.weights)), mean)


def _unscaled(self: FromCurrent, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    return _FROM(self, setup, state, replace(release, scales=(1.0,) * len(release.scales)), mean)


@law(
    trial=trials(travels=False),
    around=st.sampled_from(((), (Buffer(size=9),))),
    broken_by={
        "measures everybody": swap(
            FromCurrent,
            "before_step",
            lambda self, setup, state, release, mean: (state, mean + 1e-3 * sum(release.bases)),
        ),
    },
)
def test_from_the_current_model_is_from_the_own_where_nothing_is_stale(
    trial: Trial, around: tuple[Settings, ...]
) -> None:
    plain = trial.recipe(*around)
    assert alike(run(plain | FromCurrent(), trial.federation), run(plain, trial.federation))


@law(
    net=st.sampled_from(("perceptron", "batchnorm")),
    concurrency=st.integers(2, 6),
    size=st.integers(1, 3),
    lr=st.sampled_from((1.0, 0.3)),
    scaling=st.sampled_from((Staleness(), PerStep())),
    delayed=st.booleans(),
    fleet=fleets(),
    examples=12,
    broken_by={
        "from nothing": swap(FromCurrent, "before_step", _from_zero),
        "whatever its scale": swap(FromCurrent, "before_step", _unscaled),
        "from its own": swap(FromCurrent, "before_step", lambda self, setup, state, release, mean: (state, mean)),
    },
)
def test_the_server_moves_towards_the_clients_models(
    net: str, concurrency: int, size: int, lr: float, scaling: Settings, delayed: bool, fleet: Fleet
) -> None:
    """x + lr * sum share * scale * (w_K - x), with the whole w_K."""
    recipe = asynchronous(concurrency, size, FromCurrent(), scaling, Sgd(lr=lr))
    recipe = recipe | SampledStaleness(max_delay=3) if delayed else recipe
    story = run(recipe, Federation(sizes=SIZES, net=net, fleet=fleet, dtype=torch.float64), versions=8)
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        moved = torch.zeros_like(before.weights)
        for report, share, scale in zip(release.reports, release.shares, release.scales, strict=True):
            assert report.update is not None
            own = story.assignments[report.dispatch].weights + report.update
            moved += share * scale * (own - before.weights)
        assert near(after.weights, before.weights + lr * moved, 1e-10)


def remembered(story: Run, clients: int, rates: list[float]) -> list[Tensor]:
    """D of every version by brute force: the last update of every client, by the rates of its visit and of now."""
    last: dict[int, Tensor] = {}
    means = []
    for release in releases(story):
        for report, scale in zip(release.reports, release.scales, strict=True):
            assert report.update is not None
            last[report.client] = scale * report.update / rates[report.version]
        means.append(rates[release.version] * torch.stack(list(last.values())).sum(0) / clients)
    return means


def _adds_up(self: LastUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    return _REMEMBER(self, setup, {**state, "last": setup.table()}, release, mean)


def _of_the_heard(self: LastUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    after, mean = _REMEMBER(self, setup, state, release, mean)
    return after, mean * (setup.holders / len(after["last"]))


def _at_its_own_rate(self: LastUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    reports = tuple(replace(r, rate=1.0) for r in release.reports)
    return _REMEMBER(self, setup, state, replace(release, reports=reports, rate=1.0), mean)


def _unscaled_memory(self: LastUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    return _REMEMBER(self, setup, state, replace(release, scales=(1.0,) * len(release.scales)), mean)


@law(
    kind=st.sampled_from(("synchronous", "asynchronous", "as often as it comes")),
    scalings=st.sampled_from(((), (PerStep(),), (Staleness(),))),
    falling=st.booleans(),
    cohort=st.integers(1, 6),
    lr=st.sampled_from((1.0, 0.5)),
    fleet=fleets(),
    examples=20,
    broken_by={
        "what was heard before is added up": swap(LastUpdates, "before_step", _adds_up),
        "over those who were heard": swap(LastUpdates, "before_step", _of_the_heard),
        "at the rate of its visit": swap(LastUpdates, "before_step", _at_its_own_rate),
        "whatever its scale": swap(LastUpdates, "before_step", _unscaled_memory),
    },
)
def test_the_server_steps_on_the_last_update_of_every_client(
    kind: str, scalings: tuple[Settings, ...], falling: bool, cohort: int, lr: float, fleet: Fleet
) -> None:
    schedule = {"schedule": FALLING} if falling else {}
    parts = (LastUpdates(), Sgd(lr=lr), *scalings)
    if kind == "synchronous":
        recipe = fedavg(cohort=cohort, epochs=1, batch=4, **schedule) | Equal()  # type: ignore[arg-type]
        for part in parts:
            recipe = recipe | part
    else:
        size = 2 if kind == "asynchronous" else 6
        recipe = asynchronous(cohort, size, *parts, **schedule)
    story = run(recipe, Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet), versions=8)
    rates = [0.1 / (1 + t) if falling else 0.1 for t in range(8)]
    for mean, before, after in zip(remembered(story, 6, rates), story.states, story.states[1:], strict=False):
        assert near(after.weights, before.weights + lr * mean, 1e-12)
        heard = after.parts["last_updates"]["last"]
        assert LastUpdates().measures({**after.parts["last_updates"]}) == {"remembered": len(heard)}


@law(
    trial=trials(everybody=True),
    unheard=st.sampled_from(("zero", "wait")),
    paper=st.booleans(),
    broken_by={
        "what was heard before is added up": swap(LastUpdates, "before_step", _adds_up),
        "at the rate of its visit": swap(LastUpdates, "before_step", lambda *g: _at_twice_the_rate(*g)),
    },
)
def test_where_everybody_is_heard_memory_is_the_plain_mean(
    trial: Trial, unheard: Literal["zero", "wait"], paper: bool
) -> None:
    recipe = mifa(unheard=unheard, **trial.common) if paper else trial.recipe(Equal(), LastUpdates(unheard=unheard))
    plain, story = run(trial.recipe(Equal()), trial.federation), run(recipe, trial.federation)
    assert all(near(a.weights, b.weights, 1e-5) for a, b in zip(story.states, plain.states, strict=True))
    assert near(story.states[1].weights, plain.states[1].weights, 1e-6)


def _at_twice_the_rate(self: LastUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    return _REMEMBER(self, setup, state, replace(release, rate=2 * release.rate), mean)


def _in_order_of_arrival(reports: Any, key: Any) -> list[Any]:
    return list(reports)


@law(
    trial=trials(),
    order=arrivals(),
    broken_by={
        "summed in order of arrival": lambda patch: patch.setattr(
            versions, "sorted", _in_order_of_arrival, raising=False
        ),
    },
)
def test_what_is_remembered_depends_on_no_order_of_arrival(trial: Trial, order: int) -> None:
    trial = trial.but(cohort=len(trial.federation.sizes))
    recipe = trial.recipe(Equal(), LastUpdates())
    straight = play(recipe, trial.federation)
    mixed = play(recipe, trial.federation, arrival=lambda invited: shuffled(order, invited))
    assert alike(straight, mixed)
    assert same(straight.states[-1].parts, mixed.states[-1].parts)


@law(
    cohort=st.integers(1, 3),
    seed=st.integers(0, 9),
    step=st.sampled_from((Sgd(), Adam())),
    broken_by={
        "steps at once": swap(LastUpdates, "holds_back", lambda self, setup, state: ""),
        "waits for ever": swap(LastUpdates, "holds_back", lambda self, setup, state: "not yet"),
    },
)
def test_a_server_that_waits_for_everybody_takes_no_step_before(cohort: int, seed: int, step: Any) -> None:
    """Not even one of nothing, which moments would remember."""
    recipe = fedavg(cohort=cohort, epochs=1, batch=4) | Equal() | LastUpdates(unheard="wait") | step
    holders = (0, 2, 3, 5)  # the others have no data, and nobody waits for them
    story = run(recipe, Federation(sizes=SIZES, eligible=holders, seed=seed), versions=16)
    heard: set[int] = set()
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        assert released.release is not None
        heard |= {r.client for r in released.release.reports}
        if heard == set(holders):
            assert released.note == ""
            assert not same(after.weights, before.weights)
        else:
            assert released.note == f"{4 - len(heard)} of 4 clients were not heard yet"
            assert same((after.weights, after.buffers), (before.weights, before.buffers))
            assert same(after.parts[step.label()], before.parts[step.label()])


@law(
    storage=st.sampled_from(("client", "server")),
    broken_by={"what was heard before is added up": swap(LastUpdates, "before_step", _adds_up)},
)
def test_who_skips_says_what_it_said_last(storage: Literal["client", "server"]) -> None:
    """So for the server's memory it is all the same whether a client skips in silence, or sends its movement again."""
    budgets = Listed(shares=(1.0, 0.3))
    plain = fedavg(cohort=4, epochs=1, batch=4) | Equal() | LastUpdates()
    silent = plain | SkipSilently(budgets=budgets, schedule="exhaust")
    again = plain | SkipAndEstimate(budgets=budgets, schedule="exhaust", storage=storage)
    one, other = (run(recipe, Federation(), versions=5) for recipe in (silent, again))
    assert all(near(a.weights, b.weights, 1e-6) for a, b in zip(one.states, other.states, strict=True))


@law(
    variant=st.sampled_from(("cd", "cs")),
    concurrency=st.integers(2, 5),
    fleet=fleets(),
    broken_by={
        "whatever its steps": swap(PerStep, "scales", lambda self, facts, shares: [1.0] * len(facts)),
        "what was heard before is added up": swap(LastUpdates, "before_step", _adds_up),
    },
)
def test_afl_steps_on_gradients_of_the_first_or_of_all(
    variant: Literal["cd", "cs"], concurrency: int, fleet: Fleet
) -> None:
    """AFA-CD: the mean over the buffer of update / K; AFA-CS: over the last of every worker."""
    recipe = afl(variant=variant, concurrency=concurrency, buffer=2, server_lr=3.0, epochs=1, batch=4)
    story = run(recipe, Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet), versions=8)
    last: dict[int, Tensor] = {}
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        gradients = {}
        for r in release.reports:
            assert r.update is not None
            gradients[r.dispatch] = last[r.client] = r.update / len(story.batches[r.dispatch])
        every = sum(last.values(), torch.zeros_like(before.weights)) / 6
        first = sum(gradients.values(), torch.zeros_like(before.weights)) / 2
        assert near(after.weights, before.weights + 3.0 * (first if variant == "cd" else every), 1e-12)
