"""Texts on the command line and in files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.models import build
from terminal import Command


def test_a_file_and_a_command_say_the_same_as_python(polyrhythm: Command, tmp_path: Path) -> None:
    place = tmp_path / "texts"
    place.mkdir()
    for name in ("ann", "bob", "cid"):
        (place / f"{name}.txt").write_text("to be or not to be, " * 8)
    method, model = "fedavg(cohort=3,batch=4,lr=1)", "char-lstm(hidden=8,layers=1,every=true)"
    file = tmp_path / "x.toml"
    file.write_text(
        f'data = "text(path={place}, length=16)"\npartition = "by_column(column=client)"\nlocal_test = "natural"\n'
        f'model = "{model}"\nmethod = "{method}"\nrounds = 2\n'
    )
    out = ("--out", str(tmp_path / "runs"), "--json")
    of_file = json.loads(polyrhythm("run", str(file), *out).out)
    given = ("--data", f"text(path={place}, length=16)", "--partition", "by_column(column=client)")
    more = ("--local-test", "natural", "--model", model, "--method", method, "--rounds", "2")
    of_options = json.loads(polyrhythm("run", *given, *more, *out).out)
    collection = data.text(place, length=16)
    federation = pr.federate(collection, data.ByColumn(column="client"), None, 0, local_test="natural")

    def network(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
        return build("char-lstm", shape, outputs, hidden=8, layers=1, every=True)

    recipe = pr.fedavg(cohort=3, batch=4, lr=1)
    experiment = pr.Experiment(federation=federation, model=network, recipe=recipe, rounds=2)
    run = pr.run(experiment, out=tmp_path / "other")
    assert of_file["digest"] == of_options["digest"] == run.summary["digest"]
    assert np.isfinite(run.history[["test_perplexity", "test_accuracy"]].to_numpy()).all()
