"""What the stacked engine does not take, and on which devices it computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.messages import Assignment
from polyrhythm.bench import works
from polyrhythm.core.client_state import ClientState
from polyrhythm.engines import devices
from polyrhythm.engines.devices import device_of
from polyrhythm.engines.selection import candidates
from polyrhythm.experiments.prepared import prepare
from polyrhythm.simulation.workers.cohorts import AtOnce
from polyrhythm.simulation.workers.executors import Clients, VisitTask
from small import experiment, logged, prepared


class Odd(nn.Module):
    """A linear model that does something with its inputs first."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.linear = how, nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.how == "mixes samples":
            inputs = inputs - inputs.mean(dim=0)
        if self.how == "draws":
            inputs = inputs + torch.rand(4, generator=None).mul(0.1)
        if self.how == "branches" and inputs.sum() > 1e9:
            inputs = -inputs
        outputs: Tensor = self.linear(inputs)
        return outputs


def hooked() -> nn.Module:
    module = nn.Linear(4, 3)
    module.register_forward_hook(lambda *given: None)
    return module


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": Odd("mixes samples")}, "samples that only fill up"),
        ({"model": Odd("draws")}, "torch.func cannot map it"),
        ({"model": Odd("branches")}, "torch.func cannot map it"),
        ({"model": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))}, "buffers"),
        ({"model": hooked()}, "hooks"),
        ({"recipe": pr.fedavg(cohort=2) | pr.parts.local_adam()}, "local_adam"),
        ({"recipe": pr.moon(cohort=2)}, "model_contrast"),
        ({"recipe": pr.alt(cohort=2)}, "stop_on_drift"),
    ],
    ids=["mixes", "draws", "branches", "batchnorm", "hooks", "adam", "loss term", "early stop"],
)
def test_what_is_left_to_torch(changes: dict[str, Any], words: str) -> None:
    made = prepared(engine="stacked", **changes)
    assert made.chosen.kind == "torch"
    assert words in made.chosen.why_not
    assert [n for n in made.notices() if n.startswith("engine: torch, since the stacked one") and words in n]


def test_recurrent_layers_are_left_to_torch() -> None:
    chosen = prepare(works.experiment("lstm-shakespeare", 1), pr.Execution(engine="stacked")).chosen
    assert "recurrent" in chosen.why_not


def test_the_rule_of_auto() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert candidates("auto", cpu, 10) == ("native",)
    assert candidates("auto", gpu, 10) == ("native", "stacked")
    assert candidates("auto", gpu, 1) == ("native",)
    assert candidates("torch", gpu, 10) == ()
    assert candidates("auto", cpu, 1, "bfloat16") == candidates("auto", gpu, 10, "tf32") == ("stacked",)
    assert candidates("stacked", cpu, 1) == ("stacked",)


def test_a_cohort_is_taken_in_this_process() -> None:
    made = prepared(engine="stacked")
    assert (made.crew.driver, made.crew.workers) == ("inline", 1)
    assert made.chosen.name == f"stacked ({devices.named(device_of('auto'))})"
    executor = made.crew.executor(made.clients)
    assert isinstance(executor, AtOnce)


@pytest.mark.parametrize("changes", [{"driver": "processes"}, {"driver": "threads"}, {"workers": 2}], ids=str)
def test_a_cohort_is_not_parted(changes: dict[str, Any]) -> None:
    with pytest.raises(pr.UserError, match="with the stacked engine"):
        _ = prepared(engine="stacked", **changes).crew


@pytest.mark.parametrize(
    ("device", "words"),
    [("cuda:77", "torch finds"), ("mps", "nobody has held"), ("gpu", "no device that torch knows")],
)
def test_devices_that_are_refused(device: str, words: str) -> None:
    with pytest.raises(pr.UserError, match=words):
        _ = prepared(engine="stacked", device=device).chosen


def test_other_engines_compute_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyrhythm.experiments.choosing.device_of", lambda asked: torch.device("cuda", 0))
    with pytest.raises(pr.UserError, match="device=cuda with engine=native"):
        prepared(engine="native", device="cuda")


def test_a_gpu_is_taken_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of("auto") == device_of("cuda") == torch.device("cuda", 0)
    assert device_of("cuda:1") == torch.device("cuda", 1)
    assert device_of("cpu") == torch.device("cpu")
    with pytest.raises(pr.UserError, match="torch finds 2 GPUs here"):
        device_of("cuda:2")


def test_what_was_chosen_is_recorded(tmp_path: Path) -> None:
    run = pr.run(experiment(), execution=pr.Execution(engine="stacked"), out=tmp_path)
    assert run.summary["engine"] == "stacked"
    assert run.machine["computed_by"].startswith("stacked (")
    assert logged(engine="torch")[0]["engine"] == "torch"


def test_visits_without_training_and_measured_ones_are_in_a_cohort() -> None:
    for recipe in (pr.ccfl(cohort=4), pr.power_of_choice(cohort=2)):
        ours, theirs = (logged(recipe=recipe, engine=engine)[1] for engine in ("stacked", "torch"))
        assert [(v.client, v.status, v.steps) for v in ours.visits] == [
            (v.client, v.status, v.steps) for v in theirs.visits
        ]


def test_an_error_says_where_it_happened() -> None:
    class Broken:
        augmented = False

        def __len__(self) -> int:
            return 15

        def batch(self, positions: Any, generator: Any) -> Any:
            raise OSError("the disk is gone")

    made = prepared(engine="stacked")
    executor = AtOnce(Clients(recipe=made.recipe, setup=made.setup, engine=made.chosen.engine, data=made.data_of))
    with pytest.raises(OSError, match="the disk is gone") as caught:
        executor.start([replace(task(made), data=Broken())])
    assert "client 3 in its visit 0, on version 0" in caught.value.__notes__[0]


def task(made: pr.Experiment) -> VisitTask:
    weights = made.chosen.engine.initial().weights
    assignment = Assignment(
        **{"dispatch": 0, "client": 3, "visit": 0, "version": 0, "kind": "train", "total_rounds": 1, "accepted": -1},
        **{"recipe": made.recipe.digest, "weights": weights, "buffers": (), "briefs": {}},
    )
    clients = Clients(recipe=made.recipe, setup=made.setup, engine=made.chosen.engine, data=made.data_of)
    return clients.task(assignment, ClientState())
