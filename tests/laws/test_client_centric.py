"""Every client at its own pace: old models, buffers smaller than the cohort, and updates that count per step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import Facts, State
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.papers import (
    cc_fedadagrad,
    cc_fedadam,
    cc_fedams,
    cc_fedavg,
    cc_fedsgd,
    cc_fedyogi,
    fedadam,
    fedavg,
    fednova,
    scaffold,
)
from polyrhythm.methods.participation.base import InvitationContext, Participation, Sweep, Uniform
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum
from polyrhythm.methods.participation.critical_periods import CriticalPeriods
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, ReleaseContext
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.together import Releasing
from polyrhythm.methods.weighing import Equal, PerStep, Scaling
from polyrhythm.simulation.roster import OpenRoster

from .hand import buffers_of, flat, loaded, optimiser_of, train
from .law import law, swap
from .rolling import roll
from .trials import Trial, trials
from .world import Federation, alike, near, run, same

# What mutants wrap.
_INVITED, _SCALES, _READY = SampledStaleness.invited, PerStep.scales, Releasing.ready

DELAYED = "sampled_staleness"


def _one_more_model(
    self: SampledStaleness, fixed: Setup, state: State, context: InvitationContext, invited: Any
) -> Any:
    return _INVITED(replace(self, max_delay=self.max_delay + 1), fixed, state, context, invited)


def _the_model_of_now(
    self: SampledStaleness, fixed: Setup, state: State, context: InvitationContext, invited: Any
) -> Any:
    state, invited = _INVITED(self, fixed, state, context, invited)
    return state, tuple(replace(i, model=None) for i in invited)


def _the_statistics_of_now(
    self: SampledStaleness, fixed: Setup, state: State, context: InvitationContext, invited: Any
) -> Any:
    state, invited = _INVITED(self, fixed, state, context, invited)
    models = [None if i.model is None else replace(i.model, buffers=context.buffers) for i in invited]
    return state, tuple(replace(i, model=m) for i, m in zip(invited, models, strict=True))


def _the_number_of_now(
    self: SampledStaleness, fixed: Setup, state: State, context: InvitationContext, invited: Any
) -> Any:
    state, invited = _INVITED(self, fixed, state, context, invited)
    return state, tuple(replace(i, version=None) for i in invited)


@law(
    trial=trials(travels=False),
    broken_by={"one more model": swap(SampledStaleness, "invited", _one_more_model)},
)
def test_a_delay_of_none_is_the_inner_policy(trial: Trial) -> None:
    delayed = run(trial.recipe(SampledStaleness(max_delay=1)), trial.federation, versions=4)
    assert alike(delayed, run(trial.recipe(), trial.federation, versions=4))


@final
@dataclass(frozen=True, kw_only=True)
class Noted(Scaling):
    """Scales nothing, and notes what it is told."""

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        HEARD.extend(facts)
        return [1.0] * len(facts)


HEARD: list[Facts] = []


@law(
    net=st.sampled_from(("perceptron", "batchnorm")),
    base=st.sampled_from((fedavg, scaffold, fednova)),
    max_delay=st.integers(2, 4),
    cohort=st.integers(1, 4),
    examples=10,
    broken_by={
        "one more model": swap(SampledStaleness, "invited", _one_more_model),
        "the model of now": swap(SampledStaleness, "invited", _the_model_of_now),
        "the statistics of now": swap(SampledStaleness, "invited", _the_statistics_of_now),
        "the number of now": swap(SampledStaleness, "invited", _the_number_of_now),
    },
)
def test_an_old_model_is_sent_whole_and_under_its_own_number(
    net: str, base: Callable[..., Recipe], max_delay: int, cohort: int
) -> None:
    HEARD.clear()
    recipe = base(cohort=cohort, epochs=1, batch=4) | SampledStaleness(max_delay=max_delay) | Noted()
    story = run(recipe, Federation(net=net), versions=6)
    facts = {f.dispatch: f for f in HEARD}
    for turn in story.turns:
        now = turn.state.version
        for assignment in turn.assignments:
            old = story.states[assignment.version]
            assert old.version == assignment.version
            assert max(0, now - max_delay + 1) <= assignment.version <= now
            assert same((assignment.weights, assignment.buffers), (old.weights, old.buffers))
            assert facts[assignment.dispatch].staleness == now - assignment.version
    assert all(f.client == story.assignments[d].client for d, f in facts.items())


def _the_oldest(self: SampledStaleness, fixed: Setup, state: State, context: InvitationContext, invited: Any) -> Any:
    state, invited = _INVITED(self, fixed, state, context, invited)
    return state, tuple(replace(i, version=state["models"][0]["version"]) for i in invited)


def _one_delay_for_all(
    self: SampledStaleness, fixed: Setup, state: State, context: InvitationContext, invited: Any
) -> Any:
    state, invited = _INVITED(self, fixed, state, context, invited)
    return state, tuple(replace(i, version=invited[0].version) for i in invited)


@law(
    max_delay=st.integers(2, 5),
    seed=st.integers(0, 99),
    examples=4,
    broken_by={
        "always the oldest": swap(SampledStaleness, "invited", _the_oldest),
        "one delay for the whole cohort": swap(SampledStaleness, "invited", _one_delay_for_all),
    },
)
def test_delays_are_uniform_and_each_clients_own(max_delay: int, seed: int) -> None:
    recipe, versions = fedavg(cohort=10) | SampledStaleness(max_delay=max_delay), 200
    fixed = Setup(size=1, dtype=torch.float32, population=20, total_rounds=None, seed=seed)
    parts, roster, delays, alike_cohorts = recipe.server_start(fixed), OpenRoster(20, range(20)), Counter[int](), 0
    for now in range(versions):
        call = InvitationContext(version=now, weights=torch.zeros(1), buffers=(), roster=roster)
        parts, invited = recipe.inviting.invite(fixed, parts, call)
        drawn = [now - i.version for i in invited if i.version is not None]
        assert len(parts[DELAYED]["models"]) == min(now + 1, max_delay)
        if now >= max_delay - 1:
            delays.update(drawn)
            alike_cohorts += len(set(drawn)) == 1
    total = sum(delays.values())
    assert delays.keys() == set(range(max_delay))
    spread = 6 * math.sqrt((max_delay - 1) / max_delay**2 / total)
    assert all(abs(count / total - 1 / max_delay) < spread for count in delays.values())
    assert alike_cohorts < versions / 10


Moments = tuple[np.ndarray, np.ndarray, np.ndarray]
Rule = Callable[[np.ndarray, Moments, np.ndarray], tuple[np.ndarray, Moments]]


def plainly(rate: float) -> Rule:
    return lambda x, moments, mean: (x + rate * mean, moments)


def adaptively(kind: str, rate: float, epsilon: float) -> Rule:
    """Algorithm 1 with beta1 = 0.9 and beta2 = 0.99, as METHODS 3.1 writes it out."""

    def step(x: np.ndarray, moments: Moments, mean: np.ndarray) -> tuple[np.ndarray, Moments]:
        m, v, largest = moments
        m = 0.9 * m + 0.1 * mean
        if kind == "adagrad":
            v = v + mean**2
        elif kind == "yogi":
            v = v - 0.01 * mean**2 * np.sign(v - mean**2)
        else:
            v = 0.99 * v + 0.01 * mean**2
        largest = np.maximum(largest, v)
        if kind == "ams":
            return x + rate * m / np.sqrt(np.maximum(largest, epsilon)), (m, v, largest)
        return x + rate * m / (np.sqrt(v) + epsilon), (m, v, largest)

    return step


CENTRIC: dict[str, tuple[Callable[..., Recipe], Rule]] = {
    "cc_fedavg": (cc_fedavg, plainly(1.0)),
    "cc_fedsgd": (lambda **s: cc_fedsgd(server_lr=7.0, **s), plainly(7.0)),
    "cc_fedadagrad": (lambda **s: cc_fedadagrad(server_lr=0.2, epsilon=1e-2, **s), adaptively("adagrad", 0.2, 1e-2)),
    "cc_fedadam": (lambda **s: cc_fedadam(server_lr=0.2, epsilon=1e-2, **s), adaptively("adam", 0.2, 1e-2)),
    "cc_fedams": (lambda **s: cc_fedams(server_lr=0.2, epsilon=1e-6, **s), adaptively("ams", 0.2, 1e-6)),
    "cc_fedyogi": (lambda **s: cc_fedyogi(server_lr=0.2, epsilon=1e-2, **s), adaptively("yogi", 0.2, 1e-2)),
}


def _by_samples(self: Equal, facts: Sequence[Facts]) -> list[float]:
    return [float(f.num_samples) for f in facts]


@law(
    name=st.sampled_from(list(CENTRIC)),
    net=st.sampled_from(("logistic", "perceptron", "batchnorm")),
    cohort=st.integers(1, 4),
    max_delay=st.sampled_from((1, 3)),
    seed=st.integers(0, 9),
    examples=24,
    broken_by={
        "not divided by the steps": swap(PerStep, "scales", lambda self, facts, shares: [1.0] * len(facts)),
        "weighed by samples": swap(Equal, "claims", _by_samples),
        "from the model of now": swap(SampledStaleness, "invited", _the_model_of_now),
        "one more model": swap(SampledStaleness, "invited", _one_more_model),
    },
)
def test_every_recipe_is_algorithm_1(name: str, net: str, cohort: int, max_delay: int, seed: int) -> None:
    """The clients' local SGD with torch.optim from the model they were sent, the server in NumPy."""
    make, rule = CENTRIC[name]
    recipe = make(cohort=cohort, max_delay=max_delay, batch=4, lr=0.1)
    federation = Federation(net=net, dtype=torch.float64, seed=seed)
    story = run(recipe, federation, versions=5)
    layout, shards = federation.engine().layout, federation.shards()
    zeros = np.zeros(layout.size)
    models, moments = [Model(weights=story.states[0].weights, buffers=story.states[0].buffers)], (zeros, zeros, zeros)
    epochs = Counter[int]()
    for turn in (t for t in story.turns if t.assignments):
        now, directions, statistics, held = turn.state.version, [], [], []
        assert len(turn.assignments) == cohort
        for assignment in turn.assignments:
            assert 0 <= now - assignment.version < max_delay
            old, shard, batches = (
                models[assignment.version],
                shards[assignment.client],
                story.batches[assignment.dispatch],
            )
            module = loaded(federation, layout, old)
            train(module, layout, shard, batches, optimiser_of(recipe.optimiser, module))
            directions.append(((flat(module, layout) - old.weights) / len(batches)).numpy())
            statistics.append([b.detach() for b in buffers_of(module, layout)])
            held.append(len(shard))
            a_pass = len(batches) * len(shard) / sum(map(len, batches))
            epochs[round(len(batches) / a_pass)] += 1
        x, moments = rule(models[-1].weights.numpy(), moments, np.mean(directions, axis=0))
        models.append(Model(weights=torch.from_numpy(x), buffers=_mean(statistics, held)))
        after = story.states[now + 1]
        assert near(after.weights, models[-1].weights, 1e-10)
        assert all(near(a, b, 1e-10) for a, b in zip(after.buffers, models[-1].buffers, strict=True))
    assert epochs.keys() <= {1, 2, 3, 4, 5}


def _mean(many: Sequence[Sequence[Tensor]], num_samples: Sequence[int]) -> tuple[Tensor, ...]:
    """By samples; counters by maximum."""
    combined = []
    for tensors in zip(*many, strict=True):
        if tensors[0].is_floating_point():
            combined.append(
                torch.stack([t * n / sum(num_samples) for t, n in zip(tensors, num_samples, strict=True)]).sum(0)
            )
        else:
            combined.append(torch.stack(tensors).amax(0))
    return tuple(combined)


@law(
    net=st.sampled_from(("perceptron", "batchnorm")),
    steps=st.integers(1, 5),
    cohort=st.integers(1, 4),
    broken_by={
        "not divided by the steps": swap(PerStep, "scales", lambda self, facts, shares: [1.0] * len(facts)),
    },
)
def test_a_rate_of_k_makes_up_for_equal_steps(net: str, steps: int, cohort: int) -> None:
    federation = Federation(net=net)
    centred = run(cc_fedsgd(server_lr=float(steps), max_delay=1, cohort=cohort, steps=steps), federation, versions=4)
    plain = run(fedavg(cohort=cohort, steps=steps) | Equal(), federation, versions=4)
    assert all(near(a.weights, b.weights, 1e-5) for a, b in zip(centred.states, plain.states, strict=True))


def facts() -> st.SearchStrategy[list[Facts]]:
    one = st.builds(
        Facts,
        dispatch=st.integers(0, 9),
        client=st.integers(0, 9),
        num_samples=st.integers(1, 9),
        steps=st.integers(1, 20),
        travel=st.floats(1e-3, 10),
        pull=st.just(0.0),
        rate=st.floats(1e-3, 1),
        staleness=st.integers(0, 4),
    )
    return st.lists(one, min_size=1, max_size=5)


@law(
    told=facts(),
    examples=20,
    broken_by={
        "always by steps": swap(PerStep, "scales", lambda self, f, s: _SCALES(replace(self, divide="steps"), f, s)),
        "by the mean of the steps": swap(
            PerStep,
            "scales",
            lambda self, f, s: [len(f) / sum(x.steps + (self.divide == "travel") for x in f)] * len(f),
        ),
    },
)
def test_a_step_counts_as_a_step(told: list[Facts]) -> None:
    shares = [1 / len(told)] * len(told)
    assert PerStep(divide="steps").scales(told, shares) == [1 / f.steps for f in told]
    assert PerStep(divide="travel").scales(told, shares) == [1 / f.travel for f in told]
    assert PerStep(divide="none").scales(told, shares) == [1.0] * len(told)


@law(
    trial=trials(),
    broken_by={
        "by steps all the same": swap(
            PerStep, "scales", lambda self, f, s: _SCALES(replace(self, divide="steps"), f, s)
        )
    },
)
def test_no_division_is_no_scaling(trial: Trial) -> None:
    trial = trial.but(steps=3)
    assert alike(run(trial.recipe(PerStep(divide="none")), trial.federation), run(trial.recipe(), trial.federation))


@law(
    base=st.sampled_from((fedavg, scaffold, fednova, fedadam)),
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    cohort=st.integers(2, 5),
    part=st.sampled_from((Uniform(), Sweep())),
    examples=10,
    broken_by={"one too early": swap(Buffer, "complete", lambda self, context: context.waiting >= self.size - 1)},
)
def test_a_buffer_of_the_cohort_is_a_synchronous_round(
    base: Callable[..., Recipe], net: str, cohort: int, part: Participation
) -> None:
    recipe, federation = base(cohort=cohort, epochs=1, batch=4) | part, Federation(sizes=(5, 12, 7, 9, 8), net=net)
    assert alike(*(run(r, federation, versions=4) for r in (recipe | Buffer(size=cohort), recipe)))


POLICIES: tuple[Callable[[Recipe], Recipe], ...] = (
    lambda recipe: recipe,
    lambda recipe: recipe | Sweep(),
    lambda recipe: recipe | ClientCurriculum(order="random"),
    lambda recipe: recipe | ClientCurriculum(scores="reported"),
    lambda recipe: recipe | SampledStaleness(max_delay=3),
)


def _whoever(self: OpenRoster, count: int, generator: np.random.Generator, exclude: frozenset[int]) -> tuple[int, ...]:
    return tuple(int(c) for c in generator.permutation(self.all())[:count])


@law(
    policy=st.sampled_from(POLICIES),
    cohort=st.integers(1, 5),
    size=st.integers(1, 5),
    next_one=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    loses=st.lists(st.booleans(), max_size=5).map(lambda fates: [False, *fates]),
    examples=40,
    broken_by={
        "who is under way takes no place": swap(
            InvitationContext, "places", lambda self, size: size if self.count is None else self.count
        ),
        "busy clients invited": swap(OpenRoster, "draw", _whoever),
        "one more is awaited": swap(Buffer, "complete", lambda self, context: context.waiting > self.size),
    },
)
def test_a_buffer_steps_on_what_arrived_and_no_more_than_the_cohort_is_under_way(
    policy: Callable[[Recipe], Recipe], cohort: int, size: int, next_one: list[int], loses: list[bool]
) -> None:
    recipe = policy(fedavg(cohort=cohort, epochs=1, batch=4) | Equal() | Buffer(size=size))
    versions, federation = 6, Federation(sizes=(3, 12, 7, 9, 5, 4))
    story = roll(recipe, federation, versions=versions, next_one=next_one, loses=loses)
    assert story.turns[-1].state.version == versions
    used: list[int] = []
    for before, turn in zip(story.turns, story.turns[1:], strict=False):
        clients = [flight.client for flight in turn.state.flights.values()]
        assert len(clients) == len(set(clients))
        assert len(clients) <= cohort
        if turn.released is None or turn.released.release is None:
            continue
        release = turn.released.release
        waited = len(release.reports)
        assert waited == size or (waited < size and len(before.state.flights) == 1)
        for report in release.reports:
            assert same(report, story.reports[report.dispatch])
            assert report.version <= release.version
        mean = torch.stack([u.double() for u in release.updates()]).mean(0)
        assert near(turn.state.weights, before.state.weights + mean)
        used += [report.dispatch for report in release.reports]
    assert len(used) == len(set(used))
    assert len(used) + len(turn.state.waiting) == len(story.reports)


def _forgets_who_is_late(self: Releasing, context: ReleaseContext) -> bool:
    return context.in_flight == 0


@law(
    cohort=st.integers(3, 5),
    part=st.sampled_from((CriticalPeriods(delta=-1e9), SampledStaleness(max_delay=2), Sgd(lr=0.5))),
    broken_by={"a round like any other": swap(Releasing, "ready", _forgets_who_is_late)},
)
def test_who_is_late_lands_in_a_later_version(cohort: int, part: Any) -> None:
    """The last one invited always answers next, so the first ones wait longest."""
    recipe = fedavg(cohort=cohort, epochs=1, batch=4) | Buffer(size=cohort - 1) | part
    story = roll(recipe, Federation(sizes=(3, 12, 7, 9, 5, 4)), versions=5, next_one=(-1, -1, 0))
    releases = [t.released.release for t in story.turns if t.released is not None and t.released.release is not None]
    sent = {d: t.state.version for t in story.turns for d in (a.dispatch for a in t.assignments)}
    late = [r for release in releases for r in release.reports if sent[r.dispatch] < release.version]
    assert late
    assert all(
        release.version - r.version >= release.version - sent[r.dispatch]
        for release in releases
        for r in release.reports
    )
