"""The two ways that have no public name of their own: nodes of a real federation, and Flower's, in this process.

All that the golden runs know of where code lives is here, and in the helpers that are imported from here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import polyrhythm as pr
from polyrhythm.deployment import federating
from pretend import JumpingClock, PretendTransport, nodes_of

Make = Callable[[], pr.Experiment]


def on_nodes(make: Make, execution: pr.Execution, out: Path) -> pr.Run:
    """A run on nodes that a line in this process leads to."""
    clock, experiment = JumpingClock(), make()
    nodes = nodes_of(make, _store(out), experiment.federation.clients, execution)
    serving = federating.Serving(out=out, resume=False)
    summary = federating.serve(
        experiment,
        PretendTransport(clock, nodes),
        serving,
        execution=execution,
        clock=clock,
        tell=lambda text: None,
    )
    return pr.Run.open(summary["run_id"], out)


def on_flower(make: Make, execution: pr.Execution, out: Path) -> pr.Run:
    """A run by Flower's apps, over Flower's own records."""
    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from polyrhythm.deployment.on_flower import client_app, server_app
    from pretend_grid import PretendGrid

    folder, clock, experiment = _store(out), JumpingClock(), make()
    clients = range(experiment.federation.clients)
    configurations = {7000 + c: {"client": c, "store": str(folder / f"node-{c}")} for c in clients}
    identity = mock.patch.multiple(TaskIdentity, _run_id=1, _node_id=1, _task_id=1)  # as in an app's process
    with identity, mock.patch.object(federating, "WallClock", return_value=clock):
        grid = PretendGrid(client_app((make(), execution)), configurations, clock)
        serving = federating.Serving(out=folder / "runs", resume=False)
        server_app((experiment, execution), serving)(grid, Context(1, 0, {}, RecordDict(), {}))
    return pr.Run.open("20", folder / "runs")


def _store(out: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="nodes-", dir=out))
