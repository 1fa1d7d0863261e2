"""How much a client does on which samples: whole passes, nothing skipped, fresh orders that repeat from run to run."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from polyrhythm.base.streams import stream
from polyrhythm.core import local_run
from polyrhythm.core.client_state import Memory
from polyrhythm.core.local_run import LocalRun
from polyrhythm.methods.local.schedules import Cosine, Exponential, Power, Schedule, StepDecay
from polyrhythm.methods.order import base as order
from polyrhythm.methods.order.base import Shuffled
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.work.base import Epochs, Plan, Steps

from .law import law, swap
from .trials import Misfortune, misfortunes
from .world import Federation, Run, play, run

# What mutants wrap.
_CUT = local_run.cut

SIZES = (1, 7, 9, 16)
NETS = st.sampled_from(("logistic", "batchnorm"))
BATCHES = st.sampled_from((2, 4, 7, 16, 100, None))


def flat(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def passes(story: Run, number: int) -> list[int]:
    """Everything a client trained on, visit after visit."""
    return flat([flat(story.batches[d]) for d in story.visits(number)])


def _one_order(self: Shuffled, visit: Any, *given: Any) -> np.ndarray:
    return np.random.default_rng(visit.client).permutation(visit.num_samples)


def _with_repeats(self: Shuffled, visit: Any, name: Any, *given: Any) -> np.ndarray:
    rng = stream(visit.seed, "order", visit.client, *name)
    return np.asarray(rng.integers(0, visit.num_samples, visit.num_samples))


def _one_step_less(self: Epochs, setup: Any, visit: Any, state: Any, brief: Any) -> Plan:
    return Plan(steps=max(1, visit.epoch_steps - 1))


def _rounded_down(self: Epochs, setup: Any, visit: Any, state: Any, brief: Any) -> Plan:
    return Plan(steps=max(1, math.floor(self.epochs * visit.epoch_steps)))


def _cut_always_drops(num_samples: int, batch: int, drop_last: bool, fold_single: bool) -> list[slice]:
    return [
        s for s in _CUT(num_samples, batch, drop_last, fold_single) if s.stop - s.start >= batch or num_samples < batch
    ]


@law(
    net=NETS,
    batch=BATCHES,
    epochs=st.sampled_from((1.0, 2.0)),
    examples=20,
    broken_by={
        "sampled with repeats": swap(Shuffled, "one_pass", _with_repeats),
        "short batches dropped unasked": swap(local_run, "cut", _cut_always_drops),
        "one step too few": swap(Epochs, "plan", _one_step_less),
    },
)
def test_an_epoch_uses_every_sample_once(net: str, batch: int | None, epochs: float) -> None:
    federation = Federation(sizes=SIZES, net=net)
    story = run(fedavg(cohort=4, epochs=epochs, batch=batch), federation)
    for dispatch, assignment in story.assignments.items():
        held, used = SIZES[assignment.client], flat(story.batches[dispatch])
        if net == "batchnorm" and held == 1:
            assert used == []
            continue
        rounds = [used[i : i + held] for i in range(0, len(used), held)]
        assert len(rounds) == epochs
        assert all(sorted(r) == list(range(held)) for r in rounds)


@law(
    batch=BATCHES,
    epochs=st.sampled_from((0.1, 0.5, 1.0, 1.5, 3.0)),
    drop_last=st.booleans(),
    examples=20,
    broken_by={
        "rounded down": swap(Epochs, "plan", _rounded_down),
        "the short batch kept": swap(local_run, "cut", lambda held, batch, drop, fold: _CUT(held, batch, False, fold)),
    },
)
def test_a_fraction_of_an_epoch_is_that_many_of_its_steps(batch: int | None, epochs: float, drop_last: bool) -> None:
    story = run(fedavg(cohort=4, epochs=epochs, batch=batch, drop_last=drop_last), Federation(sizes=SIZES))
    for dispatch, assignment in story.assignments.items():
        held = SIZES[assignment.client]
        size = min(batch or held, held)
        a_pass = max(1, held // size) if drop_last else math.ceil(held / size)
        assert len(story.batches[dispatch]) == max(1, math.floor(epochs * a_pass + 0.5))
        assert len(story.batches[dispatch]) == story.reports[dispatch].steps
        assert sum(map(len, story.batches[dispatch])) == story.reports[dispatch].samples
        if drop_last:
            assert all(len(b) == size for b in story.batches[dispatch])


@law(
    num_samples=st.integers(0, 20),
    batch=st.integers(1, 8),
    drop_last=st.booleans(),
    fold_single=st.booleans(),
    examples=100,
    broken_by={
        "a single sample on its own": swap(
            local_run, "cut", lambda held, batch, drop, fold: _CUT(held, batch, drop, False)
        ),
        "nothing left of a small client": swap(
            local_run,
            "cut",
            lambda held, batch, drop, fold: _CUT(held, batch, drop, fold)[: held // batch],
        ),
    },
)
def test_a_pass_is_cut_into_full_batches_and_a_rest(
    num_samples: int, batch: int, drop_last: bool, fold_single: bool
) -> None:
    assume(batch > 1 or not fold_single)  # refused before a run starts
    pieces = local_run.cut(num_samples, batch, drop_last, fold_single)
    sizes = [s.stop - s.start for s in pieces]
    assert [i for s in pieces for i in range(s.start, s.stop)] == list(range(sum(sizes)))
    assert all(size == batch for size in sizes[:-1])
    if fold_single:
        assert 1 not in sizes
        assert (sum(sizes) == 0) == (num_samples <= 1)
    else:
        assert sum(sizes) > 0 or num_samples == 0
    dropped = num_samples - sum(sizes)
    assert dropped == (
        num_samples % batch if drop_last and num_samples > batch else 1 if fold_single and num_samples == 1 else 0
    )


@law(
    steps=st.integers(1, 6),
    batch=st.sampled_from((2, 3, 5)),
    net=NETS,
    happening=misfortunes(),
    examples=20,
    broken_by={
        "starts afresh with every visit": swap(Steps, "plan", lambda self, *given: Plan(steps=self.steps)),
        "refused visits move on": swap(
            Memory, "at", lambda self, accepted: self.accepted if self.provisional is None else self.provisional
        ),
        "sampled with repeats": swap(Shuffled, "one_pass", _with_repeats),
    },
)
def test_steps_go_through_all_samples_before_any_comes_again(
    steps: int, batch: int, net: str, happening: Misfortune
) -> None:
    federation = Federation(sizes=(7, 12, 9), net=net)
    story = play(fedavg(cohort=3, steps=steps, batch=batch), federation, versions=6, happening=happening)
    for number, held in enumerate(federation.sizes):
        visits = [d for d in story.visits(number) if story.accepted[d]]
        assert all(len(story.batches[d]) == steps for d in story.visits(number))
        used = flat([flat(story.batches[d]) for d in visits])
        rounds = [used[i : i + held] for i in range(0, len(used), held)]
        assert all(sorted(r) == list(range(held)) for r in rounds[:-1])
        assert len(set(rounds[-1])) == len(rounds[-1])
        if len(rounds) > 2:
            assert rounds[0] != rounds[1]


@law(
    steps=st.booleans(),
    seeds=st.permutations((0, 1, 2)),
    broken_by={
        "one order for ever": swap(Shuffled, "one_pass", _one_order),
        "one order for all clients": swap(order, "stream", lambda seed, *names: np.random.default_rng(seed)),
    },
)
def test_orders_differ_by_visit_client_and_seed_and_repeat_by_run(steps: bool, seeds: list[int]) -> None:
    common = Common(cohort=3, batch=5) | (Common(steps=2) if steps else Common(epochs=2))
    recipe, federation = fedavg(**common), Federation(sizes=(10, 10, 10), seed=seeds[0])
    story, again = run(recipe, federation), run(recipe, federation)
    other = run(recipe, replace(federation, seed=seeds[1]))
    assert story.batches == again.batches
    orders = []
    for one in (story, other):
        for number in range(3):
            used = passes(one, number)
            orders += [tuple(used[i : i + 10]) for i in range(0, len(used), 10)]
    assert len(set(orders)) == len(orders)


VERSIONED: tuple[Schedule, ...] = (
    StepDecay(every=2, gamma=0.5),
    Exponential(gamma=0.7),
    Cosine(floor=0.1),
    Power(unit="version"),
)


def _by_visit(self: LocalRun, step: int) -> float:
    factor: float = self.recipe.schedule.factor(self.visit.visit, self.visit.total_rounds)
    return float(self.recipe.optimiser.lr * factor)


def _one_later(self: LocalRun, step: int) -> float:
    factor: float = self.recipe.schedule.factor(self.visit.version + 1, self.visit.total_rounds)
    return float(self.recipe.optimiser.lr * factor)


@law(
    schedule=st.sampled_from(VERSIONED),
    cohort=st.integers(1, 3),
    broken_by={
        "restarts for who was away": swap(LocalRun, "rate", _by_visit),
        "a version too early": swap(LocalRun, "rate", _one_later),
    },
)
def test_a_schedule_by_version_does_not_restart_for_the_absent(schedule: Schedule, cohort: int) -> None:
    versions = 8
    story = run(fedavg(cohort=cohort, steps=2, lr=0.2, schedule=schedule), Federation(), versions=versions)
    for dispatch, assignment in story.assignments.items():
        rate = 0.2 * schedule.factor(assignment.version, versions)
        assert math.isclose(story.reports[dispatch].rate, rate)
        assert math.isclose(story.reports[dispatch].travel, 2 * rate)
    assert [a.visit for a in story.assignments.values()] != [a.version for a in story.assignments.values()]


@law(
    gamma=st.sampled_from((0.5, 0.9)),
    steps=st.integers(2, 6),
    broken_by={
        "never moves": swap(LocalRun, "rate", lambda self, step: self.recipe.optimiser.lr),
        "goes on over visits": swap(
            LocalRun,
            "rate",
            lambda self, step: (
                self.recipe.optimiser.lr * self.recipe.schedule.factor(step + self.plan.steps * self.visit.visit, None)
            ),
        ),
    },
)
def test_a_schedule_by_step_restarts_with_every_visit(gamma: float, steps: int) -> None:
    recipe = fedavg(cohort=4, steps=steps, lr=0.2, schedule=Exponential(gamma=gamma, unit="step"))
    story = run(recipe, Federation(), versions=3)
    for report in story.reports.values():
        assert report.rate == 0.2
        assert math.isclose(report.travel, sum(0.2 * gamma**k for k in range(steps)))
