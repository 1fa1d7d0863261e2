"""The benchmark compares like with like."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.bench import bare, ours
from polyrhythm.bench.duel import alike, duel
from polyrhythm.bench.works import experiment, values_of, write_job
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.models.catalogue import find
from polyrhythm.simulation.workers.choosing import ExecutionPlan
from polyrhythm.simulation.workers.executors import Elsewhere, VisitFuture, VisitTask
from small import Log
from worker_models import Normed

SMALL = {
    "momentum": bare.Work(
        **{"name": "mlp", "model": bare.mlp, "shape": (1, 28, 28), "clients": 4, "samples": 23},  # type: ignore[arg-type]
        **{"cohort": 3, "batch": 5, "epochs": 2, "momentum": 0.9, "decay": 1e-3},  # type: ignore[arg-type]
    ),
    "steps and dropout": bare.Work(
        **{"name": "ccfl-mlp", "model": bare.ccfl_mlp, "shape": (1, 28, 28), "clients": 4},  # type: ignore[arg-type]
        **{"samples": 23, "cohort": 3, "batch": 5, "steps": 7},  # type: ignore[arg-type]
    ),
    "statistics": bare.Work(
        **{"name": "worker_models:Normed", "model": Normed, "shape": (1, 2, 3), "clients": 4},  # type: ignore[arg-type]
        **{"samples": 23, "cohort": 3, "batch": 5, "lr": 0.01},  # type: ignore[arg-type]
    ),
}


@pytest.fixture(params=SMALL)
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(bare, "WORKS", SMALL)
    return str(request.param)


def by_hand(path: Path, name: str, workers: int) -> Iterator[list[Tensor]]:
    for _, _, weights in bare.rounds(name, workers, torch.load(path)):
        yield [weight.clone() for weight in weights]


@pytest.mark.parametrize("workers", [1, 2])
def test_both_do_the_same_work(small: str, workers: int, tmp_path: Path) -> None:
    log, rounds = Log(), 3
    of = experiment(small, rounds)
    write_job(of, rounds, tmp_path / "job")
    prepared = prepare(of)
    carry_out(prepared, [log])
    hands = list(by_hand(tmp_path / "job", small, workers))
    assert len(hands) == rounds
    for state, weights in zip(log.states[1:], hands, strict=True):
        for one, other in zip(values_of(prepared.chosen.engine.layout, state), weights, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert not torch.equal(hands[0][0], hands[-1][0])


@pytest.mark.parametrize("name", bare.WORKS)
def test_the_networks_are_the_same(name: str) -> None:
    work = bare.WORKS[name]
    made, theirs = find(work.name)(work.shape, work.classes, **work.settings).eval(), work.model().eval()
    with torch.no_grad():
        for one, other in zip(theirs.parameters(), made.parameters(), strict=True):
            one.copy_(other)
        inputs = torch.linspace(-1, 1, 2 * torch.Size(work.shape).numel()).reshape(2, *work.shape)
        if len(work.shape) == 1:
            inputs = (inputs.abs() * (work.classes - 1)).long()
        torch.testing.assert_close(made(inputs), theirs(inputs))


def test_a_work_that_does_not_exist() -> None:
    with pytest.raises(UserError, match="unknown work 'lenet-fmnist'"):
        duel("lenet-fmnist", against=None, repeats=1)


@pytest.mark.parametrize(
    ("apart", "losses", "only_losses", "same"),
    [
        (1e-5, (2.0, 2.0), False, True),
        (1e-2, (2.0, 2.0), False, False),
        (float("nan"), (2.0, 2.0), False, False),
        (0.2, (2.0, 2.1), True, True),
        (0.2, (2.0, 2.5), True, False),
        (0.2, (2.0, float("nan")), True, False),
    ],
)
def test_who_did_other_work_is_found_out(
    apart: float, losses: tuple[float, float], only_losses: bool, same: bool
) -> None:
    with contextlib.nullcontext() if same else pytest.raises(RunFailed, match="not do the same work"):
        alike(apart, losses, only_losses=only_losses)


def test_the_bare_loop_runs_by_itself() -> None:
    file = Path(__file__).parents[1] / "benchmarks" / "bare.py"
    help_text = subprocess.run([sys.executable, str(file), "--help"], capture_output=True, text=True, check=True).stdout
    assert "lenet5-fmnist" in help_text


def test_nothing_is_under_way_while_the_other_program_has_its_turn(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of, futures, pauses = prepare(experiment(small, 4), Execution(workers=2)), list[VisitFuture](), list[int]()
    watch = ours.Watch(str(tmp_path / "weights"), of.chosen.engine.layout)
    start, executor = Elsewhere.start, ExecutionPlan.executor
    gate = ours.Gate(watch, "any")

    def noted(crew: Elsewhere, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        futures.extend(begun := start(crew, tasks))
        return begun

    def line() -> str:
        assert all(future.outcome.done() for future in futures)
        pauses.append(len(futures))
        return "go" if len(pauses) < 4 else ""

    monkeypatch.setattr(Elsewhere, "start", noted)
    monkeypatch.setattr(ExecutionPlan, "executor", lambda crew, clients: gate.before(executor(crew, clients)))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=line))
    summary = carry_out(of, [watch])
    assert (summary["driver"], summary["reason"]) == ("processes", "measured")
    assert pauses == [0, 3, 6, 9]
    told = [json.loads(said) for said in capsys.readouterr().out.splitlines()]
    assert [round_["loss"] is None for round_ in told] == [True, False, False]
    assert (tmp_path / "weights").exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_duel(workers: int) -> None:
    found = duel("lstm-shakespeare", against="bare", repeats=2, workers=workers)
    assert found["difference"] < 1e-3
    assert found["ratio"] == found["bare"]["median"] / found["ours"]["median"]
    assert found["engine"] == "torch"
    assert len(found["ours"]["seconds"]) == len(found["bare"]["seconds"]) == 2
