"""A project that `flwr run` takes: two apps and an experiment file."""

from __future__ import annotations

import json
from pathlib import Path

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import UserError

PACKAGE = "federation"

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "federation"
version = "0.1.0"
description = "A federation of polyrhythm's on Flower"
license = "Apache-2.0"
dependencies = ["polyrhythm[flower]"]

[tool.hatch.build.targets.wheel]
packages = ["federation"]

[tool.flwr.app]
publisher = "polyrhythm"

[tool.flwr.app.components]
serverapp = "federation.app:server"
clientapp = "federation.app:client"

# What `flwr run --run-config` may change, for the server and for all nodes.
[tool.flwr.app.config]
set = ""              # keys of the experiment, such as "rounds=50; seed=3"
trust = ""            # modules with a model of yours that the server may import, such as "nets"; for nodes see app.py
out = "runs"          # the server's folder of records
resume = true         # go on with a run of this experiment that has not finished
log-updates = false   # keep what nodes send, for `polyrhythm replay --from-updates`
wait = 300.0          # seconds until all clients must be there
returns = 120.0       # seconds that a visit waits for a node that went away
"""

_APP = '''\
"""The server's and the nodes' apps. Flower imports this; what differs from node to node is in `--node-config`."""

from pathlib import Path

from polyrhythm.cli.deployed import client_of, server_of

EXPERIMENT = Path(__file__).parent / "experiment.toml"
# Modules of yours that the experiment may name, such as ["nets"]: server and nodes import them, and so run them.
TRUST: list[str] = []

server = server_of(EXPERIMENT, trust=TRUST)
client = client_of(EXPERIMENT, trust=TRUST)
'''

_EXPERIMENT = """\
data = "digits"
clients = 4
partition = "dirichlet(alpha=0.3)"
model = "mlp"
method = "fedavg(cohort=4, epochs=2, batch=10)"
rounds = 5
"""

_README = """\
# A federation

    polyrhythm flower up .            # four nodes on this machine, with TLS and keys, and the experiment on them

On machines of their own: start `flower-superlink` on the server, a `flower-supernode` on each node with

    --node-config 'client=0 store="/var/lib/federation" data="table(path=/data/site.csv, target=y)"'

and then `flwr run .` See the page on Flower in polyrhythm's documentation.
"""


def is_ours(folder: Path) -> bool:
    """Whether a folder holds a project as it is written here."""
    try:
        return (folder / "pyproject.toml").read_text(encoding="utf-8") == _PYPROJECT
    except (OSError, ValueError):
        return False


def write_project(folder: Path, experiment: str | None = None, trust: Trust = NOBODY) -> list[Path]:
    """Writes a project; gives its files.

    Args:
        folder: a new one, or an empty one.
        experiment: the text of the experiment file; a small one if None.
        trust: the modules that the user has named, which is written into the apps.

    Raises:
        UserError: there is something in the folder, or it cannot be written.
    """
    files = {
        folder / "pyproject.toml": _PYPROJECT,
        folder / "README.md": _README,
        folder / PACKAGE / "__init__.py": "",
        folder / PACKAGE / "app.py": _APP.replace("= []", f"= {json.dumps(trust.modules)}"),
        folder / PACKAGE / "experiment.toml": _EXPERIMENT if experiment is None else experiment,
    }
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UserError(
                f"{folder} is not empty",
                expected="a new folder",
                why="what is there might be overwritten",
                fix="give another folder, or empty that one",
            )
        (folder / PACKAGE).mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written: {error.strerror or error}",
            expected="a folder in which files can be made",
            why="the project would be there",
            fix="correct its permissions, or give another folder",
        ) from error
    return list(files)
