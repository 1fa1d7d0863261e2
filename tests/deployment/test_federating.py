"""A federation over messages: the same numbers as the simulation, whatever happens to nodes and messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.base import filed
from polyrhythm.base.filed import any_filed
from polyrhythm.deployment import outstanding
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.registry import Reply
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.methods.together import Releasing
from polyrhythm.runs.observer import Observer
from pretend import JumpingClock, PretendTransport, nodes_of
from small import federation

CLIENTS = 6
SYNCHRONOUS: dict[str, Callable[[], pr.Recipe]] = {
    "fedavg": lambda: pr.fedavg(cohort=3, epochs=2, batch=5),
    "scaffold": lambda: pr.scaffold(cohort=3, epochs=2, batch=5, momentum=0.5),
    "fedcl": lambda: pr.fedcl(cohort=3, epochs=1, batch=5),
    "ccfl": lambda: pr.ccfl(cohort=3, epochs=2, batch=5),
    "ccfl, at the server": lambda: pr.ccfl(cohort=3, epochs=2, batch=5, storage="server"),
    "ccfl, mixed": lambda: pr.ccfl(cohort=3, epochs=2, batch=5, storage="mixed"),
    "alt": lambda: pr.alt(cohort=3, epochs=3, batch=5, representation="logits"),
    "curriculum": lambda: pr.fedavg(cohort=3, epochs=2, batch=5) | pr.parts.curriculum(),
    "compressed": lambda: pr.fedavg(cohort=3, epochs=2, batch=5) | pr.parts.compress_top_k(share=0.1),
    "measured": lambda: pr.power_of_choice(cohort=2, batch=5),
    "moon": lambda: pr.moon(cohort=2, batch=5, layer="logits"),
    "median": lambda: pr.fedavg(cohort=3, epochs=2, batch=5) | pr.parts.median(),
}


def experiment(recipe: pr.Recipe, **changes: Any) -> pr.Experiment:
    values: dict[str, Any] = {
        **{"federation": federation(clients=CLIENTS, validation=0.2), "model": "mlp", "recipe": recipe, "rounds": 8},
    }
    return pr.Experiment(**values | changes)


OFTEN = pr.Execution(checkpoint=pr.Checkpoint(every=1))


def federated(folder: Path, made: Callable[[], pr.Experiment], *, serving: Any = None, **line: Any) -> dict[str, Any]:
    """Runs an experiment over a pretended line."""
    clock = JumpingClock()
    wire = PretendTransport(clock, nodes_of(made, folder / "nodes", CLIENTS), **line)
    told: list[str] = []
    how = Serving(**{"out": folder / "runs", "log_updates": True, "wait": 20.0, **(serving or {})})
    summary = serve(made(), wire, how, execution=OFTEN, clock=clock, tell=told.append)
    return {**summary, "told": told, "line": wire, "run": pr.Run.open(summary["run_id"], folder / "runs")}


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_a_federation_in_rounds_gives_the_simulation_s_numbers(tmp_path: Path, name: str) -> None:
    def made() -> pr.Experiment:
        return experiment(SYNCHRONOUS[name]())

    done = federated(tmp_path, made, takes=lambda node, number: 1.0 + (number * 7 + node) % 5)
    alone = carry_out(prepare(made()), [])
    assert done["digest"] == alone["digest"]
    assert (done["status"], done["driver"], done["workers"]) == ("finished", "flower", CLIENTS)
    assert done["samples"] == alone["samples"]


def asynchronous(**changes: Any) -> pr.Experiment:
    recipe = (
        pr.cc_fedadam(cohort=4, buffer=2, batch=5, clock="event") | pr.parts.staleness() | pr.parts.control_variates()
    )
    return experiment(recipe, **changes)


def replayed(done: dict[str, Any], made: Callable[[], pr.Experiment]) -> None:
    """Holds the record to the model of every version, computed again and from what clients sent."""
    for from_updates in (False, True):
        verdict = pr.replay(done["run"], made(), from_updates=from_updates)
        assert verdict.equal, str(verdict)
        assert verdict.last == done["rounds"]


def test_an_asynchronous_federation_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    # One node is slow; the buffer fills without it, so it comes with stale updates.
    done = federated(tmp_path, asynchronous, takes=lambda node, number: 9.0 if node == 103 else 1.0 + number % 3)
    replayed(done, asynchronous)
    assert done["run"].history["staleness_max"].max() >= 2
    assert done["virtual_seconds"] < 8 * 5


def test_a_node_that_goes_away_and_comes_back_changes_no_number(tmp_path: Path) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.scaffold(cohort=6, epochs=2, batch=5))

    begun = 1002.5  # in the second version
    done = federated(tmp_path, made, away={102: (begun, begun + 30.0)})
    assert done["digest"] == carry_out(prepare(made()), [])["digest"]
    assert any("client 2 is there: its visit 1 is sent again" in words for words in done["told"])
    assert done["lost_visits"] == 0
    replayed(done, made)


def test_a_node_that_stays_away_is_lost_and_the_others_go_on(tmp_path: Path) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.scaffold(cohort=6, epochs=2, batch=5))

    done = federated(tmp_path, made, away={102: (1002.5, 9999.0)}, serving={"returns": 5.0})
    assert (done["rounds"], done["lost_visits"]) == (8, 1)
    lost = done["run"].visits.query("status == 'lost'")
    assert lost["reason"].tolist() == ["its node went away and was not back within 5 s"]
    replayed(done, made)


def test_lost_doubled_and_spoilt_answers(tmp_path: Path) -> None:
    def broken(parcel: Any) -> Any:
        return type(parcel)(text=parcel.text[:-20], arrays=parcel.arrays)

    def short(parcel: Any) -> Any:
        return type(parcel)(text=parcel.text, arrays=parcel.arrays[:-1])

    # Messages 0 to 5 are greetings.
    line: dict[str, Any] = {"doubled": {8, 9, 12}, "spoilt": {7: broken, 10: short}}
    done = federated(tmp_path, asynchronous, **line)
    assert done["faults"].get("unfit") == 2
    assert done["faults"].get("duplicate") == 3
    reasons = done["run"].visits.query("status == 'lost'")["reason"].tolist()
    assert "it has sent a message that cannot be read: JSONDecodeError" in reasons[0]
    assert reasons[1] == "it has sent fewer arrays than were announced"
    replayed(done, asynchronous)


class Dies(Exception):
    """The server's process ends here."""


class Killed(Observer):
    """An observer that kills the server at a version."""

    def __init__(self, version: int) -> None:
        self.version_to_die = version

    def version(self, record: Any, model: Any) -> None:
        if record.version == self.version_to_die:
            raise Dies


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", ["scaffold", "ccfl", "asynchronous"])
def test_a_server_that_was_killed_goes_on(tmp_path: Path, name: str, every: int) -> None:
    def made() -> pr.Experiment:
        return asynchronous() if name == "asynchronous" else experiment(SYNCHRONOUS[name]())

    execution = pr.Execution(checkpoint=pr.Checkpoint(every=every))
    clock = JumpingClock()
    line = PretendTransport(clock, nodes_of(made, tmp_path / "nodes", CLIENTS), lambda node, number: 1.0 + number % 3)
    how = Serving(out=tmp_path / "runs", log_updates=True, wait=20.0)
    with pytest.raises(Dies):
        serve(
            made(),
            line,
            how,
            execution=execution,
            clock=clock,
            observers=lambda experiment: [Killed(5)],
            tell=lambda text: None,
        )
    told: list[str] = []
    again = PretendTransport(clock, line.nodes_by, line.takes)
    summary = serve(made(), again, how, execution=execution, clock=clock, tell=told.append)
    assert f"note: the run went on from its checkpoint of version {4 if every == 1 else 3}" in told
    run = pr.Run.open(summary["run_id"], tmp_path / "runs")
    assert [row["version"] for row in run.versions] == list(range(9))
    replayed({**summary, "run": run}, made)
    if name != "asynchronous":
        assert summary["digest"] == carry_out(prepare(made()), [])["digest"]


def test_a_run_on_nodes_is_verified_and_resumed_nowhere_else(tmp_path: Path) -> None:
    done = federated(tmp_path, lambda: experiment(pr.fedavg(cohort=2, batch=5), rounds=2))
    with pytest.raises(pr.UserError, match="is a run on nodes"):
        pr.verify(done["run"], experiment(pr.fedavg(cohort=2, batch=5), rounds=2))
    with pytest.raises(pr.UserError, match="is a run on nodes"):
        pr.resume(experiment(pr.fedavg(cohort=2, batch=5), rounds=3), done["run"], out=tmp_path / "runs")
    again = pr.run(experiment(pr.fedavg(cohort=2, batch=5), rounds=2), out=tmp_path / "runs", resume="auto")
    assert again.id != done["run"].id
    assert again.summary["digest"] == done["digest"]


def refusing(folder: Path, nodes: dict[int, Any], made: Callable[[], pr.Experiment]) -> tuple[str, list[str]]:
    """The error of a server whose nodes are not all right, and what it told before."""
    clock, told = JumpingClock(), list[str]()
    with pytest.raises(pr.UserError) as caught:
        serve(
            made(),
            PretendTransport(clock, nodes),
            Serving(out=folder, wait=20.0),
            execution=OFTEN,
            clock=clock,
            tell=told.append,
        )
    return str(caught.value), told


def plain() -> pr.Experiment:
    return experiment(pr.fedavg(cohort=3, batch=5))


def test_missing_doubled_and_strange_numbers_are_refused(tmp_path: Path) -> None:
    nodes = nodes_of(plain, tmp_path, CLIENTS)
    error, _ = refusing(tmp_path, {n: a for n, a in nodes.items() if n not in (101, 104)}, plain)
    assert "clients 1, 4 not there after 20 s, of 6" in error
    error, told = refusing(tmp_path, {**nodes, 104: nodes[103]}, plain)
    assert "client 4 not there" in error
    assert any("node 104 says that it is client 3, which node 103 is already" in words for words in told)
    nodes = nodes_of(plain, tmp_path, CLIENTS + 1)
    error, told = refusing(tmp_path, {n: a for n, a in nodes.items() if n != 102}, plain)
    assert any("a node with client=6, in a federation of 6" in words for words in told)
    assert "expected: a number from 0 to 5" in error


def test_another_recipe_model_or_class_is_refused(tmp_path: Path) -> None:
    nodes = nodes_of(plain, tmp_path, CLIENTS)
    others: dict[str, Callable[[], pr.Experiment]] = {
        "has the recipe FedProx": lambda: experiment(pr.fedprox(cohort=3, batch=5, mu=0.1)),
        "has another model": lambda: experiment(pr.fedavg(cohort=3, batch=5), model="logistic"),
    }
    for words, other in others.items():
        odd = nodes_of(other, tmp_path, 1)[100]
        error, _ = refusing(tmp_path, {**nodes, 100: odd}, plain)
        assert words.lower() in error.lower()
        assert "client 0 not there" in error


def test_bounds_are_refused(tmp_path: Path) -> None:
    for recipe in (pr.local_only(batch=5), pr.centralised()):
        error, _ = refusing(tmp_path, {}, lambda recipe=recipe: experiment(recipe))
        assert "in a real federation" in error


def test_a_skipping_client_sends_no_vector(tmp_path: Path) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.ccfl(cohort=6, epochs=2, batch=5, storage="server"), rounds=12)

    done = federated(tmp_path, made)
    size = 4 * prepare(made()).chosen.engine.layout.size
    answers = [parcel for parcel in done["line"].answers if '"Answer"' in parcel.text]
    skipped = done["run"].visits.query("status == 'skipped'")
    assert len(skipped) > 5
    assert sum(sum(a.nbytes for a in parcel.arrays) == 0 for parcel in answers) == len(skipped)
    assert all(sum(a.nbytes for a in parcel.arrays) in (0, size) for parcel in answers)


@pytest.mark.parametrize("part", ["compress_top_k(share=0.05)", "compress_int8()"])
def test_a_compressed_update_is_as_small_as_it_is_said_to_be(tmp_path: Path, part: str) -> None:
    from polyrhythm.config import names

    def made() -> pr.Experiment:
        return experiment(names.recipe(f"fedavg(cohort=3, batch=5) | {part}"))

    done = federated(tmp_path, made)
    assert done["digest"] == carry_out(prepare(made()), [])["digest"]
    answers = [parcel for parcel in done["line"].answers if '"Answer"' in parcel.text]
    billed = done["run"].visits["bytes_up"].sum()
    travelled = sum(array.nbytes for parcel in answers for array in parcel.arrays)
    vectors = len(answers) * 4 * prepare(made()).chosen.engine.layout.size
    assert travelled < 1.3 * billed < vectors


@pytest.mark.skipif(sys.platform != "linux", reason="what was read of a map is let go on Linux alone")
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "compressed", "ccfl", "median"])
def test_what_clients_send_waits_in_files_and_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Answers are fetched a few at a time, and of those that wait for a version no vector stays in memory."""
    monkeypatch.setattr(filed, "LONG", 0)
    monkeypatch.setattr(outstanding, "AT_ONCE", 1)
    asked, summed = list[int](), list[bool]()
    pull, mean = PretendTransport.pull, Releasing.mean

    def pulled(self: PretendTransport, messages: Collection[str]) -> list[Reply]:
        asked.append(sum(int(message) >= CLIENTS for message in messages))  # after the greetings
        return pull(self, messages)

    def looked(self: Releasing, setup: Any, parts: Any, release: Any) -> Any:
        sent = [*release.updates(), *(v for extra in release.extras("control_variates") for v in extra.values())]
        summed.extend(any_filed([vector]) for vector in sent)
        return mean(self, setup, parts, release)

    monkeypatch.setattr(PretendTransport, "pull", pulled)
    monkeypatch.setattr(Releasing, "mean", looked)

    def made() -> pr.Experiment:
        return experiment(SYNCHRONOUS[name]())

    done = federated(tmp_path, made, takes=lambda node, number: 1.0 + (number * 7 + node) % 5)
    assert max(asked) == 1
    assert summed
    assert all(summed)
    assert done["digest"] == carry_out(prepare(made()), [])["digest"]
