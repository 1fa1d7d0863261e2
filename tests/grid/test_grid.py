"""Every combination of answers that is not refused runs three versions; a sample of them obeys the laws of all."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from operator import or_

import numpy as np
import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.methods.compression import Lossless, TopK
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.participation.base import Uniform
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, RandomResize
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.privacy.effects import LAWS
from polyrhythm.methods.privacy.laws import law_of
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, Deadline, MinReports, OverSelect, TimeOut, WhenAll
from polyrhythm.methods.release.differential_privacy import Dp
from polyrhythm.methods.release.robust import ClipUpdates, GeometricMedian, TrimmedMean
from polyrhythm.methods.secure_sum.effects import NEEDS_SINGLE
from polyrhythm.methods.secure_sum.secagg import Secagg
from polyrhythm.methods.weighing import Equal, PerStep, Staleness
from polyrhythm.methods.work.base import Epochs
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.partial_work import PartialWork
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndEstimate, SkipAndResendModel, SkipSilently
from polyrhythm.methods.work.stop_on_drift import StopOnDrift

from .answers import ANSWERS, SIZE, Choice, drawn, recipe, sample, told
from .plain import restored
from .trip import Trip, equal, travel

TRIED = 400
NETS = ("logistic", "perceptron", "batchnorm", "dropout")


@functools.cache
def _running() -> tuple[tuple[Choice, Recipe], ...]:
    """Of the sample those that are not refused."""
    return tuple((c, r) for c in sample(TRIED) if isinstance(r := recipe(c), Recipe))


def _run(choices: Iterable[Choice]) -> str:
    """Runs them, each on one of the nets; gives the numbers in words."""
    run, refused = 0, Counter[str]()
    for choice in choices:
        made = recipe(choice)
        if isinstance(made, UserError):
            refused[made.found] += 1
            continue
        net = NETS[sum(choice) % len(NETS)]
        try:
            trip = travel(made, net)
        except Exception as error:
            error.add_note(f"{net}: {told(choice)}")
            raise
        assert trip.finite, f"{net}: {told(choice)}"
        assert len(trip.models) == 3
        run += 1
    reasons = "".join(f"\n  {count:,} refused: {reason}" for reason, count in refused.most_common())
    return f"{run:,} combinations run, {refused.total():,} refused{reasons}"


def test_a_sample_of_all_combinations_runs(capsys: pytest.CaptureFixture[str]) -> None:
    words = _run(sample(TRIED))
    with capsys.disabled():
        print(f"\n{len(sample(TRIED)):,} of {SIZE:,}: {words.splitlines()[0]}")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_thousands_of_combinations_run(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Other ones in each part, each a draw that is not refused. All of them are thousands of millions: weeks."""
    choices = drawn(200, part)
    threes = {three for choice in choices for three in itertools.combinations(enumerate(choice), 3)}
    words = _run(choices)
    with capsys.disabled():
        print(f"\npart {part}: {len(threes):,} threes of answers; {words}")


def test_no_combination_is_private_by_silence() -> None:
    """With noise, each has a law by which it is accounted for, or is refused in words, and some of either are there."""
    found = Counter[str]()
    for _, made in _running():
        try:
            hidden = (made | Equal() | Dp()).whole()
        except UserError as refused:
            found["refused" if refused.found and refused.why else "silent"] += 1
        else:
            assert not any(part.under_privacy().refused for part in hidden.parts())
            found[law_of(hidden)] += 1
    assert found["refused"]
    assert found.keys() & LAWS
    assert not found["silent"]


def _in_a_sum(choice: Choice) -> Recipe | str:
    """A combination whose single updates are hidden; or what its refusal is: in words, of its own, or silent."""
    made = recipe(choice)
    if isinstance(made, UserError):
        return "impossible"
    try:
        return (made | Secagg(limit=100.0)).whole()
    except UserError as refused:
        known = NEEDS_SINGLE in str(refused) or "secagg" in refused.found
        return "refused" if known else "silent"


def test_no_pair_of_answers_looks_at_single_updates_by_silence() -> None:
    """Hidden in a sum, each runs its three versions, or is refused in the words of whichever part looks."""
    found, places = Counter[str](), list(enumerate(ANSWERS))
    for i, (slot, answers) in enumerate(places):
        for other_slot, others in places[i + 1 :]:
            for a, b in itertools.product(range(len(answers)), range(len(others))):
                choice = [0] * len(ANSWERS)
                choice[slot], choice[other_slot] = a, b
                hidden = _in_a_sum(tuple(choice))
                found["runs" if isinstance(hidden, Recipe) else hidden] += 1
                if isinstance(hidden, Recipe):
                    assert not any(part.under_secagg().refused for part in hidden.parts())
                    if found["runs"] % 40 == 0:
                        assert travel(hidden, "perceptron").finite, told(tuple(choice))
    assert found["refused"] > 500
    assert found["runs"] > 300
    assert not found["silent"]


def test_the_sample_has_every_pair_of_answers() -> None:
    """Or, where it is not there, it is because the two refuse each other."""
    places = list(enumerate(ANSWERS))
    there = {pair for choice, _ in _running() for pair in _pairs(choice)}
    tried = {pair for choice in sample(TRIED) for pair in _pairs(choice)}
    for i, (slot, answers) in enumerate(places):
        for other_slot, others in places[i + 1 :]:
            for pair in (((slot, a), (other_slot, b)) for a in range(len(answers)) for b in range(len(others))):
                assert pair in tried
                alone = [0] * len(ANSWERS)
                for where, place in pair:
                    alone[where] = place
                assert pair in there or isinstance(recipe(tuple(alone)), UserError), pair


@functools.cache
def _travelled(choice: Choice, net: str) -> Trip:
    """What a combination comes to on a net; several tests hold others to it."""
    made = recipe(choice)
    assert isinstance(made, Recipe)
    return travel(made, net)


def _pairs(choice: Choice) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    places = list(enumerate(choice))
    return {(one, other) for i, one in enumerate(places) for other in places[i + 1 :]}


def _some(count: int, seed: int) -> list[tuple[Choice, Recipe]]:
    """Some of those that run, other ones for every seed."""
    running = _running()
    return [running[i] for i in np.random.default_rng(seed).permutation(len(running))[:count]]


@pytest.mark.parametrize("net", NETS)
def test_who_answers_first_changes_no_bit(net: str) -> None:
    """Where everybody is waited for."""
    together = [(c, r) for c, r in _some(120, 1) if isinstance(r.release, WhenAll)]
    for choice, made in together[:12]:
        assert equal(_travelled(choice, net), travel(made, net, turn_of=lambda waiting: waiting - 1)), told(choice)


@pytest.mark.parametrize("net", NETS)
def test_states_are_plain_data_and_come_back_whole(net: str) -> None:
    """A run whose states are written down and read again after every event goes on as if nothing had happened."""
    for choice, made in _some(12, 2):
        try:
            assert equal(_travelled(choice, net), travel(made, net, kept=restored)), told(choice)
        except TypeError as error:
            error.add_note(told(choice))
            raise


@pytest.mark.parametrize("net", NETS)
def test_the_cores_change_nothing_they_are_given(net: str) -> None:
    for _, made in _some(12, 3):
        travel(made, net, careful=True)


ALWAYS = Listed(shares=(1.0,))
NEUTRAL: tuple[Settings, ...] = (
    StopOnDrift(a=-1, b=0, representation="logits"),
    SkipAndEstimate(budgets=ALWAYS),
    SkipAndEstimate(budgets=ALWAYS, storage="server", schedule="round_robin"),
    SkipAndResendModel(budgets=ALWAYS),
    SkipSilently(budgets=ALWAYS),
    BudgetSteps(budgets=ALWAYS),
    CriticalPeriods(act=False),
    RandomResize(up=0, down=0),
    SampledStaleness(max_delay=1),
    Prox(mu=0),
    PartialWork(seconds=1e6),
    TopK(share=1.0),
    PerStep(divide="none"),
    Staleness(rule="constant"),
    Deadline(seconds=1e9),
    TimeOut(seconds=1e9),
    OverSelect(factor=1),
    MinReports(count=1),
    ClipUpdates(norm=1e9),
    TrimmedMean(share=0),
    GeometricMedian(iterations=0),
    Buffer(size=4),  # of four clients, so that it is never full before everybody has answered
)


@pytest.mark.parametrize("part", NEUTRAL, ids=lambda part: part.label())
def test_a_neutral_part_changes_no_bit_of_any_combination(part: Settings) -> None:
    tried = 0
    for number, (choice, made) in enumerate(_some(len(_running()), 4)):
        if isinstance(part, Buffer) and not isinstance(made.release, WhenAll):
            continue
        if isinstance(part, StopOnDrift) and any(isinstance(p, PartialWork) for p in made.parts()):
            continue  # watching takes time, of which there is less for steps then
        if isinstance(part, TopK) and not isinstance(made.compression, Lossless):
            continue
        try:
            more = (made | part).whole()
        except UserError:
            continue
        net = NETS[number % len(NETS)]
        assert equal(_travelled(choice, net), travel(more, net)), f"{net}: {told(choice)}"
        tried += 1
        if tried == 12:
            break
    assert tried == 12


WRAPS: dict[str, tuple[Settings, tuple[Settings, ...]]] = {
    "participation": (Uniform(cohort=3), (CriticalPeriods(), SampledStaleness(max_delay=2))),
    "work": (
        Epochs(epochs=2),
        (
            SkipAndEstimate(storage="mixed"),
            StopOnDrift(a=0.5, b=0.4, representation="logits"),
            BudgetSteps(budgets=Listed(shares=(0.5, 1.0))),
            PartialWork(seconds=1.0),
        ),
    ),
}


def _orders(parts: tuple[Settings, ...], *, all_of_them: bool) -> list[tuple[Settings, ...]]:
    """In which they are piped: as they stand, the other way round, where each stands on the other side of each, and
    with two neighbours swapped; or in every one."""
    if all_of_them:
        return list(itertools.permutations(parts))
    swapped = [(*parts[:i], parts[i + 1], parts[i], *parts[i + 2 :]) for i in range(len(parts) - 1)]
    return list(dict.fromkeys([parts, parts[::-1], *swapped]))


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("slot", WRAPS)
def test_policies_wrap_in_any_order(slot: str, all_of_them: bool) -> None:
    """The pipe decides how they lie in one another, and no bit depends on it."""
    base, parts = WRAPS[slot]
    tried = 0
    for choice, made in _some(16, 5):
        try:
            plain = replace(made, **{slot: base}, modifiers=())  # type: ignore[arg-type]
            orders = [functools.reduce(or_, order, plain) for order in _orders(parts, all_of_them=all_of_them)]
        except UserError:
            continue
        tried += 1
        first, *others = (travel(order) for order in orders)
        assert all(equal(first, other) for other in others), told(choice)
    assert tried >= 8
