"""Which settings come next, and which runs are behind."""

from __future__ import annotations

import importlib.util

import pytest

from polyrhythm.studies import Search, Study, planned
from polyrhythm.studies.planning import Arm
from polyrhythm.studies.running.searching import bars, by_tpe, next_batch
from polyrhythm.studies.running.trials import Trial, best
from polyrhythm.studies.space import Range
from study_makers import made

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
SPACE = {"lr": Range(low=0.001, high=10.0, log=True), "epochs": (1, 2, 4), "cohort": Range(low=1, high=8)}


def test_a_bar_is_the_median_of_the_best_so_far_of_runs_that_went_on_as_long() -> None:
    histories = [
        [(0, 0.1), (2, 0.5), (4, 0.4)],
        [(0, 0.1), (2, 0.3), (4, 0.6)],
        [(0, 0.1), (2, 0.2)],
        [(0, 0.2), (4, 0.9)],
    ]
    assert bars(histories, after=1) == {2: pytest.approx(0.25), 4: 0.6}
    assert bars(histories, after=3) == {4: 0.6}
    assert bars(histories[:2], after=1) == {}


def only(search: Search) -> Arm:
    return planned(Study(name="s", rows={"": made}, search=search)).arms[""]


def over(number: int, score: float | None, state: str = "finished") -> Trial:
    setting = {"lr": 10.0 ** (number % 4 - 2), "epochs": (1, 2, 4)[number % 3], "cohort": 1 + number % 8}
    return Trial(arm="", number=number, setting=setting, state=state, score=score)  # type: ignore[arg-type]


@needs_optuna
def test_tpe_is_a_function_of_what_was_before() -> None:
    before = [over(n, 0.1 * (n % 4)) for n in range(1, 13)]
    first = by_tpe(SPACE, before, 4, 7)
    assert first == by_tpe(SPACE, before, 4, 7)
    assert first != by_tpe(SPACE, before, 4, 8)
    assert first[:2] == by_tpe(SPACE, before, 2, 7)
    assert first != by_tpe(SPACE, [over(n, 0.1 * (3 - n % 4)) for n in range(1, 13)], 4, 7)
    for setting in first:
        assert 0.001 <= setting["lr"] <= 10
        assert setting["epochs"] in (1, 2, 4)
        assert isinstance(setting["cohort"], int)


@needs_optuna
def test_tpe_finds_a_better_rate_than_chance() -> None:
    before: list[Trial] = []
    for start in range(0, 32, 4):
        for setting in by_tpe(SPACE, before, 4, start):
            score = -abs(setting["lr"] - 0.05) - 0.1 * setting["epochs"]
            before.append(Trial(arm="", number=len(before) + 1, setting=setting, state="finished", score=score))
    late, early = before[16:], before[:16]
    assert sum(t.score or 0 for t in late) > sum(t.score or 0 for t in early)


@needs_optuna
def test_failed_trials_tell_tpe_nothing_and_pruned_ones_do() -> None:
    before = [over(n, 0.1 * (n % 4)) for n in range(1, 13)]
    assert by_tpe(SPACE, [*before, over(13, None, "failed")], 4, 7) == by_tpe(SPACE, before, 4, 7)
    assert by_tpe(SPACE, [*before, over(14, 0.9, "pruned")], 4, 7) != by_tpe(SPACE, before, 4, 7)


@needs_optuna
def test_a_batch_knows_only_those_before_it_however_many_trials_there_were_to_be() -> None:
    def arm(trials: int) -> Arm:
        return only(Search(space=SPACE, kind="tpe", trials=trials, batch=4))

    done = [over(n, 0.1 * (n % 4)) for n in range(1, 15)]
    whole = next_batch(arm(20), done[:12])
    assert len(whole) == 4
    assert next_batch(arm(14), done[:12]) == whole[:2]
    # Two of the batch are over, whatever they gave, and the sweep is made longer.
    assert next_batch(arm(20), done[:14]) == whole[2:]
    assert next_batch(arm(14), done) == []


def test_a_grid_comes_at_once_or_in_batches_if_runs_may_be_stopped() -> None:
    space = {"lr": (0.1, 0.2, 0.3), "epochs": (1, 2)}
    assert len(next_batch(only(Search(space=space)), [])) == 6
    by_batch = only(Search(space=space, prune=2, batch=4))
    assert [len(next_batch(by_batch, [over(n, 0.1) for n in range(1, there + 1)])) for there in (0, 4, 6)] == [
        4,
        2,
        0,
    ]


def test_of_equal_trials_the_first_is_the_best() -> None:
    trials = [over(1, 0.5), over(2, 0.7), over(3, 0.7), over(4, 0.9, "pruned"), over(5, None, "failed")]
    found = best(trials, "")
    assert found is not None
    assert found.number == 2
    assert best(trials[3:], "") is None
