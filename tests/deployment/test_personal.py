"""On nodes, what is personal lies at the node: neither way carries any of it, but for what a new one is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.consent import NOBODY
from polyrhythm.base.vectors import spans_of
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import configure
from polyrhythm.core.client_state import ClientState
from polyrhythm.deployment.messages import Answer, Order
from polyrhythm.deployment.node_store import NodeStore
from polyrhythm.deployment.own_models import own_results
from polyrhythm.deployment.shared_part import SharedPart
from polyrhythm.deployment.wire import unpack
from polyrhythm.experiments.prepared import prepare
from small import federation
from terminal import Command
from terminal import polyrhythm as polyrhythm

from .test_remote import CLIENTS, federated


def net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


def experiment(recipe: pr.Recipe) -> pr.Experiment:
    return pr.Experiment(federation=federation(clients=CLIENTS), model=net, rounds=4, recipe=recipe)


SMALL: dict[str, Any] = {"cohort": 3, "epochs": 1, "batch": 5}
RECIPES = {
    "scaffold with a head of one's own": pr.scaffold(**SMALL) | pr.parts.personal_layers(),
    "fedbn": pr.fedbn(**SMALL),
    "compressed": pr.fedper(**SMALL) | pr.parts.compress_int8(),
    "phases": pr.fedrep(**SMALL, head_epochs=3),
    "a mixture": pr.apfl(**SMALL, adapt=True) | pr.parts.personal_layers(),
    "a start of one's own": pr.fedala(**SMALL, rate=5.0),
    "means of classes": pr.fedproto(**SMALL),
    "neighbours": pr.knn_per(**SMALL),
    "an envelope": pr.pfedme(**SMALL, personal_steps=2),
    "a copy": pr.ditto(**SMALL, personal_epochs=3) | pr.parts.personal_layers(layers=("body",)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_nodes_do_as_simulated_clients(tmp_path: Path, name: str) -> None:
    made = experiment(RECIPES[name])
    done = federated(tmp_path, lambda: made)
    assert (done["status"], done["rounds"], done["faults"]) == ("finished", 4, {})
    simulated = pr.run(made, out=tmp_path / "simulated")
    assert done["digest"] == simulated.summary["digest"]
    assert any("own models lie at their nodes" in words for words in done["told"])
    for column in ("bytes_up", "bytes_down"):
        assert done["run"].visits[column].sum() == simulated.visits[column].sum()


@pytest.mark.parametrize("name", ["scaffold with a head of one's own", "fedbn", "phases"])
def test_only_the_shared_part_travels(tmp_path: Path, name: str) -> None:
    made = experiment(RECIPES[name])
    layout = prepare(made).chosen.engine.layout
    shared = made.recipe.scope.shared(layout)
    size = sum(segment.size for segment in shared.segments)
    assert size < layout.parameters
    line = federated(tmp_path, lambda: made)["line"]
    answers = [unpack(p, Answer, Answer, spans=spans_of(shared)) for p in line.answers if '"Answer"' in p.text]
    orders = [unpack(p, Order, Order) for _, p in line.sent if '"Order"' in p.text]
    assert len(answers) == len(orders) == 12
    new = [order.assignment for order in orders if order.assignment.accepted < 0]
    later = [order.assignment for order in orders if order.assignment.accepted >= 0]
    assert new
    assert later
    for sent in new:
        assert sent.weights.shape == (layout.size,)
    for sent in later:
        assert (sent.weights.shape, len(sent.buffers)) == ((size,), len(shared.buffers))
    for answer in answers:
        assert answer.report.update is not None
        assert (answer.report.update.shape, len(answer.report.buffers)) == ((size,), len(shared.buffers))
    vectors = [
        v for a in answers for extra in a.report.extras.values() for v in extra.values() if isinstance(v, Tensor)
    ]
    assert all(vector.shape == (size,) for vector in vectors)
    assert bool(vectors) == name.startswith("scaffold")


def test_what_does_not_have_its_length_stays_as_it_is() -> None:
    prepared = prepare(experiment(pr.fedper(**SMALL)))
    layout = prepared.chosen.engine.layout
    part = SharedPart(prepared.recipe, layout)
    for length in (0, 3, layout.size - 1, layout.size + 1):
        value = torch.ones(length)
        assert part._long(value) is value
    whole = part._long(part._short(torch.ones(layout.size)))
    assert not whole[[s.offset for s in layout.segments if s.name in layout.head]].any()
    assert whole.sum() == layout.parameters - sum(s.size for s in layout.segments if s.name in layout.head)


def judged(recipe: pr.Recipe) -> pr.Experiment:
    split = federation(clients=CLIENTS, local_test=0.3)
    return pr.Experiment(federation=split, model=net, rounds=4, recipe=recipe)


@pytest.mark.parametrize("name", ["fedavg_ft", "fedbn", "ditto", "apfl", "fedala", "knn_per"])
def test_a_node_measures_its_own_model_as_the_simulation_does(tmp_path: Path, name: str) -> None:
    made = judged(getattr(pr, name)(**SMALL))
    done = federated(tmp_path, lambda: made)["run"]
    simulated = pr.run(made, out=tmp_path / "simulated").client_results.loc[4]
    heard = set(done.visits["client"])
    for client in sorted(heard):
        found = own_results(
            prepare(made),
            client=client,
            store=tmp_path / "nodes" / f"node-{client}",
            run=done.id,
            model=done.model(trust=[__name__]).state_dict(),
            version=4,
        )
        row = simulated.loc[client]
        assert (found["global"]["accuracy"], found["personal"]["accuracy"]) == (row["accuracy"], row["personal"])
        assert found["global"]["loss"] == row["loss"]


FILE = """
data = "digits"
clients = 4
partition = "dirichlet(alpha=1.0)"
local_test = 0.25
model = "mlp(hidden=[8])"
method = "ditto(cohort=3, epochs=1)"
rounds = 4
"""


def test_the_command_says_what_the_simulation_says(tmp_path: Path, polyrhythm: Command) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(FILE)
    (made,) = assemble(configure(file, {}, [], NOBODY))
    done = federated(tmp_path, lambda: made)["run"]
    row = pr.run(made, out=tmp_path / "simulated").client_results.loc[4].loc[1]
    given = ["--client", "1", "--store", str(tmp_path / "nodes" / "node-1"), "--run", done.id, "--version", "4"]
    given += ["--weights", str(done.path / "final.safetensors")]
    told = polyrhythm("flower", "own", str(file), *given, "--json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert (found["client"], found["version"], found["run_id"]) == (1, 4, done.id)
    assert (found["global"]["accuracy"], found["personal"]["accuracy"]) == (row["accuracy"], row["personal"])
    assert row["personal"] != row["accuracy"]
    table = polyrhythm("flower", "own", str(file), *given).out
    assert f"{row['personal']:.4f}" in table
    stranger = polyrhythm("flower", "own", str(file), *given, "--client", "9")
    assert (stranger.code, "client 9 of 4" in stranger.err) == (2, True)


def test_a_node_says_why_it_cannot(tmp_path: Path) -> None:
    made = judged(pr.fedper(**SMALL))
    model = dict(net((4,), 3).state_dict())
    given: dict[str, Any] = {"client": 0, "store": tmp_path, "run": "run-1", "model": model, "version": 4}
    with pytest.raises(pr.UserError, match="remembers nothing of the run"):
        own_results(prepare(made), **given)
    with pytest.raises(pr.UserError, match="nearest_prototype, measured at a node"):
        own_results(prepare(judged(pr.fedproto(**SMALL))), **given)
    NodeStore(tmp_path, "run-1", 0).put(0, ClientState(), ())
    with pytest.raises(pr.UserError, match=r"a model without 0\.weight of shape"):
        own_results(prepare(made), **{**given, "model": {}})
    with pytest.raises(pr.UserError, match="without test samples of its own"):
        own_results(prepare(experiment(pr.fedper(**SMALL))), **given)
