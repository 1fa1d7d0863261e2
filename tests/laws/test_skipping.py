"""Clients that cannot afford every visit: who trains when, what is sent in its place, and that nothing else moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import Assignment, Event, Lost, Report
from polyrhythm.base.settings import Settings
from polyrhythm.base.sums import combine_buffers
from polyrhythm.core import versions
from polyrhythm.core.client_state import ClientState, Memory
from polyrhythm.core.training import Training
from polyrhythm.methods.correction import ControlVariates, DynamicRegularisation, ModelContrast, VarianceReduction
from polyrhythm.methods.mechanism import Setup, Visit
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.weighing import Equal, NormalisedAveraging, PerStep
from polyrhythm.methods.work.base import Plan
from polyrhythm.methods.work.budgets import Budgets, Levels, Listed, SlowShare
from polyrhythm.methods.work.skip_and_estimate import (
    BudgetSteps,
    SkipAndEstimate,
    SkipAndResendModel,
    Skipping,
    SkipSilently,
)

from .law import law, swap
from .trials import Misfortune, Trial, misfortunes, trials
from .world import Federation, Run, alike, near, play, run, same

# What mutants wrap.
_FINISH, _CHANGE = SkipAndEstimate.finish, SkipAndEstimate.change
_SUBSTITUTE = Training.substitute
_RUN = Training.run

HALF = Listed(shares=(0.5,))
MIXED = Listed(shares=(1.0, 0.5, 0.3, 0.2))
MIXES: tuple[tuple[Settings, ...], ...] = (
    (),
    (ControlVariates(), NormalisedAveraging()),
    (VarianceReduction(), PerStep()),
    (DynamicRegularisation(alpha=0.1), Equal()),
    (ModelContrast(layer="logits"),),
)
Fates = Callable[[Assignment, Report], Event]


def fair(fates: Misfortune) -> Fates:
    """Loses any report, but spoils only what was trained, as nothing can be wrong with a movement at the server."""
    again = Misfortune(fates.fates)

    def happening(assignment: Assignment, report: Report) -> Event:
        if report.substitute == "silence":
            return report  # so that something whole arrives in a version, or nothing at all
        event = again(assignment, report if report.update is not None else replace(report, update=torch.zeros(1)))
        return event if isinstance(event, Lost) or report.fresh else report

    return happening


@law(
    trial=trials(),
    parts=st.sampled_from(MIXES),
    policy=st.sampled_from((SkipAndEstimate, SkipAndResendModel, SkipSilently, BudgetSteps)),
    schedule=st.sampled_from(("ad_hoc", "round_robin", "exhaust")),
    examples=15,
    broken_by={
        "budgets are half of what they are": swap(Listed, "share", lambda self, *given: 0.5),
        "nobody trains twice": swap(Skipping, "trains", lambda self, setup, visit: visit.visit == 0),
    },
)
def test_who_can_afford_everything_does_the_inner_work(
    trial: Trial, parts: tuple[Settings, ...], policy: Any, schedule: Any
) -> None:
    part = policy(budgets=Listed(shares=(1.0,)))
    if policy is not BudgetSteps:
        part = replace(part, schedule=schedule)
    if policy is SkipAndResendModel and PerStep() in parts:
        parts = ()
    assert alike(run(trial.recipe(*parts, part), trial.federation), run(trial.recipe(*parts), trial.federation))


def decisions(story: Run) -> list[object]:
    return [
        (r.client, r.visit, r.version, r.substitute, r.age, r.steps, r.travel, r.rate, r.samples)
        for r in story.reports.values()
    ]


def never_rolled_back(patch: Any) -> None:
    patch.setattr(Memory, "at", lambda self, visit: self.accepted if self.provisional is None else self.provisional)


def _zeros(self: SkipAndEstimate, setup: Setup, state: Any, report: Report) -> Report:
    return replace(report, update=setup.zeros()) if report.update is None else report


@law(
    trial=trials(travels=True),
    parts=st.sampled_from(MIXES),
    cold=st.sampled_from(("train", "zero", "exclude")),
    expire=st.sampled_from((None, 2)),
    happening=misfortunes(),
    examples=20,
    broken_by={
        "clients keep what was refused": never_rolled_back,
        "the server sends nothing": swap(SkipAndEstimate, "fill", _zeros),
    },
)
def test_it_does_not_matter_who_keeps_the_movement(
    trial: Trial, parts: tuple[Settings, ...], cold: Any, expire: int | None, happening: Misfortune
) -> None:
    stories = {}
    for storage in ("client", "server", "mixed"):
        part = SkipAndEstimate(budgets=MIXED, storage=storage, cold_start=cold, expire=expire)
        recipe = trial.recipe(*parts, part)
        stories[storage] = play(recipe, trial.federation, versions=6, happening=fair(happening))
    one = stories["client"]
    for storage, other in stories.items():
        assert decisions(one) == decisions(other)
        assert one.accepted == other.accepted
        for a, b in zip(one.states, other.states, strict=True):
            assert same((a.version, a.weights, a.buffers, a.clients), (b.version, b.weights, b.buffers, b.clients))
        kept = {"client": 0, "server": len(trial.federation.sizes), "mixed": len(trial.federation.sizes) // 2}[storage]
        for report in other.reports.values():
            if report.substitute == "movement":
                assert (report.update is None) == (report.client < kept)


def last_trained(story: Run, dispatch: int) -> int | None:
    """The dispatch number of a client's last accepted visit that trained, before a visit of its."""
    earlier = [d for d in story.visits(story.assignments[dispatch].client) if d < dispatch]
    trained = [d for d in earlier if story.accepted[d] and story.reports[d].fresh]
    return trained[-1] if trained else None


def _forgets_its_steps(self: Any, setup: Any, state: Any, brief: Any, outcome: Any) -> Any:
    return _FINISH(self, setup, state, brief, replace(outcome, steps=1, travel=1.0))


def _ageless(self: Any, instead: Any, received: Any) -> Report:
    return replace(_SUBSTITUTE(self, instead, received), age=0)


@law(
    trial=trials(),
    policy=st.sampled_from((SkipAndEstimate(budgets=HALF), SkipAndResendModel(budgets=HALF))),
    happening=misfortunes(),
    examples=20,
    broken_by={
        "clients keep what was refused": never_rolled_back,
        "a movement forgets its steps": swap(SkipAndEstimate, "finish", _forgets_its_steps),
        "age is not told": swap(Training, "substitute", _ageless),
    },
)
def test_a_skip_sends_what_the_last_accepted_training_gave(
    trial: Trial, policy: Skipping, happening: Misfortune
) -> None:
    story = play(trial.recipe(policy), trial.federation, versions=6, happening=fair(happening))
    for dispatch, report in story.reports.items():
        origin = last_trained(story, dispatch)
        if report.fresh:
            continue
        assert origin is not None
        trained, received = story.reports[origin], story.assignments[dispatch].weights
        right = trained.update
        assert right is not None
        assert report.update is not None
        if isinstance(policy, SkipAndResendModel):
            right = story.assignments[origin].weights + right - received
        assert near(report.update, right, 0 if isinstance(policy, SkipAndEstimate) else 1e-6)
        assert report.age == report.version - trained.version
        assert (report.steps, report.travel, report.pull, report.rate) == (
            *(trained.steps, trained.travel, trained.pull, trained.rate),
        )


@law(
    cold=st.sampled_from(("train", "zero", "exclude")),
    storage=st.sampled_from(("client", "server")),
    happening=misfortunes(),
    broken_by={
        "always silent": swap(
            SkipAndEstimate, "change", lambda self, *given: _CHANGE(replace(self, cold_start="exclude"), *given)
        ),
        "always trains": swap(
            SkipAndEstimate, "change", lambda self, *given: _CHANGE(replace(self, cold_start="train"), *given)
        ),
    },
)
def test_without_a_movement_a_client_does_as_cold_start_says(cold: Any, storage: Any, happening: Misfortune) -> None:
    part = SkipAndEstimate(budgets=Listed(shares=(0.4,)), cold_start=cold, storage=storage)
    story = play(fedavg(cohort=3) | part, Federation(), versions=5, happening=fair(happening))
    colds = [r for d, r in story.reports.items() if last_trained(story, d) is None]
    if cold == "train":
        assert all(r.fresh for r in colds)
    elif cold == "exclude":
        assert {r.substitute for r in colds} <= {"", "silence"}
        assert any(r.substitute == "silence" for r in colds)
    else:
        assert {r.substitute for r in colds} <= {"", "movement"}
        assert any(r.substitute == "movement" for r in colds)
        for released in story.released:
            for report in released.release.reports if released.release else ():
                if report.dispatch in [r.dispatch for r in colds if not r.fresh]:
                    assert report.update is not None
                    assert not report.update.any()


def _keeps_for_ever(patch: Any) -> None:
    original = SkipAndEstimate.change
    patch.setattr(SkipAndEstimate, "change", lambda self, *given: original(replace(self, expire=None), *given))


@law(
    expire=st.integers(1, 5),
    period=st.sampled_from((2, 3, 4, 8)),
    broken_by={"kept for ever": _keeps_for_ever},
    examples=12,
)
def test_a_movement_expires(expire: int, period: int) -> None:
    part = SkipAndEstimate(budgets=Listed(shares=(1 / period,)), schedule="round_robin", expire=expire)
    story = run(fedavg(cohort=2, steps=1) | part, Federation(sizes=(4, 5), net="logistic"), versions=10)
    last = 0
    for version in range(10):
        if version % period == 0 or version - last > expire:
            last = version
        reports = [r for r in story.reports.values() if r.version == version]
        assert [r.age for r in reports] == [version - last] * 2
        assert [r.fresh for r in reports] == [version == last] * 2


SETUP = Setup(size=1, dtype=torch.float32, population=100, total_rounds=400, seed=0)


def visit(client: int, visit: int, version: int, total_rounds: int | None = 400, seed: int = 0) -> Visit:
    return Visit(
        seed=seed,
        client=client,
        visit=visit,
        version=version,
        total_rounds=total_rounds,
        num_samples=8,
        batch=4,
        epoch_steps=2,
    )


def _truncated(self: Skipping, setup: Setup, visit: Visit) -> bool:
    share = self.share(setup, visit.client)
    turn = visit.version if self.turns == "versions" else visit.visit
    turn += visit.client if self.phases == "staggered" else 0
    return math.floor((turn + 1) * share) > math.floor(turn * share)


@law(
    period=st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 49)),
    turns=st.sampled_from(("versions", "visits")),
    phases=st.sampled_from(("synchronised", "staggered")),
    number=st.integers(0, 99),
    start=st.integers(0, 2000),
    broken_by={"at the end of a period, with rounding": swap(Skipping, "trains", _truncated)},
    examples=50,
)
def test_round_robin_trains_once_in_every_period(period: int, turns: Any, phases: Any, number: int, start: int) -> None:
    part = SkipSilently(budgets=Listed(shares=(1 / period,)), schedule="round_robin", turns=turns, phases=phases)
    for turn in range(start, start + 2 * period):
        other = turn // 3
        where = visit(number, other, turn) if turns == "versions" else visit(number, turn, other)
        first = turn + (number if phases == "staggered" else 0)
        assert part.trains(SETUP, where) == (first % period == 0)


@law(
    thousandths=st.one_of(st.sampled_from((125, 250, 290, 500, 570, 1000)), st.integers(1, 1000)),
    number=st.integers(0, 99),
    versions=st.sampled_from((100, 400)),
    broken_by={
        "one version less": swap(
            Skipping, "trains", lambda self, setup, v: v.version < v.total_rounds * self.share(setup, 0)
        ),
        "29 of 100 are 28": swap(
            Skipping, "trains", lambda self, setup, v: v.version <= v.total_rounds * self.share(setup, 0)
        ),
    },
    examples=40,
)
def test_exhaust_trains_until_the_budget_is_spent(thousandths: int, number: int, versions: int) -> None:
    part = SkipSilently(budgets=Listed(shares=(thousandths / 1000,)), schedule="exhaust")
    trained = [v for v in range(versions) if part.trains(SETUP, visit(number, 0, v, versions))]
    # At T = 400, a client with p = 1/8 trains in versions 0 to 50.
    assert trained == list(range(min(versions, thousandths * versions // 1000 + 1)))


@law(
    share=st.sampled_from((0.2, 0.5, 0.9)),
    seed=st.integers(0, 3),
    broken_by={
        "one coin for all": swap(
            Skipping,
            "trains",
            lambda self, setup, v: v.visit % 10 < 10 * self.share(setup, v.client),
        )
    },
)
def test_coins_are_independent_and_as_frequent_as_the_budget(share: float, seed: int) -> None:
    part = SkipSilently(budgets=Listed(shares=(share,)))
    coins = torch.tensor(
        [[part.trains(SETUP, visit(c, v, 7 * v, seed=seed)) for v in range(50)] for c in range(40)]
    ).double()
    # Five standard deviations of 2000, of 40 and of 50 coins.
    spread = 5 * math.sqrt(share * (1 - share))
    assert abs(coins.mean() - share) < spread / math.sqrt(2000)
    assert ((coins.mean(0) - share).abs() < spread / math.sqrt(40)).all()
    assert ((coins.mean(1) - share).abs() < spread / math.sqrt(50)).all()


def _one_group_more(self: Levels, client: int, population: int, seed: int) -> float:
    return float(0.5 ** ((self.levels + 1) * client // population))


@law(
    levels=st.integers(1, 6),
    order=st.sampled_from(("paper", "code", "random")),
    population=st.sampled_from((1, 4, 10, 100)),
    seed=st.integers(0, 3),
    broken_by={"one group more": swap(Levels, "share", _one_group_more)},
    examples=30,
)
def test_levels_halve_from_group_to_group(levels: int, order: Any, population: int, seed: int) -> None:
    budgets = Levels(levels=levels, order=order)
    found = [budgets.share(c, population, seed) for c in range(population)]
    right = [0.5 ** math.floor(levels * i / population) for i in range(population)]
    if order == "random":
        assert sorted(found, reverse=True) == right
        assert found == [budgets.share(c, population, seed) for c in range(population)]
        if population == 100 and levels > 1:
            assert found != right
            assert found != [budgets.share(c, population, seed + 1) for c in range(population)]
    else:
        assert found == (right if order == "paper" else right[::-1])
    if (levels, population) == (4, 100):
        assert math.isclose(math.fsum(found) / 100, 0.46875)


@law(
    percent=st.integers(0, 100),
    period=st.integers(1, 8),
    shares=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5),
    broken_by={
        "the last are slow": swap(
            SlowShare, "share", lambda self, c, n, seed: 1 / self.period if c >= n - self.share_slow * n else 1.0
        ),
        "29 of 100 are 28": swap(
            SlowShare, "share", lambda self, c, n, seed: 1 / self.period if c < int(self.share_slow * n) else 1.0
        ),
    },
    examples=60,
)
def test_slow_and_listed_budgets(percent: int, period: int, shares: list[float]) -> None:
    slow, listed = SlowShare(share_slow=percent / 100, period=period), Listed(shares=tuple(shares))
    for population in (20, 100):
        count = percent * population // 100
        expected = [1 / period] * count + [1.0] * (population - count)
        assert [slow.share(c, population, 0) for c in range(population)] == expected
    assert [listed.share(c, 20, 0) for c in range(20)] == [shares[c % len(shares)] for c in range(20)]


def _claims_work(self: Any, instead: Any, received: Any) -> Report:
    return replace(_SUBSTITUTE(self, instead, received), samples=1)


def _begins_anew(self: Any) -> Any:
    state, report = yield from _RUN(self)
    return (state if report.fresh else ClientState()), report


@law(
    trial=trials(),
    parts=st.sampled_from(MIXES),
    policy=st.sampled_from(
        (SkipAndEstimate(budgets=HALF), SkipAndEstimate(budgets=HALF, storage="server"), SkipSilently(budgets=HALF))
    ),
    happening=misfortunes(),
    examples=15,
    broken_by={
        "a skip claims work": swap(Training, "substitute", _claims_work),
        "a skip begins anew": swap(Training, "run", _begins_anew),
    },
)
def test_a_skip_costs_nothing_and_teaches_nothing(
    trial: Trial, parts: tuple[Settings, ...], policy: Skipping, happening: Misfortune
) -> None:
    story = play(trial.recipe(*parts, policy), trial.federation, versions=5, happening=fair(happening))
    skipped = [d for d, r in story.reports.items() if not r.fresh]
    for dispatch in skipped:
        report = story.reports[dispatch]
        assert (report.samples, report.forward_samples, report.gradient_samples, report.loss) == (0, 0, 0, None)
        assert (report.buffers, report.extras, report.measures) == ((), {}, {})
        assert story.batches[dispatch] == []
        assert same(story.ends[dispatch], story.starts[dispatch])
    for before, after in zip(story.states, story.states[1:], strict=False):
        release = story.released[after.version - 1].release
        trained = {r.client for r in release.fresh} if release is not None else set()
        old = before.parts.get("variance_reduction", {}).get("drift", {})
        new = after.parts.get("variance_reduction", {}).get("drift", {})
        assert all(same(new.get(c), old.get(c)) for c in range(5) if c not in trained)
        for key, name in (("control_variates", "control"), ("dynamic_regularisation", "h")):
            if key in before.parts and not trained:
                assert same(before.parts[key][name], after.parts[key][name])


@law(
    net=st.sampled_from(("logistic", "batchnorm")),
    broken_by={"they train": swap(Skipping, "trains", lambda self, setup, visit: True)},
)
def test_where_everybody_is_silent_the_model_stays(net: str) -> None:
    story = run(fedavg(cohort=3) | SkipSilently(budgets=Listed(shares=(1e-12,))), Federation(net=net))
    assert [r.substitute for r in story.reports.values()] == ["silence"] * 9
    assert all(r.update is None for r in story.reports.values())
    assert [s.version for s in story.states] == [0, 1, 2, 3]
    for state, released in zip(story.states[1:], story.released, strict=True):
        assert same((state.weights, state.buffers), (story.states[0].weights, story.states[0].buffers))
        assert released.release is None
        assert released.note == "everybody was silent"


def _moves_again(self: Any, instead: Any, received: Any) -> Report:
    report: Report = _SUBSTITUTE(self, instead, received)
    if instead.kind == "model":
        return replace(report, update=torch.zeros_like(received.weights))
    return report


@law(
    trial=trials(everybody=True),
    happening=misfortunes(),
    broken_by={
        "the received model again": swap(Training, "substitute", _moves_again),
        "clients keep what was refused": never_rolled_back,
    },
)
def test_strategy_two_is_the_mean_of_last_local_models(trial: Trial, happening: Misfortune) -> None:
    federation = replace(trial.federation, dtype=torch.float64)
    recipe = trial.recipe(Equal(), SkipAndResendModel(budgets=HALF))
    story = play(recipe, federation, versions=6, happening=fair(happening))
    for after, released in zip(story.states[1:], story.released, strict=True):
        assert released.release is not None
        models: list[Tensor] = []
        for report in released.release.reports:
            origin = report.dispatch if report.fresh else last_trained(story, report.dispatch)
            assert origin is not None
            update = story.reports[origin].update
            assert update is not None
            models.append(story.assignments[origin].weights + update)
        assert near(after.weights, torch.stack(models).mean(0), 1e-12)


def _with_the_servers(layout: Any, many: Any, shares: Any) -> Any:
    return combine_buffers(layout, [*many, many[0]], [s / 2 for s in shares] + [0.5])


@law(
    policy=st.sampled_from((SkipAndEstimate(budgets=HALF, cold_start="zero"), SkipAndResendModel(budgets=HALF))),
    seed=st.integers(0, 5),
    broken_by={"substitutes count too": swap(versions, "combine_buffers", _with_the_servers)},
)
def test_buffers_are_the_mean_of_those_who_trained(policy: Skipping, seed: int) -> None:
    federation = Federation(net="batchnorm", seed=seed, sizes=(5, 12, 7, 9))
    layout = federation.engine().layout
    story = run(fedavg(cohort=4) | policy, federation, versions=5)
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        assert released.release is not None
        fresh = released.release.fresh
        held = sum(r.num_samples for r in fresh)
        right = before.buffers
        if fresh:
            right = combine_buffers(layout, [r.buffers for r in fresh], [r.num_samples / held for r in fresh])
        assert same(after.buffers, right)


def _rounded_down(self: BudgetSteps, setup: Setup, visit: Visit, state: Any, brief: Any, plan: Plan) -> Plan:
    return replace(plan, steps=max(1, int(self.budgets.share(visit.client, 1, 0) * plan.steps)))  # type: ignore[union-attr]


@law(
    percent=st.integers(1, 100),
    steps=st.integers(1, 200),
    broken_by={"rounded down": swap(BudgetSteps, "change", _rounded_down)},
    examples=100,
)
def test_budget_steps_are_that_share_of_the_steps_rounded_up(percent: int, steps: int) -> None:
    recipe = fedavg(steps=steps) | BudgetSteps(budgets=Listed(shares=(percent / 100,)))
    parts = {key: part.client_start(SETUP) for key, part in recipe.mechanisms()}
    plan = recipe.planning.plan(SETUP, visit(3, 0, 0), parts, {})
    assert plan.steps == -(-percent * steps // 100)
    assert plan.continues


@law(
    budgets=st.sampled_from((Levels(levels=3), SlowShare(period=4), Listed(shares=(0.3, 0.6)))),
    part=st.sampled_from((SkipAndEstimate(), SkipAndResendModel(), SkipSilently())),
    broken_by={
        "the paper's, whatever the fleet": swap(Skipping, "share", lambda self, setup, c: Levels().share(c, 100, 0))
    },
)
def test_budgets_are_the_parts_own_or_the_fleets_or_the_papers(budgets: Budgets, part: Skipping) -> None:
    fleet = replace(SETUP, budgets=budgets)
    everybody = range(100)
    assert [part.share(SETUP, c) for c in everybody] == [Levels().share(c, 100, 0) for c in everybody]
    assert [part.share(fleet, c) for c in everybody] == [budgets.share(c, 100, 0) for c in everybody]
    assert [replace(part, budgets=HALF).share(fleet, c) for c in everybody] == [0.5] * 100
