"""Privacy of clients on nodes: the numbers of the simulation, noise that nobody foretells, and no version for free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.deployment import federating
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.messages import Greeting, Order
from polyrhythm.deployment.wire import unpack
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.methods.privacy import accounting
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.runs.charges import Charges
from pretend import JumpingClock, PretendTransport, nodes_of
from small import federation

CLIENTS = 8
KEY = 2**200 + 7
RATE = 0.5


HIDDEN = pr.parts.dp(noise=1.0, clip=0.5, delta=1e-2)


def made(*more: Any, hidden: Any = HIDDEN) -> pr.Experiment:
    recipe = pr.fedavg(epochs=1, batch=5) | pr.parts.equal() | pr.parts.poisson(rate=RATE) | hidden
    for part in more:
        recipe = recipe | part
    return pr.Experiment(federation=federation(clients=CLIENTS), model="logistic", rounds=4, recipe=recipe)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The keys that servers will make, one after the other; the last one again."""
    keys = [KEY]
    monkeypatch.setattr(federating.secrets, "randbits", lambda bits: keys.pop(0) if len(keys) > 1 else keys[0])
    return keys


def federated(
    folder: Path, *more: Any, wire: Any = PretendTransport, hidden: Any = HIDDEN, every: Any = 1, **line: Any
) -> dict[str, Any]:
    clock, told = JumpingClock(), list[str]()
    transport = wire(clock, nodes_of(lambda: made(*more, hidden=hidden), folder / "nodes", CLIENTS), **line)
    how = Serving(out=folder / "runs", wait=20.0, returns=0.0, alone=30.0)
    execution = pr.Execution(checkpoint=pr.Checkpoint(every=every))
    summary = serve(made(*more, hidden=hidden), transport, how, execution=execution, clock=clock, tell=told.append)
    return {**summary, "told": told, "run": pr.Run.open(summary["run_id"], folder / "runs"), "line": transport}


@pytest.mark.parametrize("clip", [0.5, None], ids=["fixed", "adaptive"])
def test_the_models_are_those_of_the_simulation_with_the_same_key(tmp_path: Path, key: list[int], clip: Any) -> None:
    """To the last bit; and those of no other key, nor of the seed."""
    hidden = HIDDEN if clip else pr.parts.dp(noise=0.3, clip=Adaptive(start=0.1), delta=1e-2)
    done = federated(tmp_path, hidden=hidden)
    digests = {
        secret: carry_out(prepare(made(hidden=hidden), secret=secret), [])["digest"] for secret in (KEY, KEY + 1, None)
    }
    assert done["digest"] == digests[KEY]
    assert len(set(digests.values())) == 3
    kept = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert not any(str(KEY).encode() in content or KEY.to_bytes(26, "little") in content for content in kept)


def test_two_servers_of_one_seed_make_other_noise(tmp_path: Path) -> None:
    first, second = federated(tmp_path / "one"), federated(tmp_path / "two")
    assert first["digest"] != second["digest"]


def test_it_says_who_must_be_trusted_and_what_is_charged(tmp_path: Path, key: list[int]) -> None:
    done = federated(tmp_path)
    told = done["run"].summary["privacy"]
    assert "simulated" not in told["guarantee"]
    assert "a server that must be trusted" in told["guarantee"]
    assert any("the server and whoever else" in words for words in told["outside"])
    assert any("and divides as ever" in line for line in done["told"])
    assert done["privacy_law"] == "poisson"
    sampling = accounting.Sampling(law="poisson", population=CLIENTS, cohort=RATE * CLIENTS, rate=RATE)
    assert done["epsilon"] == accounting.epsilon(sampling, 1.0, 4, 1e-2, "pld")
    assert len(Charges(lambda: done["run"].path).all()) == 4


def test_nodes_that_do_not_answer_add_nothing_and_divide_as_ever(tmp_path: Path, key: list[int]) -> None:
    """A node that is away all the time is as one whose updates are zero, under the same law."""

    def late(node: int, number: int) -> float:
        return 1.0 if number < CLIENTS else 30.0

    done = federated(tmp_path, away={100: (1005.0, 1e9)}, takes=late)
    assert (done["status"], done["rounds"], done["privacy_law"]) == ("finished", 4, "poisson")
    assert done["lost_visits"] > 0
    heard = Charges(lambda: done["run"].path).all()
    everybody = federated(tmp_path / "all")
    assert [[c for c in some if c] for some in Charges(lambda: everybody["run"].path).all()] == heard
    assert done["epsilon"] == everybody["epsilon"]


def test_clients_of_uniform_are_no_secret_sample_where_nodes_come_and_go(tmp_path: Path) -> None:
    uniform = pr.parts.uniform(cohort=4)
    assert prepare(made(uniform)).recipe.sampling(prepare(made(uniform)).setup).law == "fixed_size"
    done = federated(tmp_path, uniform)
    assert done["privacy_law"] == "bounded"
    most = max(sum(client in some for some in Charges(lambda: done["run"].path).all()) for client in range(CLIENTS))
    assert done["epsilon"] == accounting.epsilon(
        accounting.Sampling(law="bounded", population=CLIENTS, cohort=4.0), 1.0, most, 1e-2
    )


class Dies(BaseException):
    """What ends a process at once."""


class Killed(PretendTransport):
    """A line on which the server dies as the third version leaves, before there is a checkpoint of it."""

    def push(self, letters: Any) -> list[str]:
        for _, parcel in letters:
            message = unpack(parcel, Greeting, Order)
            if isinstance(message, Order) and message.assignment.version == 3:
                raise Dies
        return super().push(letters)


@pytest.mark.parametrize("every", [1, "never"])
def test_a_version_that_has_left_is_charged_although_the_server_died_with_it(
    tmp_path: Path, key: list[int], every: Any
) -> None:
    """Another one takes its place, of noise alone and of another key; or all begin anew. It costs as much again."""
    key[:] = [KEY, KEY + 1]
    with pytest.raises(Dies):
        federated(tmp_path, wire=Killed, every=every)
    done = federated(tmp_path, every=every)
    assert (done["status"], done["rounds"]) == ("finished", 4)
    words = "1 version that nodes have seen is lost" if every == 1 else "3 versions that nodes have seen before"
    assert any(words in line for line in done["told"])
    charges = Charges(lambda: done["run"].path).all()
    assert len(charges) == (5 if every == 1 else 7)
    assert every != 1 or charges[3] == [], "the one that takes its place is of nobody"
    sampling = accounting.Sampling(law="poisson", population=CLIENTS, cohort=RATE * CLIENTS, rate=RATE)
    assert done["epsilon"] == accounting.epsilon(sampling, 1.0, len(charges), 1e-2, "pld")


def test_what_cannot_be_on_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dp without bands"):
        federated(tmp_path, pr.parts.cycle(cohort=2), hidden=pr.parts.dp(noise=1.0, bands=2, delta=1e-2))
    done = federated(tmp_path / "whole")
    for again in (pr.replay, pr.verify):
        with pytest.raises(UserError, match="a key that its server has kept nowhere"):
            again(done["run"], made())


@pytest.mark.parametrize(
    "content", ["[1, 2]\n{}\n", "[1.5]\n", "nonsense\n", '["a"]\n', "[true]\n", "[" * 100_000 + "\n"]
)
def test_charges_that_cannot_be_read_end_the_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "charges.jsonl").write_text(content)
    with pytest.raises(RunFailed, match="nobody knows what was spent"):
        Charges(lambda: tmp_path).all()


def test_a_charge_that_was_never_written_to_its_end_is_none(tmp_path: Path) -> None:
    charges, found = Charges(lambda: tmp_path), list[Sequence[int]]()
    assert charges.all() == found
    charges.add([3, 1])
    with (tmp_path / "charges.jsonl").open("a") as file:
        file.write("[4, ")
    assert charges.all() == [[1, 3]]
    charges.add([])
    assert charges.all() == [[1, 3], []]


def test_dp_in_sums_on_nodes_is_that_of_the_simulation(tmp_path: Path, key: list[int]) -> None:
    """To the last bit, with clips that adapt by a count in the sum; and it says who is trusted with what."""
    hidden = pr.parts.dp(noise=0.3, clip=Adaptive(start=0.1, count_noise=1.0), delta=1e-2)
    more = (pr.parts.uniform(cohort=5), pr.parts.secagg())
    done = federated(tmp_path, *more, hidden=hidden)
    simulated = carry_out(prepare(made(*more, hidden=hidden), secret=KEY), [])
    assert done["digest"] == simulated["digest"]
    assert (done["privacy_law"], done["epsilon"]) == (simulated["privacy_law"], simulated["epsilon"])
    assert done["privacy_law"] == "bounded"
    told = done["run"].summary["privacy"]
    assert "trusted with sums" in told["guarantee"]
    assert "clips its own" in told["mechanism"]
    with_uniform = prepare(made(*more, hidden=hidden))
    assert with_uniform.privacy is not None
    assert "simulated" in with_uniform.privacy.guarantee
    assert "trusted with sums" in with_uniform.privacy.guarantee
