"""A mechanism and a model of one's own on nodes: as in the simulation, and only where each owner has named them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.cli.deployed import client_of, experiment_of, server_of
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from pretend import JumpingClock
from strangers import inside

pytest.importorskip("flwr", reason="needs flwr: pip install 'polyrhythm[flower]'")

from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from polyrhythm.base.consent import Trust
from polyrhythm.deployment import federating
from pretend_grid import PretendGrid

CLIENTS = 3
METHODS = """
from dataclasses import dataclass
from typing import final

from torch import nn

from polyrhythm.extend import Correction, NonNegative, Push, weighted_sum


@final
@dataclass(frozen=True, kw_only=True)
class SharedDirection(Correction):
    strength: NonNegative = 0.5

    def needs(self):
        return frozenset({"travel"})

    def server_start(self, setup):
        return {"gradient": setup.zeros()}

    def brief(self, setup, state, client):
        return {"gradient": state["gradient"]}

    def push(self, setup, state, brief):
        return Push(shift=self.strength * brief["gradient"])

    def after_step(self, setup, state, release):
        shares = zip(release.shares, release.reports, strict=True)
        rates = [-share / r.travel if r.travel else 0.0 for share, r in shares]
        return {"gradient": weighted_sum(release.updates(), rates)}


class Net(nn.Module):
    def __init__(self, outputs, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh(), nn.Linear(width, outputs))

    def forward(self, inputs):
        return self.layers(inputs)
"""
TEXT = f"""
model = "our_methods:Net(width=6)"
clients = {CLIENTS}
method = "fedavg(cohort={CLIENTS}, epochs=1, batch=50) | our_methods:SharedDirection(strength=0.4)"
rounds = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, value in {"run_id": 1, "node_id": 1, "task_id": 1}.items():  # as Flower does in an app's process
        monkeypatch.setattr(TaskIdentity, f"_{name}", value)
    clock = JumpingClock()
    monkeypatch.setattr(federating, "WallClock", lambda: clock)
    (tmp_path / "our_methods.py").write_text(METHODS)
    (tmp_path / "experiment.toml").write_text(TEXT)
    with inside(tmp_path):
        yield tmp_path / "experiment.toml"


def served(file: Path, nodes: dict[str, Any], server: dict[str, Any], trust: tuple[str, ...] = ()) -> pr.Run:
    configurations = {7000 + c: {"client": c, "store": str(file.parent / f"node-{c}"), **nodes} for c in range(CLIENTS)}
    grid = PretendGrid(client_of(file, trust), configurations, federating.WallClock())  # type: ignore[arg-type]
    settings = {"out": str(file.parent / "runs"), "wait": 9.0, **server}
    server_of(file, trust)(grid, Context(1, 0, {}, RecordDict(), settings))
    return pr.Run.all(file.parent / "runs")[-1]


@pytest.mark.parametrize("named", ["in the code", "by each owner"])
def test_a_part_of_one_s_own_on_nodes(file: Path, named: str) -> None:
    if named == "in the code":
        run = served(file, {}, {}, ("our_methods",))
    else:
        run = served(file, {"trust": "our_methods"}, {"trust": "our_methods"})
    made = prepare(*experiment_of(file, {}, trust=Trust(("our_methods",))))
    assert run.summary["digest"] == carry_out(made, [])["digest"]


def test_no_part_is_imported_at_a_node_whose_owner_has_not_named_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(pr.UserError, match="not there"):
        served(file, {}, {"trust": "our_methods"})
    said = capsys.readouterr().out
    assert "does not take part" in said
    assert "our_methods" in said


def test_a_node_with_another_version_of_the_part_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = file.with_name("other.toml")
    other.write_text(TEXT.replace("strength=0.4", "strength=0.3"))
    with pytest.raises(pr.UserError, match="not there"):
        served(file, {"trust": "our_methods", "experiment": str(other)}, {"trust": "our_methods"})
    assert "has the recipe" in capsys.readouterr().out
