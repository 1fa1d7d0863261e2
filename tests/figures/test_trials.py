"""Figures of searches: what is drawn of trials, however they ended, and how much a key matters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.figures.trial_figures import drawn, offered
from polyrhythm.figures.trials import LEAST, Trials, Tried


def trial(number: int, score: float | None = None, state: str = "finished", **setting: Any) -> Tried:
    reason = "" if state == "finished" else f"{state} for a reason"
    at = 60.0 * number
    return Tried(number=number, setting=setting, state=state, score=score, reason=reason, started=at, ended=at + 30)


MIXED = Trials(
    "tune",
    "accuracy",
    (
        trial(1, 0.5, lr=0.001, size="small", **{"method.epochs": 1}),
        trial(2, 0.9, lr=0.1, size="large", **{"method.epochs": 2}),
        trial(3, None, "failed", lr=10.0, size="small", **{"method.epochs": 2}),
        trial(4, 0.95, "pruned", lr=0.2, size="small", **{"method.epochs": 1}),
        trial(5, 0.8, lr=0.05, size="large", **{"method.epochs": 1}),
        trial(6, None, "waiting", lr=0.3, size="large", **{"method.epochs": 2}),
        trial(7, 0.7, lr=0.02, size="small", **{"method.epochs": 4}),
        trial(8, 0.6, lr=0.01, size="small", **{"method.epochs": 4}),
    ),
)


def many(count: int = 200, seed: int = 0) -> Trials:
    """One key decides, one does nothing, one does a little."""
    draws = np.random.default_rng(seed)
    tried = []
    for number in range(1, count + 1):
        lr, noise, size = 10 ** draws.uniform(-4, 0), draws.uniform(), int(draws.choice([1, 2, 4]))
        score = 1 - 0.2 * (math.log10(lr) + 2) ** 2 + 0.05 * size + 0.01 * draws.normal()
        tried.append(trial(number, float(score), lr=lr, nothing=noise, size=size))
    return Trials("many", "accuracy", tuple(tried))


def data_of(chart: Any) -> list[list[dict[str, Any]]]:
    """The rows of every mark, in order."""
    specification = chart.to_dict()
    shared, found = specification.get("datasets", {}), []

    def walk(part: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        data = part.get("data") or {}
        rows = shared.get(data.get("name"), data.get("values", rows))
        if "mark" in part:
            found.append(rows)
        for layer in part.get("layer", ()):
            walk(layer, rows)

    walk(specification, [])
    return found


def test_the_best_is_a_finished_one() -> None:
    assert MIXED.best is not None
    assert MIXED.best.number == 2  # trial 4 has a higher score, of fewer versions
    assert MIXED.counted == "8 trials, 1 pruned, 1 failed, 1 not over"


def test_figures_are_offered_when_they_have_something_to_show() -> None:
    assert offered(MIXED) == [
        *("history", "importance", "parallel", "contour"),
        *("slice-lr", "slice-size", "slice-method.epochs"),
    ]
    waiting = Trials("tune", "accuracy", (trial(1, None, "waiting", lr=0.1),))
    assert offered(waiting) == []
    assert offered(Trials("tune", "accuracy", (trial(1, None, "failed", lr=0.1),))) == ["history"]
    alone = Trials("tune", "accuracy", (trial(1, 0.5, lr=0.1, size=1), trial(2, 0.5, lr=0.2, size=1)))
    assert offered(alone) == ["history", "importance", "parallel", "slice-lr"]
    with pytest.raises(UserError, match="no trial is over"):
        drawn("history", waiting)


def test_a_history_has_every_trial_that_is_over_and_the_best_so_far() -> None:
    line, scored, failed, *best = data_of(drawn("history", MIXED))
    assert [(row["x"], row["y"]) for row in line] == [
        *((1, 0.5), (2, 0.9), (3, 0.9), (4, 0.9)),
        *((5, 0.9), (7, 0.9), (8, 0.9)),
    ]
    assert [(row["trial"], row["state"]) for row in scored] == [
        *((1, "finished"), (2, "finished"), (4, "pruned"), (5, "finished"), (7, "finished"), (8, "finished")),
    ]
    assert [(row["trial"], row["state"]) for row in failed] == [(3, "failed")]
    assert [[row["trial"] for row in rows] for rows in best] == [[2], [2]]
    timed = data_of(drawn("history", MIXED, against="time"))[0]
    assert timed[0]["x"] == pytest.approx(1.5)
    with pytest.raises(UserError, match="axis"):
        drawn("history", MIXED, against="energy")


def test_parallel_coordinates_say_how_many_failed_and_mark_the_best() -> None:
    specification = drawn("parallel", MIXED).to_dict()
    assert specification["title"]["text"] == "tune: 8 trials, 1 pruned, 1 failed, 1 not over"
    under, failed, scored, over, end = data_of(drawn("parallel", MIXED))[1:6]
    assert {row["trial"] for row in under} == {row["trial"] for row in over} == {row["trial"] for row in end} == {2}
    assert {row["trial"] for row in failed} == {3}
    assert len(failed) == 3  # on the axes of its keys, and not on that of the score
    assert {row["trial"]: row["state"] for row in scored}[4] == "pruned"
    assert all(0 <= row["place"] <= 1 for row in scored)


def test_a_slice_has_numbers_in_order_and_spread_ones_by_their_logarithms() -> None:
    spread = drawn("slice-lr", MIXED).to_dict()
    axes = [layer["encoding"]["x"] for layer in spread["layer"] if "encoding" in layer]
    assert axes[0]["scale"]["type"] == "log"
    assert axes[0]["axis"]["values"] == [0.001, 0.01, 0.1, 1.0, 10.0]
    listed = drawn("slice-method.epochs", MIXED).to_dict()
    assert listed["layer"][0]["encoding"]["x"]["sort"] == ["1", "2", "4"]
    told = [tip["title"] for tip in listed["layer"][0]["encoding"]["tooltip"] if "title" in tip]
    assert told == ["validation accuracy", "lr", "size", "method.epochs"]


def test_a_contour_has_the_means_of_equal_settings() -> None:
    cells = data_of(drawn("contour", MIXED, x="size", y="method.epochs"))[0]
    assert {(row["a"], row["b"]): row["score"] for row in cells} == {
        **{("small", "1"): 0.5, ("large", "2"): 0.9, ("large", "1"): 0.8},
        **{("small", "4"): pytest.approx(0.65)},  # and no pruned one anywhere
    }
    with pytest.raises(UserError, match="unknown key"):
        drawn("contour", MIXED, x="nothing")


def test_between_ranges_a_contour_is_a_mean_by_nearness() -> None:
    trials = many()
    cells = data_of(drawn("contour", trials, x="lr", y="nothing"))[0]
    scores = [t.score for t in trials.tried if t.score is not None]
    assert len(cells) == 24 * 24
    assert all(min(scores) <= cell["score"] <= max(scores) for cell in cells)
    good = [cell["score"] for cell in cells if cell["a"] < 0.01 < cell["a1"]]
    bad = [cell["score"] for cell in cells if cell["a"] < 2e-4]
    assert min(good) > max(bad)


def test_what_matters_is_told_apart_from_what_does_not() -> None:
    found = many().importance()
    assert next(iter(found)) == "lr"
    assert found["lr"].share > 0.5
    assert found["nothing"].share < 0.05
    assert found["nothing"].share < found["size"].share < found["lr"].share
    assert found["size"].groups == 3


def test_the_share_is_that_of_an_analysis_of_variance_by_hand() -> None:
    """Ranks 1 to 10; five low ones are of one value, five high ones of the other."""
    trials = Trials("t", "accuracy", tuple(trial(n, n / 10, side="ab"[n > 5]) for n in range(1, 11)))
    between, within = 2 * 5 * 2.5**2, 2 * 10.0
    noise = within / 8
    assert trials.importance()["side"].share == pytest.approx((between - noise) / (between + within + noise))


def test_what_does_nothing_has_no_share_on_the_average() -> None:
    """Which the plain share of variance would have, of groups as many as these."""
    shares = [many(40, seed).importance()["nothing"].share for seed in range(20)]
    assert sum(shares) / len(shares) < 0.06


def test_one_trial_that_diverges_does_not_decide_alone() -> None:
    trials = many(60)
    wild = Trials("t", "accuracy", (*trials.tried, trial(61, -1e30, lr=0.01, nothing=0.5, size=2)))
    assert abs(wild.importance()["lr"].share - trials.importance()["lr"].share) < 0.1


@pytest.mark.parametrize("finished", [0, 1, LEAST - 1])
def test_too_few_trials_tell_nothing_of_importance(finished: int) -> None:
    some = [trial(n, n / 10, lr=n / 10) for n in range(1, finished + 1)]
    pruned = [trial(20 + n, n / 10, "pruned", lr=n / 10) for n in range(20)]
    trials = Trials("t", "accuracy", (*some, *pruned))
    assert trials.importance() == {}
    with pytest.raises(UserError, match=f"too few trials to tell what matters: {finished} of {LEAST} finished"):
        drawn("importance", trials)


def test_a_key_with_a_value_for_each_trial_is_left_out_and_named() -> None:
    trials = Trials("t", "accuracy", tuple(trial(n, n / 10, lr=n % 2, name=f"v{n}") for n in range(1, 13)))
    assert list(trials.importance()) == ["lr"]
    assert "too few for name" in drawn("importance", trials).to_dict()["title"]["subtitle"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", offered(MIXED))
def test_every_figure_is_drawn_on_each_theme(name: str, theme: str) -> None:
    trials = many() if name == "importance" else MIXED
    assert drawn(name, trials, theme=theme).to_dict()["config"]["background"]  # type: ignore[arg-type]


def test_odd_keys_and_values_are_drawn_as_text() -> None:
    odd = "a.b[0]:'\"\\"
    tried = tuple(trial(n, n / 10, **{odd: value}) for n, value in enumerate(([1], None, True, {"a": 1}), start=1))
    trials = Trials("t", "accuracy", tried)
    rows = data_of(drawn(f"slice-{odd}", trials))[0]
    assert [row["x"] for row in rows] == ["[1]", "null", "true", '{"a": 1}']
