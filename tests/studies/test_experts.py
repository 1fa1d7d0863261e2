"""A file may ask for an expert: it is trained before anything else, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.studies.definition import Study
from polyrhythm.studies.files.reading import read
from polyrhythm.studies.planning import planned
from polyrhythm.studies.running.experts import with_expert

FILE = """
clients = 4
partition = "difficulty(inner=iid)"
model = "mlp(hidden=[8])"
rounds = 1
[reproduces]
paper = "curriculum"
items = ["Figure 4"]
title = "Easy and hard clients"
[rows.plain]
method = "fedavg(cohort=2)"
[expert_training]
epochs = 3
lr = 0.05
[scales.smoke.expert_training]
epochs = 1
"""


@pytest.fixture
def asks(tmp_path: Path) -> Study:
    file = tmp_path / "figure-4.toml"
    file.write_text(FILE)
    return read(file)


def test_it_is_trained_once_and_given_to_every_cell(asks: Study, tmp_path: Path) -> None:
    first = with_expert(planned(asks, "smoke"), tmp_path / "runs")
    path = Path(str(first.over["expert"]))
    written = path.stat().st_mtime_ns
    assert with_expert(planned(asks, "smoke"), tmp_path / "runs").over == first.over
    assert path.stat().st_mtime_ns == written
    assert first.cells[0].make({}, 0)[0].federation.clients == 4


def test_other_settings_are_another_expert(asks: Study, tmp_path: Path) -> None:
    assert planned(asks, "smoke").expert_training == {**planned(asks, "paper").expert_training, "epochs": 1}
    found = [with_expert(planned(asks, scale), tmp_path).over["expert"] for scale in ("smoke", "paper")]
    assert found[0] != found[1]


def test_one_that_is_given_is_used(asks: Study, tmp_path: Path) -> None:
    scaled = planned(asks, "smoke", settings={"expert": "mine.safetensors"})
    assert with_expert(scaled, tmp_path) is scaled


@pytest.mark.parametrize("wrong", ["epochs = 0", "smoothing = 1.5", "rate = 0.1"])
def test_wrong_settings_are_told_with_their_line(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "figure-4.toml"
    file.write_text(FILE.replace("epochs = 3", wrong))
    with pytest.raises(UserError, match=r"line 13.*expert_training"):
        read(file)
    file.write_text(FILE.replace("epochs = 1", wrong))
    with pytest.raises(UserError, match="line 16"):
        read(file)
