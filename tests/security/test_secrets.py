"""What is secret (the environment, tokens) is in no record, log or message."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm.cli.app import app
from polyrhythm.runs.environment import library_versions, machine
from terminal import Command

SECRET = "hunter2-5f0c"
FAILS = """
import os
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
    def forward(self, inputs):
        token = os.environ["HF_TOKEN"]
        if self.training and len(inputs) > 8:  # and not where it is tried on a few samples beforehand
            raise ValueError("no")
        return self.linear(inputs.flatten(1))
"""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "MY_PASSWORD"):
        monkeypatch.setenv(name, SECRET)


def test_no_record_log_or_message_has_the_environment(
    polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a run that ends well, nor of one that fails in a user's code with the secret at hand."""
    (tmp_path / "failing_net.py").write_text(FAILS)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "runs"
    said = [
        polyrhythm("run", "--model", "logistic", "--rounds", "1", "--out", str(out), "--json"),
        polyrhythm("run", "--model", "failing_net:Net", "--rounds", "1", "--out", str(out)),
        polyrhythm("check", "--set", "model=logistic", "--set", "rounds=1", "--json"),
        polyrhythm("run", "--data", "hub(name=nobody/nothing)"),
    ]
    assert [found.code for found in said] == [0, 1, 0, 2]
    assert (logs := list(out.glob("*/error.log")))
    assert "raise ValueError" in logs[0].read_text()
    for found in said:
        assert SECRET not in found.out + found.err
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_a_record_says_what_machine_and_nothing_of_whom() -> None:
    assert set(machine()) == {"cpu", "cores", "threads", "accelerator", "system", "instructions", "MKL_CBWR"}
    assert set(library_versions()) <= {"python", "polyrhythm", "torch", "numpy"}


def test_tracebacks_show_no_values() -> None:
    """Typer's pretty ones would print local variables, tokens among them."""
    assert app.pretty_exceptions_enable is False
