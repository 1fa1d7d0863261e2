"""`polyrhythm check`: everything that is wrong, or what it will be, and nothing is run or written."""

from __future__ import annotations

import json
import os
import threading
import tomllib
from pathlib import Path

import pytest

from polyrhythm.config.configuration import configure
from polyrhythm.config.written import as_toml
from terminal import Command

GOOD = 'method = ["scaffold(cohort=3)", "prox(mu=0.1)"]\nmodel = "logistic"\nrounds = 4\nfleet = "tiers"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_good_file_is_shown_in_full_with_what_it_will_cost(polyrhythm: Command, folder: Path) -> None:
    (folder / "x.toml").write_text(GOOD)
    found = polyrhythm("check", "x.toml", "--set", "evaluation.every=2")
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    for line in ('partition = "dirichlet(alpha=0.3)"', "every = 2", 'method = "scaffold(cohort=3) | prox(mu=0.1)"'):
        assert line in lines
    words = " ".join(found.out.split())
    for part in ("visits 12: ", "local steps", "FLOPs", "virtual time", "memory about", "time here about", "no run"):
        assert part in words
    assert [path.name for path in folder.iterdir()] == ["x.toml"]


def test_what_it_counts_is_what_the_run_then_does(polyrhythm: Command, folder: Path) -> None:
    (folder / "x.toml").write_text(GOOD)
    told = json.loads(polyrhythm("check", "x.toml", "--json").out)
    assert told["valid"]
    assert told["configuration"]["clients"] == 20
    assert told["resolved"]["recipe"]["corrections"][1] == {"name": "Prox", "mu": 0.1}
    summary = json.loads(polyrhythm("run", "x.toml", "--json", "--out", "made").out)
    expected = told["estimate"]
    for name in ("visits", "samples", "flops", "bytes_up", "bytes_down", "virtual_seconds"):
        assert expected[name] == summary[name]
    assert expected["steps"] == summary["local_steps"]
    again = json.loads(polyrhythm("check", "x.toml", "--json", "--set", "out=made").out)["estimate"]["seconds"]
    assert again["source"].startswith("1 recorded run ")
    assert again["expected"] == pytest.approx(summary["wall_seconds"])


def test_mistakes_are_printed_together_in_words_and_as_json(polyrhythm: Command, folder: Path) -> None:
    (folder / "x.toml").write_text('roundz = 4\nmethod = "fedprx"\n')
    found = polyrhythm("check", "x.toml")
    assert found.code == 2
    for part in (
        "2 mistakes",
        "'roundz' in x.toml, line 1; did you mean 'rounds'?",
        "x.toml, line 2: method: unknown recipe 'fedprx'; did you mean 'fedprox'",
    ):
        assert part in found.err
    as_json = polyrhythm("check", "x.toml", "--json")
    told = json.loads(as_json.out)
    assert as_json.code == 2
    assert not told["valid"]
    assert [set(mistake) for mistake in told["mistakes"]] == [{"found", "expected", "why", "fix"}] * 2
    assert [path.name for path in folder.iterdir()] == ["x.toml"]


def test_what_only_the_data_can_tell_is_found_too(polyrhythm: Command) -> None:
    for setting in ("clients=5000", "model=lenet5", "task=regression", "partition=by_column(column=ward)"):
        found = polyrhythm("check", "--set", setting, "--no-estimate")
        assert found.code == 2
        assert "Traceback" not in found.err


def test_a_folder_that_no_run_could_use_is_found(polyrhythm: Command, folder: Path) -> None:
    (folder / "taken").write_text("")
    found = polyrhythm("check", "--set", "out=taken/runs", "--no-estimate")
    assert found.code == 2
    assert "taken is a file" in found.err
    assert polyrhythm("check", "--set", "out=new/deep/runs", "--no-estimate").code == 0
    assert [path.name for path in folder.iterdir()] == ["taken"]


def test_seeds_are_all_checked_and_one_is_estimated(polyrhythm: Command) -> None:
    found = polyrhythm("check", "--set", "seeds=0-2", "--set", "rounds=2", "--set", "model=logistic")
    assert found.code == 0
    assert "seeds" in found.out
    assert "3; all of this for each" in found.out
    assert "local steps, " not in polyrhythm("check", "--set", "rounds=2", "--no-estimate").out


def test_the_printed_file_says_the_same(folder: Path) -> None:
    (folder / "x.toml").write_text(GOOD + 'name = "ä \\"b\\" \\\\ c"\nseeds = "0-2"\nuntil = "accuracy=0.9"\n')
    first = configure(folder / "x.toml", {}, [])
    text = "\n".join(as_toml(first))
    assert tomllib.loads(text)["name"] == 'ä "b" \\ c'
    (folder / "y.toml").write_text(text, encoding="utf-8")
    assert configure(folder / "y.toml", {}, []) == first


def test_checking_trains_nothing_that_a_run_then_starts_from(polyrhythm: Command, folder: Path) -> None:
    options = ("--set", "rounds=2", "--set", "model=logistic")
    alone = json.loads(polyrhythm("run", *options, "--json", "--out", "a").out)["digest"]
    polyrhythm("check", *options)
    assert json.loads(polyrhythm("run", *options, "--json", "--out", "a").out)["digest"] == alone
    assert len(list((folder / "a").glob("*/final.safetensors"))) == 2


def test_an_experiment_from_a_pipe_is_read(polyrhythm: Command, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    writer = threading.Thread(target=(folder / "pipe").write_text, args=("clients = 7\n",), daemon=True)
    writer.start()
    assert "clients = 7" in polyrhythm("check", "pipe", "--no-estimate").out
    writer.join(timeout=120)
