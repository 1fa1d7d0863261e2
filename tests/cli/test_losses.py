"""A training loss that is no finite number, while all weights are."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.experiments import version_records
from small import federation
from terminal import Command


class Certain(nn.Module):
    """Sure in training that it is not the first class: the loss is infinite, and its gradient finite."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.linear(inputs)
        return found - torch.tensor([torch.inf, 0.0, 0.0]) if self.training else found


MODEL = Certain()


def experiment() -> pr.Experiment:
    return pr.Experiment(
        federation=federation(), model=MODEL, recipe=pr.fedavg(cohort=2, epochs=1, batch=5), rounds=4, name="mine"
    )


@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_it_is_recorded_and_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float) -> None:
    if math.isnan(loss):
        monkeypatch.setattr(version_records, "_mean_loss", lambda reports: loss if reports else None)
    run = pr.run(experiment(), out=tmp_path)
    assert run.status == "finished"
    recorded = run.history["train_loss"].iloc[1]
    assert recorded == loss or (math.isnan(loss) and recorded is None)  # SQLite has no NaN
    (told,) = [notice for notice in run.notices if "training loss" in notice]
    assert told.startswith(f"the training loss of version 1 is {loss:g}")
    assert pr.verify(run, experiment()).equal


def test_nothing_stumbles_over_it(tmp_path: Path, polyrhythm: Command) -> None:
    pr.run(experiment(), out=tmp_path)
    out = ("--out", str(tmp_path))
    for command in (["show", "mine"], ["show", "mine", "--json"], ["runs", "--json"], ["compare", "--json"]):
        found = polyrhythm(*command, *out)
        assert found.code == 0, found.err
        if "--json" in command:
            json.loads(found.out, parse_constant=pytest.fail)
    run = pr.Run.open("mine", tmp_path)
    for figure in figures.applicable([run]):
        json.loads(figures.draw(figure.name, [run]).to_json(), parse_constant=pytest.fail)
    for kind in ("svg", "html"):
        assert polyrhythm("compare", "mine", "--output", str(tmp_path / f"curves.{kind}"), *out).code == 0
    drawn = (tmp_path / "curves.svg").read_text()
    assert "NaN" not in drawn
    assert "Infinity" not in drawn
