"""`polyrhythm plot` draws figures, lists them, and refuses with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import polyrhythm as pr
from polyrhythm.cli.app import app
from small import experiment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plotted")
    pr.run(experiment(name="mine"), out=out)
    return out


def plot(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["plot", *arguments, "--out", str(folder)])


@pytest.mark.parametrize(("ending", "head"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("html", b"<!")])
def test_a_figure_is_drawn_into_a_file(folder: Path, tmp_path: Path, ending: str, head: bytes) -> None:
    file = tmp_path / f"a.{ending}"
    done = plot(folder, "mine", "--figure", "accuracy", "--against", "bytes", "--theme", "dark", "-o", str(file))
    assert done.exit_code == 0, done.output
    assert file.read_bytes().lstrip().startswith(head)


def test_a_curve_is_looked_at_closely(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    closer = ("--log", "xy", "--smooth", "3", "--span", "1", "2", "--seeds")
    done = plot(folder, "mine", "--figure", "accuracy", *closer, "-o", str(file))
    assert done.exit_code == 0, done.output
    assert "mean of 3 neighbouring places" in file.read_text()
    page = tmp_path / "a.html"
    assert plot(folder, "mine", "--figure", "accuracy", "-o", str(page)).exit_code == 0
    text = page.read_text()
    assert '<html lang="en">' in text
    assert "<title>Accuracy" in text
    assert '"over_' in text  # it can be read, and a picture cannot
    assert "over_" not in file.read_text()


def test_without_a_figure_they_are_listed(folder: Path) -> None:
    done = plot(folder)
    assert done.exit_code == 0, done.output
    assert "accuracy" in done.output
    assert "evaluation.groups=true" in done.output.replace("\n", "")
    told = [json.loads(line) for line in plot(folder, "--json").output.splitlines()]
    assert {entry["figure"] for entry in told if entry["applies"]} >= {"accuracy", "participation", "labels"}
    assert all(entry["why_not"] for entry in told if not entry["applies"])
    assert {entry["figure"] for entry in told if entry["flat"]} >= {"cohort", "rate"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--figure", "acuracy"], "did you mean 'accuracy'"),
        (["--figure", "accuracy", "-o", "a.jpg"], "a.jpg"),
        (["--figure", "accuracy", "--against", "tiem"], "did you mean 'time'"),
        (["--figure", "groups"], "evaluation.groups=true"),
        (["--figure", "labels", "--smooth", "5"], "no curve"),
        (["--figure", "accuracy", "--span", "5", "1"], "the first of them smaller"),
        (["--figure", "accuracy", "--smooth", "0"], "smooth = 0"),
        (["--figure", "accuracy", "-o", "no/such/folder/a.svg"], "cannot be written"),
        (["-o", "a.svg"], "no figure"),
        (["nobody", "--figure", "accuracy"], "unknown run"),
    ],
)
def test_what_cannot_be_drawn(folder: Path, arguments: list[str], said: str) -> None:
    done = plot(folder, *arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "expected:" in done.output


def test_a_measure_is_named_in_words(tmp_path: Path) -> None:
    settings = ["data=digits", "rounds=2", "clients=4", "evaluation.measure=[update_similarity, estimation_error]"]
    done = CliRunner().invoke(app, ["run", *(a for s in settings for a in ("--set", s)), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (run,) = pr.compare(tmp_path).methods.values()
    assert "measures_update_similarity" in run[0].history
    wrong = CliRunner().invoke(app, ["run", "--set", "evaluation.measure=similarity", "--out", str(tmp_path)])
    assert wrong.exit_code == 2
    assert "update_similarity" in wrong.output
