"""Trackers: what they are told, that they change nothing, and what becomes of one that fails."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.runs import Plan, RunStatus
from polyrhythm.trackers import TRACKERS, Tracking, base
from small import experiment
from terminal import Command


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


@pytest.fixture
def untracked(tmp_path: Path) -> pr.Run:
    """The run without any tracker."""
    return pr.run(experiment(), out=tmp_path / "plain")


def tracked(out: Path, *names: Any, **more: Any) -> pr.Run:
    return pr.run(experiment(name="a name"), out=out, tracking=Tracking(track=names, **more))


@needs("tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_number_and_changes_none(tmp_path: Path, untracked: pr.Run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tracked(tmp_path, "tensorboard")
    assert run.summary["digest"] == untracked.summary["digest"]
    events = EventAccumulator(str(tmp_path / "tensorboard" / run.id))
    events.Reload()
    told = [(e.step, e.value) for e in events.Scalars("test/accuracy")]
    assert told == [(version, pytest.approx(score)) for version, score in run.scores]
    assert [e.value for e in events.Scalars("cost/client_updates")][-1] == run.summary["client_updates"]
    (text,) = events.Tensors("settings/text_summary")
    assert b"parameters" in text.tensor_proto.string_val[0]


@needs("tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_that_goes_on_goes_on_in_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from small import Log

    def stop(record: Any) -> None:
        if isinstance(record, pr.runs.VersionRecord) and record.version == 2:
            raise KeyboardInterrupt

    often: dict[str, Any] = {"execution": pr.Execution(checkpoint=pr.Checkpoint(every=1)), "out": tmp_path}
    tracking = Tracking(track=("tensorboard",))
    pr.run(experiment(), **often, observers=[Log(stop)], tracking=tracking)
    run = pr.run(experiment(), **often, resume="auto", tracking=tracking)
    events = EventAccumulator(str(tmp_path / "tensorboard" / run.id))
    events.Reload()
    assert [e.step for e in events.Scalars("test/accuracy")] == [version for version, _ in run.scores]


@needs("mlflow")
def test_mlflow_has_every_number_and_changes_none(
    tmp_path: Path, untracked: pr.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tracked(tmp_path, "mlflow", project="mine")
    assert run.summary["digest"] == untracked.summary["digest"]
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (found.info.status, found.info.run_name) == ("FINISHED", "a name (seed 0)")
    assert found.data.params["recipe"] == run.recipe
    told = [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, "test/accuracy")]
    assert told == run.scores


@needs("wandb")
def test_wandb_offline_changes_no_number(tmp_path: Path, untracked: pr.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tracked(tmp_path, "wandb")
    assert run.summary["digest"] == untracked.summary["digest"]
    (found,) = (tmp_path / "wandb" / "wandb").glob(f"offline-run-*-{run.id}/*.wandb")
    assert b"test/accuracy" in found.read_bytes()


class Broken:
    """A tracker that fails after so many calls."""

    def __init__(self, after: int) -> None:
        self.left, self.calls = after, list[str]()

    def _act(self, what: str) -> None:
        self.calls.append(what)
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")

    def begin(self, run_id: str, plan: Plan, version: int) -> None:
        self._act(f"begin {run_id}")

    def log(self, version: int, numbers: Mapping[str, float]) -> None:
        assert all(isinstance(number, float) for number in numbers.values())
        self._act(f"log {version}")

    def end(self, status: RunStatus, numbers: Mapping[str, float]) -> None:
        self._act(f"end {status}")


def with_fake(monkeypatch: pytest.MonkeyPatch, tracker: Any) -> None:
    """Puts something else in the place of Weights & Biases."""
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(base, "_tracker", lambda name, tracking, out: tracker)


@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_one_that_fails_is_warned_of_once_and_the_run_goes_on(
    tmp_path: Path, untracked: pr.Run, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    broken = Broken(after)
    with_fake(monkeypatch, broken)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = tracked(tmp_path, "wandb")
    assert [str(w.message) for w in said] == [
        "wandb is told no more, and the run goes on: OSError: [Errno 28] No space left on device"
    ]
    assert len(broken.calls) == after + 1
    assert (run.status, run.summary["digest"]) == ("finished", untracked.summary["digest"])


def test_a_tracker_hears_of_every_version_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Broken(10**6)
    with_fake(monkeypatch, whole)
    run = tracked(tmp_path, "wandb")
    assert whole.calls == [f"begin {run.id}", "log 0", "log 1", "log 2", "log 3", "end finished"]


@pytest.mark.parametrize("name", TRACKERS)
def test_one_that_is_not_installed_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(pr.UserError, match=rf"pip install 'polyrhythm\[{name}\]'"):
        tracked(tmp_path / "out", name)
    assert not (tmp_path / "out").exists()


def test_a_broken_installation_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: object())
    empty = ModuleType("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", empty)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(pr.UserError, match="cannot be imported"):
        tracked(tmp_path / "out", "mlflow")


def test_the_command_line_takes_them_by_name_and_records_nothing_of_it(
    polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = Broken(2)
    with_fake(monkeypatch, whole)
    (tmp_path / "x.toml").write_text('model = "logistic"\nclients = 4\nrounds = 2\ntrack = ["wandb"]\n')
    done = polyrhythm("run", "x.toml", "--set", "tracking.project=mine")
    assert done.code == 0
    assert "note: wandb is told no more" in " ".join(done.out.split())
    (run,) = pr.Run.all("runs")
    assert "track" not in run.config
    assert "tracking" not in run.config
    wrong = polyrhythm("run", "--track", "tensorbord", "--rounds", "1")
    assert wrong.code == 2
    assert "tensorboard, mlflow or wandb" in wrong.err


def test_a_file_keeps_their_files_inside_the_working_folder(
    polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text('track = "tensorboard"\n[tracking]\ndirectory = "/elsewhere"\n')
    found = polyrhythm("check", "x.toml", "--no-estimate")
    assert found.code == 2
    assert "x.toml, line 3: tracking.directory" in found.err
