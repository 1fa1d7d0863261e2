"""Sums that hide single updates, and dp, on Flower itself: what its server holds in memory, and nodes that end.

Minutes, and only where flwr is installed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.consent import NOBODY
from polyrhythm.base.messages import Report
from polyrhythm.cli.deployed import experiment_of
from polyrhythm.cli.flowering import up
from polyrhythm.deployment.local.loopback import Loopback
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs.charges import Charges
from polyrhythm.runs.observer import Observer

pytest.importorskip("flwr", reason="needs flwr: pip install 'polyrhythm[flower]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory of processes is read from /proc"),
]

PORT = 8740
TEXT = """
data = "digits"
clients = 3
partition = "iid"
model = "logistic"
method = "fedavg(cohort=3, epochs=1, batch=10) | secagg(limit=4)"
rounds = 2
checkpoint = {every = 1}
"""
HIDDEN = "fedavg(epochs=1, batch=10) | equal | poisson(rate=0.7) | dp(noise=1, clip=0.5, delta=0.1)"
_PIECE = 96  # bytes of a vector that are looked for


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an experiment, and a federation that stays up until the module's tests are over."""
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "experiment.toml").write_text(TEXT)
    yield folder
    Loopback(folder / "federation", PORT).down()


def run(place: Path, *settings: str) -> pr.Run:
    """A run on the federation; the newest of its folder."""
    values: dict[str, Any] = {"out": str(place / "runs"), "folder": place / "federation", "port": PORT, "keep": True}
    values |= {"resume": True, "log_updates": False, "as_json": True, "wait": 600.0}
    up(place / "experiment.toml", None, list(settings), NOBODY, **values)
    return pr.Run.all(place / "runs")[-1]


class Listener(Observer):
    """Keeps what a server hears."""

    def __init__(self) -> None:
        self.heard: list[torch.Tensor] = []

    def report(self, report: Report) -> None:
        if report.update is not None:
            self.heard.append(report.update)


def pieces(vectors: Sequence[torch.Tensor]) -> list[bytes]:
    """What to look for of each."""
    found = []
    for vector in vectors:
        raw = vector.contiguous().numpy().tobytes()
        middle = len(raw) // 8 * 4
        found.append(raw[middle : middle + _PIECE])
    return found


def holds(pid: int, wanted: Sequence[bytes]) -> set[int]:
    """Which of some bytes a process has anywhere in memory that it may write."""
    found = set[int]()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(begin)
                content = memory.read(end - begin)
                found |= {number for number, some in enumerate(wanted) if some in content}
    return found


def children(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found += children(int(folder.name))
    return found


@contextlib.contextmanager
def meanwhile(look: Callable[[], None]) -> Iterator[None]:
    """Does something again and again while the block goes on."""
    over = threading.Event()

    def looking() -> None:
        while not over.wait(0.2):
            look()

    thread = threading.Thread(target=looking)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def superlink(place: Path) -> int | None:
    running = Loopback(place / "federation", PORT).processes.alive()
    return next((started.pid for started in running if started.name == "superlink"), None)


def test_the_server_never_holds_an_update_without_its_mask(place: Path) -> None:
    """In the memory of the SuperLink and all that it starts, again and again; nor on its disk.

    What is looked for is known from a simulation without masks, whose models are the same to the last bit. The initial
    weights, which the server has, are found in the same way.
    """
    made = prepare(*experiment_of(place / "experiment.toml", {}))
    bare, listener = prepare(*experiment_of(place / "experiment.toml", {"set": "method.secagg.real=false"})), Listener()
    expected = carry_out(bare, [listener])
    assert len(listener.heard) == 6
    wanted = pieces([*listener.heard, made.initial.weights])
    found, scans = set[int](), list[int]()

    def look() -> None:
        if (first := superlink(place)) is None:
            return
        for pid in children(first):
            found.update(holds(pid, wanted))
            scans.append(pid)

    with meanwhile(look):
        done = run(place)
    assert done.summary["digest"] == expected["digest"]
    assert done.summary["lost_visits"] == 0
    assert len(set(scans)) >= 2, "the SuperLink, and the server's process"
    assert found == {6}, "the initial weights, and no update"
    written = [path for path in (place / "federation").rglob("*") if path.is_file() and "nodes" not in path.parts]
    written += [path for path in (place / "runs").rglob("*") if path.is_file()]
    assert not any(some in path.read_bytes() for path in written for some in wanted[:6])
    assert not list(place.rglob("secagg.json")), "and no key is left"


def test_dp_on_nodes_is_accounted_for(place: Path) -> None:
    """Coins and noise are of a key that nobody has, and the statement says whom one has to trust."""
    done = run(place, f"method={HIDDEN}")
    assert (done.status, done.summary["rounds"], done.summary["privacy_law"]) == ("finished", 2, "poisson")
    simulated = prepare(*experiment_of(place / "experiment.toml", {"set": f"method={HIDDEN}"}))
    assert simulated.privacy is not None
    assert done.summary["epsilon"] == pytest.approx(simulated.privacy.account.epsilon(2))
    assert done.summary["digest"] != carry_out(simulated, [])["digest"]
    assert "must be trusted" in done.summary["privacy"]["guarantee"]
    assert len(Charges(lambda: done.path).all()) == 2


def test_a_node_that_ends_between_stages_is_left_out_and_comes_back(place: Path) -> None:
    """Once it has made its keys it is ended: it sends no letters, and the others go on without it."""
    struck = list[float]()

    def look() -> None:
        file = next(iter((place / "federation" / "nodes" / "2").rglob("secagg.json")), None)
        if file is None or struck:
            return
        node = next(s for s in Loopback(place / "federation", PORT).processes.alive() if s.name == "node 2")
        struck.append(time.monotonic())
        for pid in reversed(children(node.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    with meanwhile(look):
        done = run(place, "clients=4", "method.cohort=4", "seed=3", "rounds=3")
    assert struck
    assert (done.status, done.summary["rounds"]) == ("finished", 3)
    assert [row["accepted"] for row in done.versions[1:]] == [3, 4, 4], "left out once, and back"
