"""Flower itself, on this machine: TLS, keys, processes that are killed. Minutes, and only where flwr is installed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from laws.world import same
from polyrhythm.base.consent import NOBODY
from polyrhythm.cli.deployed import experiment_of
from polyrhythm.cli.flowering import up
from polyrhythm.cli.own_model import measure
from polyrhythm.deployment.local.loopback import Loopback, diagnosed
from polyrhythm.deployment.local.processes import Processes, Started
from polyrhythm.deployment.node_store import NodeStore
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.simulation.simulator import InlineDriver

pytest.importorskip("flwr", reason="needs flwr: pip install 'polyrhythm[flower]'")
pytestmark = pytest.mark.slow

PORT = 8640
TEXT = """
data = "digits"
clients = 3
partition = "dirichlet(alpha=0.5)"
model = "mlp"
method = "scaffold(cohort=3, epochs=1, batch=10)"
rounds = 4
checkpoint = {every = 1}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an experiment, and a federation that stays up until the module's tests are over."""
    folder = tmp_path_factory.mktemp("flower")
    (folder / "experiment.toml").write_text(TEXT)
    yield folder
    Loopback(folder / "federation", PORT).down()


def run(place: Path, *settings: str, file: str = "experiment.toml", **options: Any) -> pr.Run:
    """A run on the federation; the newest of its folder."""
    values: dict[str, Any] = {"out": str(place / "runs"), "folder": place / "federation", "port": PORT, "keep": True}
    values |= {"resume": True, "log_updates": True, "as_json": True}
    up(place / file, None, list(settings), NOBODY, **values | options)
    return newest(place)


def newest(place: Path) -> pr.Run:
    from polyrhythm.results import Run

    return Run.all(place / "runs")[-1]


def program(place: Path, name: str) -> Started:
    return next(s for s in Loopback(place / "federation", PORT).processes.alive() if s.name == name)


@contextlib.contextmanager
def meanwhile(place: Path, version: int, action: Callable[[], None]) -> Iterator[None]:
    """Does something as soon as the run that the block starts has made a version."""
    before = {r.id for r in _runs(place)}

    def watching() -> None:
        end = time.monotonic() + 400
        while time.monotonic() < end:
            new = [r for r in _runs(place) if r.id not in before]
            if new and len(new[-1].versions) > version:
                action()
                return
            time.sleep(0.2)

    thread = threading.Thread(target=watching)
    thread.start()
    yield
    thread.join()


def _runs(place: Path) -> list[pr.Run]:
    from polyrhythm.results import Run

    try:
        return list(Run.all(place / "runs"))
    except pr.UserError:  # no record yet
        return []


def simulated(place: Path, *settings: str) -> str:
    made = experiment_of(place / "experiment.toml", {"set": "; ".join(settings)})
    return str(carry_out(prepare(*made), [])["digest"])


def children(pid: int) -> dict[int, str]:
    """The processes below one, by number, with their command lines."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found |= children(int(folder.name))
    return found


def test_in_rounds_as_in_the_simulation_though_a_node_is_killed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with meanwhile(place, 1, lambda: os.kill(program(place, "node 1").pid, signal.SIGKILL)):
        done = run(place)
    assert done.summary["digest"] == simulated(place)
    assert done.summary["lost_visits"] == 0
    said = capsys.readouterr().err
    assert "node 1 has ended and is started again" in said
    assert "is taken again when the old connection has lapsed" in said
    assert "is sent again" in said


@pytest.mark.parametrize(
    "method",
    [
        "fedavg(cohort=3, epochs=1)",
        "fedcl(cohort=2, epochs=1)",
        "ccfl(cohort=3, epochs=1, budgets=slow_share(share_slow=0.7, period=2))",
        "ccfl(cohort=3, epochs=1, budgets=slow_share(share_slow=0.7, period=2), storage=server)",
        "ccfl(cohort=3, epochs=1, budgets=slow_share(share_slow=0.7, period=2), storage=mixed)",
        "alt(cohort=3, epochs=3)",
        "curriculum_fl(cohort=3, epochs=1)",
    ],
)
def test_every_paper_on_real_nodes_as_in_the_simulation(place: Path, method: str) -> None:
    text = TEXT.replace('"scaffold(cohort=3, epochs=1, batch=10)"', f'"{method}"')
    (place / "paper.toml").write_text(text.replace('"mlp"', '"with_projection(mlp)"'))
    done = run(place, "rounds=3", file="paper.toml")
    made = experiment_of(place / "paper.toml", {"set": "rounds=3"})
    assert done.summary["digest"] == carry_out(prepare(*made), [])["digest"]
    assert done.summary["lost_visits"] == 0


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("fedper(cohort=3, epochs=1)", "personal_layers"),
        ("ditto(cohort=3, epochs=1)", "personal_copy"),
        ("fedproto(cohort=3, epochs=1)", "personal_layers"),
    ],
)
def test_what_is_a_clients_own_is_kept_by_its_node_though_it_is_killed(place: Path, method: str, own: str) -> None:
    """Bit for bit what the simulation has of the global model, and of each client's own after its last visit."""
    (place / "own.toml").write_text(TEXT.replace('"scaffold(cohort=3, epochs=1, batch=10)"', f'"{method}"'))
    killed = own == "personal_layers" and method.startswith("fedper")
    kill = meanwhile(place, 1, lambda: os.kill(program(place, "node 1").pid, signal.SIGKILL))
    with kill if killed else contextlib.nullcontext():
        done = run(place, file="own.toml")
    simulation = carry_out(prepare(*experiment_of(place / "own.toml", {})), [])
    assert done.summary["digest"] == simulation["digest"]
    assert done.summary["lost_visits"] == 0
    for cost in ("bytes_up", "bytes_down"):
        assert done.summary[cost] == simulation[cost]
    prepared = prepare(*experiment_of(place / "own.toml", {}))
    recipe, engine = prepared.recipe, prepared.chosen.engine
    meter = prepared.meter(engine.layout, recipe.scope)
    driver = InlineDriver(recipe, prepared.setup, engine, prepared.data_of, prepared.world(), meter)
    for moment in driver.moments(engine.initial()):
        if moment.turn.state.version == 4:
            break
    for client in range(3):
        (folder,) = (place / "federation").glob(f"**/{done.id}/client-{client}")
        state = NodeStore(folder.parents[1], done.id, client).state(3)
        assert own in state.parts
        assert same(state.parts[own], driver.store.get(client).at(3).parts[own])


def test_a_node_measures_its_clients_own_model_where_it_lies(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command, from the SuperNode's own folder: the simulation's numbers, bit for bit."""
    text = TEXT.replace('"scaffold(cohort=3, epochs=1, batch=10)"', '"ditto(cohort=3, epochs=1)"')
    (place / "measured.toml").write_text(f"local_test = 0.25\n{text}")
    done = run(place, file="measured.toml")
    made, execution = experiment_of(place / "measured.toml", {})
    simulated = pr.run(made, execution=execution, out=place / "simulated").client_results.loc[4]
    for client in range(3):
        (folder,) = (place / "federation").glob(f"**/{done.id}/client-{client}")
        capsys.readouterr()
        measure(
            place / "measured.toml",
            **{"client": client, "store": folder.parents[1], "run": done.id, "version": 4, "own": False},
            **{"weights": done.path / "final.safetensors", "settings": [], "trust": NOBODY, "as_json": True},
        )
        found, row = json.loads(capsys.readouterr().out), simulated.loc[client]
        assert (found["global"]["accuracy"], found["personal"]["accuracy"]) == (row["accuracy"], row["personal"])


def test_parts_of_a_model_travel_alone_and_are_billed_as_in_the_simulation(place: Path) -> None:
    method = '["scaffold(cohort=3, epochs=1, batch=10)", "width_prefix(ratio=[1.0, 0.5, 0.25])"]'
    (place / "parts.toml").write_text(TEXT.replace('"scaffold(cohort=3, epochs=1, batch=10)"', method))
    done = run(place, "rounds=2", file="parts.toml")
    simulation = carry_out(prepare(*experiment_of(place / "parts.toml", {"set": "rounds=2"})), [])
    assert done.summary["digest"] == simulation["digest"]
    assert done.summary["lost_visits"] == 0
    for cost in ("bytes_up", "bytes_down"):
        assert done.summary[cost] == simulation[cost]


def test_the_server_is_killed_and_goes_on(place: Path) -> None:
    def kill() -> None:
        below = children(program(place, "superlink").pid)
        os.kill(next(pid for pid, line in below.items() if "flwr-serverapp" in line), signal.SIGKILL)

    with meanwhile(place, 2, kill), pytest.raises(pr.RunFailed):
        run(place, "seed=1")
    assert newest(place).status == "killed"
    done = run(place, "seed=1")
    assert (done.status, done.summary["rounds"]) == ("finished", 4)
    assert any("went on from its checkpoint of version" in notice for notice in done.notices)
    assert done.summary["digest"] == simulated(place, "seed=1")


def test_the_superlink_is_killed_and_the_run_goes_on(place: Path) -> None:
    with (
        meanwhile(place, 2, lambda: os.kill(program(place, "superlink").pid, signal.SIGKILL)),
        pytest.raises(pr.RunFailed, match="the SuperLink has ended; the same command starts another"),
    ):
        run(place, "seed=4")
    assert newest(place).status == "killed"
    done = run(place, "seed=4")
    assert (done.status, done.summary["rounds"]) == ("finished", 4)
    assert any("went on from its checkpoint of version" in notice for notice in done.notices)
    assert done.summary["digest"] == simulated(place, "seed=4")


def test_a_slow_node_does_not_hold_the_others_under_a_buffer(place: Path) -> None:
    made: list[int] = []

    def stop() -> None:
        # For less than a minute, which Flower takes to miss it.
        pids = [program(place, "node 2").pid, *children(program(place, "node 2").pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        before = len(newest(place).versions)
        time.sleep(45.0)
        made.append(len(newest(place).versions) - before)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    (place / "slow.toml").write_text(
        TEXT.replace('"scaffold(cohort=3, epochs=1, batch=10)"', '"cc_fedadam(cohort=3, buffer=2, clock=event)"')
    )
    with meanwhile(place, 0, stop):
        done = run(place, "rounds=8", file="slow.toml")
    assert made[0] >= 1
    for from_updates in (False, True):
        made = experiment_of(place / "slow.toml", {"set": "rounds=8"})
        assert pr.replay(done, made[0], execution=made[1], from_updates=from_updates).equal


def refused(place: Path, folder: Path, change: Callable[[list[str]], list[str]]) -> str:
    """What the log of a node says that is started otherwise than it should be."""
    federation, processes = Loopback(place / "federation", PORT), Processes(folder)
    command = change(federation._node(0, ""))
    command[command.index("--port") + 1] = str(PORT + 60)
    command[0] = str(shutil.which(command[0], path=federation.environment()["PATH"]))
    started = processes.start("stranger", command, federation.environment())
    end = time.monotonic() + 120
    while not processes.ended(started) and time.monotonic() < end:
        time.sleep(0.5)
    assert processes.ended(started)
    processes.stop(started)
    return diagnosed(Path(started.log).read_text())


def test_strangers_are_refused_in_words(place: Path, tmp_path: Path) -> None:
    from polyrhythm.deployment.local.keys import make_authority, make_node_key

    Loopback(place / "federation", PORT).up(3)
    make_node_key(tmp_path / "key")
    make_authority(tmp_path)

    def other(flag: str, value: str) -> Callable[[list[str]], list[str]]:
        def changed(command: list[str]) -> list[str]:
            command[command.index(flag) + 1] = value
            return command

        return changed

    key = other("--auth-supernode-private-key", str(tmp_path / "key"))
    assert "does not take its key: it was never registered" in refused(place, tmp_path / "1", key)
    authority = other("--root-certificates", str(tmp_path / "ca.crt"))
    assert "not from the authority that the node trusts" in refused(place, tmp_path / "2", authority)
    without = lambda command: [*command[: command.index("--auth-supernode-private-key")], *command[-2:]]  # noqa: E731
    assert "asks for a key, and the node has shown none" in refused(place, tmp_path / "3", without)


def test_another_recipe_at_a_node_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Loopback(place / "federation", PORT).down()
    other = place / "other.toml"
    other.write_text(TEXT.replace("scaffold", "fedavg"))
    federation = Loopback(place / "federation", PORT)
    federation.up(1, f'experiment="{other}"')  # node 0
    with pytest.raises(pr.RunFailed):
        run(place, "seed=2", wait=60.0)
    said = capsys.readouterr().err
    assert "does not take part: client 0 has the recipe fedavg" in said
    federation.down()


def test_a_model_of_200_megabytes(place: Path) -> None:
    text = TEXT.replace('"mlp"', '"mlp(hidden=[7000, 7000])"').replace("clients = 3", "clients = 2")
    (place / "large.toml").write_text(text.replace('"scaffold(cohort=3, epochs=1', '"fedavg(cohort=2, steps=1'))
    done = run(place, "rounds=1", "checkpoint.every=never", file="large.toml", log_updates=False)
    assert done.summary["bytes_down"] > 2 * 195e6
    print("seconds:", done.history["time"].tolist())
