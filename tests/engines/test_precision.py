"""Products in fewer bits: of the stacked engine alone, as torch's autocast has them, and in every driver the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import polyrhythm as pr
from laws.world import near
from polyrhythm.base.errors import UserError
from polyrhythm.engines.selection import Chosen
from polyrhythm.experiments.prepared import prepare


def run(out: Path, federation: pr.data.Federation, **execution: Any) -> pr.Run:
    made = pr.Experiment(federation=federation, model="mlp", recipe=pr.fedavg(cohort=4, batch=10), rounds=3)
    return pr.run(made, execution=pr.Execution(engine="stacked", **execution), out=out)


@pytest.fixture(scope="module")
def digits() -> pr.data.Federation:
    return pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.5), clients=8, seed=0)


def test_sixteen_bits_come_to_nearly_the_same_weights_in_float32(tmp_path: Path, digits: pr.data.Federation) -> None:
    exact, short = (run(tmp_path, digits, precision=p).model().state_dict() for p in ("float32", "bfloat16"))
    for name, weights in exact.items():
        assert short[name].dtype == torch.float32
        assert not torch.equal(short[name], weights), name
        assert near(short[name], weights, 0.05), name
    plain, float32 = run(tmp_path, digits), run(tmp_path, digits, precision="float32")
    assert plain.summary["digest"] == float32.summary["digest"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray's own logs
def test_the_bits_are_those_of_actors(tmp_path: Path, digits: pr.data.Federation) -> None:
    pytest.importorskip("ray", reason="needs ray")
    alone = run(tmp_path, digits, precision="bfloat16", stack=2)
    others = run(tmp_path, digits, precision="bfloat16", stack=2, driver="ray", workers=2)
    assert alone.summary["digest"] == others.summary["digest"]
    assert alone.summary["digest"] != run(tmp_path, digits, stack=2).summary["digest"]


def chosen(**execution: Any) -> Chosen:
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0)
    made = pr.Experiment(federation=federation, model="mlp", recipe=pr.fedavg(cohort=2), rounds=1)
    return prepare(made, pr.Execution(**execution)).chosen


def test_who_computes_in_fewer_bits_is_stacked_and_says_so() -> None:
    assert chosen().kind in ("native", "torch")
    found = chosen(precision="bfloat16")
    assert (found.kind, found.name) == ("stacked", "stacked (cpu, bfloat16)")


def test_what_cannot_be_stacked_is_computed_in_float32_and_that_is_said() -> None:
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0)
    made = pr.Experiment(federation=federation, model="mlp", recipe=pr.moon(cohort=2, mu=1.0), rounds=1)
    found = prepare(made, pr.Execution(precision="bfloat16")).chosen
    assert (found.kind, found.refused) == ("torch", "stacked")
    assert found.why_not


@pytest.mark.parametrize(
    ("execution", "words"),
    [
        ({"precision": "bfloat16", "engine": "torch"}, "precision=bfloat16 with engine=torch"),
        ({"precision": "tf32", "engine": "native"}, "precision=tf32 with engine=native"),
        ({"precision": "tf32", "device": "cpu"}, "precision=tf32 on a processor"),
        ({"precision": "half"}, "precision"),
    ],
)
def test_what_cannot_be_is_refused(execution: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        pr.Execution(**execution)


def test_tf32_is_refused_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="precision=tf32 on a processor"):
        chosen(precision="tf32")
