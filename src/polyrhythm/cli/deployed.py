"""Flower's apps of an experiment file: what `flwr run` loads, at the server and at every node.

What differs from run to run is in the run's settings (`--run-config`), what differs from node to node in the node's
(`--node-config`); both are texts, and mean what they mean on the command line.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrhythm.base.consent import NOBODY, Trust, in_python
from polyrhythm.base.errors import UserError
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import configure
from polyrhythm.config.data_names import source
from polyrhythm.config.expressions import parse_pipeline
from polyrhythm.data import Collection
from polyrhythm.deployment.federating import Serving
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.experiment import Experiment

if TYPE_CHECKING:
    from polyrhythm.deployment.on_flower import ClientApp, Context, ServerApp


def server_of(file: Path, trust: Sequence[str] = ()) -> ServerApp:
    """The server app of an experiment file.

    Settings of a run: `set` (keys of the experiment, "rounds=50; seed=3"), `trust` (modules that the server may import,
    beside those named here, as in "nets my_lab"), `out`, `resume`, `log-updates`, `wait` and `returns`.

    Args:
        file: in TOML.
        trust: modules of yours that it may name, as with `--trust` on the command line: they are imported and run.
    """
    from polyrhythm.deployment.on_flower import server_app

    def experiment(context: Context) -> tuple[Experiment, Execution]:
        return experiment_of(file, context.run_config, trust=_trust(trust, context.run_config, _ASK_SERVER))

    return server_app(experiment, lambda context: serving_of(context.run_config))


def client_of(file: Path, trust: Sequence[str] = ()) -> ClientApp:
    """The client app of an experiment file.

    Settings of a node: `client`, its number; `store`, the folder in which it remembers; `data`, a data set of its own,
    such as "table(path=/data/site.csv, target=y)"; `experiment`, a file of its own in place of the one that came with
    the run; `trust`, modules that the node may import, beside those named here, as in "nets my_lab"; and `mods`,
    Flower's, in a pipe: "LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=5.0, delta=1e-5)".

    What a run says does not count at a node: its settings come from elsewhere.

    Args:
        file: in TOML.
        trust: modules of yours that it may name, as with `--trust` on the command line: they are imported and run.
    """
    from polyrhythm.deployment.on_flower import client_app, mod

    def experiment(context: Context) -> tuple[Experiment, Execution]:
        own = context.node_config.get("experiment")
        return experiment_of(
            file if own is None else Path(str(own)),
            context.run_config,
            context.node_config.get("data"),
            _trust(trust, context.node_config, _ASK_NODE),
        )

    def data(context: Context) -> Collection | None:
        text = context.node_config.get("data")
        return None if text is None else _loaded(str(text), _trust(trust, context.node_config, _ASK_NODE))

    def mods(context: Context) -> list[Any]:
        text = context.node_config.get("mods")
        return [] if text is None else [mod(c.name, **c.named) for c in parse_pipeline(str(text))]

    return client_app(experiment, data, mods)


_ASK_SERVER = "write it into TRUST in the project's app.py, or flwr run --run-config 'trust=\""
_ASK_NODE = "write it into TRUST in the project's app.py, or start the node with --node-config 'trust=\""


def _trust(named: Sequence[str], configuration: Mapping[str, Any], ask: str) -> Trust:
    """The modules that are named in the project's own code, and in what the owner of this machine has typed."""
    typed = str(configuration.get("trust", "")).split()
    return Trust((*in_python(named).modules, *typed), f"{ask}{''.join(f'{name} ' for name in typed)}", "\"'")


def experiment_of(
    file: Path, run: Mapping[str, Any], data: object = None, trust: Trust = NOBODY
) -> tuple[Experiment, Execution]:
    """The experiment of a file, and how it is computed.

    Args:
        file: in TOML.
        run: settings of the run.
        data: a node's own data set, as text, which takes the place of the file's.
        trust: the modules that the owner of this machine has named; the settings of a run cannot.

    Raises:
        UserError: something in it is wrong.
    """
    settings = [part.strip() for part in str(run.get("set", "")).split(";") if part.strip()]
    options: dict[str, Any] = {}
    if data is not None:
        options = {"data": str(data), "clients": 1, "partition": "iid", "validation": 0.0, "local_test": 0.0}
        keys = tuple(f"{key}=" for key in options)
        settings = [part for part in settings if not part.replace(" ", "").startswith(keys)]
    configuration = configure(file, options, settings, trust)
    if configuration.seeds is not None:
        raise UserError(
            f"seeds = {list(configuration.seeds)} in {file}",
            expected="one seed",
            why="a federation makes one run at a time",
            fix="write seed = 0",
        )
    (experiment,) = assemble(configuration)
    return experiment, configuration.execution


def serving_of(run: Mapping[str, Any]) -> Serving:
    """How the server waits, and what it keeps, from the settings of a run."""
    known = {
        "out": str(run.get("out", "runs")),
        "resume": bool(run.get("resume", True)),
        "log_updates": bool(run.get("log-updates", False)),
    }
    waits = {key: float(run[key]) for key in ("wait", "returns") if key in run}
    return Serving(**known, **waits)  # type: ignore[arg-type]


@functools.cache
def _loaded(text: str, trust: Trust) -> Collection:
    return source(text, trust)()
