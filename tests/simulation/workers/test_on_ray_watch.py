"""A cluster of the run's own is looked after while nobody waits for visits. Imports nothing of Ray."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from polyrhythm.base.errors import RunFailed
from polyrhythm.simulation.workers.on_ray import cluster
from polyrhythm.simulation.workers.on_ray.cluster import Watch


class Ray:
    """A cluster of which a process dies, as far as it is asked."""

    def __init__(self) -> None:
        self.dead = list[tuple[str, object]]()
        self.shut = 0
        node = SimpleNamespace(dead_processes=lambda: self.dead)
        self._private = SimpleNamespace(worker=SimpleNamespace(_global_node=node))

    def shutdown(self) -> None:
        self.shut += 1
        self._private.worker._global_node = None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LOOK", 0.01)
    monkeypatch.setattr(cluster, "GRACE", 0.05)


def until(what: Any) -> None:
    deadline = time.monotonic() + 120
    while not what() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_whoever_measures_for_long_is_disconnected_and_told_afterwards(quick: None) -> None:
    """Ray would end this process for it, without a word."""
    ray = Ray()
    watch = Watch(ray)
    watch.check()
    ray.dead.append(("gcs_server", None))
    until(lambda: ray.shut)
    assert ray.shut == 1
    with pytest.raises(RunFailed, match="has lost its gcs server"):
        watch.check()
    watch.end()


def test_whoever_waits_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray()
    watch = Watch(ray)
    ray.dead.append(("raylet", None))
    with pytest.raises(RunFailed, match="has lost its raylet"):
        watch.check()
    watch.end()
    assert ray.shut == 0


def test_nothing_is_looked_at_after_the_run(quick: None) -> None:
    ray = Ray()
    watch = Watch(ray)
    watch.end()
    ray.dead.append(("raylet", None))
    time.sleep(0.2)
    assert ray.shut == 0
