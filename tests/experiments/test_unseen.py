"""Clients that never train: they are set aside, make models of their own in the end, and are tested apart."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.newcomers import settled_in
from polyrhythm.core.server_state import ServerState
from polyrhythm.data.federation import Unseen
from polyrhythm.deployment.federating import check
from polyrhythm.experiments.prepared import prepare
from polyrhythm.results import fairness_tables
from small import collection, logged

SMALL: dict[str, Any] = {"cohort": 3, "epochs": 2, "batch": 5}


def net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


def federation(unseen: float = 0.25, **changes: Any) -> pr.data.Federation:
    options = {"clients": 8, "seed": 0, "local_test": 0.3} | changes
    return pr.federate(collection(120), pr.data.Dirichlet(alpha=0.5), **options, unseen=unseen)


def trial(recipe: pr.Recipe, **changes: Any) -> pr.Experiment:
    values = {"federation": federation(), "model": net, "recipe": recipe, "rounds": 4}
    return small.experiment(**values | changes)


def apart(made: pr.data.Federation) -> Unseen:
    assert made.unseen is not None
    return made.unseen


def test_nobody_unseen_is_as_before_to_the_bit() -> None:
    one, other = pr.federate(collection(120), pr.data.Dirichlet(alpha=0.5), 8, 0, local_test=0.3), federation(0.0)
    assert other.unseen is None
    assert torch.equal(one.shares.order, other.shares.order)
    assert (one.sizes == other.sizes).all()
    assert one.notes == other.notes
    runs = [logged(**vars_of(trial(pr.fedrep(**SMALL, head_epochs=1), federation=of))) for of in (one, other)]
    assert runs[0][0]["digest"] == runs[1][0]["digest"]
    assert [v.spread for v in runs[0][1].versions] == [v.spread for v in runs[1][1].versions]
    assert not any(key.startswith("unseen") for key in runs[1][0])


def vars_of(experiment: pr.Experiment) -> dict[str, Any]:
    return {field.name: getattr(experiment, field.name) for field in dataclasses.fields(experiment)}


@pytest.mark.parametrize(("share", "many"), [(0.01, 1), (0.125, 1), (0.25, 2), (0.8, 6)])
def test_a_share_is_set_aside_with_all_that_it_holds(share: float, many: int) -> None:
    everybody, some = federation(0.0), federation(share)
    unseen = apart(some)
    assert len(unseen.clients) == many
    assert everybody.local_tests is not None
    assert some.local_tests is not None
    for client in range(8):
        never = client in unseen.clients
        for whole, seen, held in (
            (everybody.shares, some.shares, unseen.train),
            (everybody.local_tests, some.local_tests, unseen.tests),
        ):
            wanted = whole.indices(client)
            assert torch.equal((held if never else seen).indices(client), wanted)
            assert len((seen if never else held).indices(client)) == 0
    assert set(unseen.clients) != set(apart(federation(share, seed=1)).clients) or many in (1, 6)


def test_they_are_none_of_the_training(tmp_path: Path) -> None:
    """To the bit as if they had never been there, whatever they hold; and they are in nobody's means."""
    made = federation()
    without = dataclasses.replace(made, unseen=None)
    for recipe in (pr.fedavg(**SMALL), pr.fedper(**SMALL), pr.scaffold(**SMALL)):
        run, bare = (pr.run(trial(recipe, federation=of), out=tmp_path) for of in (made, without))
        assert run.summary["digest"] == bare.summary["digest"]
        assert not set(run.visits["client"]) & set(apart(made).clients)
        assert run.client_results.equals(bare.client_results)
        same = {key: value for key, value in run.summary.items() if not key.startswith("unseen")}
        assert same.keys() == bare.summary.keys()
        odd = {key for key, value in same.items() if value != bare.summary[key]}
        assert odd <= {"run_id", "wall_seconds"}
    members = run.members
    assert members.index[members["unseen"]].tolist() == apart(made).clients
    assert (members["samples"] > 0).all()


def tuned(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, steps: int, lr: float) -> nn.Module:
    for _ in range(steps):
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        with torch.no_grad():
            for weights in model.parameters():
                weights -= lr * (weights.grad if weights.grad is not None else 0)
    return model


def test_a_tuned_model_is_made_on_their_own_samples(tmp_path: Path) -> None:
    """By hand: the final model, three full-batch steps of each, and its own test."""
    recipe = pr.fedavg_ft(cohort=3, epochs=1, batch=None, lr=0.02, tuning=3)
    made = trial(recipe, model="mlp", rounds=1)
    run, scores, before = pr.run(made, out=tmp_path), [], []
    unseen = apart(made.federation)
    for client in unseen.clients:
        inputs, targets = made.federation.train.batch(unseen.train.indices(client))
        tests, wanted = made.federation.train.batch(unseen.tests.indices(client))
        before.append(float((run.model()(tests).argmax(1) == wanted).float().mean()))
        model = tuned(run.model().train(), inputs, targets, 3, 0.02)
        scores.append(float((model(tests).argmax(1) == wanted).float().mean()))
    assert run.summary["unseen_personal_mean"] == pytest.approx(statistics.fmean(scores))
    assert run.summary["unseen_global_mean"] == pytest.approx(statistics.fmean(before))
    assert run.summary["unseen_personal_worst_decile"] == pytest.approx(min(scores))
    assert run.summary["unseen_personal_sd_over_clients"] == pytest.approx(statistics.pstdev(scores))
    assert scores != before
    spreads = [version["spread"] for version in run.versions]
    assert ["unseen_personal_mean" in spread for spread in spreads] == [False, True]
    assert all("unseen_global_mean" in spread for spread in spreads)


@pytest.mark.parametrize("name", ["fedper", "fedrep", "ditto", "fedbn"])
def test_what_is_their_own_is_that_of_a_first_visit(name: str) -> None:
    """As the one client of a federation that begins with this model has it after its first round."""
    made = trial(getattr(pr, name)(**SMALL))
    state, unseen = prepare(made), apart(made.federation)
    client = unseen.clients[0]
    alone = np.arange(8) == client
    single = dataclasses.replace(
        made.federation, shares=unseen.train.of_some(alone), local_tests=unseen.tests.of_some(alone), unseen=None
    )
    first = prepare(dataclasses.replace(made, federation=single, rounds=1))
    driver = pr_driver(first)
    for _ in driver.moments(first.initial):
        pass
    initial = state.initial
    server = ServerState(
        version=0, weights=initial.weights, buffers=initial.buffers, parts=made.recipe.server_start(state.setup)
    )
    data_of = state.data_of_unseen
    assert data_of is not None
    engine = state.chosen.engine
    found = settled_in(made.recipe, first.setup, server, client, data_of(client), engine)
    wanted: ClientState = driver.state_of(client, 0)
    assert found.parts.keys() == wanted.parts.keys()
    assert found.parts
    for key, part in found.parts.items():
        assert torch.equal(part["weights"], wanted.parts[key]["weights"])
    twice = settled_in(made.recipe, first.setup, server, client, data_of(client), engine, 2)
    assert any(not torch.equal(p["weights"], found.parts[k]["weights"]) for k, p in twice.parts.items())


def pr_driver(of: Any) -> Any:
    from polyrhythm.simulation.simulator import InlineDriver

    return InlineDriver(of.recipe, of.setup, of.chosen.engine, of.data_of, of.world(), of.meter())


def test_settling_in_changes_nothing_and_takes_as_many_visits_as_it_is_told(tmp_path: Path) -> None:
    recipe = pr.fedper(cohort=3, epochs=1, batch=5, lr=0.01)
    found = {}
    for visits in (1, 10):
        run = pr.run(trial(recipe, evaluation=pr.Evaluation(unseen_visits=visits)), out=tmp_path)
        found[visits] = run.summary
    assert found[1]["digest"] == found[10]["digest"]
    assert found[1]["samples"] == found[10]["samples"]
    assert found[1]["personal_mean"] == found[10]["personal_mean"]
    assert found[10]["unseen_personal_mean"] > found[1]["unseen_personal_mean"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unseen": -0.1}, r"unseen = -0\.1"),
        ({"unseen": 1.0}, r"unseen = 1\.0"),
        ({"unseen": 0.1, "local_test": 0.0}, "without tests of the clients' own"),
        ({"unseen": 0.95}, "nobody would be left to train"),
        ({"unseen": 0.5, "clients": 1}, "nobody would be left to train"),
        ({"unseen": 0.8, "local_test": 0.01}, "have training and test"),
    ],
)
def test_what_leaves_nothing_to_measure_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        federation(**options)


def test_bounds_have_no_unseen_clients_and_nodes_are_refused() -> None:
    for recipe in (pr.local_only(**SMALL), pr.centralised(epochs=1)):
        summary, _ = logged(**vars_of(trial(recipe)))
        assert not any(key.startswith("unseen") for key in summary)
    with pytest.raises(UserError, match="in a real federation"):
        check(trial(pr.fedavg(**SMALL)))


def test_compare_has_them_apart(tmp_path: Path) -> None:
    runs = [pr.run(trial(recipe), out=tmp_path) for recipe in (pr.fedavg(**SMALL), pr.fedper(**SMALL))]
    assert "2 that never train" in runs[1].view.said["unseen"]
    assert "their own" not in runs[0].view.said["unseen"]
    compared = pr.compare(runs)
    table = fairness_tables.clients(compared)
    assert table is not None
    heads = [row[0] for row in table.rows]
    assert [head.partition(", ")[2] for head in heads] == [
        *("", "unseen clients"),
        *("", "clients' own models", "unseen clients", "unseen clients' own models"),
    ]
    entry = compared.results()[1]["clients"]
    assert entry["unseen_personal_mean"]["mean"] == runs[1].summary["unseen_personal_mean"]
    json.dumps(entry)


def test_who_goes_on_finds_the_same(tmp_path: Path) -> None:
    made = trial(pr.ditto(**SMALL))
    whole = pr.run(made, out=tmp_path / "whole")
    short = dataclasses.replace(made, rounds=2)
    begun = pr.run(short, out=tmp_path / "short")
    rest = pr.resume(made, begun, out=tmp_path / "short")
    assert rest.summary["unseen_personal_mean"] == whole.summary["unseen_personal_mean"]
    assert rest.summary["digest"] == whole.summary["digest"]
    other = dataclasses.replace(made, federation=federation(0.5), rounds=8)
    with pytest.raises(UserError, match=r"unseen|other data"):
        pr.resume(other, rest, out=tmp_path / "short")
