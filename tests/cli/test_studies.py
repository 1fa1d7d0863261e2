"""`polyrhythm study` with rows and columns."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.results import Run
from polyrhythm.runs import run_lock
from polyrhythm.studies.running.performing import Ending
from terminal import Command

OWN = """clients = 4
model = "logistic"
method = "fedavg(cohort=2, epochs=1)"
rounds = 500
seeds = "0"

[checkpoint]
every = 5

[reproduces]
paper = "ccfl"
items = ["Table 9"]
title = "Own"
says = "Something."

[rows.One]
method.lr = 0.1

[rows.Other]
method.lr = 0.2

[[claims]]
says = "A larger rate is better"
of = "Other"
against = "One"

[scales.quick]
rounds = 2
"""
ALONE = ("--workers", "1")  # in this process: a worker's start takes longer than all of these runs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_names_what_there_is_and_what_is_unknown(polyrhythm: Command, folder: Path) -> None:
    told = polyrhythm("study", "list", columns=160)
    assert told.code == 0
    assert "Table 2" in told.out
    assert "unknown:" in told.out
    lines = [json.loads(line) for line in polyrhythm("study", "list", "--json").out.splitlines()]
    assert {"item": "ccfl/table-2", "by": "ccfl/table-2", "title": lines[0]["title"]}.keys() <= lines[0].keys()
    assert any(line["item"] == "fedcl/figure-59" for line in lines)


def test_an_own_file_is_run_and_its_page_written(polyrhythm: Command, folder: Path) -> None:
    Path("own.toml").write_text(OWN, encoding="utf-8")
    told = polyrhythm("study", "own.toml", "--seeds", "0-1", "-o", "page.md", *ALONE)
    assert told.code == 0, told.err
    assert "4/4" in told.out
    assert "A larger rate is better" in told.out
    page = Path("page.md").read_text(encoding="utf-8")
    assert "| One |" in page
    assert "| Other |" in page
    again = polyrhythm("study", "own.toml", "--seeds", "0-1", "-o", "page.md", "--json")
    assert json.loads(again.out)["page"] == "page.md"
    assert len(Run.all(folder / "runs" / "studies" / "own" / "quick")) == 4


def test_what_is_set_wins_over_the_scale(polyrhythm: Command, folder: Path) -> None:
    Path("own.toml").write_text(OWN, encoding="utf-8")
    told = polyrhythm("reproduce", "own.toml", "--set", "rounds=1", "--set", "method.lr=0.3", "--row", "One", *ALONE)
    assert told.code == 0, told.err
    (run,) = Run.all(folder / "runs" / "studies" / "own" / "quick")
    assert run.config["rounds"] == 1
    assert run.config["method"] == "fedavg(cohort=2, epochs=1, lr=0.3)"


def test_it_has_other_names_and_is_no_experiment(polyrhythm: Command, folder: Path) -> None:
    Path("own.toml").write_text(OWN, encoding="utf-8")
    for name in ("study", "reproduce", "sweep"):
        assert polyrhythm(name, "own.toml", "--set", "rounds=1", "--row", "One", "--json", *ALONE).code == 0
    assert len(Run.all(folder / "runs" / "studies" / "own" / "quick")) == 1
    refused = polyrhythm("run", "own.toml")
    assert refused.code == 2
    assert "polyrhythm study FILE" in refused.err


@pytest.mark.slow
def test_a_row_that_is_not_tuned_can_be_run_alone(polyrhythm: Command, folder: Path) -> None:
    tuned = OWN.replace("[scales.quick]\nrounds = 2\n", "[tuning.rows.Other]\nspace.method.lr = [0.1, 0.2]\n")
    Path("own.toml").write_text(tuned, encoding="utf-8")
    options = ("--set", "rounds=1", "--set", "validation=0.2", *ALONE)
    assert polyrhythm("study", "own.toml", "--row", "One", *options).code == 0
    told = polyrhythm("study", "own.toml", *options)
    assert told.code == 0
    assert "Chosen for Other: method.lr" in Path("runs/studies/own/paper/own.md").read_text(encoding="utf-8")
    assert {run.name for run in Run.all("runs/studies/own/paper")} == {"One", "Other"}
    assert len(Run.all("runs/studies/own/paper/tuning")) == 2
    told = polyrhythm("check", "own.toml", "--no-estimate", *options)
    assert "trials 2, by grid" in " ".join(told.out.split()), told.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ccfl/table-99"], "unknown study"),
        (["ccfl/table-2", "--row", "FedAvgg"], "FedAvgg"),
        (["ccfl/table-2", "--column", "15 %"], "15 %"),
        (["ccfl/table-2", "--set", "nothing=1"], "nothing"),
        (["ccfl/table-2", "--set", "method.lr"], "--set method.lr"),
        (["ccfl/table-2", "--seeds", "many"], "seeds"),
        (["ccfl/table-2", "--scale", "smoke", "-o", "page.html"], "page.html"),
        (["client-centric/figure-5"], "cannot be reproduced"),
        (["nowhere.toml"], "no such file"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(
    polyrhythm: Command, folder: Path, arguments: list[str], told: str
) -> None:
    result = polyrhythm("reproduce", *arguments)
    assert result.code == 2
    assert told in result.err
    assert "do: " in result.err
    assert not (folder / "runs").exists()


def test_another_process_at_it_is_not_joined(polyrhythm: Command, folder: Path) -> None:
    Path("own.toml").write_text(OWN, encoding="utf-8")
    runs = folder / "runs" / "studies" / "own" / "quick"
    with run_lock.alone(runs / ".going-on", UserError("", expected="", why="", fix="")):
        result = polyrhythm("reproduce", "own.toml")
    assert result.code == 2
    assert "going on in another process" in result.err
    assert not (runs / "runs.sqlite").exists()
    assert polyrhythm("reproduce", "own.toml", *ALONE).code == 0


def test_without_any_result_it_has_failed_and_its_page_says_why(
    polyrhythm: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("own.toml").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(
        "polyrhythm.studies.running.workers.perform", lambda *_: Ending(state="failed", reason="it broke")
    )
    result = polyrhythm("reproduce", "own.toml", *ALONE, "-o", "page.md")
    assert result.code == 1
    assert "no run of own has a result" in result.err
    assert "One, seed 0, has no result: it broke" in Path("page.md").read_text(encoding="utf-8")


def test_missing_data_are_named(polyrhythm: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYRHYTHM_CACHE", str(folder / "nothing"))
    result = polyrhythm("reproduce", "curriculum/table-1", "--set", "data.folder=not-there")
    assert result.code == 2
    assert "not-there" in result.err


KILLED = """import os, signal, sys
from polyrhythm.cli import main
from polyrhythm.runs.checkpointing import Keeper

write = Keeper.write


def dies(self, *given):
    write(self, *given)
    os.kill(os.getpid(), signal.SIGKILL)


Keeper.write = dies
main()
"""


def test_a_killed_one_goes_on_where_it_was(polyrhythm: Command, folder: Path) -> None:
    """Killed by itself as soon as there is a checkpoint, however fast or slow it is."""
    Path("own.toml").write_text(OWN.replace("[rows.Other]\n", "[rows.Other]\nrounds = 5\n"), encoding="utf-8")
    arguments = ("study", "own.toml", "--scale", "paper", *ALONE)
    died = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    runs = folder / "runs" / "studies" / "own" / "paper"
    (killed,) = Run.all(runs)
    assert (killed.status, len(list(runs.glob("*/checkpoint-*")))) == ("killed", 1)
    assert polyrhythm(*arguments).code == 0
    assert sorted((run.name, run.status) for run in Run.all(runs)) == [("One", "finished"), ("Other", "finished")]
    assert Run.all(runs)[0].id == killed.id
