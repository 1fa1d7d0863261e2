"""Power of choice, UtilitySampling and TiFL against numbers made by hand."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
from laws.selecting import Present, call, report, setup, told, who
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.fleet import Device, Fleet, ListedDevices
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.methods.participation.tier_sampling import TierSampling, by_accuracy
from polyrhythm.methods.participation.utility_sampling import UtilitySampling
from small import collection, dealt, logged

# UtilitySampling: five clients, four rounds. The first is everybody's, then two a round.

HELD = [10, 20, 30, 40, 50]
ROUNDS: list[dict[int, tuple[float, float]]] = [  # squared loss and duration of each visit
    {0: (4.0, 1.0), 1: (1.0, 2.0), 2: (0.25, 3.0), 3: (0.09, 4.0), 4: (0.01, 10.0)},
    {0: (0.01, 1.0), 1: (0.04, 2.0)},
    {2: (0.01, 1.5), 1: (0.0001, 8.0)},
]
# U = 20 20 15 12 5, then 1 4 15 12 5, then 1 0.2 3 12 5; T = 2, 2, 1.5; last = 1 1 1 1 1, 2 2 1 1 1, 2 3 3 1 1.
SCORES = [
    [1.263277, 1.263277, 0.413308, 0.182486, 0.010531],
    [0.234373, 0.448659, 0.591757, 0.279292, 0.024687],
    [0.331074, 0.007557, 0.452253, 0.192984, 0.017530],
]
CHOSEN = [{0, 1}, {1, 2}, {0, 2}]


def test_oort_scores_and_choices_of_five_clients_over_four_rounds() -> None:
    policy = UtilitySampling(cohort=2, exploration=0, cut_off=1.0)
    state, roster = policy.server_start(setup(5)), Present(HELD)
    state, invited = policy.invite(setup(5), state, call(roster, count=5))
    assert sorted(who(invited)) == [0, 1, 2, 3, 4]
    for version, visits in enumerate(ROUNDS):
        heard = [
            report(c, version, num_samples=HELD[c], duration=seconds, measures={"squared_loss": square})
            for c, (square, seconds) in visits.items()
        ]
        state = told(policy, state, version, heard)
        found = dict(zip(state["ranked"], state["scores"], strict=True))
        assert [found[c] for c in range(5)] == pytest.approx(SCORES[version], abs=1e-6)
        assert state["sums"] == pytest.approx(np.cumsum(sorted(SCORES[version], reverse=True)), abs=1e-5)
        state, invited = policy.invite(setup(5), state, call(roster, version + 1))
        assert set(who(invited)) == CHOSEN[version]


def scores(policy: UtilitySampling, utility: list[float], duration: list[float], coming: int = 1) -> list[float]:
    last = np.ones(len(utility))
    found = policy.scores(np.array(utility), np.array(duration), last, coming, policy.preferred)
    return [round(score, 4) for score in found.tolist()]


def test_oort_clips_the_largest_utilities_and_survives_equal_ones() -> None:
    plain = UtilitySampling(alpha=0, clip=0.5)
    # The 0.5 quantile of five is the third: 3. The range is that of all: 9 - 1.
    assert scores(plain, [1, 2, 3, 5, 9], [1.0] * 5) == [0.0, 0.125, 0.25, 0.25, 0.25]
    assert scores(plain, [4, 4, 4], [1.0] * 3) == [1.0, 1.0, 1.0]
    assert scores(plain, [4], [1.0]) == [1.0]
    assert scores(UtilitySampling(preferred=1.0), [1, 2], [1.0, 1000.0]) == [0.0, 1.0]  # any duration will do
    assert scores(UtilitySampling(alpha=1, preferred=0), [2, 2], [1.0, 4.0]) == [1.0, 0.25]


def test_oort_admits_from_the_cut_off_and_draws_by_score() -> None:
    policy = UtilitySampling(cohort=1, alpha=0, bonus=0, exploration=0, cut_off=0.7, clip=1.0)
    state, counts = policy.server_start(setup(5)), Counter[int]()
    # U = 0 6 8 10 7 (of 10 samples): scores 0 0.6 0.8 1 0.7, so three are admitted, one just so.
    squares = [0.0, 0.36, 0.64, 1.0, 0.49]
    state = told(policy, state, 0, [report(c, measures={"squared_loss": square}) for c, square in enumerate(squares)])
    for number in range(3000):
        asked = call(Present([1] * 5), 1, occasion=("dispatch", number))
        counts.update(who(policy.invite(setup(5), state, asked)[1]))
    for client, score in ((2, 0.8), (3, 1.0), (4, 0.7)):
        share = score / 2.5
        assert abs(counts[client] - 3000 * share) < 5 * math.sqrt(3000 * share * (1 - share))
    assert set(counts) == {2, 3, 4}
    # Two away: the best one there has 0.7, and with it client 1 is admitted.
    asked = call(Present([1] * 5, away=(2, 3)), 1)
    assert who(policy.invite(setup(5), state, asked)[1])[0] in (1, 4)


def test_oort_paces_itself_when_there_is_less_to_learn() -> None:
    policy = UtilitySampling(window=2, preferred=0.3, pace=0.2)
    state, quantiles = policy.server_start(setup(1)), []
    for version, loss in enumerate([3, 3, 2, 2, 4, 4, 1, 1, 1, 0.5, 0.1, 0.1, 0.0, 0.0]):
        state = told(policy, state, version, [report(0, version, measures={"squared_loss": loss**2})])
        quantiles.append(round(state["quantile"], 9))
    # Looks after versions 4, 6, 8, ...: 6 > 4; 4 < 8; 8 > 2; 2 > 1.5; 1.5 > 0.2; 0.2 > 0.
    assert quantiles[3::2] == [0.5, 0.5, 0.7, 0.9, 1.0, 1.0]
    assert quantiles[2::2] == [0.3, 0.5, 0.5, 0.7, 0.9, 1.0]


def test_oort_sets_aside_the_busiest_and_at_most_three_in_ten() -> None:
    policy = UtilitySampling(cohort=10, exploration=0, cut_off=0.0, set_aside=2)
    state = policy.server_start(setup(10))
    for version in range(6):  # client i is heard i + 1 times, up to six
        state = told(policy, state, version, [report(c, version) for c in range(10) if version <= c])
    assert set(range(10)) - set(state["ranked"]) == {5, 6, 7}
    few = policy.invite(setup(10), state, call(Present([1] * 10), 6, count=7))[1]
    assert set(who(few)) == {0, 1, 2, 3, 4, 8, 9}
    everybody = policy.invite(setup(10), state, call(Present([1] * 10), 6))[1]
    assert set(who(everybody)) == set(range(10))


def test_the_squared_loss_is_of_every_sample_trained_on() -> None:
    """One step on all samples, so that all of them meet the initial model; then many steps that do not move it."""
    data, net = collection(), nn.Linear(4, 3)
    inputs, targets = data.train.batch(torch.arange(60))
    recipe = pr.fedavg(cohort=1, epochs=1, batch=None) | UtilitySampling()
    _, log = logged(federation=dealt(data, [60]), model=net, recipe=recipe, rounds=1)
    expected = nn.functional.cross_entropy(net(inputs), targets, reduction="none").square().mean().detach()
    assert log.visits[0].measures["squared_loss"] == pytest.approx(float(expected), rel=1e-6)
    still = pr.fedavg(cohort=1, epochs=2, batch=7, lr=1e-12) | UtilitySampling()
    _, log = logged(federation=dealt(data, [60]), model=net, recipe=still, rounds=1)
    assert log.visits[0].measures["squared_loss"] == pytest.approx(float(expected), rel=1e-5)


# TiFL.


def timed(policy: TierSampling, seconds: list[float]) -> State:
    count = len(seconds)
    state, invited = policy.invite(
        setup(count), policy.server_start(setup(count)), call(Present([1] * count), count=count)
    )
    state = told(policy, state, 0, [report(c, duration=seconds[c]) for c in who(invited)])
    return policy._sorted(setup(count), state, 1)


SECONDS = [3.0, 1.0, 9.0, 2.0, 8.0, 7.0, 4.0]


def test_tiers_by_hand() -> None:
    state = timed(TierSampling(tiers=3), SECONDS)
    assert state["tier_of"] == {1: 0, 3: 0, 0: 0, 6: 1, 5: 1, 4: 2, 2: 2}
    equal = timed(TierSampling(tiers=2), [5.0] * 6)["tier_of"]
    assert Counter(equal.values()) == {0: 3, 1: 3}
    assert equal != {c: int(c > 2) for c in range(6)}  # by chance, not by number


def test_tiers_are_drawn_by_their_probabilities_and_empty_ones_passed_over() -> None:
    policy = TierSampling(cohort=2, tiers=3, probabilities=(3.0, 1.0, 0.0))
    state, counts = timed(policy, SECONDS), Counter[int]()
    for version in range(1, 2001):
        counts[policy.invite(setup(7), state, call(Present([1] * 7), version))[0]["drawn"]] += 1
    assert counts[2] == 0
    assert abs(counts[0] - 1500) < 5 * math.sqrt(2000 * 0.75 * 0.25)
    after, invited = policy.invite(setup(7), state, call(Present([1] * 7, away=(1, 3, 0, 5, 6)), 1))
    assert (after["drawn"], set(who(invited))) == (2, {2, 4})


def test_credits_are_used_up_and_then_count_no_more() -> None:
    policy = TierSampling(cohort=1, tiers=3, probabilities=(1.0, 0.0, 0.0), credits=2)
    state, drawn = timed(policy, SECONDS), []
    for version in range(1, 10):
        state, _ = policy.invite(setup(7), state, call(Present([1] * 7), version))
        drawn.append(state["drawn"])
    assert drawn[:2] == [0, 0]
    assert sorted(drawn[2:6]) == [1, 1, 2, 2]
    assert (drawn[6:], state["credits"]) == ([0, 0, 0], [0, 0, 0])


def test_probabilities_by_accuracy() -> None:
    assert by_accuracy([0.9, 0.5, 0.7, 0.8], []) == pytest.approx([0, 3 / 6, 2 / 6, 1 / 6])
    assert by_accuracy([0.9, 0.5, 0.7, 0.8], [1, 0, 1, 1]) == pytest.approx([0, 0, 2 / 3, 1 / 3])
    assert by_accuracy([0.9, 0.5], [0, 1]) == [0, 1]
    assert by_accuracy([0.9, 0.5], [0, 0]) == [0, 1]
    assert by_accuracy([0.9, None, 0.1], []) == pytest.approx([0, 2 / 3, 1 / 3])  # never heard: as the least accurate


def judge(policy: TierSampling, state: State, version: int, accuracy: dict[int, float], samples: dict[int, int]) -> Any:
    """One version: everybody measures if asked, then somebody is invited."""
    state, asked = policy.invite(setup(7), state, call(Present([1] * 7), version))
    if not who(asked, "measure"):
        return state, asked
    assert sorted(who(asked, "measure")) == list(range(7))
    assert who(asked) == []
    for client in who(asked, "measure"):
        measures = {"loss": 1.0, "accuracy": accuracy[client]}
        heard = report(client, version, kind="measure", num_samples=samples[client], measures=measures)
        state = policy.measured(setup(7), state, heard)
    return policy.invite(setup(7), state, call(Present([1] * 7), version))


def test_probabilities_follow_accuracy_when_the_last_tier_stops_learning() -> None:
    policy = TierSampling(cohort=1, tiers=3, probabilities=(1.0, 0.0, 0.0), interval=2)
    samples = {c: 10 + 10 * (c == 5) for c in range(7)}
    first = {1: 0.2, 3: 0.4, 0: 0.6, 6: 0.9, 5: 0.6, 4: 0.5, 2: 0.3}
    state, _ = judge(policy, timed(policy, SECONDS), 1, first, samples)
    assert state["accuracies"] == pytest.approx([0.4, 0.7, 0.4])
    assert state["probabilities"] == [1.0, 0.0, 0.0]
    state, invited = judge(policy, state, 2, first, samples)  # not yet due again
    assert who(invited, "measure") == []
    better = first | {1: 0.3}
    state, _ = judge(policy, state, 3, better, samples)
    assert state["probabilities"] == [1.0, 0.0, 0.0]  # tier 1 has learnt
    state, _ = judge(policy, state, 5, better | {4: 0.9, 2: 0.9}, samples)
    assert state["probabilities"] == pytest.approx([2 / 3, 1 / 3, 0.0])  # it has not


def test_in_a_run_a_round_is_of_devices_that_are_alike() -> None:
    """Twelve equal clients on three kinds of devices: once all are timed, the tiers are the kinds."""
    kinds = (0.001, 0.03, 0.01)
    fleet = Fleet(devices=ListedDevices(devices=tuple(Device(seconds_per_sample=s) for s in kinds)))
    recipe = pr.fedavg(cohort=4, epochs=1) | pr.parts.tier_sampling(tiers=3)
    _, log = logged(federation=dealt(collection(), [5] * 12), recipe=recipe, rounds=12, fleet=fleet)
    rounds = [[v.client for v in log.visits if v.version == version] for version in range(12)]
    assert sorted(c for cohort in rounds[:3] for c in cohort) == list(range(12))
    assert {len({c % 3 for c in cohort}) for cohort in rounds[3:]} == {1}
    assert {c % 3 for cohort in rounds[3:] for c in cohort} == {0, 1, 2}


# Power of choice.


def test_power_of_choice_by_hand() -> None:
    policy, fixed, roster = LossSampling(cohort=2, d=4), setup(6), Present([5] * 6, away=(3,))
    state, asked = policy.invite(fixed, policy.server_start(fixed), call(roster))
    candidates = who(asked, "measure")
    assert len(candidates) == len(set(candidates)) == 4
    losses = dict(zip(candidates, (1.5, 0.5, math.nan, 2.5), strict=True))
    for client, loss in losses.items():
        state = policy.measured(fixed, state, report(client, kind="measure", measures={"loss": loss}))
    one, two, nan, four = candidates
    assert who(policy.invite(fixed, state, call(roster))[1]) == [four, one]
    assert who(policy.invite(fixed, state, call(roster, busy={four}))[1]) == [one, two]
    few = call(Present([5] * 6, away=(3, two, four)))
    assert who(policy.invite(fixed, state, few)[1]) == [one, nan]  # no number is like no answer: last


@pytest.mark.parametrize(("places", "candidates"), [(5, 12), (1, 3), (2, 5), (4, 10)])
def test_candidates_go_with_the_places(places: int, candidates: int) -> None:
    policy = LossSampling(cohort=5, d=12)
    _, asked = policy.invite(setup(40), policy.server_start(setup(40)), call(Present([1] * 40), in_flight=5 - places))
    assert len(who(asked, "measure")) == candidates


def test_settings_that_make_no_sense_are_refused() -> None:
    for build, found in (
        (lambda: LossSampling(cohort=5, d=4), "d=4 candidates for a cohort of 5"),
        (lambda: pr.fedavg(cohort=5) | pr.parts.loss_sampling(d=4), "d=4 candidates for a cohort of 5"),
        (lambda: TierSampling(tiers=3, probabilities=(1.0, 0.0)), "3 tiers with probabilities [1.0, 0.0]"),
        (lambda: TierSampling(tiers=2, probabilities=(0.0, 0.0)), "not all of them 0"),
        (lambda: UtilitySampling(cut_off=1.5), "cut_off = 1.5"),
    ):
        with pytest.raises(UserError) as refused:
            build()
        assert found in refused.value.found + refused.value.expected
