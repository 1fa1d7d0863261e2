"""What somebody else might hand on: files, a record, an expert and a project that name code to be run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from polyrhythm.cli.app import app
from polyrhythm.config.expressions import parse_call
from polyrhythm.core.client_state import ClientState
from polyrhythm.deployment.node_store import NodeStore
from polyrhythm.results import Run

MODULE = "strangers_nets"
PATH = f"{MODULE}:Net"
OWN = """from pathlib import Path
Path(__file__).with_name("marker").touch()
import functools, subprocess
from os import system
from subprocess import getoutput
from torch import nn
from torch.nn import Linear
class Net(nn.Module):
    def __init__(self, outputs, width=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, outputs))
    def forward(self, inputs):
        return self.layers(inputs)
class Plain:
    def __init__(self, command=""):
        system(command)
class Callable:
    def __call__(self, command=""):
        system(command)
def make(outputs, width=4):
    return Net(outputs, width)
def decorated(around):
    return functools.wraps(around)(lambda *given, **named: around(*given, **named))
made = decorated(make)
partial = functools.partial(system, "touch marker")
bound = Callable().__call__
called = Callable()
cached = functools.cache(make)
number = 3
"""
EXPERIMENT = """model = '{path}'
clients = 2
rounds = 2
validation = 0.2
method = "fedavg(cohort=2, epochs=1, batch=64)"
"""
SWEEP = f"{EXPERIMENT}[sweep.space]\nmethod.lr = [0.1]\n"
CHOSEN = f"{EXPERIMENT.replace('{path}', 'logistic')}[sweep.space]\nmodel = ['{{path}}', 'mlp(hidden=[2])']\n"
REPRODUCTION = f"""{EXPERIMENT}
[reproduces]
paper = "ccfl"
items = ["Table 9"]
title = "One of them"
[rows.One]
method = "fedavg(cohort=2, epochs=1, batch=64)"
"""
TRAINED = REPRODUCTION + "[expert_training]\nepochs = 1\n"
FILES = {
    **{"exp.toml": EXPERIMENT, "tune.toml": SWEEP, "chosen.toml": CHOSEN},
    **{"table.toml": REPRODUCTION, "trained.toml": TRAINED},
}


def ground(folder: Path) -> Path:
    """All of it, made by somebody who trusts the module."""
    (folder / f"{MODULE}.py").write_text(OWN)
    _written(folder, PATH)
    with inside(folder):
        for line in (
            ("run", "exp.toml", "--name", "theirs", "--log-updates", "--trust", MODULE),
            ("sweep", "tune.toml", "--workers", "1", "--trust", MODULE),
            ("expert", "--model", PATH, "--epochs", "1", "-o", "expert.safetensors"),
            ("flower", "new", "project"),
        ):
            done = CliRunner().invoke(app, line)
            assert done.exit_code == 0, (line, done.output)
    (folder / "project" / "federation" / "experiment.toml").write_text(EXPERIMENT.format(path=PATH))
    (folder / "marker").unlink()
    (run,) = [run for run in Run.all(folder / "runs") if run.name == "theirs"]
    shutil.copy(run.path / "final.safetensors", folder / "theirs.safetensors")
    NodeStore(folder / "nodes", "theirs", 0).put(0, ClientState(), ())
    np.save(folder / "rows.npy", np.zeros((2, 1, 8, 8), dtype=np.uint8))
    return folder


def handed_on(there: Path, folder: Path, path: str) -> Path:
    """A copy in which everything names another path."""
    shutil.copytree(there, folder, dirs_exist_ok=True)
    _written(folder, path)
    (folder / "project" / "federation" / "experiment.toml").write_text(EXPERIMENT.format(path=path))
    quoted = path.replace('"', '\\"')
    for file in folder.glob("runs/*/model.json"):
        call, about = parse_call(path), json.loads(file.read_text())
        while call.positional:  # what another one is around
            call = call.positional[0]
        file.write_text(json.dumps({**about, "model": call.name, "settings": {**call.named}}))
    with contextlib.closing(sqlite3.connect(folder / "runs" / "runs.sqlite")) as database, database:
        database.execute("UPDATE runs SET config = replace(config, ?, ?)", (PATH, quoted))
    for record in (folder / "runs" / "studies").glob("*/*.json"):
        record.write_text(record.read_text().replace(PATH, quoted))
    with safe_open(folder / "expert.safetensors", framework="pt") as file:
        names = file.keys()
        weights, about = {key: file.get_tensor(key) for key in names}, file.metadata()
    save_file(weights, folder / "expert.safetensors", {**about, "model": about["model"].replace(PATH, path)})
    assert all(run.config["model"] == path for run in Run.all(folder / "runs"))
    return folder


def _written(folder: Path, path: str) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("{path}", path))


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """In a folder that is the working one and on Python's path; what was imported from there is forgotten."""
    before = os.getcwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        sys.modules.pop(MODULE, None)
