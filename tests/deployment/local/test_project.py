"""A project for Flower: what is written, and what its files mean."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import polyrhythm as pr
from polyrhythm.base.consent import Trust
from polyrhythm.cli.app import app
from polyrhythm.cli.deployed import experiment_of, serving_of
from polyrhythm.config.configuration import configure
from polyrhythm.deployment.local.keys import make_authority, make_node_key
from polyrhythm.deployment.local.loopback import diagnosed
from polyrhythm.deployment.local.project import write_project
from polyrhythm.experiments.prepared import prepare
from strangers import MODULE, OWN, PATH, inside

cli = CliRunner()


def test_a_project_names_apps_that_are_there(tmp_path: Path) -> None:
    done = cli.invoke(app, ["flower", "new", str(tmp_path / "fed")])
    assert done.exit_code == 0, done.output
    settings = tomllib.loads((tmp_path / "fed" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert settings["components"] == {"serverapp": "federation.app:server", "clientapp": "federation.app:client"}
    text = (tmp_path / "fed" / "federation" / "app.py").read_text()
    assert "server = server_of" in text
    assert "client = client_of" in text
    made, _ = experiment_of(tmp_path / "fed" / "federation" / "experiment.toml", settings["config"])
    assert (made.federation.clients, made.rounds) == (4, 5)
    serving = serving_of(settings["config"])
    assert (serving.out, serving.resume, serving.log_updates) == ("runs", True, False)
    assert (serving.wait, serving.returns) == (300.0, 120.0)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    done = cli.invoke(app, ["flower", "new", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not empty" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_settings_of_a_run_and_data_of_a_node(tmp_path: Path) -> None:
    write_project(tmp_path / "fed")
    file = tmp_path / "fed" / "federation" / "experiment.toml"
    made, _ = experiment_of(file, {"set": "rounds=9; clients = 6;seed=3"})
    assert (made.rounds, made.federation.clients, made.seed) == (9, 6, 3)
    own, _ = experiment_of(file, {"set": "rounds=9; clients = 6"}, "digits")
    assert (own.rounds, own.federation.clients) == (9, 1)
    with pytest.raises(pr.UserError, match="seeds"):
        experiment_of(file, {"set": "seeds=0-2"})


def test_the_recipe_of_both_ends_is_the_same(tmp_path: Path) -> None:
    write_project(tmp_path / "fed")
    file = tmp_path / "fed" / "federation" / "experiment.toml"
    there = configure(file, {}, []).resolved_parts.recipe
    assert experiment_of(file, {}, "digits")[0].recipe.digest == there.digest


def test_a_project_carries_the_consent_of_whoever_makes_it(tmp_path: Path) -> None:
    for name, options in {"none": (), "some": ("--trust", "nets", "--trust", "my_lab.nets")}.items():
        done = cli.invoke(app, ["flower", "new", str(tmp_path / name), *options])
        assert done.exit_code == 0, done.output
        told = "".join(done.output.split())  # however its lines were broken
        assert "".join(("flowerup", str(tmp_path / name), *options)).replace(" ", "") in told
    apps = {name: (tmp_path / name / "federation" / "app.py").read_text() for name in ("none", "some")}
    assert "TRUST: list[str] = []\n" in apps["none"]
    assert 'TRUST: list[str] = ["nets", "my_lab.nets"]\n' in apps["some"]
    assert "server_of(EXPERIMENT, trust=TRUST)" in apps["some"]
    assert "client_of(EXPERIMENT, trust=TRUST)" in apps["some"]
    done = cli.invoke(app, ["flower", "new", str(tmp_path / "bad"), "--trust", '"]; import os; ["'])
    assert done.exit_code == 2
    assert not (tmp_path / "bad").exists()


def test_the_settings_of_a_run_are_no_consent(tmp_path: Path) -> None:
    write_project(tmp_path / "fed")
    file = tmp_path / "fed" / "federation" / "experiment.toml"
    (tmp_path / f"{MODULE}.py").write_text(OWN)
    settings = {"set": f"model={PATH}", "trust": MODULE}
    with inside(tmp_path):
        with pytest.raises(pr.UserError, match=f"have not named {MODULE}"):
            experiment_of(file, settings)
        assert not (tmp_path / "marker").exists()
        assert prepare(*experiment_of(file, settings, trust=Trust((MODULE,))))
        assert (tmp_path / "marker").exists()


def test_nothing_runs_so_nothing_is_stopped(tmp_path: Path) -> None:
    done = cli.invoke(app, ["flower", "down", "--dir", str(tmp_path / "none")])
    assert done.exit_code == 0
    assert "nothing of" in done.output


def test_a_project_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyrhythm.cli.flowering.programs", lambda: None)
    done = cli.invoke(app, ["flower", "up", str(tmp_path), "--dir", str(tmp_path / "x")])
    assert done.exit_code == 2
    assert "has no pyproject.toml" in done.output


def test_without_flower_up_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyrhythm.deployment.local.loopback._found", lambda name, beside: False)
    done = cli.invoke(app, ["flower", "up", "--dir", str(tmp_path / "x")])
    assert done.exit_code == 2
    assert "pip install 'polyrhythm[flower]'" in done.output
    assert not (tmp_path / "x").exists()


def test_keys_are_made_once_and_for_nobody_else(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography, which comes with polyrhythm[flower]")
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

    make_authority(tmp_path)
    make_node_key(tmp_path / "key")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"ca.crt", "ca.key", "server.crt", "server.key", "key", "key.pub"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    root, served = (x509.load_pem_x509_certificate(before[name]) for name in ("ca.crt", "server.crt"))
    served.verify_directly_issued_by(root)
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    private = load_ssh_private_key(before["key"], None)
    public = load_ssh_public_key(before["key.pub"])
    assert private.public_key() == public
    make_authority(tmp_path)
    make_node_key(tmp_path / "key")
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("… exit 305 [code: 2004]", "was never registered"),
        ("… [code: 2001] …", "has shown none"),
        ("ssl.SSLError: CERTIFICATE_VERIFY_FAILED", "not from the authority"),
        ("all is well", ""),
    ],
)
def test_flower_s_codes_in_words(log: str, words: str) -> None:
    assert words in diagnosed(log)
    assert bool(diagnosed(log)) == bool(words)
