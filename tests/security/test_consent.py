"""Nothing that a file or a record names is imported, unless whoever runs the command has named it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError

import polyrhythm as pr
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.cli.app import app
from polyrhythm.config.keys import KEYS
from polyrhythm.config.written import configuration_of
from polyrhythm.deployment.local.loopback import Loopback
from polyrhythm.experiments.prepared import prepare, what_and_how
from polyrhythm.results import Run
from polyrhythm.studies.files.catalogue import find
from polyrhythm.studies.files.language import file_schema
from polyrhythm.studies.planning import planned
from strangers import EXPERIMENT, MODULE, PATH, ground, handed_on, inside
from terminal import Command

HOSTILE = [
    PATH,
    'os:system(command="touch marker")',
    'subprocess:getoutput(cmd="touch marker")',
    'strangers_nets:system(command="touch marker")',
    'with_projection(os:system(command="touch marker"))',
    'with_lora(os:system(command="touch marker"))',
]

THEIRS = "--client 0 --store nodes --run theirs --weights theirs.safetensors --version 2 --set local_test=0.2"
# Every command, on what somebody else has handed on; with several lines where it reads several kinds of things.
NEEDS_IT: dict[str, list[str]] = {
    "run": ["run exp.toml", "run exp.toml --set model.width=3", "run --expert expert.safetensors --model mlp"],
    "check": [
        "check exp.toml",
        "check exp.toml --json",
        "check tune.toml",
        "check chosen.toml",
        "check exp.toml --no-estimate",
    ],
    "audit": ["audit exp.toml --canaries 100 --versions 1 --method fedavg(cohort=2)|equal|sweep|dp"],
    "advise": ["advise exp.toml", "advise exp.toml --budget updates=40 --try --set validation=0.2 --out o"],
    "resume": ["resume theirs --rounds 3"],
    "verify": ["verify theirs", "verify theirs --from-checkpoint"],
    "replay": ["replay theirs", "replay theirs --from-updates"],
    "predict": ["predict theirs --data rows.npy -o p.csv"],
    "sweep": ["sweep tune.toml --workers 1 --out o", "sweep chosen.toml --workers 2 --out o"],
    "study": [f"study {file} --scale paper --workers 1 --out o" for file in ("table.toml", "tune.toml")],
    "reproduce": [f"reproduce {file} --scale paper --workers 1 --out o" for file in ("table.toml", "trained.toml")],
    "data show": ["data show --expert expert.safetensors"],
    "flower up": ["flower up exp.toml --dir f", "flower up project --dir f"],
    "flower own": [f"flower own exp.toml {THEIRS}", f"flower own project {THEIRS}"],
}
WITHOUT_IT: dict[str, list[str]] = {
    "show": ["show theirs", "show theirs --json"],
    "compare": ["compare", "compare theirs -o c.svg"],
    "plot": ["plot", "plot theirs --figure accuracy -o p.svg"],
    "report": ["report -o r.md", "report -o r.html", "report -o r.tex"],
    "runs": ["runs", "runs --json"],
    "best": ["best tune", "best tune --json"],
    "stop": ["stop theirs"],
    "tag": ["tag theirs --add x", "tag theirs"],
    "note": ["note theirs x", "note theirs"],
    "rename": ["rename theirs theirs"],
    "pin": ["pin theirs"],
    "archive": ["archive theirs", "archive theirs --undo"],
    "delete": ["delete theirs --yes"],
    "ui": ["ui runs"],
    "schema": ["schema"],
    "methods": ["methods"],
    "models": ["models"],
    "partitions": ["partitions"],
    "fleets": ["fleets"],
    "data": ["data"],
    "data about": ["data about hapt", "data heart-disease"],
    "fleet show": ["fleet show"],
    "flower new": ["flower new mine"],
    "flower down": ["flower down --dir f"],
    "expert": ["expert --model logistic --epochs 1 -o mine.safetensors"],
}
NOT_RUN = {"bench"}  # takes no file and no record, and its works are its own


def commands(group: Any, *before: str) -> Iterator[str]:
    """The names of all commands."""
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            if getattr(command, "invoke_without_command", False):
                yield " ".join((*before, name))
            yield from commands(command, *before, name)
        else:
            yield " ".join((*before, name))


def command_of(name: str) -> Any:
    found: Any = typer.main.get_command(app)
    for part in name.split():
        found = found.commands[part]
    return found


def test_every_command_is_tried() -> None:
    """A new one must say here how it is called on what somebody else has handed on."""
    every = set(commands(typer.main.get_command(app)))
    assert every == {*NEEDS_IT, *WITHOUT_IT, *NOT_RUN}
    assert not NEEDS_IT.keys() & WITHOUT_IT.keys()
    taking = {name for name in every if any("--trust" in option.opts for option in command_of(name).params)}
    assert taking == {*NEEDS_IT, "expert", "fleet show", "flower new"}
    assert {option.name for option in command_of("bench").params} == {
        *("work", "against", "engine", "workers", "repeats", "json")
    }


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ground(tmp_path_factory.mktemp("theirs"))


Handed = Callable[[str], Path]


@pytest.fixture
def handed(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Handed]:
    """Hands it on with another path in it: everything in the working folder, which is on Python's path."""
    monkeypatch.setattr("polyrhythm.cli.flowering.programs", lambda: None)
    monkeypatch.setattr("polyrhythm.dashboard.serving.serve", looked_at)
    with inside(tmp_path):
        yield lambda path: handed_on(there, tmp_path, path)


def looked_at(folder: Path, **options: Any) -> None:
    """In place of a server: asks the dashboard for all that it shows."""
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    from polyrhythm.dashboard.application import application

    async def ask() -> None:
        transport = httpx.ASGITransport(application(folder, closing=lambda: True))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as client:
            (*_, run) = (await client.get("/api/runs")).json()["runs"]
            number = run["id"]
            for path in ("/", f"/api/run?run={number}", f"/api/compare?run={number}", f"/api/figures?run={number}"):
                assert (await client.get(path)).status_code == 200, path

    asyncio.run(ask())


def nothing_ran(folder: Path) -> bool:
    return not (folder / "marker").exists() and MODULE not in sys.modules


LINES = [line for lines in NEEDS_IT.values() for line in lines]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (line, path)
        for line in LINES
        for path in (HOSTILE if line in ("check exp.toml", "verify theirs") else HOSTILE[:2])
    ],
)
def test_nothing_is_imported_without_consent(polyrhythm: Command, handed: Handed, line: str, path: str) -> None:
    folder = handed(path)
    done = polyrhythm(*line.split())
    assert nothing_ran(folder), done.err
    assert done.code == 2, (done.out, done.err)
    assert "Traceback" not in done.err
    text = done.out + done.err
    if MODULE in path:
        assert f"{folder / MODULE}.py" in text
        assert f"--trust {MODULE}" in text
    else:
        assert "which is the standard library's" in text


@pytest.mark.parametrize("path", HOSTILE[1:])
@pytest.mark.parametrize(
    "line", ["check exp.toml", "verify theirs", "sweep tune.toml --workers 1", "data show --expert expert.safetensors"]
)
def test_no_consent_lets_a_function_of_others_be_called(
    polyrhythm: Command, handed: Handed, line: str, path: str
) -> None:
    """Not even through a module that may be imported, and that has imported it itself."""
    folder = handed(path)
    trust = [word for module in ("os", "subprocess", "posix", MODULE) for word in ("--trust", module)]
    done = polyrhythm(*line.split(), *trust)
    assert done.code == 2, done.err
    assert "of your own" in done.err
    ran = MODULE in path  # it is imported, as was agreed; what it has imported is not called
    assert (folder / "marker").exists() == ran


@pytest.mark.parametrize(
    ("line", "path"),
    [
        # What is no model at all is tried with one line of each command, with all of them under `slow`.
        pytest.param(line, path, marks=pytest.mark.slow if number and path != PATH else ())
        for lines in WITHOUT_IT.values()
        for number, line in enumerate(lines)
        for path in HOSTILE[:2]
    ],
)
def test_what_needs_no_model_works_without(polyrhythm: Command, handed: Handed, line: str, path: str) -> None:
    folder = handed(path)
    done = polyrhythm(*line.split())
    assert nothing_ran(folder)
    assert done.code == (2 if line == "stop theirs" else 0), (done.out, done.err)  # it has ended


@pytest.mark.parametrize("line", LINES)
def test_with_consent_it_runs(polyrhythm: Command, handed: Handed, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    told: list[Any] = []

    def up(federation: Loopback, nodes: int, options: str = "") -> None:
        told.append(options)
        raise RunFailed("as far as that")

    monkeypatch.setattr(Loopback, "up", up)
    monkeypatch.setattr(Loopback, "down", lambda federation: 0)
    folder = handed(PATH)
    done = polyrhythm(*line.split(), "--trust", MODULE)
    assert (folder / "marker").exists()
    if line.startswith("flower up"):
        assert told == [f'trust="{MODULE}"']
        assert "as far as that" in done.err
    else:
        assert done.code == 0, (done.out, done.err)


def test_consent_lasts_for_one_command(polyrhythm: Command, handed: Handed) -> None:
    folder = handed(PATH)
    assert polyrhythm("check", "exp.toml", "--trust", MODULE).code == 0
    assert (folder / "marker").exists()
    handed(PATH)
    done = polyrhythm("check", "exp.toml")
    assert done.code == 2
    assert "have not named" in done.err


def test_the_refusal_says_what_where_why_and_what_to_type(polyrhythm: Command, handed: Handed) -> None:
    file = handed(PATH) / f"{MODULE}.py"
    assert polyrhythm("check", "exp.toml").err == (
        f"error: exp.toml, line 1: model: the model '{PATH}' would run {file}, and was not imported, since you have "
        f"not named {MODULE}\n"
        f"  expected: your word that {MODULE} may run with your rights: --trust {MODULE}\n"
        "  because:  an experiment file, a record or an expert may come from somebody else, and must not choose what "
        "runs here\n"
        f"  do:       read {file} first; if you trust it: polyrhythm check exp.toml --trust {MODULE}\n"
    )
    (mistake,) = json.loads(polyrhythm("check", "exp.toml", "--json").out)["mistakes"]
    assert mistake["fix"].endswith(f"polyrhythm check exp.toml --json --trust {MODULE}")


def test_it_is_one_of_the_mistakes_that_are_said_at_once(polyrhythm: Command, handed: Handed) -> None:
    folder = handed(PATH)
    (folder / "exp.toml").write_text(EXPERIMENT.format(path=PATH) + "seeed = 3\n")
    done = polyrhythm("check", "exp.toml")
    assert "2 mistakes" in done.err
    assert f"--trust {MODULE}" in done.err
    assert nothing_ran(folder)


@pytest.mark.parametrize("key", [f'trust = ["{MODULE}"]', f'trust = "{MODULE}"', f'[trust]\nmodules = ["{MODULE}"]'])
def test_a_file_cannot_consent(polyrhythm: Command, handed: Handed, key: str) -> None:
    folder = handed(PATH)
    (folder / "exp.toml").write_text(EXPERIMENT.format(path=PATH) + key + "\n")
    for line in (["check", "exp.toml"], ["check", "exp.toml", "--json"], ["run", "exp.toml"]):
        done = polyrhythm(*line)
        assert done.code == 2
        assert "unknown key 'trust" in done.out + done.err
    (folder / "exp.toml").write_text(f"{key}\n")
    assert "--trust MODULE for what you trust" in polyrhythm("check", "exp.toml").err or key.startswith("[")
    assert nothing_ran(folder)
    assert not any("trust" in name for name in [*KEYS, *file_schema()["properties"]])


@pytest.mark.parametrize("key", ["trust", "_trust"])
def test_neither_can_a_record(handed: Handed, key: str) -> None:
    folder = handed(PATH)
    with contextlib.closing(sqlite3.connect(folder / "runs" / "runs.sqlite")) as database, database:
        change = f'{{"{key}": ["{MODULE}"], '
        database.execute("UPDATE runs SET config = ? || substr(config, 2)", (change,))
    (run,) = [run for run in Run.all("runs") if run.name == "theirs"]
    assert run.config[key] == [MODULE]
    with pytest.raises((UserError, ValidationError)):
        configuration_of(run).resolved_parts  # noqa: B018
    assert nothing_ran(folder)


def test_neither_can_the_environment(polyrhythm: Command, handed: Handed, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = handed(PATH)
    for name in ("TRUST", "POLYRHYTHM_TRUST", "POLYRHYTHM_CHECK_TRUST", "CHECK_TRUST"):
        monkeypatch.setenv(name, MODULE)
    assert polyrhythm("check", "exp.toml").code == 2
    assert nothing_ran(folder)


@pytest.mark.parametrize(
    "typed",
    [
        ("run", "exp.toml", "--model", PATH),
        ("run", "exp.toml", "--set", f"model={PATH}"),
        ("check", "exp.toml", "--set", f"model={PATH}"),
        ("check", "exp.toml", "--set", f"model=with_projection({PATH}, size=3)"),
        ("sweep", "tune.toml", "--set", f"model={PATH}(width=2)", "--workers", "1", "--out", "o"),
        ("reproduce", "table.toml", "--scale", "paper", "--set", f"model={PATH}", "--workers", "1", "--out", "o"),
        ("run", "exp.toml", "--model", f"{PATH}(width=4)", "--expert", "expert.safetensors"),
    ],
)
def test_a_path_that_is_typed_is_consent(polyrhythm: Command, handed: Handed, typed: tuple[str, ...]) -> None:
    folder = handed(PATH)
    done = polyrhythm(*typed)
    assert done.code == 0, (done.out, done.err)
    assert (folder / "marker").exists()


@pytest.mark.parametrize(
    "typed",
    [
        ("--set", "model.width=3"),
        ("--set", "name=strangers_nets:Net"),
        ("--set", "method=fedavg(cohort=2)"),
        ("--set", "model.width=strangers_nets:Net"),
        ("--trust", "strangers"),
        ("--trust", "strangers_nets.more"),
        ("--trust", "strangers_nets:Other"),
        ("--trust", "os"),
    ],
)
def test_what_names_something_else_is_none(polyrhythm: Command, handed: Handed, typed: tuple[str, ...]) -> None:
    """A setting of the file's model is typed, but the path is the file's."""
    folder = handed(PATH)
    done = polyrhythm("run", "exp.toml", *typed)
    assert done.code == 2
    assert "have not named" in done.err
    assert nothing_ran(folder)


def test_an_experts_own_model_is_not_the_one_that_was_typed(polyrhythm: Command, handed: Handed) -> None:
    folder = handed('os:system(command="touch marker")')
    (folder / "mine.py").write_text("from strangers_nets import Net\n")
    done = polyrhythm("run", "--expert", "expert.safetensors", "--set", "model=logistic", "--rounds", "1")
    assert done.code == 2
    assert "expert expert.safetensors: the model 'os:system'" in done.err
    assert nothing_ran(folder)


def test_in_python_a_file_needs_consent_and_a_path_is_ones_own(handed: Handed) -> None:
    folder = handed(PATH)
    with pytest.raises(UserError, match="have not named") as refused:
        pr.study("tune.toml", workers=1, out="o")
    assert refused.value.fix.endswith(f"trust=['{MODULE}']")
    with pytest.raises(UserError, match="have not named"):
        planned(find("table.toml"), "paper").cells[0].make({}, 0)
    assert nothing_ran(folder)
    assert pr.study("tune.toml", workers=1, out="o", trust=[MODULE]).best() is not None
    assert prepare(*what_and_how(planned(find("table.toml", [MODULE]), "paper").cells[0].make({}, 0)))
    with pytest.raises(UserError, match="trust='strangers_nets'"):
        pr.study("tune.toml", trust=MODULE)


def test_a_typed_path_is_consent_in_a_reproduction_of_ours(handed: Handed) -> None:
    folder = handed(PATH)
    for trust, refused in (((), True), ((MODULE,), False)):
        cell = planned(find("ccfl/table-2", trust), "smoke", settings={"model": PATH}).cells[0].make
        with pytest.raises(UserError, match="have not named") if refused else contextlib.nullcontext():
            assert cell.make.configuration(cell.fixed, 0).resolved_parts.model
        assert nothing_ran(folder) == refused


def test_as_a_newcomer_away_from_the_checkout(handed: Handed) -> None:
    """The program itself, in a folder with a file and a module, and PYTHONPATH=."""
    folder = handed(PATH)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "polyrhythm", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)

    refused = call("check", "exp.toml", "--no-estimate")
    assert refused.returncode == 2
    assert not (folder / "marker").exists()
    command = re.search(r"if you trust it: polyrhythm (.*)", refused.stderr)
    assert command is not None
    assert command[1] == f"check exp.toml --no-estimate --trust {MODULE}"
    done = call(*command[1].split())
    assert done.returncode == 0, done.stderr
    assert (folder / "marker").exists()


CLUSTER = "10.0.0.1:6379"
ON_RAY = f'driver = "ray"\nworkers = 2\naddress = "{CLUSTER}"\n'


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """In place of Ray: the addresses that it would be asked for; nothing goes on from there."""
    asked: list[str | None] = []

    def connect(ray: Any, workers: int, address: str | None) -> None:
        asked.append(address)
        raise UserError("as far as that", expected="", why="", fix="")

    monkeypatch.setattr("polyrhythm.simulation.workers.on_ray.actors.connect", connect)
    return asked


def on_a_cluster(folder: Path, address: str = CLUSTER) -> None:
    """Everything names a cluster of somebody's."""
    text = ON_RAY.replace(CLUSTER, address)
    for name in ("exp.toml", "tune.toml", "chosen.toml"):
        (folder / name).write_text(text + (folder / name).read_text())
    with contextlib.closing(sqlite3.connect(folder / "runs" / "runs.sqlite")) as database, database:
        more = json.dumps({"driver": "ray", "workers": 2, "address": address})
        database.execute("UPDATE runs SET machine = json_patch(machine, ?)", (more,))


TO_A_CLUSTER = {
    **{"run exp.toml": "run exp.toml --address", "check exp.toml": "check exp.toml --set address="},
    "check exp.toml --json": "check exp.toml --json --set address=",
    "check tune.toml": "check tune.toml --set address=",
    "sweep tune.toml --workers 1 --out o": "sweep tune.toml --workers 1 --out o --set address=",
    "resume theirs --rounds 3": "resume theirs --rounds 3 --address",
    **{line: f"{line} --address" for line in ("verify theirs", "verify theirs --from-checkpoint", "replay theirs")},
}


@pytest.mark.parametrize("line", TO_A_CLUSTER)
def test_no_cluster_is_asked_that_the_user_has_not_typed(
    polyrhythm: Command, handed: Handed, clusters: list[str | None], line: str
) -> None:
    folder = handed("logistic")
    on_a_cluster(folder)
    done = polyrhythm(*line.split())
    text = done.out + done.err
    assert done.code == 2, text
    assert clusters == []
    assert "a Ray cluster that you have not named" in text
    typed = TO_A_CLUSTER[line]
    assert f"if it is yours: polyrhythm {typed}{'' if typed.endswith('=') else ' '}{CLUSTER}" in text


@pytest.mark.parametrize("key", ['"address"', "'address'", '"\\u0061ddress"', "address "])
def test_however_the_key_is_written(polyrhythm: Command, handed: Handed, clusters: list[str | None], key: str) -> None:
    folder = handed("logistic")
    file = folder / "exp.toml"
    file.write_text(ON_RAY.replace("address", key) + file.read_text())
    assert "have not named" in polyrhythm("run", "exp.toml").err
    assert clusters == []


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (f"run exp.toml --address {CLUSTER}", CLUSTER),
        (f"run exp.toml --set address={CLUSTER}", CLUSTER),
        ("run exp.toml --address 10.0.0.2:6379", "10.0.0.2:6379"),
        ("run exp.toml --address auto", "auto"),
        (f"verify theirs --address {CLUSTER}", CLUSTER),
        (f"resume theirs --rounds 3 --address {CLUSTER}", CLUSTER),
    ],
)
def test_one_that_is_typed_is_asked(
    polyrhythm: Command, handed: Handed, clusters: list[str | None], line: str, asked: str
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    folder = handed(PATH)
    on_a_cluster(folder)
    done = polyrhythm(*line.split(), "--trust", MODULE)
    assert clusters == [asked], done.err
    assert "as far as that" in done.err


def test_the_cluster_of_this_machine_needs_no_word(
    polyrhythm: Command, handed: Handed, clusters: list[str | None]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    folder = handed("logistic")
    on_a_cluster(folder, "auto")
    for line in ("run exp.toml", "verify theirs"):
        assert "as far as that" in polyrhythm(*line.split()).err
    assert clusters == ["auto", "auto"]


def test_with_another_driver_the_record_of_a_cluster_can_be_verified(
    polyrhythm: Command, handed: Handed, clusters: list[str | None]
) -> None:
    folder = handed(PATH)
    on_a_cluster(folder)
    done = polyrhythm("verify", "theirs", "--driver", "inline", "--trust", MODULE)
    assert done.code == 0, done.err
    assert clusters == []


@pytest.mark.parametrize(("key", "value"), [("oracle", 3), ("rounds", "many"), ("evaluation", {"evry": 1})])
def test_a_record_with_what_no_experiment_says_is_refused_in_words(
    polyrhythm: Command, handed: Handed, key: str, value: object
) -> None:
    folder = handed(PATH)
    with contextlib.closing(sqlite3.connect(folder / "runs" / "runs.sqlite")) as database, database:
        more = json.dumps({key: value})
        database.execute("UPDATE runs SET config = json_patch(config, ?)", (more,))
    for line in ("verify theirs", "replay theirs", "replay theirs --from-updates", "resume theirs"):
        done = polyrhythm(*line.split())
        assert done.code == 2
        assert "the record of" in done.err
        assert key in done.err
        assert "expected" in done.err
        assert "Traceback" not in done.err
    for line in ("show theirs", "report -o r.html" if key == "evaluation" else "report -o r.md"):
        assert polyrhythm(*line.split()).code == 0
    assert nothing_ran(folder)


@pytest.mark.parametrize("path", [PATH, "os:system", f"{MODULE}:system"])
@pytest.mark.parametrize("place", ["fedavg | {0}", "{0} | prox", "fedavg(schedule={0})", "fedavg | ccfl(budgets={0})"])
def test_a_part_of_a_method_is_imported_by_the_same_rule(
    polyrhythm: Command, handed: Handed, path: str, place: str
) -> None:
    folder = handed(PATH)
    call = path if path == PATH else f'{path}(command="touch marker")'
    (folder / "parts.toml").write_text(f"method = '{place.format(call)}'\n")
    refused = polyrhythm("check", "parts.toml", "--no-estimate")
    assert refused.code == 2
    assert nothing_ran(folder), refused.err
    assert (f"--trust {MODULE}" in refused.err) == (MODULE in path)
    trusted = polyrhythm("check", "parts.toml", "--no-estimate", "--trust", MODULE, "--trust", "os")
    assert trusted.code == 2  # none of them is a part
    assert "pr.extend" in trusted.err
    assert (folder / "marker").exists() == (MODULE in path)  # the module was imported, and nothing in it called
