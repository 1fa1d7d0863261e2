"""Clients that do what they can in time: nobody is late, nothing else moves, and what was done is what counts."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import pytest
from hypothesis import strategies as st

from polyrhythm.base.messages import Event, Report, Timer
from polyrhythm.base.settings import Settings
from polyrhythm.core import forecast, local_run, readiness, training, visit_plan
from polyrhythm.core.batches import batch_sizes
from polyrhythm.core.forecast import Ahead, Pace
from polyrhythm.core.readiness import Readiness
from polyrhythm.core.server_state import ServerState
from polyrhythm.fleet import FixedLinks, Fleet, FleetState, Tiers, Uniform
from polyrhythm.methods.compression import TopK
from polyrhythm.methods.correction import ControlVariates, ModelContrast, Prox, VarianceReduction
from polyrhythm.methods.local.schedules import Cosine
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.order.base import Curriculum, Order, Shuffled
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Deadline, MinReports, TimeOut
from polyrhythm.methods.weighing import NormalisedAveraging, PerStep
from polyrhythm.methods.work.base import Plan
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.partial_work import PartialWork
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndEstimate
from polyrhythm.methods.work.stop_on_drift import StopOnDrift
from polyrhythm.models.flops import Cost
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep

from .law import Mutation, law, swap
from .trials import Trial, trials
from .world import NETS, Federation, Shard, alike, play, same

# What mutants wrap.
_FITTING = visit_plan.fitting
_AHEAD = Meter.ahead
_REPORT = training.report_on
_AHEAD_OF = visit_plan.ahead_of

COST = Cost(forward=700, training=2000)
FLEETS: tuple[Fleet, ...] = (
    Fleet(devices=Uniform(seconds_per_sample=0.1)),
    Fleet(devices=Tiers(slowdown=(1.0, 3.0, 10.0), seconds_per_sample=0.03)),
    Fleet(devices=Tiers(slowdown=(1.0, 7.0), seconds_per_sample=0.1), links=FixedLinks(down=300.0, up=70.0)),
    Fleet(devices=Uniform(flops_per_second=17e3), links=FixedLinks(up=90.0, latency=0.1)),
)
EXTRAS: tuple[tuple[Settings, ...], ...] = (
    (),
    (ControlVariates(), NormalisedAveraging()),
    (VarianceReduction(), StopOnDrift(a=0.9, b=0, representation="logits")),
    (ModelContrast(layer="logits"), StopOnDrift(a=-1, b=0, representation="features"), TopK(share=0.3)),
    (Curriculum(score="both", least=2), ModelContrast(layer="features")),
    (CriticalPeriods(act=False, watch=(FisherTrace(), FisherTrace(labels="model"))), ControlVariates()),
    (Curriculum(score="local_pred", least=1, refresh="step"), Prox(mu=0.1)),
)


@final
class Scored(Shard):
    """Samples that draws augment, or not."""

    def __init__(self, shard: Shard, augmented: bool) -> None:
        super().__init__(shard.inputs, shard.targets)
        self.augmented = augmented


@final
@dataclass(frozen=True, kw_only=True)
class Heard:
    """What came of a run: its moments, and the reports of all visits in the order of dispatch."""

    moments: tuple[SimulationStep, ...]

    @property
    def visits(self) -> list[SimulationStep]:
        found = [m for m in self.moments if m.report is not None and m.report.kind == "train"]
        return sorted(found, key=lambda m: m.report.dispatch if m.report else -1)

    @property
    def reports(self) -> list[Report]:
        return [m.report for m in self.visits if m.report is not None]

    @property
    def states(self) -> list[ServerState]:
        first, *others = self.moments
        return [first.turn.state, *(m.turn.state for m in others if m.turn.released is not None)]

    @property
    def given_up(self) -> list[int]:
        """Clients whose work came to nothing."""
        released = [m.turn.released for m in self.moments if m.turn.released is not None]
        return [client for r in released for client, _ in r.refused]


def drive(recipe: Recipe, federation: Federation, fleet: Fleet, *, versions: int = 3, augmented: bool = False) -> Heard:
    """The recipe on the in-line driver with a fleet."""
    engine, everybody = federation.engine(), range(len(federation.sizes))
    shards = [Scored(s, augmented) for s in federation.shards()]
    driver = InlineDriver(
        recipe,
        federation.setup(versions),
        engine,
        lambda number: shards[number],
        FleetState(fleet, len(everybody), federation.seed, everybody),
        Meter(engine.layout, lambda: COST),
    )
    return Heard(moments=tuple(driver.moments(engine.initial())))


def equal(one: Heard, other: Heard) -> bool:
    """Whether two runs are the same to the last bit: models, reports, and the times at which they were heard."""
    kept = ("client", "update", "buffers", "steps", "travel", "loss", "extras", "time", "packed")
    return (
        all(same((a.weights, a.buffers), (b.weights, b.buffers)) for a, b in zip(one.states, other.states, strict=True))
        and len(one.reports) == len(other.reports)
        and all(
            same([getattr(a, k) for k in kept], [getattr(b, k) for k in kept])
            for a, b in zip(one.reports, other.reports, strict=True)
        )
    )


def _by_one(more: int) -> Any:
    def fitting(plan: Plan, ahead: Ahead, forecast: Any) -> Plan:
        cut = _FITTING(plan, ahead, forecast)
        return cut if plan.within is None else replace(cut, steps=max(1, min(plan.steps, cut.steps + more)))

    return swap(visit_plan, "fitting", fitting)


@law(
    trial=trials(travels=True),
    parts=st.sampled_from(EXTRAS),
    fleet=st.sampled_from(FLEETS),
    deadline=st.booleans(),
    examples=20,
    broken_by={
        "a step less": _by_one(-1),
        "half of the time": swap(
            PartialWork, "change", lambda self, *given: replace(given[-1], within=1e-6 * self.seconds)
        ),
    },
)
def test_time_enough_for_everybody_cuts_nothing(
    trial: Trial, parts: tuple[Settings, ...], fleet: Fleet, deadline: bool
) -> None:
    trial = trial.but(cohort=3)
    wait = (Deadline(seconds=1e5),) if deadline else ()
    part = PartialWork(seconds=1e5)
    one, other = (drive(trial.recipe(*parts, *some), trial.federation, fleet) for some in ((part, *wait), ()))
    assert equal(one, other)


@law(
    trial=trials(),
    part=st.sampled_from((PartialWork(seconds=1e-3), PartialWork(seconds=60.0))),
    broken_by={
        "everybody is slow": swap(
            visit_plan,
            "fitting",
            lambda plan, ahead, known: _FITTING(plan, ahead, known or Pace(seconds_per_sample=9.0)),
        )
    },
)
def test_where_nobody_knows_the_pace_nothing_is_cut(trial: Trial, part: PartialWork) -> None:
    assert alike(play(trial.recipe(part), trial.federation), play(trial.recipe(), trial.federation))


def _free_links(self: Meter, *given: Any) -> Any:
    return replace(_AHEAD(self, *given), bytes_down=0, bytes_up=0)


def _foreseeing(other: Callable[[Ahead], dict[str, Any]]) -> Mutation:
    def ahead_of(*given: Any) -> Ahead:
        ahead = _AHEAD_OF(*given)
        return replace(ahead, **other(ahead))

    return swap(visit_plan, "ahead_of", ahead_of)


def _at_the_moment(moment: float, event: Event) -> bool:
    return event.time >= moment


SECONDS = st.sampled_from((0.3, 0.7, 1.1, 1.5, 2.0, 3.3))


@law(
    trial=trials(nets=tuple(NETS)),
    parts=st.sampled_from(EXTRAS),
    fleet=st.sampled_from(FLEETS),
    seconds=SECONDS,
    augmented=st.booleans(),
    examples=60,
    broken_by={
        "a step more": _by_one(1),
        "links are free": swap(Meter, "ahead", _free_links),
        "forward passes are free": swap(Ahead, "forward_samples", lambda self, steps: 0),
        "what is measured is free": swap(Ahead, "samples", lambda self, steps: self._used(steps)),
        "nothing is cut": swap(visit_plan, "fitting", lambda plan, ahead, known: plan),
    },
)
def test_nobody_is_late_who_can_make_a_step(
    trial: Trial, parts: tuple[Settings, ...], fleet: Fleet, seconds: float, augmented: bool
) -> None:
    trial = trial.but(cohort=3, epochs=4.0) if "epochs" in trial.common else trial.but(cohort=3, steps=9)
    recipe = trial.recipe(*parts, PartialWork(seconds=seconds), Deadline(seconds=seconds))
    heard = drive(recipe, trial.federation, fleet, augmented=augmented)
    for moment in heard.visits:
        report = moment.report
        assert report is not None
        in_time = moment.spent.seconds <= seconds
        assert in_time or report.steps == 1
        assert moment.turn.verdict is not None
        assert moment.turn.verdict.accepted or not in_time


@law(
    trial=trials(travels=True),
    parts=st.sampled_from(EXTRAS),
    augmented=st.booleans(),
    examples=60,
    broken_by={
        "scores are free": lambda patch: [patch.setattr(k, "looks", lambda self, p: 0) for k in (Order, Curriculum)],
        "controls are free": swap(ControlVariates, "extra_vectors", Mechanism.extra_vectors),
        "full batches are short": _foreseeing(lambda ahead: {"batches": tuple(max(1, b - 1) for b in ahead.batches)}),
        "judging is free": _foreseeing(lambda ahead: {"judged": 0}),
        "frozen models are free": _foreseeing(lambda ahead: {"frozen": 0}),
        "once, although every batch is another": _foreseeing(lambda ahead: {"reuse": True}),
        "traces are free": _foreseeing(lambda ahead: {"measured": 0}),
    },
)
def test_a_visit_is_never_more_than_was_foreseen(trial: Trial, parts: tuple[Settings, ...], augmented: bool) -> None:
    trial = trial.but(cohort=3)
    foreseen: list[tuple[Ahead, Plan]] = []
    recipe = trial.recipe(*parts, PartialWork(seconds=1e6))
    engine, shards = trial.federation.engine(), [Scored(s, augmented) for s in trial.federation.shards()]
    meter = Meter(engine.layout, lambda: COST)

    def noted(plan: Plan, ahead: Ahead, known: Any) -> Plan:
        foreseen.append((ahead, plan))
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visit_plan, "fitting", noted)
        driver = InlineDriver(
            recipe, trial.federation.setup(3), engine, lambda n: shards[n], trial.federation.world(), meter
        )
        heard = Heard(moments=tuple(driver.moments(engine.initial())))
    assert len(foreseen) == len(heard.visits)
    for (ahead, plan), moment in zip(foreseen, heard.visits, strict=True):
        assert moment.assignment is not None
        most = meter.ahead(recipe, moment.assignment, ahead.samples(plan.steps), ahead.forward_samples(plan.steps))
        load = moment.load
        assert load.samples <= most.samples
        assert load.forward_samples <= most.forward_samples
        assert load.flops <= most.flops
        assert load.bytes_up <= most.bytes_up
        assert load.bytes_down == most.bytes_down


def _counted_from_the_end(plan: Plan, ahead: Ahead, known: Any) -> Plan:
    cut = _FITTING(plan, ahead, known)
    return replace(cut, steps=max(1, plan.steps - cut.steps))


@law(
    trial=trials(nets=("logistic", "dropout")),
    parts=st.sampled_from(EXTRAS),
    fleet=st.sampled_from(FLEETS),
    seconds=st.lists(st.floats(0.01, 10.0), min_size=2, max_size=2),
    examples=25,
    broken_by={"what does not fit": swap(visit_plan, "fitting", _counted_from_the_end)},
)
def test_more_time_is_never_less_work(
    trial: Trial, parts: tuple[Settings, ...], fleet: Fleet, seconds: list[float]
) -> None:
    """In one version, so that all start from the same model; with whatever ends a visit by its data left out."""
    parts = tuple(p for p in parts if not isinstance(p, StopOnDrift))
    trial = trial.but(cohort=3, epochs=4.0) if "epochs" in trial.common else trial.but(cohort=3, steps=9)
    less, more = (
        drive(trial.recipe(*parts, PartialWork(seconds=s)), trial.federation, fleet, versions=1)
        for s in sorted(seconds)
    )
    full = drive(trial.recipe(*parts), trial.federation, fleet, versions=1)
    for a, b, c in zip(less.reports, more.reports, full.reports, strict=True):
        assert 1 <= a.steps <= b.steps <= c.steps


@law(
    num_samples=st.integers(1, 30),
    batch=st.integers(1, 8),
    epochs=st.integers(1, 4),
    eighths=st.integers(1, 400),
    tier=st.sampled_from((1, 2, 4)),
    latency=st.integers(0, 8),
    examples=60,
    broken_by={
        "a step less": _by_one(-1),
        "a step more": _by_one(1),
        "exactly in time is too late": swap(forecast, "bisect_right", bisect_left),
    },
)
def test_as_many_steps_as_fit_by_hand(
    num_samples: int, batch: int, epochs: int, eighths: int, tier: int, latency: int
) -> None:
    """All numbers are eighths of seconds, so that nothing is rounded."""
    fleet = Fleet(devices=Uniform(seconds_per_sample=tier / 8), links=FixedLinks(latency=latency / 8))
    recipe = fedavg(cohort=1, batch=batch, epochs=epochs) | PartialWork(seconds=eighths / 8)
    heard = drive(recipe, Federation(sizes=(num_samples,), net="logistic"), fleet, versions=2)
    a_pass = [min(batch, num_samples - start) for start in range(0, num_samples, batch)]
    ends = list(itertools.accumulate(tier * size for size in a_pass * epochs))
    for report in heard.reports:
        assert report.steps == max(1, sum(end <= eighths - 2 * latency for end in ends))


@law(
    num_samples=st.integers(2, 12),
    batch=st.integers(2, 5),
    steps=st.integers(2, 6),
    eighths=st.integers(2, 20),
    drop_last=st.booleans(),
    net=st.sampled_from(("logistic", "batchnorm")),
    examples=40,
    broken_by={
        "as if every visit began with a pass": swap(
            visit_plan,
            "ahead_of",
            lambda *given: _AHEAD_OF(*given[:-2], replace(given[-2], continues=False), given[-1]),
        ),
        "short batches are full": swap(Shuffled, "complete", property(lambda self: False)),
    },
)
def test_where_passes_go_on_the_batches_that_are_next_are_counted(
    num_samples: int, batch: int, steps: int, eighths: int, drop_last: bool, net: str
) -> None:
    """Each visit takes one step more, if it can, exactly where all samples of that step fit too."""
    fleet = Fleet(devices=Uniform(seconds_per_sample=1 / 8))
    federation = Federation(sizes=(num_samples,), net=net)
    recipe = fedavg(cohort=1, batch=batch, steps=steps, drop_last=drop_last)
    sizes = list(batch_sizes(num_samples, batch, drop_last, net == "batchnorm"))
    place = 0
    for report in drive(recipe | PartialWork(seconds=eighths / 8), federation, fleet, versions=4).reports:
        ends = list(itertools.accumulate((sizes * 13)[place : place + steps]))
        assert report.steps == max(1, sum(end <= eighths for end in ends))
        place = (place + report.steps) % len(sizes)


def _cut_where_it_stands(self: PartialWork, *given: Any) -> Plan:
    plan: Plan = given[-1]
    return replace(plan, steps=min(plan.steps, 3))


@law(
    trial=trials(),
    parts=st.permutations(
        (
            PartialWork(seconds=0.9),
            BudgetSteps(budgets=Listed(shares=(1.0, 0.5, 0.4))),
            StopOnDrift(a=0.98, b=0, representation="logits"),
            SkipAndEstimate(budgets=Listed(shares=(1.0, 0.5))),
        )
    ),
    fleet=st.sampled_from(FLEETS),
    examples=15,
    broken_by={"cut where it stands": swap(PartialWork, "change", _cut_where_it_stands)},
)
def test_it_does_not_matter_where_it_stands(trial: Trial, parts: list[Settings], fleet: Fleet) -> None:
    trial = trial.but(cohort=3, epochs=4.0) if "epochs" in trial.common else trial.but(cohort=3, steps=9)
    recipe = trial.recipe(*parts)
    mixed, straight = (
        drive(some, trial.federation, fleet, versions=4) for some in (replace(recipe, modifiers=tuple(parts)), recipe)
    )
    assert equal(mixed, straight)


def _planned(assignment: Any, num_samples: int, **rest: Any) -> Report:
    return _REPORT(assignment, num_samples, **rest | {"steps": 3 * rest.get("steps", 0)})


def _rate_of_the_whole(self: local_run.LocalRun, step: int) -> float:
    steps = self.plan.steps * (3 if isinstance(self.recipe.work, PartialWork) else 1)
    return self.recipe.optimiser.lr * self.recipe.schedule.factor(step, steps)


@law(
    net=st.sampled_from(("perceptron", "dropout")),
    parts=st.sampled_from(
        (
            (),
            (ControlVariates(),),
            (NormalisedAveraging(),),
            (PerStep(),),
            (VarianceReduction(), PerStep(divide="travel")),
        )
    ),
    momentum=st.sampled_from((0.0, 0.9)),
    broken_by={
        "the steps that were planned": swap(training, "report_on", _planned),
        "rates of the whole plan": swap(local_run.LocalRun, "rate", _rate_of_the_whole),
    },
)
def test_a_part_of_the_work_is_as_if_no_more_had_been_asked(
    net: str, parts: tuple[Settings, ...], momentum: float
) -> None:
    """Three epochs in the time of one are one epoch, whatever divides by steps, and with a rate that falls by step."""
    federation, fleet = Federation(net=net, sizes=(6, 6, 6, 6)), Fleet(devices=Uniform(seconds_per_sample=0.125))
    three, one = (fedavg(cohort=3, epochs=e, batch=3, momentum=momentum, schedule=Cosine(unit="step")) for e in (3, 1))
    for part in parts:
        three, one = three | part, one | part
    cut, short = drive(three | PartialWork(seconds=0.75), federation, fleet), drive(one, federation, fleet)
    assert equal(cut, short)
    assert {r.steps for r in cut.reports} == {2}


@law(
    clients=st.integers(1, 5),
    eighths=st.integers(1, 100),
    patience=st.booleans(),
    broken_by={
        "at the moment itself": swap(readiness, "passed", _at_the_moment),
    },
)
def test_all_who_are_exactly_in_time_are_in_time(clients: int, eighths: int, patience: bool) -> None:
    wait = TimeOut(seconds=eighths / 8) if patience else Deadline(seconds=eighths / 8)
    recipe = fedavg(cohort=clients, batch=None, epochs=1)
    fleet = Fleet(devices=Uniform(seconds_per_sample=eighths / 64))
    heard = drive(recipe | wait, Federation(sizes=(8,) * clients, net="logistic"), fleet)
    assert heard.given_up == []
    assert [s.began for s in heard.states] == [version * eighths / 8 for version in range(4)]
    hair = replace(wait, seconds=wait.seconds * (1 - 2**-40))
    late = drive(recipe | hair, Federation(sizes=(8,) * clients, net="logistic"), fleet)
    assert not any(m.turn.verdict.accepted for m in late.visits if m.turn.verdict is not None)
    assert same(late.states[-1].weights, late.states[0].weights)


def _again_and_again(self: Readiness, state: ServerState, event: Event) -> float | None:
    return state.began + (self.recipe.due or 0.0) if state.training else None


@law(
    seconds=st.floats(0.01, 3.0),
    count=st.integers(1, 3),
    broken_by={"again and again": swap(Readiness, "wake_up", _again_and_again)},
)
def test_a_deadline_wakes_the_server_once(seconds: float, count: int) -> None:
    """Also where it must then wait for more reports."""
    recipe = fedavg(cohort=3, batch=4, epochs=1) | Deadline(seconds=seconds) | MinReports(count=count)
    engine, shards, federation = Federation().engine(), Federation().shards(), Federation()
    world = FleetState(FLEETS[1], 4, 0, range(4))
    driver = InlineDriver(recipe, federation.setup(3), engine, lambda number: shards[number], world)
    timers: list[float] = []
    for moment in driver.moments(engine.initial()):
        timers += [moment.time] if isinstance(moment.event, Timer) and moment.time else []
        assert len(timers) <= 30  # it would go on for ever
    assert len(timers) == len(set(timers))
