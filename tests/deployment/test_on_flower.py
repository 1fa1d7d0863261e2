"""Flower's apps on a grid in this process: the same numbers as the simulation, over Flower's own records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm.cli.deployed import client_of, server_of
from polyrhythm.deployment.federating import Serving
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.results import Run
from pretend import JumpingClock
from small import collection, dealt, federation
from strangers import MODULE, OWN, PATH, inside

pytest.importorskip("flwr", reason="needs flwr: pip install 'polyrhythm[flower]'")

from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.task_identity import TaskIdentity

from polyrhythm.deployment import federating
from polyrhythm.deployment.on_flower import client_app, mod, server_app
from pretend_grid import PretendGrid

CLIENTS = 4


def experiment(recipe: pr.Recipe | None = None, **changes: Any) -> pr.Experiment:
    values: dict[str, Any] = {
        **{"federation": federation(clients=CLIENTS), "model": "mlp", "rounds": 4},
        "recipe": recipe or pr.fedavg(cohort=3, epochs=2, batch=5),
    }
    return pr.Experiment(**values | changes)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> JumpingClock:
    jumping = JumpingClock()
    for name, value in {"run_id": 1, "node_id": 1, "task_id": 1}.items():  # as Flower does in an app's process
        monkeypatch.setattr(TaskIdentity, f"_{name}", value)
    monkeypatch.setattr(federating, "WallClock", lambda: jumping)
    return jumping


def configurations(store: Path, **more: Any) -> dict[int, dict[str, Any]]:
    return {7000 + c: {"client": c, "store": str(store / f"node-{c}"), **more} for c in range(CLIENTS)}


def run(server: Any, grid: PretendGrid, out: Path) -> pr.Run:
    server(grid, Context(1, 0, {}, RecordDict(), {}))
    return newest(out)


def newest(out: Path) -> pr.Run:
    return Run.all(out)[-1]


@pytest.mark.parametrize(
    "recipe",
    [
        lambda: pr.fedavg(cohort=3, epochs=2, batch=5),
        lambda: pr.scaffold(cohort=3, epochs=2, batch=5),
        lambda: pr.fedavg(cohort=3, batch=5) | pr.parts.compress_int8(),
    ],
    ids=["fedavg", "scaffold", "int8"],
)
def test_over_flower_in_rounds_as_in_the_simulation(
    tmp_path: Path, clock: JumpingClock, recipe: Callable[[], pr.Recipe]
) -> None:
    made = experiment(recipe())
    grid = PretendGrid(client_app(experiment(recipe())), configurations(tmp_path), clock)
    grid.refuse = {6}  # a message that Flower does not take is sent again
    done = run(server_app(made, Serving(out=tmp_path / "runs")), grid, tmp_path / "runs")
    assert done.summary["digest"] == carry_out(prepare(experiment(recipe())), [])["digest"]
    assert (done.status, done.summary["driver"]) == ("finished", "flower")


def test_an_asynchronous_run_over_flower_is_replayed(tmp_path: Path, clock: JumpingClock) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.cc_fedadam(cohort=3, buffer=2, batch=5, clock="event"))

    grid = PretendGrid(client_app(made()), configurations(tmp_path), clock)
    serving = Serving(out=tmp_path / "runs", log_updates=True)
    done = run(server_app(made(), serving), grid, tmp_path / "runs")
    for from_updates in (False, True):
        assert pr.replay(done, made(), from_updates=from_updates).equal


def test_nodes_with_data_of_their_own(tmp_path: Path, clock: JumpingClock) -> None:
    whole = collection()
    sizes = [20, 10, 25, 5]
    simulated = experiment(federation=dealt(whole, sizes))

    def own(context: Context) -> pr.data.Collection:
        client = int(context.node_config["client"])
        begin = sum(sizes[:client])
        chosen = torch.arange(begin, begin + sizes[client])
        inputs, targets = whole.train.batch(chosen)
        samples = pr.data.ArraySamples(inputs, targets)
        return pr.data.Collection(
            name="own", task="classification", classes=whole.classes, train=samples, test=whole.test
        )

    # The server has a few samples, to know their shape, and the tests.
    served = experiment(federation=dealt(whole, [1, 1, 1, 1]))
    grid = PretendGrid(client_app(served, data=own), configurations(tmp_path), clock)
    done = run(server_app(served, Serving(out=tmp_path / "runs")), grid, tmp_path / "runs")
    prepared = prepare(simulated)
    assert done.summary["digest"] == carry_out(prepared, [])["digest"]
    sent = b"".join(a.data for m in grid.sent for r in m.content.array_records.values() for a in r.values())
    assert len(sent) == 12 * 4 * prepared.chosen.engine.layout.size  # weights, and nothing else


def test_what_is_wrong_with_a_node_is_said(
    tmp_path: Path, clock: JumpingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = configurations(tmp_path)
    del nodes[7001]["client"]
    grid = PretendGrid(client_app(experiment()), nodes, clock)
    with pytest.raises(pr.UserError, match="client 1 not there after 30 s"):
        server_app(experiment(), Serving(out=tmp_path / "runs", wait=30.0))(grid, Context(1, 0, {}, RecordDict(), {}))
    said = capsys.readouterr().out
    assert "node 7001 does not take part: a node without a number" in said
    assert "start the node with --node-config 'client=0'" in said


def test_nodes_with_tables_by_configuration(
    tmp_path: Path, clock: JumpingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    draws = np.random.Generator(np.random.PCG64(0))

    def table(name: str, rows: int, labels: str) -> Path:
        lines = [f"{draws.normal():.4f},{draws.normal():.4f},{labels[i % len(labels)]}" for i in range(rows)]
        (tmp_path / name).write_text("\n".join(["a,b,y", *lines]) + "\n")
        return tmp_path / name

    served = table("server.csv", 40, "pqr")
    source = 'table(path="{}", target=y, test=0.2, classes=[p, q, r])'
    file = tmp_path / "experiment.toml"
    file.write_text(
        f"data = '{source.format(served)}'\nclients = {CLIENTS}\npartition = 'iid'\nmodel = 'logistic'\n"
        f"method = 'fedavg(cohort={CLIENTS}, batch=5)'\nrounds = 2\n"
    )
    nodes = configurations(tmp_path)
    for client, (rows, labels) in enumerate([(50, "pqr"), (25, "pq"), (30, "r"), (10, "pqr")]):
        own = table(f"client-{client}.csv", rows, labels)
        nodes[7000 + client]["data"] = source.format(own)
    grid = PretendGrid(client_of(file), nodes, clock)
    settings = {"out": str(tmp_path / "runs"), "set": "rounds=3"}
    server_of(file)(grid, Context(1, 0, {}, RecordDict(), settings))
    done = newest(tmp_path / "runs")
    assert (done.status, done.summary["rounds"]) == ("finished", 3)
    assert done.visits.groupby("client")["num_samples"].first().tolist() == [40, 20, 24, 8]
    # A node whose classes are others is refused before anything is trained.
    nodes[7002]["data"] = nodes[7002]["data"].replace("classes=[p, q, r]", "classes=[r]")
    with pytest.raises(pr.UserError, match="client 2 not there"):
        server_of(file)(grid, Context(1, 0, {}, RecordDict(), {**settings, "wait": 9.0, "resume": False}))
    said = "client 2 has other data than the server: 1 classes, where the server has 3; no 'p', 'q' among its classes"
    assert said in capsys.readouterr().out


def test_weights_that_go_to_several_nodes_are_copied_once(tmp_path: Path, clock: JumpingClock) -> None:
    grid = PretendGrid(client_app(experiment()), configurations(tmp_path), clock)
    run(server_app(experiment(), Serving(out=tmp_path / "runs")), grid, tmp_path / "runs")
    data = [m.content.array_records["arrays"]["0"].data for m in grid.sent[CLIENTS : CLIENTS + 3]]
    assert data[0] is data[1] is data[2]


def test_an_app_that_fails_is_a_lost_visit(tmp_path: Path, clock: JumpingClock) -> None:
    calls = 0

    def sometimes(context: Context) -> pr.Experiment:
        nonlocal calls
        calls += 1
        if calls == 7:
            raise ValueError("a sensor is broken")
        return experiment()

    grid = PretendGrid(client_app(sometimes), configurations(tmp_path), clock)
    done = run(server_app(experiment(), Serving(out=tmp_path / "runs")), grid, tmp_path / "runs")
    assert done.summary["lost_visits"] == 1
    assert "a sensor is broken (Flower 2)" in done.visits.query("status == 'lost'")["reason"].item()


def test_a_clipping_mod_clips_the_update(tmp_path: Path, clock: JumpingClock) -> None:
    def norms(bound: float, folder: str) -> tuple[list[float], str]:
        mods = [mod("fixedclipping_mod", clipping_norm=bound)]
        grid = PretendGrid(client_app(experiment(), mods=mods), configurations(tmp_path / folder), clock)
        out = tmp_path / folder / "runs"
        done = run(server_app(experiment(), Serving(out=out)), grid, out)
        return done.visits["update_norm"].tolist(), done.summary["digest"]

    wide, digest = norms(1e9, "wide")
    assert digest == carry_out(prepare(experiment()), [])["digest"]  # nothing was clipped, and nothing changed
    bound = sorted(wide)[len(wide) // 2]
    narrow, _ = norms(bound, "narrow")
    assert max(narrow) <= bound * (1 + 1e-5)
    assert sum(abs(norm - bound) < 1e-4 * bound for norm in narrow) >= 3


def test_noise_leaves_the_padding_alone(tmp_path: Path, clock: JumpingClock) -> None:
    mods = [mod("LocalDpMod", clipping_norm=1.0, sensitivity=1.0, epsilon=50.0, delta=1e-5)]
    grid = PretendGrid(client_app(experiment(), mods=mods), configurations(tmp_path), clock)
    done = run(server_app(experiment(), Serving(out=tmp_path / "runs", log_updates=True)), grid, tmp_path / "runs")
    assert done.status == "finished"
    assert done.summary["digest"] != carry_out(prepare(experiment()), [])["digest"]
    assert pr.replay(done, experiment(), from_updates=True).equal
    weights = done.weights("final")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


def test_a_mod_with_a_recipe_that_sends_more_is_refused(tmp_path: Path, clock: JumpingClock) -> None:
    made = experiment(pr.scaffold(cohort=3, epochs=1, batch=5), rounds=1)
    mods = [mod("fixedclipping_mod", clipping_norm=1.0)]
    grid = PretendGrid(client_app(made, mods=mods), configurations(tmp_path), clock)
    with pytest.raises(pr.UserError, match="which is an update and what belongs to control_variates"):
        server_app(made, Serving(out=tmp_path / "runs", wait=9.0))(grid, Context(1, 0, {}, RecordDict(), {}))


def test_unknown_mods_are_refused() -> None:
    with pytest.raises(pr.UserError, match="did you mean 'LocalDpMod'"):
        mod("LocalDPMod")
    with pytest.raises(pr.UserError, match="which cannot be made: The clipping norm should be a positive value"):
        mod("LocalDpMod", clipping_norm=-1.0, sensitivity=1.0, epsilon=1.0, delta=0.1)
    with pytest.raises(pr.UserError, match="could not be imported"):
        mod("nowhere.at_all:Mod")


@pytest.mark.parametrize("named", ["in the code", "by each owner"])
def test_each_owner_agrees_to_what_is_imported(
    tmp_path: Path, clock: JumpingClock, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(f"model = '{PATH}'\nclients = {CLIENTS}\nmethod = 'fedavg(cohort={CLIENTS})'\nrounds = 1\n")
    (tmp_path / f"{MODULE}.py").write_text(OWN)
    settings = {"out": str(tmp_path / "runs"), "wait": 9.0}
    trust, typed = ((MODULE,), {}) if named == "in the code" else ((), {"trust": f"os {MODULE}"})
    with inside(tmp_path):
        grid = PretendGrid(client_of(file), configurations(tmp_path), clock)
        with pytest.raises(pr.UserError, match=f"have not named {MODULE}") as refused:
            server_of(file)(grid, Context(1, 0, {}, RecordDict(), settings))
        assert refused.value.fix.endswith(f"flwr run --run-config 'trust=\"{MODULE}\"'")
        assert not (tmp_path / "marker").exists()
        with pytest.raises(pr.UserError, match="not there"):  # the server's owner does not agree for the nodes'
            server_of(file, trust=[MODULE])(grid, Context(1, 0, {}, RecordDict(), {**settings, "trust": MODULE}))
        said = capsys.readouterr().out
        assert "does not take part" in said
        assert f"--node-config 'trust=\"{MODULE}\"'" in said
        grid = PretendGrid(client_of(file, trust), configurations(tmp_path, **typed), clock)
        server_of(file, trust)(grid, Context(1, 0, {}, RecordDict(), settings | typed))
    assert newest(tmp_path / "runs").status == "finished"


def test_a_mod_is_flowers_or_ones_own(tmp_path: Path) -> None:
    for name in ("os:system", "flwr.clientapp.mod:fixedclipping_mod", "centraldp_mods", "annotations", "__builtins__"):
        with pytest.raises(pr.UserError):
            mod(name)
    (tmp_path / f"{MODULE}.py").write_text(OWN)
    with inside(tmp_path):
        assert mod(f"{MODULE}:make")
        with pytest.raises(pr.UserError, match="a builtin_function_or_method"):
            mod(f"{MODULE}:system")


class Unreadable(PretendGrid):
    """A grid on which the answers to some messages are none of Flower's records.

    As with Flower, what was pulled together with one is gone, and said to be unavailable from then on.
    """

    unreadable: Callable[[int], bool]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = list(super().pull_messages(message_ids))
        numbers = [int(message.metadata.reply_to_message_id[1:]) for message in found]
        if not any(map(self.unreadable, numbers)):
            return found
        for number in numbers:
            gone = Message(Error(code=3, reason="unavailable"), reply_to=self.sent[number])
            gone.metadata.__dict__["_reply_to_message_id"] = f"m{number}"
            self.replies[f"m{number}"] = 0.0, gone
        self.unreadable, before = (lambda number: number not in numbers and before(number)), self.unreadable
        raise ValueError("Invalid object ID")


def test_an_answer_that_flower_cannot_read_ends_nothing(tmp_path: Path, clock: JumpingClock) -> None:
    grid = Unreadable(client_app(experiment()), configurations(tmp_path), clock)
    grid.unreadable = lambda number: number == CLIENTS + 1
    done = run(server_app(experiment(), Serving(out=tmp_path / "runs")), grid, tmp_path / "runs")
    assert (done.status, done.summary["digest"]) == ("finished", carry_out(prepare(experiment()), [])["digest"])


def test_an_answer_that_flower_can_never_read_is_a_lost_visit(tmp_path: Path, clock: JumpingClock) -> None:
    grid = Unreadable(client_app(experiment()), configurations(tmp_path), clock)
    grid.unreadable = lambda number: number >= CLIENTS and grid.sent[number].metadata.dst_node_id == 7002
    done = run(server_app(experiment(), Serving(out=tmp_path / "runs")), grid, tmp_path / "runs")
    lost = done.visits.query("status == 'lost'")
    assert (done.status, set(lost["client"])) == ("finished", {2})
    assert all("it has sent what Flower cannot read: Invalid object ID" in reason for reason in lost["reason"])


@pytest.mark.parametrize("content", [RecordDict(), None])
def test_a_message_that_is_none_is_answered_in_words(tmp_path: Path, clock: JumpingClock, content: Any) -> None:
    from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType

    if content is None:
        arrays = ArrayRecord({"0": Array(dtype="float64", shape=(1,), stype="numpy.ndarray", data=b"x")})
        content = RecordDict({"polyrhythm": ConfigRecord({"text": "{}"}), "arrays": arrays})
    message = Message(content, dst_node_id=7001, message_type=MessageType.QUERY)
    context = Context(1, 7001, {"client": 1, "store": str(tmp_path)}, RecordDict(), {})
    answer = client_app(experiment())(message, context)
    text = str(answer.content.config_records["polyrhythm"]["text"])
    assert '"Refusal"' in text
    assert "the server has sent" in text


def test_a_mod_that_leaves_no_update_is_refused(tmp_path: Path, clock: JumpingClock) -> None:
    def empties(message: Message, context: Context, following: Any) -> Message:
        answer = following(message, context)
        answer.content = RecordDict()
        return answer

    grid = PretendGrid(client_app(experiment(), mods=[empties]), configurations(tmp_path), clock)
    with pytest.raises(pr.RunFailed, match="it has refused: the mod of this node, which leaves nothing"):
        server_app(experiment(), Serving(out=tmp_path / "runs"))(grid, Context(1, 0, {}, RecordDict(), {}))
    done = newest(tmp_path / "runs")
    assert set(done.visits["status"]) == {"lost"}
    assert "which leaves nothing of" in done.visits["reason"].iloc[0]


class BrokenOff(PretendGrid):
    """A grid of which some pushes break off, as where Flower believes that the session of a push has ended."""

    tries = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterator[str | None]:
        self.tries += 1
        if self.tries in (3, 4, 7):
            raise ObjectPushError("90b2", 1, "f0a0")
        return super().push_messages(messages)


def test_a_push_that_breaks_off_ends_nothing(tmp_path: Path, clock: JumpingClock) -> None:
    grid = BrokenOff(client_app(experiment()), configurations(tmp_path), clock)
    done = run(server_app(experiment(), Serving(out=tmp_path / "runs")), grid, tmp_path / "runs")
    assert grid.tries > 7
    assert (done.status, done.summary["digest"]) == ("finished", carry_out(prepare(experiment()), [])["digest"])


def test_a_server_ends_though_flower_still_waits_for_an_answer() -> None:
    program = """
import threading
from polyrhythm.deployment.on_flower.transport import GridTransport
begun = threading.Event()
class Grid:
    def pull_messages(self, messages):
        begun.set()
        threading.Event().wait()
assert GridTransport(Grid()).pull(["m0"]) == []
assert begun.wait(20)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_flower_has_read_is_not_kept_in_cycles() -> None:
    program = """
import gc, weakref
from flwr.app import ConfigRecord, Message, RecordDict
from polyrhythm.deployment.on_flower.transport import GridTransport

class Response:
    def __init__(self):
        self.stream = self

kept = []
class Grid:
    def pull_messages(self, messages):
        kept.append(weakref.ref(Response()))
        came = Message(RecordDict(), dst_node_id=1, message_type="train")
        came.metadata.__dict__["_reply_to_message_id"] = "m0"
        return [came]

gc.disable()
transport = GridTransport(Grid())
for _ in range(5):
    assert transport.pull(["m0"])
assert [ref() for ref in kept] == [None] * len(kept), kept
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
