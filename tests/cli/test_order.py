"""Order among runs from the command line: tags, notes, names, archive, baseline; and the list that shows them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import polyrhythm as pr
import small
from terminal import Command

LONG = "a name of many words that nobody may break in two"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for seed in (0, 1, 2):
        for name, recipe in (("plain", pr.fedavg(cohort=2, lr=0.1 + seed)), ("drift", pr.scaffold(cohort=2))):
            pr.run(small.experiment(name=name, seed=seed, recipe=recipe), out=folder)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded, tmp_path / "runs")


def listed(polyrhythm: Command, folder: Path, *options: str) -> list[str]:
    """Names and seeds of the runs that are listed."""
    found = polyrhythm("runs", "--out", str(folder), "--json", *options)
    assert found.code == 0, found.err
    ids = [json.loads(line)["run_id"] for line in found.out.splitlines()]
    runs = {run.id: run for run in pr.Run.all(folder, archived=True)}
    return [f"{runs[run_id].name} {runs[run_id].seed}" for run_id in ids]


def test_runs_are_tagged_and_found_by_their_tags(polyrhythm: Command, folder: Path) -> None:
    out = ("--out", str(folder))
    found = polyrhythm("tag", "drift", "--add", "paper", "-a", "slow", *out)
    assert (found.code, found.out.count(": paper, slow")) == (0, 3)
    assert polyrhythm("tag", pr.Run.find("drift", folder)[0].id, "--remove", "slow", *out).code == 0
    assert listed(polyrhythm, folder, "--tag", "paper") == ["drift 0", "drift 1", "drift 2"]
    assert listed(polyrhythm, folder, "--tag", "paper", "--tag", "slow") == ["drift 1", "drift 2"]
    assert listed(polyrhythm, folder, "--search", "slow seed 2") == ["drift 2"]
    table = polyrhythm("runs", *out, columns=120).out
    assert "tags" in table
    assert "paper, slow" in table
    assert "no tags" in polyrhythm("tag", "plain", *out).out
    assert polyrhythm("tag", "plain", "--add", " x", *out).code == 2
    assert polyrhythm("tag", "nobody", "--add", "x", *out).code == 2


def test_a_run_has_a_note_and_another_name(polyrhythm: Command, folder: Path) -> None:
    run, out = pr.Run.all(folder)[0], ("--out", str(folder))
    assert "no note" in polyrhythm("note", run.id, *out).out
    assert polyrhythm("note", run.id, "diverged: [red]lr[/] too high", *out).code == 0
    assert polyrhythm("note", run.id, *out).out == "diverged: [red]lr[/] too high\n"
    found = polyrhythm("rename", run.id, "first try", *out)
    assert found.out == f"{run.id} is called 'first try', and was 'plain'\n"
    shown = polyrhythm("show", "first try", *out).out
    for text in ("diverged: [red]lr[/] too high", "first name", "plain"):
        assert text in shown
    told = json.loads(polyrhythm("show", "first try", *out, "--json").out)
    assert (told["note"], told["tags"], told["baseline"]) == ("diverged: [red]lr[/] too high", [], False)
    polyrhythm("rename", run.id, "", *out)
    assert pr.Run.open(run.id, folder).name == "plain"


def test_the_archive_is_left_out_until_it_is_asked_for(polyrhythm: Command, folder: Path) -> None:
    out = ("--out", str(folder))
    assert polyrhythm("archive", "plain", *out).code == 0
    assert listed(polyrhythm, folder) == ["drift 0", "drift 1", "drift 2"]
    assert len(listed(polyrhythm, folder, "--archived")) == 6
    assert "3 in the archive" in polyrhythm("runs", *out).out
    assert "plain" not in polyrhythm("compare", *out).out
    assert "plain" in polyrhythm("compare", "plain", "drift", *out).out
    assert "drift" in polyrhythm("show", *out).out
    assert polyrhythm("archive", "plain", "--undo", *out).code == 0
    assert len(listed(polyrhythm, folder)) == 6


def test_runs_are_deleted_only_by_who_is_sure(polyrhythm: Command, folder: Path) -> None:
    out = ("--out", str(folder))
    refused = polyrhythm("delete", "plain", *out)
    assert refused.code == 2
    assert "nobody can be asked whether to delete 3 runs" in refused.err
    assert "polyrhythm delete plain --yes" in refused.err
    assert len(listed(polyrhythm, folder)) == 6
    assert "deleted 3 runs" in polyrhythm("delete", "plain", "--yes", *out).out
    assert listed(polyrhythm, folder, "--archived") == ["drift 0", "drift 1", "drift 2"]
    assert "drift" in polyrhythm("compare", *out).out
    assert polyrhythm("delete", "plain", "--yes", *out).code == 2


def test_comparisons_begin_with_the_baseline(polyrhythm: Command, folder: Path) -> None:
    out = ("--out", str(folder))

    def first() -> str:
        line = polyrhythm("compare", *out, "--json").out.splitlines()[0]
        return str(json.loads(line)["method"]).split()[0]

    run = pr.Run.find("drift", folder)[1]
    assert polyrhythm("pin", run.id, "--undo", *out).code == 2
    assert first() == "plain"
    assert polyrhythm("pin", run.id, *out).code == 0
    assert first() == "drift"
    assert polyrhythm("pin", run.id, "--undo", *out).code == 0
    assert first() == "plain"


def test_runs_are_filtered_and_sorted(polyrhythm: Command, folder: Path) -> None:
    assert listed(polyrhythm, folder, "--method", "scaf") == ["drift 0", "drift 1", "drift 2"]
    assert listed(polyrhythm, folder, "--search", "plain seed 1") == ["plain 1"]
    assert listed(polyrhythm, folder, "--data", "blobs", "--status", "finished", "--search", "seed 2") == [
        *("plain 2", "drift 2")
    ]
    assert listed(polyrhythm, folder, "--status", "failed") == []
    assert listed(polyrhythm, folder, "--data", "nothing") == []
    by_rate = listed(polyrhythm, folder, "--sort", "-optimiser.lr")
    assert by_rate[:2] == ["plain 2", "plain 1"]
    finals = {f"{run.name} {run.seed}": run.summary["final_accuracy"] for run in pr.Run.all(folder)}
    assert [finals[name] for name in listed(polyrhythm, folder, "--sort", "-final")] == sorted(
        finals.values(), reverse=True
    )
    assert [finals[name] for name in listed(polyrhythm, folder, "--sort", "final")] == sorted(finals.values())


def test_columns_are_chosen_settings_by_their_path_among_them(polyrhythm: Command, folder: Path) -> None:
    out = ("--out", str(folder))
    found = polyrhythm("runs", *out, "--columns", "name,seed,optimiser.lr,clients", columns=100)
    lines = [line.split() for line in found.out.splitlines() if "plain" in line]
    assert lines == [["plain", "0", "0.1", "4"], ["plain", "1", "1.1", "4"], ["plain", "2", "2.1", "4"]]
    more = polyrhythm("runs", *out, "--columns", "+seed", columns=120).out
    assert "last 20" in more
    assert " seed " in more
    unclear = polyrhythm("runs", *out, "--columns", "lr")
    assert unclear.code == 2
    assert "method.optimiser.lr" in unclear.err
    unknown = polyrhythm("runs", *out, "--sort", "fnal")
    assert unknown.code == 2
    assert "did you mean final" in unknown.err


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_no_name_is_broken_at_any_width(polyrhythm: Command, folder: Path, columns: int) -> None:
    run = pr.Run.all(folder)[0]
    run.rename(LONG)
    run.tag("paper")
    found = polyrhythm("runs", "--out", str(folder), columns=columns).out
    if columns >= 60:
        assert LONG in found
    for name in ("drift", *(run.id for run in pr.Run.all(folder))):
        assert name in found
    if columns >= 100:  # a table, if there is room for one
        assert found.count(run.id) == 1
        assert all(len(line) <= columns for line in found.splitlines())


def test_at_80_columns_ordinary_runs_are_a_table(polyrhythm: Command, folder: Path) -> None:
    found = polyrhythm("runs", "--out", str(folder), columns=80).out
    lines = [line for line in found.splitlines() if "drift" in line]
    assert len(lines) == 3
    assert all("scaffold" in line and "finished" in line for line in lines)
    assert all(len(line) <= 80 for line in found.splitlines())


def test_in_a_pipe_each_run_is_a_line_and_nothing_that_trains_is_loaded(folder: Path) -> None:
    code = (
        "import sys; from polyrhythm.cli.app import app\n"
        "try: app(sys.argv[1:], prog_name='polyrhythm')\n"
        "finally: print(sorted({'torch', 'pandas', 'altair', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    pr.Run.all(folder)[0].rename(LONG)
    without = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}  # readline sets them
    for command in (["runs"], ["show"], ["tag", "drift", "--add", "x"], ["note", LONG], ["compare"], ["plot"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *command, "--out", str(folder)],
            capture_output=True,
            text=True,
            check=False,
            env=without,
        )
        counts = ["numpy"] if command == ["compare"] else []  # of who was heard
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, str(counts)), (command, done.stderr)
        if command == ["runs"]:
            assert sum(LONG in line and "fedavg" in line for line in done.stdout.splitlines()) == 1, done.stdout
            assert sum("drift" in line and "scaffold" in line for line in done.stdout.splitlines()) == 3


def test_what_commands_are_called_elsewhere_is_known(polyrhythm: Command) -> None:
    assert "polyrhythm delete night" in polyrhythm("rm", "night").err


def test_show_names_data_partition_split_model_and_fleet(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    quick = ("--data", "digits", "--clients", "8", "--rounds", "1", "--model", "logistic")
    polyrhythm("run", *quick, "--partition", "dirichlet(alpha=0.3)", "--fleet", "tiers", *out)
    found = polyrhythm("show", *out).out
    for text in ("digits", "dirichlet(alpha=0.3)", "samples each", "logistic", "parameters", "tiers"):
        assert text in found, text
