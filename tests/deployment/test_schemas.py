"""Nodes with data of their own: a schema that is not the server's is refused, and one scale is everybody's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polyrhythm as pr
from polyrhythm.data.schema import differences, schema_of
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.node import Node, understood, with_own_data
from polyrhythm.deployment.wire import Parcel
from polyrhythm.experiments.prepared import prepare
from pretend import JumpingClock, PretendTransport
from worker_models import Words

COLOURS = ["blue", "green", "red"]


def rows(count: int, seed: int, shift: float = 0.0) -> pd.DataFrame:
    """People, whose answer goes by colour and age; `shift` moves all ages of a site."""
    draw = np.random.default_rng(seed)
    age, colour = draw.normal(50 + shift, 10, count), draw.integers(0, 3, count)
    answer = np.where((colour == 1) ^ (age > 50), "yes", "no")
    return pd.DataFrame({"age": age, "colour": np.take(COLOURS, colour), "y": answer})


def data(folder: Path, name: str, frame: pd.DataFrame, **settings: Any) -> pr.data.Collection:
    path = folder / f"{name}.csv"
    frame.to_csv(path, index=False)
    return pr.data.table(path, **{"target": "y", "classes": ["no", "yes"], **settings})


def experiment(collection: pr.data.Collection, clients: int = 3) -> pr.Experiment:
    federation = pr.federate(collection, pr.data.Iid(), clients, 0)
    recipe = pr.fedavg(cohort=clients, epochs=3, batch=8, lr=0.2)
    return pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=4)


def node(folder: Path, served: pr.Experiment, client: int, own: pr.data.Collection) -> Callable[[Parcel], Parcel]:
    def answer(parcel: Parcel) -> Parcel:
        asked = understood(parcel)
        made = prepare(with_own_data(served, own, asked))
        return Node(made, client, folder / f"node-{client}", own=True).answer(asked)

    return answer


def federated(folder: Path, served: pr.Experiment, owned: list[pr.data.Collection]) -> tuple[pr.Run, list[str]]:
    clock, told = JumpingClock(), list[str]()
    nodes = {100 + c: node(folder, served, c, own) for c, own in enumerate(owned)}
    how = Serving(out=folder / "runs", wait=20.0)
    summary = serve(served, PretendTransport(clock, nodes), how, clock=clock, tell=told.append)
    return pr.Run.open(summary["run_id"], folder / "runs"), told


def test_every_node_scales_by_the_server_s_statistics(tmp_path: Path) -> None:
    """Sites of other ages: scaled by their own means, nobody's 'over 50' would be anybody else's."""
    sites = [rows(80, 1, -15.0), rows(80, 2), rows(80, 3, 15.0)]
    served = experiment(data(tmp_path, "sample", pd.concat([rows(60, 4, shift) for shift in (-15.0, 0.0, 15.0)])))
    owned = [data(tmp_path, f"site-{i}", site) for i, site in enumerate(sites)]
    run, told = federated(tmp_path, served, owned)
    said = "note: inputs are scaled by the mean and standard deviation of the server's samples, at every node"
    assert said in told
    # The same samples in the simulation, scaled by the server's statistics beforehand.
    scaling = served.federation.train.transforms[-1]  # type: ignore[attr-defined]
    pieces = [own.train.scaled_as(scaling) for own in owned]  # type: ignore[attr-defined]
    inputs, targets = (np.concatenate([getattr(p, name).numpy() for p in pieces]) for name in ("inputs", "targets"))
    test = served.federation.test
    together = pr.data.arrays(
        inputs,
        np.take(["no", "yes"], targets),
        test=(test.inputs, np.take(["no", "yes"], test.targets)),  # type: ignore[attr-defined]
        columns={"site": np.repeat(np.arange(3), [len(p) for p in pieces])},
    )
    simulated = experiment(together)
    by_site = pr.federate(together, pr.data.ByColumn(column="site"), 3, 0)
    simulated = dataclasses.replace(simulated, federation=by_site)
    assert run.summary["digest"] == pr.run(simulated, out=tmp_path / "simulated").summary["digest"]


@pytest.mark.parametrize(
    ("site", "settings", "words"),
    [
        (
            rows(80, 1).replace({"colour": {"blue": "violet"}}),
            {},
            "no 'colour=blue' among its features; 1 value",
        ),
        (rows(80, 1)[["colour", "age", "y"]], {}, "the same features in another order: 'colour=blue'"),
        (rows(80, 1), {"classes": ["yes", "no"]}, "the same classes in another order: 'yes', 'no'"),
        (rows(80, 1), {"scaling": "none"}, "inputs scaled not by statistics of samples, where the server's are"),
    ],
    ids=["vocabulary", "order", "labels", "scaling"],
)
def test_a_node_with_other_data_is_refused_with_what_differs(
    tmp_path: Path, site: pd.DataFrame, settings: dict[str, Any], words: str
) -> None:
    served = experiment(data(tmp_path, "sample", rows(60, 4)))
    others = [data(tmp_path, f"site-{i}", rows(80, i)) for i in range(2)]
    with pytest.raises(pr.UserError) as refused:
        federated(tmp_path, served, [*others, data(tmp_path, "site-2", site, **settings)])
    assert "client 2 not there after 20 s" in str(refused.value)
    assert f"client 2 has other data than the server: {words}" in str(refused.value)
    assert not list((tmp_path / "runs").glob("*/checkpoint*"))


def test_a_node_that_lacks_a_value_names_its_features(tmp_path: Path) -> None:
    served = experiment(data(tmp_path, "sample", rows(60, 4)), clients=1)
    site = rows(80, 1).query("colour != 'blue'")[["colour", "y", "age"]]
    own = data(tmp_path, "site", site, features=["age", *(f"colour={c}" for c in COLOURS)])
    run, _ = federated(tmp_path, served, [own])
    assert run.status == "finished"


def sequences(seed: int, to: int = 6, name: str = "words") -> pr.data.Collection:
    draw = np.random.default_rng(seed)
    texts = [draw.integers(1, 9, size=draw.integers(1, 7)) for _ in range(30)]
    labels = np.array([text[0] % 2 for text in texts])
    return pr.data.arrays({name: texts}, labels, padding=pr.data.Padding(to=to, mask="mask"), classes=[0, 1])


def test_nodes_with_samples_of_several_arrays_of_their_own(tmp_path: Path) -> None:
    federation = pr.federate(sequences(0), pr.data.Iid(), 2, 0)
    recipe = pr.fedavg(cohort=2, batch=8, lr=0.3)
    served = pr.Experiment(federation=federation, model=Words(9, 2), recipe=recipe, rounds=3)
    run, _ = federated(tmp_path / "well", served, [sequences(1), sequences(2)])
    assert (run.status, run.summary["client_updates"]) == ("finished", 6)
    for other, words in ((sequences(1, to=7), "inputs of shape"), (sequences(1, name="texts"), "features")):
        schema = schema_of(pr.federate(other, pr.data.Iid(), 1, 0))
        assert any(words in said for said in differences(schema, schema_of(federation)))
