"""An experiment file from somebody else writes into the working folder and nowhere else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.config.configuration import configure
from terminal import Command

QUICK = 'model = "logistic"\nrounds = 1\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with links that lead out of it and back."""
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (inside / "away").symlink_to(tmp_path / "outside")
    (inside / "back").symlink_to(inside / "deep")
    (inside / "round").symlink_to(inside / "round")
    monkeypatch.chdir(inside)
    return inside


@pytest.mark.parametrize(
    "out",
    ["..", "../outside", "deep/../../outside", "/tmp", "~/../../outside/..", "away", "away/deep", "a\0b"],
)
def test_a_file_cannot_have_runs_written_elsewhere(folder: Path, polyrhythm: Command, out: str) -> None:
    Path("x.toml").write_text(f"{QUICK}out = {json.dumps(out)}\n")
    before = sorted(folder.parent.rglob("*"))
    if out.startswith("~"):  # a folder of that name, since nothing expands it
        assert configure(Path("x.toml"), {}, ["out=deep"]).out == "deep"
        return
    found = polyrhythm("run", "x.toml")
    assert found.code == 2
    assert "x.toml, line 3: out = " in found.err
    assert "a folder inside the one that you run in" in found.err
    assert sorted(folder.parent.rglob("*")) == before


def test_links_that_go_round_are_refused(folder: Path, polyrhythm: Command) -> None:
    Path("x.toml").write_text(f'{QUICK}out = "round/x"\n')
    found = polyrhythm("run", "x.toml")
    assert found.code == 2
    assert "Traceback" not in found.err


@pytest.mark.parametrize("out", ["runs", "deep/runs", "deep/../runs", "./x", "back"])
def test_inside_it_may(folder: Path, out: str) -> None:
    Path("x.toml").write_text(f"out = {json.dumps(out)}\n")
    assert configure(Path("x.toml"), {}, []).out == out
    Path("x.toml").write_text(f"out = {json.dumps(str(folder / 'runs'))}\n")
    assert configure(Path("x.toml"), {}, []).out == str(folder / "runs")


def test_whoever_types_a_folder_means_it(folder: Path, polyrhythm: Command) -> None:
    Path("x.toml").write_text(f'{QUICK}out = "/nowhere"\n')
    for options in (("--out", "../outside"), ("--set", "out=../outside")):
        assert polyrhythm("run", "x.toml", *options).code == 0
    assert (folder.parent / "outside" / "runs.sqlite").exists()
    with pytest.raises(UserError):
        configure(Path("x.toml"), {}, [])


def test_a_name_is_never_a_path(folder: Path, polyrhythm: Command) -> None:
    before = {path for path in folder.parent.rglob("*") if "runs" not in path.parts}
    assert polyrhythm("run", "--name", "../../evil", "--set", "model=logistic", "--rounds", "1").code == 0
    after = {path for path in folder.parent.rglob("*") if "runs" not in path.relative_to(folder.parent).parts}
    assert after == before
    (made,) = (path for path in (folder / "runs").iterdir() if path.is_dir())
    assert {path.name for path in made.iterdir()} == {
        "final.safetensors",
        "best.safetensors",
        "checkpoint-00000000.safetensors",
        "labels.json",
        "log.txt",
        "model.json",
    }
    assert os.stat(made).st_mode & 0o002 == 0
