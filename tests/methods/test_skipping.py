"""Policies on what a client does that are refused: two that decide the same thing, and settings without a meaning."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.papers import alt, ccfl, fedavg, local_only
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import PerStep
from polyrhythm.methods.work.base import RandomEpochs, Steps, Work
from polyrhythm.methods.work.budgets import Levels, Listed, SlowShare
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndEstimate, SkipAndResendModel, SkipSilently
from polyrhythm.methods.work.stop_on_drift import StopOnDrift

SKIPS = [SkipAndEstimate(), SkipAndResendModel(), SkipSilently()]


@pytest.mark.parametrize("first", SKIPS)
@pytest.mark.parametrize("second", SKIPS)
@pytest.mark.parametrize("between", [StopOnDrift(), BudgetSteps(), Steps(steps=3)])
def test_two_policies_that_skip_are_refused(first: Settings, second: Settings, between: Settings) -> None:
    with pytest.raises(UserError) as caught:
        fedavg() | first | between | second
    assert caught.value.expected == "one part that decides whether a client skips"
    assert {first.label(), second.label()} <= set(caught.value.found.split())


@pytest.mark.parametrize(
    ("recipe", "part", "words"),
    [
        (alt(), StopOnDrift(a=0.5), "when a client stops"),
        (ccfl(), SkipSilently(), "whether a client skips"),
        (fedavg() | BudgetSteps(), BudgetSteps(budgets=Levels()), "by how much steps are cut"),
    ],
)
def test_two_policies_of_one_kind_are_refused(recipe: Recipe, part: Settings, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        recipe | part
    assert caught.value.fix.startswith("leave ")


@pytest.mark.parametrize("divide", ["steps", "travel", "none"])
def test_a_last_model_has_no_steps_to_divide_by(divide: str) -> None:
    per_step = PerStep(divide=divide)  # type: ignore[arg-type]
    for first, second in ((per_step, SkipAndResendModel()), (SkipAndResendModel(), per_step)):
        with pytest.raises(UserError, match="skip_and_estimate, whose movement remembers its steps"):
            fedavg() | first | second
    for skip in (SkipAndEstimate(), SkipSilently()):
        assert per_step in (fedavg() | per_step | skip).scalings


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Listed(shares=(0.5, 0.0)),
        lambda: Listed(shares=(1.5,)),
        lambda: Listed(shares=()),
        lambda: Levels(levels=0),
        lambda: SlowShare(share_slow=1.1),
        lambda: SlowShare(period=0),
        lambda: SkipAndEstimate(expire=0),
        lambda: SkipAndEstimate(server_share=2.0),
        lambda: SkipSilently(schedule="sometimes"),  # type: ignore[arg-type]
        lambda: StopOnDrift(k=0),
        lambda: RandomEpochs(epochs=2, spread=2),
        lambda: RandomEpochs(epochs=2, spread=-1),
    ],
)
def test_settings_without_a_meaning_are_refused(wrong: Callable[[], Settings]) -> None:
    with pytest.raises(UserError):
        wrong()


@pytest.mark.parametrize("percent", range(0, 101, 7))
def test_mixed_storage_is_at_the_server_for_the_first_clients(percent: int) -> None:
    part = SkipAndEstimate(storage="mixed", server_share=percent / 100)
    setup = Setup(size=1, dtype=torch.float32, population=100, total_rounds=None, seed=0)
    assert [part.at_server(setup, client) for client in range(100)] == [client < percent for client in range(100)]


def test_exhausting_a_budget_needs_the_number_of_rounds() -> None:
    assert "total_rounds" in (fedavg() | SkipSilently(schedule="exhaust")).needs()
    assert "total_rounds" not in (fedavg() | SkipSilently(schedule="round_robin")).needs()
    assert "total_rounds" in (fedavg() | StopOnDrift() | BudgetSteps()).needs()
    assert "total_rounds" not in (fedavg() | StopOnDrift(b=0.0)).needs()
    assert "previous" in (fedavg() | SkipAndResendModel() | StopOnDrift()).needs()


def test_round_robin_over_versions_needs_the_servers_version() -> None:
    turns = fedavg() | SampledStaleness(max_delay=2)
    with pytest.raises(UserError, match="miss its own"):
        turns | SkipAndEstimate(schedule="round_robin")
    assert turns | SkipAndEstimate(schedule="round_robin", turns="visits")
    assert turns | SkipAndEstimate(schedule="ad_hoc")


@pytest.mark.parametrize("part", [SkipAndEstimate(), SkipSilently(), StopOnDrift()])
def test_nothing_is_skipped_or_compared_where_nothing_is_exchanged(part: Work) -> None:
    with pytest.raises(UserError, match="nothing is exchanged"):
        local_only() | part
