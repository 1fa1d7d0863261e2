"""Secure aggregation over nodes: the bits of the simulation, secrets that nobody else may read, and nodes that lie."""

from __future__ import annotations

import dataclasses
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyrhythm as pr
from mutations import Mutator
from polyrhythm.base.errors import UserError
from polyrhythm.base.vectors import spans_of
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.messages import Answer, Refusal
from polyrhythm.deployment.node import Node
from polyrhythm.deployment.node_sums import NodeSums
from polyrhythm.deployment.sum_messages import Keys, Shares, SumAnswer, Unmask, keys_in, keys_of, letters_of
from polyrhythm.deployment.wire import Parcel, pack, unpack
from polyrhythm.experiments.prepared import prepare
from polyrhythm.methods.secure_sum import protocol
from pretend import JumpingClock, PretendTransport, nodes_of
from small import federation

CLIENTS = 6
COHORT = 5
RUN = "20261130-run"


def made(**secagg: Any) -> pr.Experiment:
    recipe = pr.fedavg(cohort=COHORT, epochs=1, batch=5) | pr.parts.secagg(limit=4.0, **secagg)
    return pr.Experiment(federation=federation(clients=CLIENTS), model="logistic", rounds=4, recipe=recipe)


def federated(folder: Path, *, resume: bool = True, **line: Any) -> dict[str, Any]:
    clock, told = JumpingClock(), list[str]()
    wire = line.pop("wire", PretendTransport)(clock, nodes_of(made, folder / "nodes", CLIENTS), **line)
    if isinstance(wire.spoilt, Of):
        wire.spoilt.sent = wire.sent
    how = Serving(out=folder / "runs", wait=20.0, resume=resume)
    summary = serve(made(), wire, how, clock=clock, tell=told.append)
    run = pr.Run.open(summary["run_id"], folder / "runs")
    return {**summary, "told": told, "run": run, "line": wire}


def kind_of(parcel: Parcel) -> str:
    (name,) = json.loads(parcel.text)["value"]
    return str(name)


class Of:
    """Spoils answers to messages of a kind: the first few, or those that a draw takes."""

    def __init__(self, kinds: tuple[str, ...], change: Callable[[Parcel], Parcel], most: int = 1) -> None:
        self.kinds, self.change, self.left = kinds, change, most
        self.sent: list[tuple[int, Parcel]] = []

    def get(self, number: int, default: Any) -> Any:
        if kind_of(self.sent[number][1]) not in self.kinds or not self.left:
            return default
        self.left -= 1
        return self.change


def said(**changes: Any) -> Callable[[Parcel], Parcel]:
    """Another answer in a stage, as the node itself could have written it."""

    def change(parcel: Parcel) -> Parcel:
        answer = unpack(parcel, SumAnswer, Refusal)
        assert isinstance(answer, SumAnswer)
        fields = {name: value(answer) if callable(value) else value for name, value in changes.items()}
        return pack(dataclasses.replace(answer, **fields))

    return change


def test_the_models_are_those_of_the_simulation(tmp_path: Path) -> None:
    """To the last bit; every stage once for each client and version, and no key is left."""
    done = federated(tmp_path)
    assert done["digest"] == pr.run(made(), out=tmp_path / "here").summary["digest"]
    kinds = [kind_of(parcel) for _, parcel in done["line"].sent]
    assert {kind: kinds.count(kind) for kind in ("Keys", "Shares", "Order", "Unmask")} == dict.fromkeys(
        ("Keys", "Shares", "Order", "Unmask"), 4 * COHORT
    )
    assert not list(tmp_path.rglob("secagg.json"))
    assert not done["run"].visits["loss"].notna().any()


def test_no_update_travels_bare(tmp_path: Path) -> None:
    """What nodes send looks like chance, and is another thing each time, although the work is the same."""
    first, second = federated(tmp_path / "one"), federated(tmp_path / "two")
    assert first["digest"] == second["digest"]
    spans = spans_of(prepare(made()).chosen.engine.layout)

    def updates(done: dict[str, Any]) -> list[torch.Tensor]:
        found = []
        for parcel in done["line"].answers:
            if kind_of(parcel) == "Answer":
                answer = unpack(parcel, Answer, Answer, spans=spans)
                assert isinstance(answer, Answer)
                assert answer.report.update is not None
                found.append(answer.report.update)
        return found

    one, other = updates(first), updates(second)
    assert len(one) == 4 * COHORT
    for a, b in zip(one, other, strict=True):
        assert a.dtype == torch.int32
        assert int((a == b).sum()) <= 1
    spread = torch.cat(one).double().abs().mean() / 2**31
    assert 0.4 < float(spread) < 0.6


STAGES = {
    "keys of another length": (("Keys",), said(content=b"short"), "public keys of 5 bytes"),
    "keys of another client": (("Keys",), said(client=3_000), "answered another question"),
    "an answer of another version": (("Keys",), said(version=77), "answered another question"),
    "fewer letters": (("Shares",), said(clients=lambda a: a.clients[1:]), "bytes for 3 clients"),
    "letters to others": (("Shares",), said(clients=lambda a: tuple(c + 100 for c in a.clients)), "letters to 4"),
    "shares of others": (("Unmask",), said(clients=lambda a: tuple(c + 100 for c in a.clients)), "nobody asked for"),
    "shares that are too large": (("Unmask",), said(content=lambda a: b"\xff" * len(a.content)), "of the field"),
    "no message at all": (("Keys", "Shares"), lambda parcel: Parcel(text="{}"), "no message in format"),
}


@pytest.mark.parametrize("name", STAGES)
def test_an_answer_that_does_not_fit_leaves_its_client_out_by_name(tmp_path: Path, name: str) -> None:
    kinds, change, words = STAGES[name]
    done = federated(tmp_path, spoilt=Of(kinds, change))
    assert (done["status"], done["rounds"]) == ("finished", 4)
    told = [line for line in done["told"] if "is left out of the sum" in line]
    assert len(told) == 1
    assert words in told[0]
    accepted = sorted(row["accepted"] for row in done["run"].versions[1:])
    assert accepted == [COHORT - (kinds != ("Unmask",)), *[COHORT] * 3]


def test_two_that_are_left_out_are_too_many_for_a_threshold_of_three(tmp_path: Path) -> None:
    """k = 4, t = 3: of five, three would have two neighbours each in the sum. Nobody is sent work in vain."""
    done = federated(tmp_path, spoilt=Of(("Keys",), said(content=b""), most=2))
    assert (done["status"], done["rounds"]) == ("finished", 4)
    visits = done["run"].visits
    assert (visits["status"] == "lost").sum() == COHORT


def test_shares_of_another_key_lose_the_version_and_no_more(tmp_path: Path) -> None:
    """Wrong shares of three clients: the sum cannot be read, its version is skipped, the next one is made."""
    flipped = said(content=lambda a: bytes(a.content[:-1]) + bytes([a.content[-1] ^ 1]))
    gone = Of(("Unmask",), said(content=b""), most=3)
    done = federated(tmp_path / "few", spoilt=gone)
    notes = [row["note"] for row in done["run"].versions]
    assert sum("too few clients are left" in note for note in notes) == 1
    assert done["rounds"] == 4
    wrong = federated(tmp_path / "wrong", spoilt=Of(("Unmask",), flipped, most=1))
    assert wrong["rounds"] == 4


class Dies(BaseException):
    """What ends a process at once."""


class Killed(PretendTransport):
    """A line on which the server dies when it first asks for shares."""

    why: type[BaseException] = Dies

    def push(self, letters: Any) -> list[str]:
        if any(kind_of(parcel) == "Unmask" for _, parcel in letters):
            raise self.why
        return super().push(letters)


class Stopped(Killed):
    why = KeyboardInterrupt


@pytest.mark.parametrize("line", [Killed, Stopped])
def test_a_server_that_ends_before_shares_loses_that_version_and_goes_on(tmp_path: Path, line: Any) -> None:
    """Killed, it begins the version anew from its last checkpoint; stopped, its masked updates are of no use."""
    try:
        assert federated(tmp_path, wire=line)["status"] != "finished"
    except Dies:
        assert line is Killed
    left = list(tmp_path.rglob("secagg.json"))
    assert left, "nodes still wait with their keys"
    keys = [key for path in left for key in json.loads(path.read_text())["own"]]
    written = [p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file()]
    assert not any(key.encode() in content or bytes.fromhex(key) in content for key in keys for content in written)
    done = federated(tmp_path)
    assert (done["status"], done["rounds"]) == ("finished", 4)
    assert not list(tmp_path.rglob("secagg.json"))


def ends(folder: Path) -> tuple[dict[int, NodeSums], dict[int, Any]]:
    """Four clients' ends, and what each knows of the others."""
    mine = {}
    for client in range(4):
        (folder / str(client)).mkdir()
        mine[client] = NodeSums(folder / str(client), client, RUN)
    about = {"run": RUN, "version": 3, "recipe": "r"}
    keys = {c: keys_of((c,), mine[c].answer(Keys(client=c, **about)).content)[c] for c in mine}
    return mine, {c: {n: keys[n] for n in keys if n != c} for c in mine}


def shares(client: int, around: Any, threshold: int = 2, version: int = 3) -> Shares:
    near = around[client]
    about = {"run": RUN, "version": version, "recipe": "r", "client": client}
    return Shares(neighbours=tuple(near), keys=keys_in(near), threshold=threshold, **about)


def test_secrets_are_the_owners_alone_and_of_one_version(tmp_path: Path) -> None:
    mine, around = ends(tmp_path)
    path = tmp_path / "0" / "secagg.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    letters = mine[0].answer(shares(0, around))
    assert set(letters_of(letters.clients, letters.content)) == {1, 2, 3}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UserError, match="nobody gets two shares of one secret"):
        mine[0].answer(shares(0, around))
    with pytest.raises(UserError, match="keys of version 3, where version 4"):
        mine[0].answer(shares(0, around, version=4))
    mine[0].answer(Keys(client=0, run=RUN, version=4, recipe="r"))
    assert json.loads(path.read_text())["own"] != json.loads(before)["own"]
    with pytest.raises(UserError, match="keys of version 4, where version 3"):
        mine[0].answer(Unmask(client=0, run=RUN, version=3, recipe="r", summed=(0, 1, 2), missing=(3,)))


@pytest.mark.parametrize("threshold", [1, 4])
def test_a_node_refuses_a_threshold_with_which_it_could_be_seen(tmp_path: Path, threshold: int) -> None:
    mine, around = ends(tmp_path)
    with pytest.raises(UserError, match="no more than half"):
        mine[0].answer(shares(0, around, threshold))


def test_nobody_is_given_both_secrets_of_a_client_and_shares_only_once(tmp_path: Path) -> None:
    mine, around = ends(tmp_path)
    written = {c: mine[c].answer(shares(c, around)) for c in mine}
    post = {c: letters_of(a.clients, a.content) for c, a in written.items()}
    with pytest.raises(UserError, match="before the update was masked"):
        mine[0].answer(Unmask(client=0, run=RUN, version=3, recipe="r", summed=(0, 1, 2), missing=(3,)))
    path = tmp_path / "0" / "secagg.json"
    kept = json.loads(path.read_text())
    kept["letters"] = [[c, post[c][0].hex()] for c in (1, 2, 3)]
    path.write_text(json.dumps(kept))
    about = {"client": 0, "run": RUN, "version": 3, "recipe": "r"}
    for question, words in (
        (Unmask(summed=(0, 1, 2, 3), missing=(3,), **about), "both of its secrets"),
        (Unmask(summed=(0, 1), missing=(2, 3), **about), "1 neighbours"),
        (Unmask(summed=(1, 2, 3), missing=(), **about), "a sum that it is not in"),
    ):
        with pytest.raises(UserError, match=words):
            mine[0].answer(question)
    answer = mine[0].answer(Unmask(summed=(0, 1, 2), missing=(3,), **about))
    assert (answer.clients, answer.seeds) == ((1, 2, 3), 2)
    assert not path.exists()
    with pytest.raises(UserError, match="they were used, or never made"):
        mine[0].answer(Unmask(summed=(0, 1, 2, 3), missing=(), **about))


def test_an_order_without_letters_is_refused_before_anything_leaves(tmp_path: Path) -> None:
    """A server that forgets the stages gets no bare update."""

    class Forgetful(PretendTransport):
        def push(self, letters: Any) -> list[str]:
            return super().push([(node, without(parcel)) for node, parcel in letters])

    def without(parcel: Parcel) -> Parcel:
        from polyrhythm.deployment.messages import Greeting, Order
        from polyrhythm.deployment.sum_messages import SumQuestion

        message = unpack(parcel, Greeting, Order, SumQuestion)
        return pack(dataclasses.replace(message, senders=(), letters=None)) if isinstance(message, Order) else parcel

    with pytest.raises(pr.PolyrhythmError, match="letters of 0 clients"):
        federated(tmp_path, wire=Forgetful)


def test_a_simulation_without_masks_is_none_for_nodes(tmp_path: Path) -> None:
    clock = JumpingClock()
    wire = PretendTransport(clock, {})
    with pytest.raises(UserError, match="real=true"):
        serve(made(real=False), wire, Serving(out=tmp_path, wait=1.0), clock=clock, tell=lambda text: None)


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_spoiled_answers_of_the_stages_end_nothing(tmp_path: Path, seed: int) -> None:
    """Keys, letters, shares and masked updates, bits and fields changed: refused by name, or harmless."""
    draws = np.random.Generator(np.random.PCG64(seed))
    mutator = Mutator(draws, spans_of(prepare(made()).chosen.engine.layout))

    def perhaps(parcel: Parcel) -> Parcel:
        return mutator(parcel)[1] if draws.random() < 0.15 else parcel

    spoiler = Of(("Keys", "Shares", "Unmask", "Order"), perhaps, most=10_000)
    try:
        done = federated(tmp_path, spoilt=spoiler)
    except pr.RunFailed as failed:  # nothing came of any version
        done = {"rounds": 4 if "so nothing was learnt" in str(failed) else 0, "run": None}
    assert done["rounds"] == 4
    tests = [] if done["run"] is None else [row["test"]["loss"] for row in done["run"].versions if row["test"]]
    assert all(np.isfinite(loss) for loss in tests)


def test_questions_that_are_none_are_refused_in_words(tmp_path: Path) -> None:
    """By a node: of another client, of another recipe, of a recipe without sums; and messages with odd fields."""
    node = Node(prepare(made()), 2, tmp_path)
    recipe = prepare(made()).recipe.digest
    for question in (
        Keys(run=RUN, version=0, client=1, recipe=recipe),
        Keys(run=RUN, version=0, client=2, recipe="another"),
        Shares(run=RUN, version=0, client=2, recipe=recipe, neighbours=(1,), keys=bytes(64), threshold=1),
        Shares(run="../elsewhere", version=0, client=2, recipe=recipe, neighbours=(), keys=b"", threshold=1),
    ):
        answer = unpack(node.answer(question), SumAnswer, Refusal)
        assert isinstance(answer, Refusal)
        assert answer.why
    assert protocol.LETTER == 94
    about: dict[str, Any] = {"run": RUN, "version": 0, "client": 2, "recipe": recipe}
    for odd in (
        Unmask(summed=(1, 1), missing=(), **about),
        Unmask(summed=(-1,), missing=(), **about),
        Unmask(summed=("a",), missing=(), **about),  # type: ignore[arg-type]
        Shares(neighbours=[1], keys=b"", threshold=1, **about),  # type: ignore[arg-type]
        Keys(run=3, version=0, client=2, recipe=recipe),  # type: ignore[arg-type]
        Keys(run=RUN, version=True, client=2, recipe=recipe),
    ):
        with pytest.raises(Exception, match="of a "):
            node.reply(pack(odd))
