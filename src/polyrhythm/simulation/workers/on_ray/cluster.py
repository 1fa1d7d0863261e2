"""The Ray cluster: whether there is one, and how many workers have room on it. Ray is imported when somebody asks."""

from __future__ import annotations

import os
import threading
from typing import Any, final

from polyrhythm.base.errors import RunFailed, UserError

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
"""Settings of Ray: it reports to nobody, and takes the environment as it is. Whoever sets them otherwise is heard."""

FINEST = 10_000
"""Parts of a GPU that Ray tells from each other."""

LOOK = 1.0
"""Seconds between two looks whether a cluster of the run's own is still there."""

GRACE = 4.0
"""Seconds that whoever waits for visits has to find out that it is not."""


def imported() -> Any:
    """Ray.

    Raises:
        UserError: it is not installed.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "driver=ray, and Ray is not installed",
            expected="the extra [ray]",
            why="it runs the visits",
            fix="pip install 'polyrhythm[ray]', or driver=processes",
        ) from error
    return ray


def connect(ray: Any, workers: int, address: str | None) -> None:
    """Starts a cluster here, or connects to one.

    Raises:
        UserError: there is none at that address.
    """
    quiet = {"include_dashboard": False, "num_cpus": workers} if address is None else {}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **quiet)
    except Exception as error:  # Ray raises plain ones where its processes do not come up in time
        if address is None:
            raise RunFailed(f"Ray could not start a cluster on this machine: {error}") from error
        raise UserError(
            f"no Ray cluster at address={address}: {error}",
            expected="the address of one that runs, such as 10.0.0.1:6379, or auto on one of its machines",
            why="visits run there",
            fix="start one with `ray start --head`, or leave the address out to start one here",
        ) from error


def check_room(ray: Any, workers: int, gpus: float | None) -> None:
    """Goes on if so many workers have room.

    Raises:
        UserError: they have not.
    """
    room = places(ray, gpus)
    if room >= workers:
        return
    what = f"{_total(ray, 'CPU'):g} processors"
    if gpus is not None:
        what = f"{_total(ray, 'GPU'):g} GPUs and {what}"
    raise UserError(
        f"workers={workers}{'' if gpus is None else f' of gpus={gpus:g}'} on a Ray cluster with {what}",
        expected=f"workers of {room} or fewer" if room else "a cluster with room for a worker",
        why="each worker takes a processor"
        + ("" if gpus is None else " and its share of a GPU on the same machine, and no share spans two GPUs")
        + ": it would wait for them for ever",
        fix=f"workers={room}, or add machines to the cluster" if room else _without(gpus),
    )


def places(ray: Any, gpus: float | None) -> int:
    """How many workers have room on the machines that are alive: whole processors, and shares that span no two GPUs."""
    found = 0
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        room = int(has.get("CPU", 0))
        if gpus is not None:
            room = min(room, int(has.get("GPU", 0)) * (FINEST // round(gpus * FINEST)))
        found += room
    return found


def lost(ray: Any) -> str:
    """What is dead of the processes of a cluster that was started here; empty if all of them live."""
    node = ray._private.worker._global_node
    dead = [] if node is None else node.dead_processes()
    return str(dead[0][0]).replace("_", " ") if dead else ""


@final
class Watch:
    """Looks whether a cluster that was started here has lost one of its own processes.

    Ray ends a process that has lost them, without a word, after 15 s. Whoever waits for visits finds out before that;
    who computes something else in the meantime, such as a measurement, is disconnected here, and told afterwards.

    Args:
        ray: connected.
    """

    def __init__(self, ray: Any) -> None:
        self._ray, self._over, self._lost = ray, threading.Event(), ""
        self._thread = threading.Thread(target=self._look, name="cluster", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Goes on if the cluster is there, which has to be known before Ray is asked for anything.

        Raises:
            RunFailed: it is not.
        """
        if what := self._lost or lost(self._ray):
            raise RunFailed(
                f"the Ray cluster that was started for the run has lost its {what}: it was killed, or the machine has "
                "no memory left; what was recorded before is kept, and `polyrhythm resume` goes on"
            )

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            if what := lost(self._ray):
                if not self._over.wait(GRACE):
                    self._lost = what
                    self._ray.shutdown()
                return

    def end(self) -> None:
        """Looks no more."""
        self._over.set()
        self._thread.join()


def _total(ray: Any, resource: str) -> float:
    return sum(float(node["Resources"].get(resource, 0)) for node in ray.nodes() if node["Alive"])


def _without(gpus: float | None) -> str:
    add = "add machines to the cluster"
    return add if gpus is None else f"{add} that have GPUs, or leave gpus out: visits are computed on processors then"
