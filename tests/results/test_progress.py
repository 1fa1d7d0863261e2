"""The live line is seen in a terminal and nowhere else."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from polyrhythm.results.progress import LiveProgress
from polyrhythm.runs import Plan, VersionRecord


def shown(console: Console, plan: Plan, records: list[VersionRecord]) -> str:
    observer = LiveProgress(console)
    observer.begin(plan)
    for record in records:
        observer.version(record, dict)
    observer.end("finished", "", {})
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_silent_in_a_pipe(make_plan: Callable[..., Plan], make_version: Callable[..., VersionRecord]) -> None:
    assert shown(Console(file=io.StringIO(), force_terminal=False), make_plan(), [make_version(1, 0.5)]) == ""


def test_silent_in_a_dumb_terminal(
    make_plan: Callable[..., Plan], make_version: Callable[..., VersionRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert shown(Console(file=io.StringIO(), force_terminal=True), make_plan(), [make_version(1, 0.5)]) == ""


def test_silent_in_a_notebook_which_keeps_all_of_a_line_that_moves(
    make_plan: Callable[..., Plan], make_version: Callable[..., VersionRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert shown(Console(file=io.StringIO(), force_terminal=True), make_plan(), [make_version(1, 0.5)]) == ""


@pytest.mark.parametrize(("rounds", "expected"), [(5, "round 2/5"), (None, "round 2")])
def test_a_terminal_shows_the_numbers(
    rounds: int | None,
    expected: str,
    make_plan: Callable[..., Plan],
    make_version: Callable[..., VersionRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    records = [make_version(1, 0.5), make_version(2, train_loss=0.75)]
    text = shown(console, make_plan(rounds=rounds), records)
    for part in (expected, "loss 0.7500", "accuracy 0.5000", "4 client updates"):
        assert part in text
