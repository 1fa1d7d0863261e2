"""The event clock: clients at work at their own speed, and a server that steps on what has arrived."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from polyrhythm.base.settings import Settings
from polyrhythm.core import versions
from polyrhythm.core.readiness import Readiness
from polyrhythm.core.server_state import ServerState
from polyrhythm.fleet import Fleet
from polyrhythm.methods.correction import ControlVariates
from polyrhythm.methods.mechanism import Model, Release
from polyrhythm.methods.papers import cc_fedadam, fedadam, fedasync, fedavg, fednova, scaffold
from polyrhythm.methods.participation.base import InvitationContext
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, RandomResize
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal, Staleness
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate, SkipSilently
from polyrhythm.simulation.roster import WorldRoster

from .fleets import Paces, fleets
from .hand import buffers_of, flat, loaded, optimiser_of, train
from .law import law, swap
from .mutants import RESTS_FOR_ONE_EVENT
from .rolling import roll
from .trials import Trial, trials
from .world import Federation, Run, alike, near, run, same

# What mutants wrap.
_READY, _FACTS = Readiness.ready, versions.facts_of
SIZES = (3, 12, 7, 9, 5, 4)


def _in_order_of_arrival(reports: Any, key: Any) -> list[Any]:
    return list(reports)


def _one_less(self: Buffer, context: Any) -> bool:
    return bool(context.waiting >= max(1, self.size - 1))


def _whoever(self: WorldRoster, count: int, generator: Any, exclude: Any) -> tuple[int, ...]:
    everybody = self.all()
    first = int(generator.integers(0, len(everybody)))
    return tuple((*everybody, *everybody)[first : first + min(count, len(everybody))])


def at_work(turn: Any) -> list[int]:
    """The clients that somebody waits for."""
    return [flight.client for flight in turn.state.flights.values() if not flight.given_up]


def nobody_twice(engine: Any, turn: Any) -> None:
    """Looked at while a run goes on: a server that has one client twice soon comes to grief."""
    clients = at_work(turn)
    assert len(clients) == len(set(clients))


def going_on(story: Run, versions: int) -> list[Any]:
    """The turns before the last version: after it, those who are still at work are heard and nobody is invited."""
    return [turn for turn in story.turns if turn.state.version < versions]


def releases(story: Run) -> list[Release]:
    return [r.release for r in story.released if r.release is not None]


def buffered(concurrency: int, size: int, *parts: Settings, base: Callable[..., Recipe] = fedavg) -> Recipe:
    """The recipe with so many at work and so many updates a version."""
    whole = base(epochs=1, batch=4) | Rolling(concurrency=concurrency) | Buffer(size=size)
    for part in parts:
        whole = whole | part
    return whole


@law(
    trial=trials(travels=False),
    fleet=fleets(),
    broken_by={
        "summed in order of arrival": lambda patch: patch.setattr(
            versions, "sorted", _in_order_of_arrival, raising=False
        ),
        "steps without the last": swap(Readiness, "ready", lambda *a, **n: len(a[1].waiting) >= max(1, a[1].training)),
    },
)
def test_where_everybody_is_waited_for_nothing_depends_on_how_fast_they_are(trial: Trial, fleet: Fleet) -> None:
    timed = replace(trial.federation, fleet=fleet)
    assert alike(run(trial.recipe(), timed), run(trial.recipe(), trial.federation))


@law(
    trial=trials(travels=False, everybody=True),
    fleet=fleets(),
    broken_by={"one too early": swap(Buffer, "complete", _one_less)},
)
def test_a_buffer_of_the_cohort_is_a_round_at_any_speed(trial: Trial, fleet: Fleet) -> None:
    timed, cohort = replace(trial.federation, fleet=fleet), len(trial.federation.sizes)
    buffered = run(trial.recipe(Buffer(size=cohort)), timed)
    assert alike(buffered, run(trial.recipe(), timed))


def _waits_for_one_more(self: Buffer, context: Any) -> bool:
    return bool(context.waiting > self.size)


@law(
    net=st.sampled_from(("perceptron", "batchnorm")),
    seed=st.integers(0, 9),
    fleet=fleets(),
    broken_by={
        "half a step": swap(Sgd, "step", lambda self, setup, state, x, mean: (state, x + 0.5 * mean)),
        "two at a time": swap(Buffer, "complete", _waits_for_one_more),
    },
)
def test_one_at_work_and_a_buffer_of_one_is_one_client_after_another(net: str, seed: int, fleet: Fleet) -> None:
    """Each starts where the one before it ended: written out by hand, with torch.optim."""
    federation = Federation(sizes=SIZES, net=net, dtype=torch.float64, seed=seed, fleet=fleet)
    recipe = buffered(1, 1, Equal())
    story = run(recipe, federation, versions=6)
    layout, shards = federation.engine().layout, federation.shards()
    model = Model(weights=story.states[0].weights, buffers=story.states[0].buffers)
    assert len(story.states) == 7
    for number, after in enumerate(story.states[1:]):
        module, shard = loaded(federation, layout, model), shards[story.assignments[number].client]
        train(module, layout, shard, story.batches[number], optimiser_of(recipe.optimiser, module))
        model = Model(weights=flat(module, layout), buffers=tuple(b.detach() for b in buffers_of(module, layout)))
        assert near(after.weights, model.weights, 1e-10)
        assert all(near(a, b, 1e-10) for a, b in zip(after.buffers, model.buffers, strict=True))


@law(
    base=st.sampled_from((fedavg, scaffold, fednova, fedadam)),
    concurrency=st.integers(1, 8),
    size=st.integers(1, 4),
    fleet=fleets(),
    examples=12,
    broken_by={
        "who is at work takes no place": swap(
            InvitationContext, "places", lambda self, size: size if self.count is None else self.count
        ),
        "busy clients invited": swap(WorldRoster, "draw", _whoever),
        "nobody is replaced": swap(Rolling, "fills_places", property(lambda self: False)),
        "a full place is not waited for": swap(
            Readiness, "ready", lambda *given, refills=True: _READY(*given, refills=False)
        ),
        "one too early": swap(Buffer, "complete", _one_less),
    },
)
def test_so_many_are_at_work_and_so_many_make_a_version(
    base: Callable[..., Recipe], concurrency: int, size: int, fleet: Fleet
) -> None:
    recipe, federation = buffered(concurrency, size, base=base), Federation(sizes=SIZES, fleet=fleet)
    story = run(recipe, federation, versions=6, watch=nobody_twice)
    for turn in going_on(story, 6):
        assert len(at_work(turn)) == min(concurrency, len(SIZES))
        for assignment in turn.assignments:
            assert assignment.version == turn.state.version
            assert same(assignment.weights, turn.state.weights)
    used = Counter(r.dispatch for release in releases(story) for r in release.reports)
    assert set(used.values()) == {1}
    assert [len(release.reports) for release in releases(story)] == [size] * 6
    if concurrency == 1:
        drawn = [story.assignments[d].client for d in range(size * 6)]
        assert len(set(drawn)) > 1
    times = [moment.time for moment in story.moments]
    assert times == sorted(times)


def _another_staleness(version: int, *rest: Any) -> Any:
    return replace(_FACTS(version + 1, *rest))


@law(
    concurrency=st.integers(2, 6),
    size=st.integers(1, 3),
    fleet=fleets(),
    broken_by={
        "one version more": swap(versions, "facts_of", _another_staleness),
        "of the version that is made": swap(
            versions, "facts_of", lambda version, *rest: replace(_FACTS(version, *rest), staleness=version)
        ),
    },
)
def test_staleness_is_the_versions_made_since_the_invitation(concurrency: int, size: int, fleet: Fleet) -> None:
    story = run(
        buffered(concurrency, size, Staleness(rule="hinge", a=1.0, b=0.0)), Federation(sizes=SIZES, fleet=fleet)
    )
    made = {d: t.state.version for t in story.turns for d in (a.dispatch for a in t.assignments)}
    for release in releases(story):
        for report, scale in zip(release.reports, release.scales, strict=True):
            stale = release.version - made[report.dispatch]
            assert 0 <= stale <= release.version
            assert scale == 1 / (1 + stale)


def of_a_version(story: Run) -> list[list[int]]:
    """Whom the server invited, version by version."""
    invited = defaultdict[int, list[int]](list)
    for turn in story.turns:
        invited[turn.state.version] += [a.client for a in turn.assignments]
    return [invited[version] for version in sorted(invited)]


SKIPS: tuple[Settings, ...] = (
    SkipSilently(budgets=Listed(shares=(1.0, 0.2))),
    SkipAndEstimate(budgets=Listed(shares=(1.0, 0.2)), cold_start="zero"),
    SkipSilently(budgets=Listed(shares=(1e-9,))),
)


@law(
    skip=st.sampled_from(SKIPS),
    concurrency=st.integers(1, 4),
    fleet=fleets(),
    examples=10,
    broken_by={"invited again before long": RESTS_FOR_ONE_EVENT},
)
def test_who_skipped_is_not_invited_again_before_the_next_version(
    skip: Settings, concurrency: int, fleet: Fleet
) -> None:
    """With nobody else left, the version is made of what there is: of nothing, where everybody skips."""
    story = run(buffered(concurrency, 3, skip), Federation(sizes=SIZES, fleet=fleet), versions=4)
    assert len(story.states) == 5
    resting: set[int] = set()
    for moment in story.moments:
        if moment.turn.released is not None:
            resting = set()
        elif moment.report is not None and moment.report.substitute:
            resting.add(moment.report.client)
        assert not resting & {a.client for a in moment.turn.assignments}


@law(
    broken=st.integers(1, 4),
    concurrency=st.integers(2, 4),
    broken_by={"invited again before long": RESTS_FOR_ONE_EVENT},
)
def test_whose_report_is_refused_is_not_invited_again_before_the_next_version(broken: int, concurrency: int) -> None:
    """BatchNorm cannot train on one sample, and says so in no time: time must go on all the same."""
    slow = Fleet(devices=Paces(seconds=(1.0,)))
    federation = Federation(sizes=(*(1,) * broken, 12, 7), net="batchnorm", fleet=slow)
    story = run(buffered(concurrency, 2), federation, versions=3)
    assert len(story.states) == 4
    for clients in of_a_version(story):
        assert max(Counter(c for c in clients if c < broken).values(), default=0) <= 1


@law(
    concurrency=st.integers(2, 4),
    fleet=fleets(),
    broken_by={"as often as it comes": swap(Rolling, "one_at_a_time", property(lambda self: False))},
)
def test_once_per_buffer_is_one_update_of_a_client_in_a_version(concurrency: int, fleet: Fleet) -> None:
    recipe = fedavg(epochs=1, batch=4) | Rolling(concurrency=concurrency, once_per_buffer=True) | Buffer(size=4)
    two_are_fast = Fleet(devices=Paces(seconds=(1e-3, 1e-3, 0.5, 0.7, 0.9, 1.1)))
    for devices in (fleet, two_are_fast):
        story = run(recipe, Federation(sizes=SIZES, fleet=devices), versions=4)
        for release in releases(story):
            clients = [report.client for report in release.reports]
            assert len(clients) == len(set(clients)) == 4


ORDERS: tuple[Settings, ...] = (
    CriticalPeriods(delta=-1e9),
    CriticalPeriods(delta=1e9, floor=0.1),
    RandomResize(),
    SampledStaleness(max_delay=2),
)


def _a_size_of_its_own(self: Rolling, setup: Any, state: Any, context: InvitationContext) -> InvitationContext:
    return replace(context, count=2)


@law(
    part=st.sampled_from(ORDERS),
    concurrency=st.integers(1, 4),
    fleet=fleets(),
    examples=10,
    broken_by={"a size of its own": swap(Rolling, "asked", _a_size_of_its_own)},
)
def test_rolling_and_other_modifiers_come_in_any_order(part: Settings, concurrency: int, fleet: Fleet) -> None:
    federation, plain = Federation(sizes=SIZES, fleet=fleet), fedavg(epochs=1, batch=4) | Buffer(size=2)
    rolling = Rolling(concurrency=concurrency)
    one = plain | part | rolling
    assert one.digest == (plain | rolling | part).digest
    inside, outside = (run(r, federation, versions=5) for r in (one, replace(one, modifiers=one.modifiers[::-1])))
    assert alike(inside, outside)
    assert of_a_version(inside) == of_a_version(outside)


def _keeps_all(state: ServerState) -> Any:
    return state.past


@law(
    parts=st.sampled_from(((FromCurrent(),), (FromCurrent(), SampledStaleness(max_delay=3)), ())),
    concurrency=st.integers(1, 5),
    size=st.integers(1, 3),
    next_one=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    loses=st.lists(st.booleans(), max_size=5).map(lambda fates: [False, *fates]),
    examples=15,
    broken_by={"every model is kept": swap(versions, "still_needed", _keeps_all)},
)
def test_the_server_keeps_the_models_that_somebody_works_on_and_no_more(
    parts: tuple[Settings, ...], concurrency: int, size: int, next_one: list[int], loses: list[bool]
) -> None:
    story = roll(
        buffered(concurrency, size, *parts), Federation(sizes=SIZES), versions=8, next_one=next_one, loses=loses
    )
    sent = {a.dispatch: a for t in story.turns for a in t.assignments}
    for turn in story.turns:
        out = [flight for flight in turn.state.flights.values() if not flight.given_up]
        used = {f.version for f in out} | {r.version for r in turn.state.waiting}
        if not parts:
            assert not turn.state.past
            continue
        assert turn.state.past.keys() >= used
        assert len(turn.state.past) <= concurrency + size + 1
        if turn.released is not None:
            assert turn.state.past.keys() == {f.version for f in out}
        for flight_number in turn.state.flights:
            assignment = sent[flight_number]
            assert same(turn.state.past[assignment.version], assignment.weights)


NOBODY_MOVES = SkipAndEstimate(budgets=Listed(shares=(1e-9,)), cold_start="zero")


@law(
    parts=st.sampled_from(
        (
            (),
            (FromCurrent(), Staleness()),
            (Equal(), LastUpdates()),
            (ControlVariates(),),
        )
    ),
    concurrency=st.integers(1, 5),
    size=st.integers(1, 3),
    fleet=fleets(),
    broken_by={
        "weights where updates were meant": swap(
            Release, "updates", lambda self: [self.weights + r.update for r in self.reports]
        ),
    },
)
def test_if_nobody_moves_the_model_stays_as_it_is_for_ever(
    parts: tuple[Settings, ...], concurrency: int, size: int, fleet: Fleet
) -> None:
    still = run(buffered(concurrency, size, NOBODY_MOVES, *parts), Federation(sizes=SIZES, fleet=fleet), versions=8)
    stuck = Federation(sizes=(1,) * 4, net="batchnorm", fleet=fleet)
    for story in (still, run(buffered(concurrency, size, *parts), stuck, versions=8)):
        assert len(story.states) == 9
        assert all(same(state.weights, story.states[0].weights) for state in story.states)


@law(
    concurrency=st.integers(2, 5),
    size=st.integers(1, 3),
    broken_by={"busy clients invited": swap(WorldRoster, "draw", _whoever)},
)
def test_a_client_a_thousand_times_faster_comes_often_and_never_twice_at_once(concurrency: int, size: int) -> None:
    quick = Fleet(devices=Paces(seconds=(1e-3, 1.0, 1.1, 1.2, 1.3, 1.4)))
    federation = Federation(sizes=(9,) * 6, fleet=quick)
    story = run(buffered(concurrency, size), federation, versions=12, watch=nobody_twice)
    heard = Counter(r.client for release in releases(story) for r in release.reports)
    assert sum(heard.values()) == 12 * size
    if concurrency == 5:  # it is then always among the two who are free
        assert heard[0] == max(heard.values())


@law(
    cohort=st.integers(1, 5),
    fleet=fleets(),
    broken_by={
        "as if of one step": swap(versions, "facts_of", lambda *given: replace(_FACTS(*given), steps=1)),
    },
)
def test_the_client_centric_recipes_have_an_event_clock(cohort: int, fleet: Fleet) -> None:
    """Rolling and a buffer in place of delays that are drawn; the rest is the same."""
    timed, sampled = cc_fedadam(cohort=cohort, clock="event"), cc_fedadam(cohort=cohort)
    same_parts = sampled | Rolling()
    assert timed.digest == replace(same_parts, modifiers=(Rolling(),)).digest
    assert cc_fedadam(cohort=cohort, clock="sampled").digest == sampled.digest
    story = run(timed, Federation(sizes=SIZES, fleet=fleet), versions=5)
    assert all(len(at_work(turn)) == cohort for turn in going_on(story, 5))
    for release in releases(story):
        assert len(release.reports) == cohort
        assert all(s == 1 / r.steps for s, r in zip(release.scales, release.reports, strict=True))


def _half_way(self: Sgd, setup: Any, state: Any, weights: Any, mean: Any) -> Any:
    return state, weights + 0.5 * mean


@law(
    concurrency=st.integers(1, 5),
    fleet=fleets(),
    broken_by={
        "half a step": swap(Sgd, "step", _half_way),
        "from what it was sent": swap(
            FromCurrent, "before_step", lambda self, setup, state, release, mean: (state, mean)
        ),
    },
)
def test_fedasync_with_alpha_one_is_the_last_clients_model(concurrency: int, fleet: Fleet) -> None:
    """However stale it is, where nothing scales by that."""
    recipe = fedasync(concurrency=concurrency, alpha=1.0, rule="constant", rho=0.5, epochs=1, batch=4)
    story = run(recipe, Federation(sizes=SIZES, fleet=fleet), versions=12)
    sent = {a.dispatch: a for a in story.assignments.values()}
    for release, after in zip(releases(story), story.states[1:], strict=True):
        (report,) = release.reports
        assert report.update is not None
        assert near(after.weights, sent[report.dispatch].weights + report.update, 1e-6)
