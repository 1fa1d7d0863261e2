"""Every recipe learns with its defaults: at least 0.80 on digits in 60 versions, or as many updates."""

from __future__ import annotations

import functools

import pytest

import polyrhythm as pr
from polyrhythm.config.names import RECIPES
from polyrhythm.data import Federation
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.models.catalogue import MODELS, Builder

# cc_fedavg divides every update by the steps behind it and steps by 1: slow by definition. Nobody exchanges anything in
# local_only, so a client with two classes of ten cannot know the others.
PERSONAL = {"apfl", "ditto", "fedala", "fedavg_ft", "fedbabu", "fedper", "fedproto", "fedrep", "knn_per", "lg_fedavg"}
EXEMPT = {"cc_fedavg", "local_only"} | (PERSONAL - {"apfl", "ditto", "fedala", "fedavg_ft", "knn_per"}) | {"pfedme"}
# A linear model has no width between two layers.
PARTS = {"federated_dropout", "fedrolex", "fiarse", "heterofl"}
EXITS = {"depthfl"}
ADAPTERS = {"ffa_lora", "rolora", "fedsa_lora", "fedex_lora", "flora", "flexlora", "hetlora"}
# A version of these is one update, where others take five or ten.
VERSIONS = dict.fromkeys(("fedasync", "ace", "aced", "area"), 300)


@functools.cache
def digits() -> Federation:
    return pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), 20, 0)


def final_accuracy(name: str, model: str | Builder) -> float:
    rounds = VERSIONS.get(name, 60)
    experiment = pr.Experiment(
        federation=digits(), model=model, recipe=RECIPES[name](), rounds=rounds, evaluation=pr.Evaluation(every=rounds)
    )
    return float(carry_out(prepare(experiment), [])["final_accuracy"])


@pytest.mark.parametrize("name", sorted(RECIPES.keys() - EXEMPT - PARTS - EXITS - ADAPTERS))
def test_a_linear_model_learns(name: str) -> None:
    assert final_accuracy(name, "logistic") >= 0.80


@pytest.mark.parametrize("name", sorted(PARTS))
def test_parts_of_a_model_learn(name: str) -> None:
    assert final_accuracy(name, "mlp") >= 0.80


@pytest.mark.parametrize("name", sorted(EXITS))
def test_exits_learn(name: str) -> None:
    assert final_accuracy(name, "mlp-exits") >= 0.80


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ADAPTERS - {"fedsa_lora"}))  # of which each client has a model of its own
def test_adapters_learn(name: str) -> None:
    assert final_accuracy(name, pr.models.with_lora(MODELS["mlp"], rank=8)) >= 0.80


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES.keys() - EXEMPT - PARTS - EXITS - ADAPTERS))
def test_the_default_model_learns(name: str) -> None:
    assert final_accuracy(name, "mlp") >= 0.80


@functools.cache
def with_tests() -> Federation:
    return pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), 20, 0, local_test=0.25)


@pytest.mark.parametrize("name", sorted(PERSONAL))
def test_clients_learn_what_is_their_own(name: str) -> None:
    """Each on its own test, where one model for all of them has 0.85 after as many versions."""
    recipe = RECIPES[name](epochs=2)
    experiment = pr.Experiment(
        federation=with_tests(), model="mlp", recipe=recipe, rounds=20, evaluation=pr.Evaluation(every=20)
    )
    found = carry_out(prepare(experiment), [])
    assert found["personal_mean"] >= 0.85
    assert found["personal_worst_decile"] <= found["personal_median"] <= 1
