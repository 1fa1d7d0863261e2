"""A run that is asked to stop does, between two visits, and goes on from there when it is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.runs import VersionRecord, VisitRecord
from polyrhythm.runs.checkpoints import checkpoints
from polyrhythm.runs.stop_request import Stopping, ask_to_stop


def asked_at(version: int, folder: Path) -> small.Log:
    """An observer that asks its own run to stop."""

    def ask(record: VersionRecord | VisitRecord) -> None:
        if isinstance(record, VersionRecord) and record.version == version:
            ask_to_stop(pr.Run(folder, {**pr.Run.all(folder)[-1]._row}))

    return small.Log(ask)


def test_it_stops_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyrhythm.runs.stop_request._PAUSE", 0.0)
    run = pr.run(small.experiment(rounds=50), out=tmp_path, observers=[asked_at(3, tmp_path)])
    assert (run.status, run.reason, run.versions[-1]["version"]) == ("stopped", "asked to stop", 3)
    assert not (run.path / "stop").exists()


def test_it_goes_on_to_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyrhythm.runs.stop_request._PAUSE", 0.0)
    experiment = small.experiment(rounds=6)  # a checkpoint is due each five minutes, and when it is stopped
    whole = pr.run(experiment, out=tmp_path / "whole")
    run = pr.run(experiment, out=tmp_path, observers=[asked_at(3, tmp_path)])
    assert [path.suffix for path in checkpoints(run.path)] == [".safetensors"]
    resumed = pr.resume(experiment, run)
    assert any("from its checkpoint of version 3" in notice for notice in resumed.notices)
    assert resumed.status == "finished"
    assert resumed.summary["digest"] == whole.summary["digest"]


def test_a_request_of_before_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    stopping = Stopping(lambda: tmp_path)
    stopping.begin(small.logged()[1].plans[0])
    assert stopping.why_end() == ""
    (tmp_path / "stop").touch()
    stopping._next = 0.0
    assert stopping.why_end() == "asked to stop"


def test_only_what_goes_on_can_be_stopped(tmp_path: Path) -> None:
    run = pr.run(small.experiment(), out=tmp_path)
    with pytest.raises(UserError, match="is finished"):
        ask_to_stop(run)
