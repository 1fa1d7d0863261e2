"""Policies around what a client does: in whichever order they are piped, they do the same."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from polyrhythm.base.settings import Settings
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Modifier, Setup, Visit
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.together import Planning
from polyrhythm.methods.work import base as work
from polyrhythm.methods.work.base import Epochs, Plan, RandomEpochs, Steps, Work
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndEstimate, SkipAndResendModel, SkipSilently
from polyrhythm.methods.work.stop_on_drift import StopOnDrift

from .law import law, swap
from .test_skipping import decisions, fair
from .trials import Misfortune, Trial, misfortunes, trials
from .world import Federation, alike, play, run

# What mutants wrap.
_BUDGET_PLAN, _PLAN, _PIPE = BudgetSteps.change, Planning.plan, Recipe.__or__

SETUP = Setup(size=1, dtype=torch.float32, population=8, total_rounds=9, seed=0)
SOME = Listed(shares=(1.0, 0.5, 0.4))


def visit(number: int, at: int, seed: int = 0) -> Visit:
    return Visit(seed=seed, client=number, visit=at, version=at, total_rounds=9, num_samples=7, batch=1, epoch_steps=7)


def epochs_of(part: Work, where: Visit) -> int:
    return part.plan(SETUP, where, {}, {}).steps // 7


def _one_more(self: RandomEpochs, setup: Any, visit: Visit, state: Any, brief: Any) -> Plan:
    return Epochs(epochs=self.epochs + 1).plan(setup, visit, state, brief)


@law(
    trial=trials(),
    epochs=st.integers(1, 3),
    broken_by={"an epoch more": swap(RandomEpochs, "plan", _one_more)},
)
def test_epochs_without_spread_are_epochs(trial: Trial, epochs: int) -> None:
    federation = trial.federation
    drawn, fixed = trial.recipe(RandomEpochs(epochs=epochs, spread=0)), trial.recipe(Epochs(epochs=epochs))
    assert alike(run(drawn, federation), run(fixed, federation))


def _without_the_largest(self: RandomEpochs, setup: Any, visit: Visit, state: Any, brief: Any) -> Plan:
    drawn = stream(visit.seed, "work", "epochs", visit.client, visit.visit)
    epochs = int(drawn.integers(self.epochs - self.spread, self.epochs + self.spread + (self.spread == 0)))
    return Epochs(epochs=epochs).plan(setup, visit, state, brief)


def _streams(*kept: int) -> Any:
    """Draws named by some of (client, visit) only."""
    return lambda seed, purpose, what, *names: stream(seed, purpose, what, *(names[i] for i in kept))


@law(
    epochs=st.integers(1, 5),
    spread=st.integers(0, 4),
    seed=st.integers(0, 3),
    examples=12,
    broken_by={
        "without the largest": swap(RandomEpochs, "plan", _without_the_largest),
        "one number for each client": swap(work, "stream", _streams(0)),
        "one number for each visit": swap(work, "stream", _streams(1)),
    },
)
def test_random_epochs_are_uniform_over_clients_and_visits(epochs: int, spread: int, seed: int) -> None:
    spread = min(spread, epochs - 1)
    part = RandomEpochs(epochs=epochs, spread=spread)
    drawn = [[epochs_of(part, visit(c, v, seed)) for v in range(40)] for c in range(40)]
    counts = Counter(itertools.chain.from_iterable(drawn))
    values = 2 * spread + 1
    assert set(counts) == set(range(epochs - spread, epochs + spread + 1))
    # Chi squared: its mean is values - 1, five standard deviations above it are allowed.
    expected = 1600 / values
    found = sum((n - expected) ** 2 / expected for n in counts.values())
    assert found <= values - 1 + 5 * (2 * (values - 1)) ** 0.5
    if spread:
        assert all(len(set(row)) > 1 for row in drawn)
        assert all(len(set(column)) > 1 for column in zip(*drawn, strict=True))


POLICIES: tuple[tuple[Settings, ...], ...] = (
    (StopOnDrift(a=0.98, b=0, representation="logits"), SkipAndEstimate(budgets=SOME), BudgetSteps(budgets=SOME)),
    (StopOnDrift(a=0.98, b=0), SkipAndResendModel(budgets=SOME, schedule="round_robin"), BudgetSteps(budgets=SOME)),
    (SkipSilently(budgets=SOME, schedule="exhaust"), BudgetSteps(budgets=SOME)),
    (SkipAndEstimate(budgets=SOME, storage="server", cold_start="zero"), StopOnDrift(a=0.99, b=0)),
)


def _undoes_what_others_do(self: BudgetSteps, *given: Any) -> Plan:
    return replace(_BUDGET_PLAN(self, *given), stop=None, substitute=None)


def _the_last_alone(self: Planning, *given: Any) -> Plan:
    return _PLAN(replace(self, modifiers=self.modifiers[-1:]), *given)


@law(
    trial=trials(),
    parts=st.sampled_from(POLICIES),
    order=st.randoms(use_true_random=False),
    happening=misfortunes(),
    examples=20,
    broken_by={
        "a budget undoes what others do": swap(BudgetSteps, "change", _undoes_what_others_do),
        "the last is the only one": swap(Planning, "plan", _the_last_alone),
    },
)
def test_the_order_of_policies_does_not_matter(
    trial: Trial, parts: tuple[Settings, ...], order: Any, happening: Misfortune
) -> None:
    shuffled = list(parts)
    order.shuffle(shuffled)
    if shuffled == list(parts):
        shuffled.reverse()
    recipe = trial.recipe(*parts)
    assert recipe.digest == trial.recipe(*shuffled).digest
    one, other = (
        play(replace(recipe, modifiers=tuple(some)), trial.federation, versions=5, happening=fair(happening))
        for some in (parts, shuffled)
    )
    assert alike(one, other)
    assert decisions(one) == decisions(other)


def _takes_all(self: Recipe, part: Any) -> Recipe:
    return _PIPE(self if isinstance(part, Modifier) else replace(self, modifiers=()), part)


@law(
    parts=st.sampled_from(POLICIES),
    base=st.sampled_from((Steps(steps=3), Epochs(epochs=0.5), RandomEpochs(epochs=2, spread=1))),
    broken_by={"a base takes the place of everything": swap(Recipe, "__or__", _takes_all)},
)
def test_a_base_takes_the_place_of_the_base_alone(parts: tuple[Settings, ...], base: Work) -> None:
    before, after = fedavg(cohort=3), fedavg(cohort=3) | base
    for part in parts:
        before, after = before | part, after | part
    before = before | base
    assert before.work == after.work
    assert before.digest == after.digest
    assert before.work == base
    assert set(before.modifiers) == set(parts)
    assert alike(*(run(r, Federation(sizes=(4, 6, 5))) for r in (before, after)))
