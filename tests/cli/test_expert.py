"""`polyrhythm expert`, and `--expert` wherever somebody is asked how difficult samples are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyrhythm.config.configuration import configure
from polyrhythm.experiments.difficulty import expert_about
from terminal import Command

DIFFICULTY = "difficulty(inner=dirichlet_per_client(beta=0.2), ordered=1.0)"
BY_EXPERT = "fedavg(cohort=2) | curriculum(score=expert) | client_curriculum(scores=expert)"


@pytest.fixture
def expert(polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    done = polyrhythm("expert", "--model", "mlp(hidden=[16])", "--epochs", "2", "-o", "expert.safetensors", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["final_accuracy"] > 0.5
    assert summary["expert"] == "expert.safetensors"
    return "expert.safetensors"


def test_a_run_asks_it_for_both_curricula_and_the_partition(polyrhythm: Command, expert: str) -> None:
    """And builds it as its file says, whatever model the run has."""
    options = ("--partition", DIFFICULTY, "--method", BY_EXPERT, "--clients", "4", "--rounds", "2", "--json")
    done = polyrhythm("run", "--expert", expert, "--model", "logistic", *options)
    assert done.code == 0, done.err
    assert "difficulty: standard deviation" in done.err
    assert "no part of this recipe asks" not in done.err


def test_it_can_be_trained_as_the_papers_authors_do(polyrhythm: Command, expert: str) -> None:
    found = []
    for settings in ((), ("--smoothing", "0.1", "--last-layer-rate", "10")):
        done = polyrhythm(
            "expert", "--model", "logistic", "--epochs", "1", *settings, "-o", "other.safetensors", "--json"
        )
        assert done.code == 0, done.err
        found.append(json.loads(done.out)["digest"])
        about = expert_about("other.safetensors")
        assert (float(about["smoothing"]), float(about["last_layer_rate"])) == ((0.1, 10) if settings else (0, 1))
    assert found[0] != found[1]
    done = polyrhythm("expert", "--model", "logistic", "--last-layer-rate", "0")
    assert (done.code, "last_layer_rate = 0.0" in done.err) == (2, True)


def test_data_show_tells_how_far_difficulty_was_spread(polyrhythm: Command, expert: str) -> None:
    done = polyrhythm("data", "show", "--expert", expert, "--partition", DIFFICULTY, "--clients", "4")
    assert done.code == 0, done.err
    assert "difficulty: standard" in done.out


@pytest.mark.parametrize("options", [("--partition", DIFFICULTY), ("--method", BY_EXPERT)])
def test_without_one_the_run_is_refused(polyrhythm: Command, options: tuple[str, str], tmp_path: Path) -> None:
    done = polyrhythm("run", *options, "--rounds", "1", "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert "without an expert" in done.err
    assert "polyrhythm expert" in done.err
    assert not (tmp_path / "runs").exists()


def test_natural_clients_inside_are_as_many_as_there_are() -> None:
    inside = "difficulty(inner=by_column(column=role))"
    assert configure(None, {"partition": inside}, []).clients is None
    assert configure(None, {"partition": DIFFICULTY}, []).clients == 20
