"""What differs between runs, and rows that are values of a setting."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.runs.grouping import apart_from
from polyrhythm.runs.recorder import Recorder
from polyrhythm.runs.settings_apart import differing, settings, value_of

Out = Any


@pytest.fixture
def record(tmp_path: Path, make_plan: Any, make_version: Any) -> Any:
    """A finished run, by its record alone."""

    def recorded(score: float, seed: int = 0, *, name: str = "", lr: float = 0.1, batch: int = 10, **more: Any) -> str:
        recipe = {"name": "Recipe", "optimiser": {"name": "LocalSgd", "lr": lr}, "batch": batch}
        config = {"data": "digits", "clients": 20, "fleet": "ideal", "rounds": 1, "seed": seed, **more}
        config |= {"method": f"fedavg(lr={lr}, batch={batch})", "resolved": {"recipe": recipe}}
        kept = Recorder(tmp_path)
        kept.begin(make_plan(name=name, seed=seed, config=config))
        for number in range(2):
            kept.version(make_version(number, score), dict)
        kept.end("finished", "", {})
        return kept.run_id

    return recorded


def test_what_differs_has_a_row_for_each_setting_and_a_value_for_each_method(record: Any, tmp_path: Path) -> None:
    record(0.5, lr=0.1)
    record(0.6, lr=0.2, validation=0.1)
    found = pr.compare(tmp_path)
    one, other = found.methods
    assert found.settings == {
        "method": {one: "fedavg(lr=0.1, batch=10)", other: "fedavg(lr=0.2, batch=10)"},
        "recipe.optimiser.lr": {one: "0.1", other: "0.2"},
        "validation": {one: None, other: "0.1"},
    }
    assert found.grouping_keys == list(found.settings)


def test_a_recipe_from_python_and_one_from_a_file_have_the_same_keys() -> None:
    recipe = {"name": "Recipe", "batch": 10, "corrections": [{"name": "Prox", "mu": 0.1}]}
    written, resolved = {"method": recipe}, {"method": "fedprox(mu=0.1)", "resolved": {"recipe": recipe}}
    assert settings(written)["recipe.corrections"] == settings(resolved)["recipe.corrections"] == "prox(mu=0.1)"
    assert list(differing([[written], [resolved]])) == ["method"]
    for key in ("recipe.batch", "method.batch", "resolved.recipe.batch"):
        assert value_of(written, key) == value_of(resolved, key) == "10"
    assert value_of(resolved, "recipe") == "recipe(batch=10, corrections=[{'name': 'Prox', 'mu': 0.1}])"


def test_rows_are_values_over_seeds_in_order_of_size(record: Any, tmp_path: Path) -> None:
    for lr in (0.5, 0.05, 0.1):
        for seed in range(3):
            record(lr + seed / 10, seed, lr=lr)
    found = pr.compare(tmp_path, group_by="recipe.optimiser.lr")
    assert list(found.methods) == ["lr 0.05", "lr 0.1", "lr 0.5"]
    high = found.results()[-1]
    assert (high["n"], high["seeds"], high["final_accuracy"]["mean"]) == (3, [0, 1, 2], pytest.approx(0.6))
    assert found.differences()["lr 0.5"].mean == pytest.approx(0.45)
    assert found.notes == ()


def test_of_several_runs_with_a_seed_the_mean_counts_once_and_pairs_differ_in_the_setting_alone(
    record: Any, tmp_path: Path
) -> None:
    """Two batches for each rate: a seed counts once however many runs it has, and unlike runs are no pair."""
    for seed in (0, 1):
        record(0.50 + seed / 10, seed, lr=0.1, batch=5)
        record(0.30 + seed / 10, seed, lr=0.1, batch=10)
        record(0.54 + seed / 10, seed, lr=0.2, batch=5)
        record(0.90, seed, lr=0.2, batch=20)
    found = pr.compare(tmp_path, group_by="recipe.optimiser.lr")
    first = found.results()[0]
    assert (first["n"], first["final_accuracy"]["n"]) == (2, 2)
    assert first["final_accuracy"]["mean"] == pytest.approx((0.40 + 0.50) / 2)
    assert first["final_accuracy"]["sd"] == pytest.approx(0.1 / math.sqrt(2))
    gain = found.differences()["lr 0.2"]
    assert (gain.n, gain.mean) == (2, pytest.approx(0.04))  # of batch 5 alone
    assert (
        "lr 0.1: its 4 runs also differ in method, recipe.batch; of those with one seed the mean counts" in found.notes
    )


def test_trials_and_other_data_are_rows_of_their_own_and_never_paired(record: Any, tmp_path: Path) -> None:
    record(0.9, 0, name="tune/3", lr=0.1)
    record(0.7, 0, name="tune", lr=0.1)
    record(0.6, 0, lr=0.1, clients=200)
    record(0.8, 0, lr=0.2, clients=200)
    found = pr.compare(tmp_path, group_by="recipe.optimiser.lr")
    assert {name: [run.name for run in runs] for name, runs in found.methods.items()} == {
        "lr 0.1 (trials) (clients 20)": ["tune/3"],
        "lr 0.1 (clients 20)": ["tune"],
        "lr 0.1 (clients 200)": [""],
        "lr 0.2": [""],
    }
    gains = pr.compare(tmp_path, group_by="recipe.optimiser.lr", baseline="lr 0.1 (clients 200)").differences()
    assert {name: gain.n for name, gain in gains.items()} == {
        "lr 0.1 (trials) (clients 20)": 0,
        "lr 0.1 (clients 20)": 0,
        "lr 0.2": 1,
    }


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("recipe.optimiser.rl", "did you mean 'recipe.optimiser.lr'"),
        ("server.lr", "expected: one of recipe.optimiser.lr\n"),
        ("learning_rate", "unknown setting 'learning_rate'"),
    ],
)
def test_an_unknown_key_is_refused_with_near_names(record: Any, tmp_path: Path, key: str, said: str) -> None:
    record(0.5)
    with pytest.raises(UserError) as refused:
        pr.compare(tmp_path, group_by=key)
    assert said in str(refused.value)


def test_a_baseline_is_one_of_the_methods(record: Any, tmp_path: Path) -> None:
    record(0.5, name="a")
    record(0.75, name="b", lr=0.2)
    assert pr.compare(tmp_path, baseline="b").differences()["a"].mean == -0.25
    with pytest.raises(UserError, match="unknown method 'c'"):
        pr.compare(tmp_path, baseline="c")


def test_a_method_by_name_is_paired_although_its_recipe_differs(record: Any, tmp_path: Path) -> None:
    record(0.5, lr=0.1)
    record(0.75, lr=0.2)
    (gain,) = pr.compare(tmp_path, group_by="method").differences().values()
    assert (gain.n, gain.mean) == (1, 0.25)
    assert apart_from({"method": "a", "evaluation": {"every": 1}}, "data") == "{}"
