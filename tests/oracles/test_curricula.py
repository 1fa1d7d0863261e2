"""Curricula over samples and over clients, against rankings and pools made by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import polyrhythm as pr
from polyrhythm.data.federation import Shares
from polyrhythm.methods.mechanism import Setup, Visit
from polyrhythm.methods.order.base import Curriculum, Progress, Shuffled
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.participation.base import InvitationContext
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum
from polyrhythm.simulation.roster import OpenRoster
from small import collection, dealt, logged

VISIT = Visit(seed=0, client=3, visit=2, version=4, total_rounds=10, num_samples=50, batch=10, epoch_steps=5)
EASY = pr.fedavg(cohort=4, epochs=2, batch=5, lr=0.1)


class Scores:
    """A lens with chosen numbers."""

    def __init__(self, received: list[float], previous: list[float] | None = None) -> None:
        self._losses = {"received": received, "previous": previous}
        self.asked: list[str] = []

    @property
    def has_previous(self) -> bool:
        return self._losses["previous"] is not None

    def losses(self, which: Literal["received", "previous"]) -> np.ndarray:
        self.asked.append(which)
        return np.array(self._losses[which])

    def predictions(self, which: Literal["received", "previous"]) -> np.ndarray:
        self.asked.append(which)
        return np.array(self._losses[which]).astype(int)

    def targets(self) -> np.ndarray:
        return np.zeros(len(self._losses["received"] or []), dtype=int)

    def fixed(self, name: str) -> np.ndarray:
        return np.arange(len(self._losses["received"] or []))[::-1].astype(float)


def ranking(lens: Scores, **settings: Any) -> list[int]:
    held = len(lens.losses("received"))
    found = Curriculum(**settings).rank(replace(VISIT, num_samples=held), lens)
    assert found is not None
    assert sorted(found) == list(range(held))
    return [int(i) for i in found]


LOSSES = [0.5, 3.0, 1.0, 0.1, 2.0]


def test_easy_first_is_hard_last_and_the_other_way_round() -> None:
    assert ranking(Scores(LOSSES)) == [3, 0, 2, 4, 1]
    assert ranking(Scores(LOSSES), order="anti") == [1, 4, 2, 0, 3]
    assert ranking(Scores(LOSSES), score="expert") == [4, 3, 2, 1, 0]


def test_every_score() -> None:
    previous = [3.25, 0.5, 0.0, 1.0, 2.0]
    both = [a + b for a, b in zip(LOSSES, previous, strict=True)]
    assert ranking(Scores(LOSSES, previous), score="local") == list(np.argsort(previous))
    assert ranking(Scores(LOSSES, previous), score="both") == list(np.argsort(both))
    assert ranking(Scores(LOSSES), score="local") == [3, 0, 2, 4, 1]  # no last model yet: the received one
    # As classes: received 0 3 1 0 2, last 3 0 0 1 2; the right class is 0.
    assert set(ranking(Scores(LOSSES, previous), score="global_pred")[:2]) == {0, 3}
    assert set(ranking(Scores(LOSSES, previous), score="local_pred")[:2]) == {1, 2}
    assert ranking(Scores(LOSSES, previous), score="both_pred")[0] == 4


def test_equal_scores_are_ordered_by_chance_and_differently_in_every_visit() -> None:
    lens = Scores([1.0] * 20)
    orders = [tuple(Curriculum().rank(replace(VISIT, num_samples=20, visit=v), lens)) for v in range(5)]
    assert len(set(orders)) == 5
    assert tuple(range(20)) not in orders


@pytest.mark.parametrize("order", ["curriculum", "anti", "random"])
@given(st.integers(1, 80), st.integers(0, 99))
def test_with_everything_from_the_start_a_pass_is_all_samples(order: Any, num_samples: int, seed: int) -> None:
    visit = replace(VISIT, num_samples=num_samples, seed=seed)
    made = Curriculum(order=order, pacing=Pacing(b=1.0))
    found = made.one_pass(
        visit,
        ("visit", 0, 0),
        made.rank(visit, Scores([float(i) for i in range(num_samples)])),
        Progress(step=0, steps=9),
    )
    assert sorted(found) == list(range(num_samples))


def test_vanilla_is_a_shuffle_to_the_last_bit() -> None:
    for name in (("visit", 2, 0), ("pass", 7)):
        one = Curriculum(order="vanilla").one_pass(VISIT, name, None, Progress(step=0, steps=10))
        assert (one == Shuffled().one_pass(VISIT, name, None, Progress(step=0, steps=10))).all()
    plain = logged(recipe=EASY)[0]["digest"]
    assert logged(recipe=EASY | Curriculum(order="vanilla", pacing=Pacing(a=0.1, b=0.1)))[0]["digest"] == plain
    assert logged(recipe=EASY | Curriculum(order="random", least=1))[0]["digest"] != plain


def test_a_pass_draws_from_the_easiest_and_a_step_from_a_batch_of_them() -> None:
    ranks = np.arange(50)
    made = Curriculum(least=1, pacing=Pacing(a=0.8, b=0.2))
    for step, count in ((0, 10), (4, 30), (8, 50), (10, 50)):
        assert sorted(made.one_pass(VISIT, ("visit", 0, 0), ranks, Progress(step=step, steps=10))) == list(range(count))
    every = replace(made, refresh="step")
    assert len(every.one_pass(VISIT, ("visit", 0, 0), ranks, Progress(step=8, steps=10))) == 10
    assert made.in_use(replace(VISIT, num_samples=20), Progress(step=0, steps=10)) == 4
    assert replace(made, least=32).in_use(VISIT, Progress(step=0, steps=10)) == 32
    assert replace(made, least=32).in_use(replace(VISIT, num_samples=20), Progress(step=0, steps=10)) == 20


def test_pacing_may_run_over_the_whole_training() -> None:
    made = Curriculum(least=1, restart="training")
    assert "total_rounds" in made.needs()
    assert made.in_use(replace(VISIT, version=0), Progress(step=0, steps=10)) == 10
    assert made.in_use(replace(VISIT, version=4), Progress(step=0, steps=10)) == 30  # half way to a = 0.8
    assert made.in_use(replace(VISIT, version=9), Progress(step=0, steps=10)) == 50


def test_a_curriculum_takes_as_many_steps_on_fewer_samples_and_its_scoring_is_counted() -> None:
    recipe = EASY | Curriculum(least=5)
    plain, _ = logged(recipe=EASY)
    summary, log = logged(recipe=recipe)
    assert summary["local_steps"] == plain["local_steps"]
    assert all(v.forward_samples == v.num_samples for v in log.visits)
    both = EASY | Curriculum(score="both", least=5)
    _, log = logged(recipe=both)
    assert [v.forward_samples for v in log.visits if v.visit == 0] == [15] * 4
    assert [v.forward_samples for v in log.visits if v.visit == 1] == [30] * 4


def test_nothing_is_scored_when_the_plan_is_to_skip() -> None:
    recipe = EASY | Curriculum(least=5) | pr.parts.skip_and_estimate()
    _, log = logged(recipe=recipe, rounds=6)
    assert {v.forward_samples for v in log.visits if v.status == "skipped"} == {0}
    assert {v.forward_samples for v in log.visits if v.status == "trained"} == {15}


# Over clients.


def rounds_of(log: Any) -> list[list[int]]:
    invited: dict[int, list[int]] = {}
    for visit in log.visits:
        if visit.status == "trained":
            invited.setdefault(visit.version, []).append(visit.client)
    return [sorted(clients) for _, clients in sorted(invited.items())]


def test_easy_clients_make_the_first_pool() -> None:
    # The initial model always says class 0, so clients are the easier the more of it they hold.
    data = collection()
    order = np.argsort(data.train.targets.numpy(), kind="stable")
    labels = data.train.targets[order]
    assert labels.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    net = torch.nn.Linear(4, 3)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([9.0, 5.0, 0.0]))
    split = dealt(data, [20, 20, 20], shares=Shares.of(data.train, order, np.array([20, 20, 20])))
    for easiest, kind in ((0, "curriculum"), (2, "anti")):
        recipe = pr.fedavg(cohort=1, epochs=1, batch=5) | pr.parts.client_curriculum(
            order=kind, pacing=Pacing(a=1.0, b=0.34)
        )
        _, log = logged(federation=split, model=net, recipe=recipe, rounds=3)
        assert rounds_of(log)[0] == [easiest]
        measured = [v for v in log.visits if v.status == "measured"]
        assert [v.client for v in measured[:3]] == [0, 1, 2]
        assert all(v.forward_samples == 20 and v.steps == 0 and v.bytes_up < v.bytes_down for v in measured)


def test_a_score_that_is_no_number_counts_as_hardest() -> None:
    setup = Setup(size=1, dtype=torch.float32, population=4, total_rounds=4, seed=0)
    call = InvitationContext(version=0, weights=torch.zeros(1), buffers=(), roster=OpenRoster(4, range(4)))
    scores = {0: 3.0, 1: float("nan"), 2: 1.0, 3: 2.0}
    for seed in range(8):
        for kind, first in (("curriculum", 2), ("anti", 1)):
            made = ClientCurriculum(cohort=1, order=kind, scores="reported", pacing=Pacing(a=1.0, b=0.25))  # type: ignore[arg-type]
            state = {**made.server_start(setup), "scores": scores}
            _, invited = made.invite(replace(setup, seed=seed), state, call)
            assert [i.client for i in invited] == [first]


def test_random_pools_of_everybody_are_a_sweep() -> None:
    recipe = pr.fedavg(cohort=2, epochs=1, batch=5) | pr.parts.client_curriculum(order="random", pacing=Pacing(b=1.0))
    split = dealt(collection(), [6] * 10)
    _, log = logged(federation=split, recipe=recipe, rounds=10)
    rounds = rounds_of(log)
    for pool in (rounds[:5], rounds[5:]):
        assert Counter(c for clients in pool for c in clients) == Counter(range(10))
    assert {v.status for v in log.visits} == {"trained"}


def test_the_pool_grows_with_the_updates() -> None:
    recipe = pr.fedavg(cohort=2, epochs=1, batch=3) | pr.parts.client_curriculum(
        scores="reported", pacing=Pacing(a=0.8, b=0.2)
    )
    _, log = logged(federation=dealt(collection(), [6] * 10), recipe=recipe, rounds=40)
    assert {v.status for v in log.visits} == {"trained"}
    early = {c for clients in rounds_of(log)[:2] for c in clients}
    assert len(early) <= 5
    assert len({c for clients in rounds_of(log) for c in clients}) == 10


# Sampled staleness, per-step weighing, buffers.


def test_a_delay_of_none_is_the_inner_policy_and_others_are_drawn_among_the_last_models() -> None:
    recipe = pr.fedavg(cohort=3, epochs=1, batch=5)
    assert (
        logged(recipe=recipe | pr.parts.sampled_staleness(max_delay=1))[0]["digest"]
        == logged(recipe=recipe)[0]["digest"]
    )
    _, log = logged(recipe=recipe | pr.parts.sampled_staleness(max_delay=3), rounds=60)
    delays = Counter()
    for number, version in enumerate(log.versions[1:]):
        sent = [v.version for v in log.visits[3 * number : 3 * number + 3]]
        assert all(max(0, number - 2) <= s <= number for s in sent)
        if number >= 2:
            delays.update(number - s for s in sent)
        assert version.accepted == 3
    total = sum(delays.values())
    assert all(abs(delays[d] / total - 1 / 3) < 4 * math.sqrt(2 / 9 / total) for d in range(3))


def test_client_centric_averaging_with_equal_steps_and_a_rate_of_k_is_fedavg() -> None:
    split = dealt(collection(), [15] * 4)
    plain = pr.fedavg(cohort=4, epochs=2, batch=5) | pr.parts.equal()
    steps = 2 * 3
    centred = pr.cc_fedsgd(server_lr=float(steps), max_delay=1, cohort=4, epochs=2, batch=5)
    _, one = logged(federation=split, recipe=plain)
    _, other = logged(federation=split, recipe=centred)
    for name, value in one.states[-1].items():
        torch.testing.assert_close(other.states[-1][name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("base", [pr.fedavg, pr.scaffold, pr.fednova, pr.fedadam])
def test_a_buffer_of_the_cohort_is_a_synchronous_round(base: Any) -> None:
    recipe = base(cohort=3, epochs=1, batch=5)
    assert logged(recipe=recipe | pr.parts.buffer(size=3))[0]["digest"] == logged(recipe=recipe)[0]["digest"]


def test_a_smaller_buffer_steps_early_and_keeps_the_rest_under_way() -> None:
    split = dealt(collection(), [3, 6, 12, 24])  # so their visits take unequal times
    recipe = pr.fedavg(cohort=4, epochs=1, batch=3) | pr.parts.buffer(size=2)
    _, log = logged(federation=split, recipe=recipe, rounds=12)
    assert all(v.accepted == 2 for v in log.versions[1:])
    for one in log.visits:
        at_once = [v for v in log.visits if v.started < one.finished and v.finished > one.started]
        assert len({v.client for v in at_once if v.client == one.client}) == 1
    moments = sorted({v.started for v in log.visits})
    for moment in moments:
        assert sum(v.started <= moment < v.finished for v in log.visits) <= 4
    assert any(v.version + 1 < end.version for end in log.versions[1:] for v in log.visits if v.finished == end.time)


@pytest.mark.parametrize("about", ["multilabel", "regression"])
@pytest.mark.parametrize("score", ["global_pred", "local_pred", "both_pred"])
def test_predictions_are_no_score_without_classes(about: str, score: Any) -> None:
    split = replace(dealt(collection(), [30, 30]), task=about)
    with pytest.raises(pr.UserError, match=f"{score}.*{about}"):
        pr.Experiment(federation=split, model="logistic", recipe=EASY | Curriculum(score=score), rounds=1)
