"""What was not understood is answered with what was meant."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.config.configuration import configure
from polyrhythm.config.homes import homes
from small import experiment
from terminal import Command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("runs")
    pr.run(experiment(name="day"), out=out)
    pr.run(experiment(name="night"), out=out)
    return str(out)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "fix"),
    [
        ("run --lr 0.1", '--set method.lr=0.1, or --method "fedavg(lr=0.1)"'),
        ("run --lr=0.1 --rounds 3", '--set method.lr=0.1, or --method "fedavg(lr=0.1)"'),
        ("run --learning-rate 0.2", "--set method.lr=0.2"),
        ("check --cohort 5", '--method "fedavg(cohort=5)"'),
        ("run --local-epochs 5", '--method "fedavg(epochs=5)"'),
        ("run --mu 0.1", '--method "fedprox(mu=0.1)"'),
        ("run --alpha 0.1", '--partition "dirichlet(alpha=0.1)"'),
        ("run --crash 0.1", "--faults crash=0.1"),
        ("run --accuracy 0.9", "--until accuracy=0.9"),
        ("run --every 5", "--set evaluation.every=5"),
        ("run --target y", '--data "table(path=…, target=y)"'),
        ("run --hidden 3", '--model "mlp(hidden=3)"'),
        ("run --prox 3", '--method "fedavg | prox"'),
        ("run --round 3", "did you mean --rounds?"),
        ("run --num-clients 3", "did you mean --clients?"),
        ("resume x --driverr inline", "did you mean --driver?"),
        ("resume x --lr 0.1", "`polyrhythm resume --help`"),
        ("study x.toml --lr 0.1", "--set method.lr=0.1"),
        ("fleet show --cliens 3", "did you mean --clients?"),
        ("--rounds 3", "did you forget the command? polyrhythm run --rounds 3"),
        ("x.toml --rounds 3", "polyrhythm run x.toml --rounds 3"),
        ("run --zzz", "`polyrhythm run --help`"),
        ("ui --out elsewhere", "polyrhythm ui elsewhere"),
        ("help", "polyrhythm --help"),
        ("version", "polyrhythm --version"),
        ("list --out elsewhere", "polyrhythm runs --out elsewhere"),
        ("train --rounds 3", "polyrhythm run --rounds 3"),
        ("studies", "did you mean study?"),
        ("zzz", "`polyrhythm -h`"),
        ("runs elsewhere", "--out elsewhere"),
        ("models mlp", "leave mlp out"),
        ('run "fedavg(cohort=5)"', '--method "fedavg(cohort=5)"'),
        ("run fashion-mnist", '--data "fashion-mnist"'),
        ("check lenet5", '--model "lenet5"'),
        ("run nosuch.csv", '--data "table(path=nosuch.csv, target=…)"'),
        ("run nosuch.toml", "check the path"),
        ("data digits", "polyrhythm data show --data digits"),
        ("data shwo", "did you mean show?"),
        ("fleet mobile", "polyrhythm fleet show --fleet mobile"),
        ("flower start", "`polyrhythm flower -h`"),
        ("data --zzz", "`polyrhythm data --help`"),
        ("study", "`polyrhythm study --help`"),
        ("run --rounds", "`polyrhythm run --help`"),
        ("fleet show --hours abc", "`polyrhythm fleet show --help`"),
        ("data show --clients", "`polyrhythm data show --help`"),
        ("runs --json=3", "`polyrhythm runs --help`"),
    ],
)
def test_an_option_that_is_none(polyrhythm: Command, typed: str, fix: str) -> None:
    found = polyrhythm(*shlex.split(typed))
    assert found.code == 2
    assert found.err.startswith("error: ")
    assert fix in found.err.partition("do: ")[2]


@pytest.mark.parametrize(
    ("name", "value", "many"),
    [
        ("lr", "0.1", 2),
        ("cohort", "3", 2),
        ("accuracy", "0.9", 2),
        ("crash", "0.1", 2),
        ("every", "5", 3),
        ("alpha", "0.3", 3),
        ("mu", "0.1", 1),
        ("hidden", "[3]", 2),
    ],
)
def test_what_is_advised_is_understood(name: str, value: str, many: int) -> None:
    said = {text for home in homes(name) for text in (home.option(value), home.override(value))}
    understood = 0
    for option, text in map(shlex.split, said):
        if "…" in text:  # what only its owner can write there
            continue
        try:
            configure(None, {} if option == "--set" else {option[2:]: text}, [text] if option == "--set" else [])
        except UserError as error:  # a setting of a part that is not there, where --set is no advice
            if option != "--set":
                raise AssertionError(text) from error
        else:
            understood += 1
    assert understood >= many


@pytest.mark.parametrize(
    ("faults", "fix"),
    [("crash", 'write "crash=0.05"'), ("crash, nan=0.1", 'write "crash=0.05, nan=0.1"'), ("crsh", "'crash'")],
)
def test_a_fault_without_how_often(polyrhythm: Command, faults: str, fix: str) -> None:
    assert fix in polyrhythm("check", "--faults", faults).err


@pytest.mark.parametrize(
    ("typed", "fix"),
    [
        ('--partition "dirichlet(0.1)"', "write dirichlet(alpha=0.1)"),
        ('--method "fedavg(cohort)"', "write fedavg(cohort=…)"),
        ('--fleet "tiers | faults(crash)"', "write faults(crash=…)"),
        ('--data "table(x.csv)"', "write table(path=x.csv, target=…)"),
    ],
)
def test_a_setting_without_its_name_or_value(polyrhythm: Command, typed: str, fix: str) -> None:
    assert fix in polyrhythm("check", *shlex.split(typed)).err


@pytest.mark.parametrize(
    ("data", "fix"),
    [
        ("x.csv", "table(path=x.csv, target=…)"),
        ("data/x.csv", "table(path=data/x.csv, target=…)"),
        ("data/X.CSV.GZ", "table(path=data/X.CSV.GZ, target=…)"),
        ("my data.csv", 'table(path="my data.csv", target=…)'),
        ("x.parquet", "table(path=x.parquet, target=…)"),
        ("x.npz", "npz(path=x.npz)"),
        ("x.npy", "npz(path=x.npz)"),
        ("https://example.org/x.csv?raw=1", "download it first, and then table(path=x.csv, target=…)"),
        ("pictures", "image-folder(path=pictures)"),
        ("tables", "table(path=tables/a.csv, target=…)"),
        ("owner/name", 'hub(name="owner/name")'),
        ("hf", "hub(name="),
        ("hf://owner/name", "hub("),
        ("nosuch/folder/", "check it"),
        ("fashion", "did you mean 'fashion-mnist'?"),
    ],
)
def test_a_path_in_the_place_of_a_data_set(polyrhythm: Command, here: Path, data: str, fix: str) -> None:
    (here / "pictures" / "cats").mkdir(parents=True)
    (here / "pictures" / "cats" / "1.PNG").touch()
    (here / "tables").mkdir()
    (here / "tables" / "a.csv").touch()
    found = polyrhythm("check", "--data", data)
    assert found.code == 2
    assert fix in found.err
    (here / "e.toml").write_text(f"data = {json.dumps(data)}\n")
    assert "e.toml, line 1: data" in polyrhythm("check", "e.toml").err


def test_a_folder_called_like_a_data_set_is_no_path(polyrhythm: Command, here: Path) -> None:
    (here / "digits").mkdir()
    assert polyrhythm("check", "--data", "digits", "--no-estimate").code == 0


@pytest.mark.parametrize(
    ("model", "fix"),
    [
        ("nets.Net", "nets:Net"),
        ("nets.py:Net", "write nets:Net"),
        ("nets.py", "nets:NAME"),
        ("weights.safetensors", "--init weights.safetensors"),
        ("lenet", "did you mean 'lenet5'"),
    ],
)
def test_a_file_in_the_place_of_a_model(polyrhythm: Command, model: str, fix: str) -> None:
    found = polyrhythm("check", "--model", model)
    assert found.code == 2
    assert fix in found.err


@pytest.mark.parametrize("command", ["show", "compare", "report", "plot", "resume", "verify", "replay", "stop"])
def test_a_run_that_is_none_is_answered_with_names_and_ids(polyrhythm: Command, folder: str, command: str) -> None:
    found = polyrhythm(command, "nigth", "--out", folder)
    assert found.code == 2
    assert "did you mean 'night'?" in found.err
    assert "(night)" in found.err
    assert "(day)" in found.err


def test_the_path_of_a_run_is_answered_with_its_id(polyrhythm: Command, folder: str) -> None:
    run = pr.Run.open("day", folder).id
    assert f"did you mean '{run}'?" in polyrhythm("show", f"{folder}/{run}", "--out", folder).err


def test_show_without_a_run_shows_the_newest(polyrhythm: Command, folder: str, tmp_path: Path) -> None:
    newest = pr.Run.all(folder)[-1].id
    assert json.loads(polyrhythm("show", "--json", "--out", folder).out)["run_id"] == newest
    assert polyrhythm("show", "--out", str(tmp_path)).code == 2


def test_a_study_that_is_none(polyrhythm: Command, tmp_path: Path) -> None:
    found = polyrhythm("best", "zzz", "--out", str(tmp_path))
    assert found.code == 2
    assert "polyrhythm study FILE" in found.err


def test_a_folder_that_is_not_there_is_not_watched(polyrhythm: Command, here: Path) -> None:
    (here / "file").touch()
    for folder, said in (("nosuchdir", "is not there"), ("file", "is a file")):
        found = polyrhythm("ui", folder)
        assert found.code == 2
        assert said in found.err


@pytest.mark.parametrize(
    "typed",
    [
        "report -o {} --out {out}",
        "compare -o {} --out {out}",
        "plot --figure accuracy -o {} --out {out}",
        "data show -o {}",
        "expert -o {}",
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    polyrhythm: Command, folder: str, here: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setattr("polyrhythm.figures.draw", None)
    monkeypatch.setattr("polyrhythm.report.writing.contents", None)
    monkeypatch.setattr("polyrhythm.experiments.expert.carry_out", None)
    (here / "folder.html").mkdir()
    for place, said in (("nodir/x.html", "there is no folder nodir"), ("folder.html", "it is a folder")):
        found = polyrhythm(*shlex.split(typed.format(place, out=folder)))
        assert found.code == 2
        assert said in found.err


def test_a_seed_that_fails_leaves_the_others_alone(
    polyrhythm: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polyrhythm.base.errors import RunFailed
    from polyrhythm.experiments.run import Launch

    carry_out = Launch.carry_out

    def sometimes(self: Launch, *arguments: object) -> object:
        if self._prepared.experiment.seed == 0:
            raise RunFailed("it diverged")
        return carry_out(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Launch, "carry_out", sometimes)
    found = polyrhythm("run", "--seeds", "0-2", "--rounds", "1", "--clients", "3", "--model", "logistic")
    assert found.code == 1
    assert "failed: seed 0: it diverged" in found.err
    assert "1 of 3 seeds have no result: 0" in found.err
    assert found.out.count("final accuracy") == 2
    assert "seed 2, 3 of 3" in found.out
    assert found.out.count("partition") == 1


def test_a_folder_of_runs_in_the_place_of_a_run(polyrhythm: Command, folder: str, here: Path) -> None:
    pr.run(experiment(), out=here / "others")
    found = polyrhythm("show", "others", "--out", folder)
    assert "it is a folder of runs" in found.err
    assert "say it with --out others" in found.err
    assert "looked in as it is" in polyrhythm("compare", folder, "--out", folder).err


def test_a_figure_in_the_place_of_a_run(polyrhythm: Command, folder: str) -> None:
    found = polyrhythm("plot", "loss", "--out", folder)
    assert found.code == 2
    assert "polyrhythm plot --figure loss" in found.err
    assert "figure" not in polyrhythm("plot", "lossy", "--out", folder).err


def test_how_rows_are_read_in_the_place_of_their_file(polyrhythm: Command, folder: str, here: Path) -> None:
    found = polyrhythm("predict", "day", "--data", "table(path=x.csv)", "-o", "y.csv", "--out", folder)
    assert "give the path alone" in found.err


def test_a_file_in_the_place_of_the_output_folder(polyrhythm: Command, here: Path) -> None:
    (here / "x.csv").touch()
    found = polyrhythm("run", "--rounds", "1", "--clients", "2", "--method", "fedavg(cohort=1)", "--out", "x.csv")
    assert found.code == 2
    assert "x.csv cannot be used: it is a file" in found.err


@pytest.mark.parametrize(("name", "why"), [("x" * 300, "File name too long"), ("a\0b", "a null character in its name")])
def test_an_output_folder_that_cannot_be(polyrhythm: Command, here: Path, name: str, why: str) -> None:
    found = polyrhythm("run", "--rounds", "1", "--clients", "2", "--method", "fedavg(cohort=1)", "--out", name)
    assert (found.code, why in found.err) == (2, True)
    for command in (
        (("runs", "--out"), ("ui",)) if "\0" not in name else ()
    ):  # no shell can give it, nor older Clicks take it
        assert polyrhythm(*command, name).code == 2
