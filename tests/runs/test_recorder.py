"""What was recorded is there afterwards, whatever happened to the process."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from polyrhythm.base.errors import RunFailed
from polyrhythm.results import Run
from polyrhythm.runs import Plan, VersionRecord, VisitRecord, database_writer, disk_faults, files, naming, recorder
from polyrhythm.runs.files import write_whole
from polyrhythm.runs.recorder import Recorder

MakePlan = Callable[..., Plan]
MakeVersion = Callable[..., VersionRecord]
MakeVisit = Callable[..., VisitRecord]


class Tied(nn.Module):
    """Shared weights, a buffer of whole numbers, a frozen and a half-precision parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 3, bias=False)
        self.last.weight = self.first.weight
        self.coarse = nn.Parameter(torch.ones(2, dtype=torch.bfloat16), requires_grad=False)


def state(value: float) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {"weight": torch.full((2,), value)}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(database_writer, "time", clock)
    return clock


def test_every_field_comes_back(
    tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion, make_visit: MakeVisit
) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    parts = {"train": {"loss": 0.4}, "clients": {"accuracy_mean": 0.7}, "measures": {"lambda": 0.2}}
    parts |= {"groups": {"tier_1_accuracy": 0.6}}
    costs = {"joules": 2.5, "waiting_seconds": 0.25, "late_visits": 3, "utilisation": 0.5, "fairness": 0.75}
    version = make_version(1, 0.75, 0.6, **parts, **costs, staleness_max=4, train_loss=0.45, note="one", flops=2**63)
    counts = {"steps": 5, "epochs": 0.5, "samples": 50, "num_samples": 100, "forward_samples": 7, "flops": 9}
    sizes = {"bytes_down": 40, "bytes_up": 41, "loss": 1.5, "update_norm": 0.1, "started": 1.0, "finished": 2.5}
    visit = make_visit(4, status="dropped", reason="late", **counts, **sizes, measures={"drift": 0.9})
    kept.visit(visit)
    kept.version(version, state(0.0))
    kept.end("finished", "", {"final_accuracy": 0.75})
    run = Run.open(kept.run_id, tmp_path)

    row = run.history.reset_index().iloc[0].to_dict()
    renamed = {"train": "global_train"}
    for field in dataclasses.fields(version):
        value = getattr(version, field.name)
        if value is None:
            assert row[field.name] is None or math.isnan(row[field.name])
        elif isinstance(value, dict):
            for name, number in value.items():
                assert row[f"{renamed.get(field.name, field.name)}_{name}"] == number
        else:
            assert row[field.name] == value
    row = run.visits.reset_index().iloc[0].to_dict()
    assert row.pop("measures_drift") == 0.9
    assert row == {name: value for name, value in dataclasses.asdict(visit).items() if name != "measures"}

    plan = make_plan()
    assert (run.name, run.headline, run.recipe, run.config) == (plan.name, plan.headline, plan.recipe, plan.config)
    assert run.notices == plan.notices
    assert run.summary == {"run_id": run.id, "final_accuracy": 0.75}
    assert (run.status, run.started < str(run.ended)) == ("finished", True)
    assert run.libraries["torch"] == torch.__version__
    assert {"cpu", "cores", "threads"} <= set(run.machine)


def test_weights_load_by_name_in_plain_torch(tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion) -> None:
    kept, model = Recorder(tmp_path), Tied()
    kept.begin(make_plan())
    kept.version(make_version(1, 0.1), model.state_dict)
    kept.end("finished", "", {})
    for name in ("final", "best"):
        other = Tied()
        other.load_state_dict(load_file(kept.path / f"{name}.safetensors"), strict=True)
        assert other.last.weight is other.first.weight
        for ours, theirs in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("validated", [True, False])
def test_best_is_by_validation_if_there_is_any(
    validated: bool, tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion
) -> None:
    from safetensors import safe_open

    kept, weight = Recorder(tmp_path), torch.zeros(1)
    kept.begin(make_plan())
    for number, (test, held) in enumerate([(0.1, 0.2), (0.5, 0.9), (0.8, 0.3)]):
        weight.fill_(number)  # as a driver may that changes its model in place
        kept.version(make_version(number, test, held if validated else None), lambda: {"weight": weight})
    kept.end("finished", "", {})
    run = Run.open("trial", tmp_path)
    assert run.weights("best")["weight"].item() == (1 if validated else 2)
    assert run.weights("final")["weight"].item() == 2
    with safe_open(run.path / "best.safetensors", "pt") as file:
        assert file.metadata()["chosen_by"] == ("validation accuracy" if validated else "test accuracy")


def test_slow_versions_are_committed_one_by_one(
    tmp_path: Path, clock: Clock, make_plan: MakePlan, make_version: MakeVersion
) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    for number in range(3):
        clock.now += 0.05
        kept.version(make_version(number), state(0.0))
        assert len(Run.open(kept.run_id, tmp_path).history) == number + 1
    kept.end("finished", "", {})


def test_quick_versions_share_a_transaction_each_half_second(
    tmp_path: Path, clock: Clock, make_plan: MakePlan, make_version: MakeVersion
) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    seen = set()
    for number in range(100):
        clock.now += 0.01
        kept.version(make_version(number, number / 100), state(number))
        seen.add(len(Run.open(kept.run_id, tmp_path).history))
    assert seen == {0, 50, 100}
    assert Run.open(kept.run_id, tmp_path).weights("best")["weight"][0].item() == 99
    kept.end("finished", "", {})
    assert len(Run.open(kept.run_id, tmp_path).history) == 100


def test_visits_of_a_long_version_are_kept_before_it_ends(
    tmp_path: Path, clock: Clock, make_plan: MakePlan, make_visit: MakeVisit
) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    for dispatch in range(3):
        clock.now += 0.3
        kept.visit(make_visit(dispatch))
    assert len(Run.open(kept.run_id, tmp_path).visits) == 2
    kept.end("finished", "", {})


ENDLESS = """
import itertools, sys, time, torch
sys.path.insert(0, sys.argv[2])
from records import plan, version, visit
from polyrhythm.runs.recorder import Recorder
kept = Recorder(sys.argv[1])
kept.begin(plan())
for number in itertools.count():
    kept.visit(visit(number))
    time.sleep(0.03)  # slow enough for a commit of its own
    kept.version(version(number, number / 1e9), lambda: {"weight": torch.full((50_000,), float(number))})
    print(number, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_process_leaves_all_that_was_committed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(tmp_path), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        numbers = [int(process.stdout.readline()) for _ in range(6)]
        (run,) = Run.all(tmp_path)
        assert run.status == "running"
        process.send_signal(signal.SIGKILL)
        numbers += [int(line) for line in process.stdout]
    history, visits = run.history, run.visits
    assert len(history) >= numbers[-1] + 1
    assert len(visits) == len(history)
    assert list(history.index) == list(range(len(history)))
    assert run.status == "killed"
    weight = run.weights("best")["weight"]
    assert (weight == weight[0]).all()
    assert "final.safetensors" not in os.listdir(run.path)
    # The folder takes the next run as if nothing had happened.
    after = Recorder(tmp_path)
    after.begin(Plan(**(vars_of(run) | {"name": "after"})))
    after.end("finished", "", {})
    assert [r.status for r in Run.all(tmp_path)] == ["killed", "finished"]


def vars_of(run: Run) -> dict[str, Any]:
    return {
        **{"config": run.config, "recipe": run.recipe, "recipe_digest": "", "seed": 0, "rounds": None},
        **{"notices": (), "headline": run.headline, "parameters": 1, "clients": 1},
    }


def test_a_full_disk_fails_the_run_and_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan, make_version: MakeVersion
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    kept.version(make_version(0), state(0.0))
    monkeypatch.setattr(recorder, "write_whole", full)
    monkeypatch.setattr(disk_faults, "PATIENCE", 0.05)
    with pytest.raises(RunFailed, match="No space left"):
        kept.end("finished", "", {})
    run = Run.open("trial", tmp_path)
    assert (run.status, len(run.history)) == ("failed", 1)
    assert "No space left" in run.reason


def test_a_file_is_whole_or_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    write_whole(path, b"old")

    def crash(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", crash)
    with pytest.raises(OSError, match="Input/output"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["weights"]


def test_ids_sort_by_time_and_never_meet(tmp_path: Path, make_plan: MakePlan) -> None:
    kept = [Recorder(tmp_path) for _ in range(3)]
    started = []
    for one in kept:
        one.begin(make_plan())
        started.append(one.run_id)
        threading.Event().wait(0.003)
    for one in kept:
        one.end("stopped", "Ctrl-C", {})
    assert started == sorted(set(started))
    assert [run.id for run in Run.all(tmp_path)] == started


def test_a_taken_id_is_not_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan) -> None:
    ids = iter(["same", "same", "other"])
    monkeypatch.setattr(naming, "new_id", lambda: next(ids))
    for _ in range(2):
        kept = Recorder(tmp_path)
        kept.begin(make_plan())
        kept.end("finished", "", {})
    assert [run.id for run in Run.all(tmp_path)] == ["same", "other"]


def test_outside_a_run_nothing_is_recorded(tmp_path: Path, make_visit: MakeVisit) -> None:
    kept = Recorder(tmp_path / "nothing")
    kept.end("failed", "refused before it began", {})
    assert not kept.folder.exists()
    with pytest.raises(RunFailed, match="before `begin`"):
        kept.visit(make_visit(0))
