"""`polyrhythm ui` and `polyrhythm stop`, where they cannot do what they are asked."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

import polyrhythm as pr
import small
from terminal import Command


def test_a_port_that_is_taken_is_named(polyrhythm: Command, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="polyrhythm[ui] is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = polyrhythm("ui", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert result.code == 2
    assert "nobody can listen at 127.0.0.1" in result.err
    assert "Traceback" not in result.err


def test_what_is_not_installed_is_named(polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "polyrhythm.dashboard.serving", raising=False)
    result = polyrhythm("ui", str(tmp_path))
    assert (result.code, "polyrhythm[ui]" in result.err) == (2, True)


def test_a_finished_run_cannot_be_stopped(polyrhythm: Command, tmp_path: Path) -> None:
    run = pr.run(small.experiment(), out=tmp_path)
    result = polyrhythm("stop", run.id, "--out", str(tmp_path))
    assert (result.code, "is finished" in result.err) == (2, True)
