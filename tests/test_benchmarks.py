"""The programs in benchmarks/ start, and what they make of measurements is right."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
# Those two take no options.
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("record", "native"))


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_measures(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        program(name).main()
    assert end.value.code == 0
    assert "usage" in capsys.readouterr().out


def test_a_row_that_cannot_be_measured_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = program("targets")
    told = {"command": 2.0, "import_torch": 1.4}

    def line(script: str, *_: str) -> list[dict[str, object]]:
        if script == "memory.py":
            raise OSError("no memory")
        return [{"processor_seconds": told}]

    monkeypatch.setattr(targets, "told", line)
    monkeypatch.setattr("sys.argv", ["targets", "memory", "start"])
    targets.main()
    *_, failed, row = capsys.readouterr().out.splitlines()
    assert failed == "memory: OSError: no memory"
    assert row.split("  ")[0] == "start, digits to the first round"
    assert "+ 0.60 s" in row
    assert "reached" in row


def test_a_row_is_named_by_its_beginning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    targets = program("targets")
    measured = list[str]()
    monkeypatch.setattr(targets, "ROWS", {name: lambda name=name: measured.append(name) or [] for name in targets.ROWS})
    monkeypatch.setattr("sys.argv", ["targets", "start", "lenet5", "lenet5-cifar10", "mem"])
    targets.main()
    assert measured == ["start", "lenet5-fmnist", "lenet5-cifar10", "memory"]
    monkeypatch.setattr("sys.argv", ["targets", "zzz"])
    with pytest.raises(SystemExit):
        targets.main()
    assert "no row is called, or begins with, 'zzz'" in capsys.readouterr().err


def test_every_work_has_a_row() -> None:
    targets = program("targets")
    assert list(targets.ROWS)[: len(targets.ASKED)] == list(targets.ASKED)


def test_a_peer_counts_without_its_first_and_last_round() -> None:
    told = {"peer": "one", "ends": [10.0, 11.0, 13.0, 99.0], "started": 7.0, "memory_mb": 5.0, "accuracy": 0.5}
    row = program("peers").measured([told, told])
    assert (row["median"], row["min"], row["start_up"]) == (1.5, 1.0, 1.5)


def test_a_peer_that_fails_says_why(tmp_path: Path) -> None:
    peers = program("peers")
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no such thing')")
    with pytest.raises(RuntimeError, match="failed: no such thing"):
        peers.run(peers.Peer(str(broken)), Path(sys.executable), tmp_path / "job", str(tmp_path))


def test_a_peer_without_its_checkout_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = program("peers")
    monkeypatch.setenv("PFLLIB", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"PFLLIB names no checkout of github\.com/TsingZ0/PFLlib"):
        peers.run(peers.PEERS["PFLlib"], Path(sys.executable), tmp_path / "job", str(tmp_path))


def test_growth_is_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"cohort": cohort, "parameters": size, "workers": workers, "seconds": cohort * size / workers / 1e6}
        for cohort, size, workers in ((10, 9_550, 1), (10, 9_550, 2), (10, 99_198, 1), (100, 9_550, 1))
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    program("growth").draw(tmp_path / "lines", tmp_path / "growth.svg")
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "| cohort | workers | 9,550 | 99,198 |"
    assert table[2] == "| 10 | 1 | 0.0955 | 0.992 |"
    assert "| 100 | 1 | 0.955 | – |" in table
    assert (tmp_path / "growth.svg").read_text().startswith("<svg")


def on_gpu(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str, leave_out: tuple[str, ...] = ()
) -> tuple[int, Any]:
    """What the program for a GPU finds in its small form on a processor: how it ends, and what it has written."""
    gpu = program("gpu")
    monkeypatch.setattr(gpu, "PARTS", {name: part for name, part in gpu.PARTS.items() if name not in leave_out})
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--small", "--out", str(folder / "found"), *more])
    with pytest.raises(SystemExit) as end:
        gpu.main()
    return int(str(end.value.code)), json.loads((folder / "found.json").read_text())


def test_what_is_for_a_gpu_runs_in_its_small_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, told = on_gpu(monkeypatch, tmp_path, leave_out=("resume",))
    assert (code, told["disagrees"]) == (0, [])
    assert {row["engine"] for row in told["parts"]["agreement"]} == {"stacked"}
    assert all(0 <= row["apart"] < 1e-4 for row in told["parts"]["agreement"])
    assert {row["model"] for row in told["parts"]["agreement"]} == {"mlp", "lora", "ccfl-mlp"}
    assert [row.get("model", "lenet5") for row in told["parts"]["speed"] if "stacked_s" in row] == ["lenet5", "lora"]
    assert told["parts"]["ray"] == [{"why": "there is no card to be shared"}]
    assert "## agreement" in (tmp_path / "found.md").read_text()


@pytest.mark.slow
def test_a_run_on_a_gpu_that_is_killed_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_out = ("agreement", "speed", "pieces", "ray")
    code, told = on_gpu(monkeypatch, tmp_path, leave_out=leave_out)
    assert (code, told["parts"]["resume"]) == (0, [{"killed": True, "agrees": True}])


def test_what_disagrees_or_fails_or_has_no_time_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = program("gpu")
    assert on_gpu(monkeypatch, tmp_path, "--seconds", "0")[1]["parts"]["pieces"] == [{"why": "0 s were over"}]
    found = gpu.Found(tmp_path / "other", {"device": "none"})

    def fails(device: str, size: object) -> Any:
        yield {"apart": 0.5, "agrees": False}
        raise ValueError("no such thing")

    monkeypatch.setattr(gpu, "PARTS", {"one": fails, "two": lambda device, size: iter([{"agrees": True}])})
    gpu.carry_out(found, "cpu", gpu.SMALL, 60)
    assert json.loads((tmp_path / "other.json").read_text())["parts"] == found.parts
    assert found.disagrees == ["one"]
    assert [row.get("why") for row in found.parts["one"]] == [None, "ValueError: no such thing"]
    assert found.parts["two"] == [{"agrees": True}]


def test_what_takes_too_long_on_a_gpu_is_broken_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = program("gpu")
    found = gpu.Found(tmp_path / "found", {"device": "none"})

    def hangs(device: str, size: object) -> Any:
        yield {"agrees": True}
        try:
            time.sleep(60)
        except Exception:  # which a library may have around anything
            raise AssertionError("it went on") from None

    monkeypatch.setattr(
        gpu, "PARTS", {"agreement": hangs, "then": lambda device, size: iter([{"s": 1.0}]), "last": hangs}
    )
    begun = time.monotonic()
    gpu.carry_out(found, "cpu", gpu.SMALL, 0.4)
    assert time.monotonic() - begun < 30
    assert [row.get("why") for row in found.parts["agreement"]] == [None, "0 s were over"]
    assert found.parts["then"] == [{"s": 1.0}]  # agreement has half of the time alone
    assert found.parts["last"][-1]["why"] == "0 s were over"
    assert "## then" in (tmp_path / "found.md").read_text()
