"""Steps that are really compiled, where torch can; the laws of the engine run them as traced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import polyrhythm as pr
from polyrhythm.engines.compiled import CompiledEngine
from small import logged, prepared

RECIPE = pr.scaffold(cohort=2, epochs=2, batch=7) | pr.local_sgd(lr=0.05, momentum=0.9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where compiled code is kept in a test."""
    monkeypatch.setenv("POLYRHYTHM_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    return tmp_path / "compiled"


def test_without_a_compiler_it_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(graph: Any, **settings: Any) -> Any:
        raise RuntimeError("no working C++ compiler found\n\nand much more")

    monkeypatch.setattr(torch, "compile", compile)
    made = prepared(engine="compiled")
    assert made.chosen.kind == "torch"
    assert made.chosen.why_not == "torch.compile does not work here: no working C++ compiler found"
    assert logged(engine="compiled")[0]["digest"] == logged(engine="torch")[0]["digest"]


def test_a_step_of_another_kind_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda graph, **settings: graph)
    monkeypatch.setattr("polyrhythm.engines.compiled.Kind.fits", lambda kind, job: False)
    assert isinstance(prepared(engine="compiled").chosen.engine, CompiledEngine)
    assert logged(engine="compiled")[0]["digest"] == logged(engine="torch")[0]["digest"]


@pytest.mark.slow
def test_compiled_steps_are_torchs_and_kept_on_disk(folder: Path) -> None:
    asked: dict[str, Any] = {"recipe": RECIPE, "engine": "compiled"}
    if why := prepared(**asked).chosen.why_not:
        pytest.skip(why)
    assert list(folder.rglob("*.so"))
    ours, log = logged(**asked)
    theirs, expected = logged(recipe=RECIPE, engine="torch")
    for name, weights in expected.states[-1].items():
        assert torch.allclose(log.states[-1][name], weights, atol=1e-6)
    assert ours["samples"] == theirs["samples"]
    assert logged(**asked)[0]["digest"] == ours["digest"]
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


AGAIN = """
from small import experiment
print(experiment(engine="compiled").chosen.why_not)
"""


@pytest.mark.slow
def test_the_second_process_finds_what_the_first_compiled(folder: Path) -> None:
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(Path(__file__).parents[1])])
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", AGAIN],
            env={**os.environ, "PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
        )
        if done.stdout.strip():
            pytest.skip(done.stdout)
        found.append({path: path.stat().st_mtime_ns for path in folder.rglob("*.so")})
    assert found[0]
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are only on Linux")
def test_worker_processes_compute_the_same() -> None:
    if why := prepared(engine="compiled").chosen.why_not:
        pytest.skip(why)
    alone, _ = logged(engine="compiled")
    parted, _ = logged(engine="compiled", driver="processes", workers=2)
    assert parted["digest"] == alone["digest"]
