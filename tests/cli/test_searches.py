"""`polyrhythm study` with a search, `best`, and `check` for studies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import polyrhythm as pr
from polyrhythm.results import Run
from polyrhythm.studies import StudyResult, planned
from polyrhythm.studies.files.reading import read
from terminal import Command

GOOD = """clients = 4
model = "logistic"
method = "fedavg(cohort=2, epochs=1)"
rounds = 2
validation = 0.2

[sweep.space]
method.lr = [0.01, 1.0]
partition.alpha = [0.3, 10.0]
"""
TWO = """clients = 4
model = "logistic"
rounds = 2
validation = 0.2

[sweep]
search = "random"
trials = 2
fresh = "5-6"

[sweep.methods.plain]
method = "fedavg(cohort=2, epochs=1)"
space.method.lr = {low = 0.1, high = 1.0, log = true}

[sweep.methods.pulled]
method = ["fedavg(cohort=2, epochs=1)", "prox"]
space.method.lr = {low = 0.1, high = 1.0, log = true}
space.method.prox.mu = [0.01, 0.1]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_grid_from_file_to_the_best_file(polyrhythm: Command, folder: Path) -> None:
    (folder / "tune.toml").write_text(GOOD)
    done = polyrhythm("study", "tune.toml", "--workers", "1", "-o", "trials.svg")
    assert (done.code, done.err) == (0, "")
    for words in ("4/4 trial 4 finished", "validation accuracy", "best, on test", "polyrhythm best tune"):
        assert words in done.out
    assert (folder / "trials.svg").stat().st_size > 1000
    best = polyrhythm("best", "tune")
    (folder / "best.toml").write_text(best.out)
    trial = StudyResult.open("tune").best()
    assert trial is not None
    assert f"lr={trial.setting['method.lr']}" in tomllib.loads(best.out)["method"]
    again = json.loads(polyrhythm("run", "best.toml", "--json", "--out", "again").out)
    (run,) = [run for run in Run.all("runs") if run.id == trial.runs[0]]
    assert again["digest"] == run.summary["digest"]
    assert json.loads(polyrhythm("best", "tune", "--json").out)["best"][0]["trial"] == trial.number


def test_two_methods_with_the_same_budget_are_compared_over_fresh_seeds(polyrhythm: Command, folder: Path) -> None:
    (folder / "two.toml").write_text(TWO)
    done = polyrhythm("study", "two.toml", "--workers", "1", "--json", "--out", "made")
    assert done.code == 0
    *rows, last = map(json.loads, done.out.splitlines())
    assert [(row["row"], row["trial"]) for row in rows] == [
        *(("plain", 1), ("plain", 2)),
        *(("pulled", 1), ("pulled", 2)),
    ]
    lr = {row["row"]: row["setting"]["method.lr"] for row in rows if row["trial"] == 1}
    assert lr["plain"] == lr["pulled"]  # paired: a key has the same draw for both
    assert [entry["seeds"] for entry in last["best"]] == [[5, 6], [5, 6]]
    assert all(len(entry["test"]) == 2 for entry in last["best"])
    assert "one of two/plain, two/pulled" in polyrhythm("best", "two", "--out", "made").err
    assert "prox(mu=" in polyrhythm("best", "two/pulled", "--out", "made").out
    compared = polyrhythm("compare", "two/plain/best", "two/pulled/best", "--out", "made")
    assert compared.code == 0


def test_nothing_is_judged_on_the_test_set(polyrhythm: Command, folder: Path) -> None:
    (folder / "x.toml").write_text(GOOD.replace("validation = 0.2\n", ""))
    found = polyrhythm("sweep", "x.toml")
    assert found.code == 2
    assert "set validation = 0.1" in found.err
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("[0.01, 1.0]", "[0.01, -1.0]", "x.toml, line 8: method.lr = -1.0: "),
        ("method.lr", "method.rate", "unknown setting 'rate' in fedavg"),
        ("method.lr", "method.prox.mu", "unknown part 'prox'"),
        ("method.lr", "seed", "x.toml, line 8: seed in the space of a search"),
        ("method.lr", "roundz", "x.toml, line 8: unknown key 'roundz'"),
        ("[0.01, 1.0]", "0.1", "x.toml, line 8: method.lr = 0.1"),
        ("[0.01, 1.0]", "{low = 0.1, high = 1.0}", "method.lr is a range in a grid"),
        ("[0.01, 1.0]", "{low = 1.0, high = 0.1}", "x.toml, line 8: a range from 1.0 to 0.1"),
        ("[sweep.space]", "[sweep]\ntrails = 3\n[sweep.space]", "unknown key 'trails' in x.toml, line 8"),
        ("[sweep.space]", "[sweep]\ntrials = 0\n[sweep.space]", "x.toml, line 8: trials = 0"),
        ("clients = 4", "clients = 5000", "clients"),
        ("[sweep.space]", "[space]", "has no table [sweep]"),
    ],
)
def test_mistakes_are_told_with_their_lines_before_anything_runs(
    polyrhythm: Command, folder: Path, before: str, after: str, words: str
) -> None:
    (folder / "x.toml").write_text(GOOD.replace(before, after))
    found = polyrhythm("sweep", "x.toml")
    assert found.code == 2
    assert words in found.err
    assert "Traceback" not in found.err
    assert not (folder / "runs").exists()


def test_check_says_how_many_and_how_long(polyrhythm: Command, folder: Path) -> None:
    (folder / "two.toml").write_text(TWO)
    found = polyrhythm("check", "two.toml", "--no-estimate")
    assert found.code == 0
    words = " ".join(found.out.split())
    assert "row plain" in words
    assert "trials 2, by random" in words
    assert "runs 4: each trial with 1 seed, and 2 of the best with fresh seeds" in words
    told = json.loads(polyrhythm("check", "two.toml", "--json", "--no-estimate").out)
    assert told["rows"]["pulled"] == {"trials": 2, "runs": 4}
    (folder / "two.toml").write_text(TWO.replace("trials = 2", "trials = 0"))
    wrong = polyrhythm("check", "two.toml", "--json")
    assert wrong.code == 2
    assert not json.loads(wrong.out)["valid"]
    assert [path.name for path in folder.iterdir()] == ["two.toml"]


def test_a_sweep_is_no_experiment(polyrhythm: Command, folder: Path) -> None:
    (folder / "x.toml").write_text(GOOD)
    found = polyrhythm("run", "x.toml")
    assert found.code == 2
    assert "polyrhythm study FILE" in found.err
    assert "unknown study 'x'" in polyrhythm("best", "x").err


def test_listed_settings_may_name_whole_methods(folder: Path) -> None:
    (folder / "x.toml").write_text(
        'validation = 0.1\n[sweep]\nsearch = "list"\n[[sweep.settings]]\nmethod = "fedavg"\nrounds = 3\n'
        '[[sweep.settings]]\nmethod = ["fedavg", "prox(mu=1)"]\nevaluation.every = 2\n'
    )
    arm = planned(read(folder / "x.toml")).arms[""]
    assert arm.many == 2
    second, _ = arm.make(arm.settings[1], 0)
    assert second.recipe == pr.fedavg() | pr.parts.prox(mu=1)
    assert second.evaluation.every == 2


def at_work(process: str) -> bool:
    """Whether a process is there, and not only its name, since nobody has asked how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_leaves_no_process(folder: Path) -> None:
    (folder / "tune.toml").write_text(GOOD.replace("rounds = 2", "rounds = 30") + "\n[checkpoint]\nevery = 1\n")
    command = [sys.executable, "-m", "polyrhythm", "study", "tune.toml", "--workers", "2"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    database = folder / "runs" / "runs.sqlite"
    end = time.monotonic() + 120
    while not (database.exists() and any(run.versions for run in Run.all("runs"))):
        assert time.monotonic() < end
        time.sleep(0.05)
    children = subprocess.run(["pgrep", "-P", str(first.pid)], capture_output=True, text=True).stdout.split()
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    end = time.monotonic() + 120
    while any(map(at_work, children)):
        assert time.monotonic() < end
        time.sleep(0.05)
    subprocess.run(command, stdout=subprocess.DEVNULL, cwd=folder, check=True)
    subprocess.run([*command, "--out", "whole"], stdout=subprocess.DEVNULL, cwd=folder, check=True)
    found = [{(r.name, r.summary["digest"]) for r in Run.all(out)} for out in ("runs", "whole")]
    assert found[0] == found[1]
    assert len(Run.all("runs")) == 4
