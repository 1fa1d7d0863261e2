"""Ctrl-C once is a wish: the run ends at its next step, with a checkpoint; twice it is an end."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from polyrhythm.base.interrupts import wishes
from polyrhythm.cli.guard import stopped_by_sigterm
from polyrhythm.runs.checkpoints import checkpoints
from polyrhythm.runs.observer import Observer
from surviving import scenarios
from surviving.test_kills import assert_equal, record

NEVER = pr.Checkpoint(every=1000)
INLINE: dict[str, Any] = {"driver": "inline", "workers": None}


class Interrupts(Observer):
    """An observer that sends signals to this process when it is told of a visit."""

    def __init__(self, visit: int, *numbers: signal.Signals) -> None:
        self.visits, self.at, self.numbers = 0, visit, numbers

    def visit(self, record: object) -> None:
        self.visits += 1
        for number in self.numbers if self.visits == self.at else ():
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("name", scenarios.MAKE)
def test_a_run_that_was_stopped_loses_nothing(tmp_path: Path, name: str) -> None:
    made = scenarios.prepared(name, **INLINE, checkpoint=NEVER)
    whole = small.run(scenarios.prepared(name, **INLINE, checkpoint=NEVER), out=tmp_path / "whole")
    stopper = Interrupts(7, signal.SIGINT)
    run = small.run(made, out=tmp_path / "stopped", observers=[stopper])
    assert (run.status, run.reason) == ("stopped", "Ctrl-C")
    assert len(checkpoints(run.path)) == 1
    counter = Interrupts(0)
    small.resume(made, run.id, out=tmp_path / "stopped", observers=[counter])
    assert_equal(record(tmp_path / "stopped"), record(tmp_path / "whole"))
    assert stopper.visits + counter.visits == len(whole.visits)  # none was heard twice


def test_sigterm_stops_like_ctrl_c(tmp_path: Path) -> None:
    made = scenarios.prepared("scaffold", **INLINE, checkpoint=NEVER)
    with stopped_by_sigterm():
        run = small.run(made, out=tmp_path, observers=[Interrupts(7, signal.SIGTERM)])
    assert (run.status, run.reason, len(checkpoints(run.path))) == ("stopped", "SIGTERM", 1)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_time_it_ends_at_once(tmp_path: Path, second: signal.Signals) -> None:
    made = scenarios.prepared("scaffold", **INLINE, checkpoint=NEVER)
    with stopped_by_sigterm():
        run = small.run(made, out=tmp_path, observers=[Interrupts(7, signal.SIGINT, second)])
    assert (run.status, checkpoints(run.path)) == ("stopped", [])


def test_without_checkpoints_it_stops_as_well(tmp_path: Path) -> None:
    made = scenarios.prepared("scaffold", **INLINE, checkpoint=pr.Checkpoint(every="never"))
    run = small.run(made, out=tmp_path, observers=[Interrupts(7, signal.SIGINT)])
    assert (run.status, checkpoints(run.path)) == ("stopped", [])


def test_a_checkpoint_that_cannot_be_written_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    made = scenarios.prepared("scaffold", **INLINE, checkpoint=NEVER)
    monkeypatch.setattr("polyrhythm.runs.checkpointing.store", full)
    run = small.run(made, out=tmp_path, observers=[Interrupts(7, signal.SIGINT)])
    assert run.status == "stopped"
    assert "checkpoints could not be written (No space left on device)" in run.reason


def test_signals_are_as_they_were_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with wishes():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_whoever_has_a_handler_of_his_own_keeps_it() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with wishes() as wish:
            signal.raise_signal(signal.SIGINT)
        assert (heard, wish.to_end) == ([signal.SIGINT], "")
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_may_run_experiments() -> None:
    found: list[str] = []

    def run() -> None:
        with wishes() as wish:
            found.append(wish.to_end)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [""]
