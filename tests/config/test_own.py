"""Things of the user's own, by import path, wherever a name may stand: all it takes is a file in an empty folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import UserError
from polyrhythm.config.data_names import partition, source
from polyrhythm.config.names import fleet
from polyrhythm.results import Run
from terminal import Command

MINE = """
from dataclasses import dataclass
import numpy as np
import polyrhythm as pr
from polyrhythm.data import Deal
from polyrhythm.extend import Correction, NonNegative, Positive, Push, Schedule
from polyrhythm.fleet import Device, Devices
from torch import nn


def blobs(samples=60, shift: float = 3.0, **anything):
    draw = np.random.default_rng(0)
    targets = np.arange(samples) % 3
    inputs = draw.normal(size=(samples, 4)) + shift * targets[:, None]
    return pr.data.arrays(inputs.astype("float32"), targets, test=0.2, task="classification", name="blobs")


def nothing():
    return 3


@dataclass(frozen=True, kw_only=True)
class Halves(pr.data.Partition):
    first: NonNegative = 0.5

    def deal(self, view, parts, seed):
        cut = int(len(view) * self.first)
        owner = np.concatenate([np.zeros(cut, dtype=np.int64), 1 + np.arange(len(view) - cut) % (parts - 1)])
        return Deal(owner=owner, parts=parts)


def thirds():
    return Halves(first=0.33)


class Net(nn.Module):
    def __init__(self, shape, outputs, width: int = 5):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, inputs):
        return self.layers(inputs)


@dataclass(frozen=True, kw_only=True)
class Shrink(Correction):
    by: NonNegative = 0.01

    def push(self, setup, state, brief):
        return Push(pull=self.by)


@dataclass(frozen=True, kw_only=True)
class Warm(Schedule):
    steps: Positive = 2.0

    def factor(self, at, end):
        return min(1.0, (at + 1) / self.steps)


@dataclass(frozen=True, kw_only=True)
class Slow(Devices):
    times: Positive = 2.0

    def device(self, place, client):
        return Device(flops_per_second=1e9 / self.times)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mine", None)


TRUST = Trust(("mine",))
OPTIONS = {
    "data": "mine:blobs(samples=90)",
    "partition": "mine:Halves(first=0.4)",
    "model": "mine:Net(width=6)",
    "method": "fedavg(cohort=2, schedule=mine:Warm(steps=3)) | mine:Shrink(by=0.02)",
    "fleet": "mine:Slow(times=3)",
}
LINE = [word for key, text in OPTIONS.items() for word in (f"--{key}", text)]
QUICK = ("--rounds", "2", "--clients", "3", "--json")


def test_whatever_is_typed_is_taken_and_recorded_and_gone_on_with(polyrhythm: Command) -> None:
    run = json.loads(polyrhythm("run", *LINE, *QUICK).out)
    assert (run["status"], run["rounds"]) == ("finished", 2)
    record = Run.open(run["run_id"])
    assert {key: record.config[key] for key in OPTIONS} == OPTIONS
    assert polyrhythm("verify", run["run_id"]).code == 2  # a record cannot consent
    assert polyrhythm("verify", run["run_id"], "--trust", "mine").code == 0
    more = json.loads(polyrhythm("resume", run["run_id"], "--rounds", "3", "--trust", "mine", "--json").out)
    assert more["rounds"] == 3


def test_a_file_is_taken_with_consent_alone_and_gives_the_same(polyrhythm: Command, here: Path) -> None:
    (here / "e.toml").write_text("".join(f"{key} = {json.dumps(text)}\n" for key, text in OPTIONS.items()))
    refused = polyrhythm("run", "e.toml", *QUICK)
    assert refused.code == 2
    assert all(f"line {line}" in refused.err for line in range(1, 6))
    assert "mine" not in sys.modules
    by_file = json.loads(polyrhythm("run", "e.toml", *QUICK, "--trust", "mine").out)
    typed = json.loads(polyrhythm("run", *LINE, *QUICK).out)
    assert by_file["digest"] == typed["digest"]


def test_a_study_tries_them_by_path(polyrhythm: Command, here: Path) -> None:
    text = "".join(f"{key} = {json.dumps(text)}\n" for key, text in OPTIONS.items())
    text += 'clients = 3\nrounds = 1\nseeds = [0]\n[rows.whole]\n[rows.thirds]\npartition = "mine:thirds"\n'
    (here / "study.toml").write_text(text)
    assert polyrhythm("check", "study.toml", "--no-estimate").code == 2
    found = polyrhythm("study", "study.toml", "--trust", "mine", "--workers", "1")
    assert found.code == 0, found.err
    assert {run.config["partition"] for run in Run.all(next(here.glob("runs/**/runs.sqlite")).parent)} == {
        "mine:Halves(first=0.4)",
        "mine:thirds",
    }


def test_a_node_takes_its_own_source_by_path_if_its_owner_has_named_it() -> None:
    from polyrhythm.cli.deployed import _loaded

    with pytest.raises(UserError, match="mine"):
        _loaded("mine:blobs(samples=30)", NOBODY)
    assert len(_loaded("mine:blobs(samples=30)", TRUST).train) == 24


def test_the_commands_that_look_take_them(polyrhythm: Command) -> None:
    data = ("--data", OPTIONS["data"], "--partition", OPTIONS["partition"], "--clients", "3")
    assert "72 train" in polyrhythm("data", "show", *data).out
    assert polyrhythm("fleet", "show", "--fleet", OPTIONS["fleet"], "--clients", "3").code == 0
    assert polyrhythm("expert", *data[:2], "--model", OPTIONS["model"], "--epochs", "1").code == 0


@pytest.mark.parametrize(
    ("make", "text", "said"),
    [
        (source, "mine:blobs(samples=30, colour=red)", ""),
        (source, "mine:nothing", "has given a int"),
        (source, "mine:blob", "did you mean 'blobs'"),
        (source, "mine:blobs(30)", "has no name"),
        (source, "mine:blobs(shift=wide)", "shift = 'wide'"),
        (source, "os:listdir", "the standard library's"),
        (source, "nosuch:load", "no module nosuch"),
        (partition, "mine:thirds", ""),
        (partition, "difficulty(inner=mine:Halves)", ""),
        (partition, "mine:nothing", "has given a int"),
        (partition, "mine:Net", "no pr.data.Partition"),
        (partition, "mine:Halves(first=-1)", "first = -1"),
        (fleet, "uniform | mine:Slow(times=2)", ""),
        (fleet, "mine:Slow(times=0)", "times = 0"),
        (fleet, "mine:Halves", "Devices"),
    ],
)
def test_each_is_checked_as_what_is_built_in(make: object, text: str, said: str) -> None:
    assert callable(make)
    if not said:
        made = make(text, TRUST)
        assert make is not source or made().name == "blobs"
        return
    with pytest.raises(UserError) as caught:
        make(text, TRUST)()
    assert said in str(caught.value)
