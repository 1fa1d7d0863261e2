"""The ways of carrying a run out: in line, elsewhere, in two parts, from its record. Each gives what was recorded."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, final
from unittest import mock

import golden_runs
import polyrhythm as pr
from polyrhythm.runs.observer import Observer

Carried = Iterator[tuple[str, pr.Run]]
Way = Callable[[Iterable[str], Path], Carried]
INTERRUPTED_AT = 2
"""The version at which runs are killed or stopped."""


def of(name: str, /, **changes: Any) -> pr.Experiment:
    """The experiment of that name, made anew."""
    return golden_runs.runs()[name].experiment(**changes)


def how(name: str, /, **changes: Any) -> pr.Execution:
    """How the experiment of that name is computed."""
    return golden_runs.runs()[name].execution(**changes)


def in_line(names: Iterable[str], out: Path) -> Carried:
    for name in names:
        command = golden_runs.runs()[name].command
        yield name, commanded(command, out) if command else pr.run(of(name), execution=how(name), out=out)


def commanded(command: Iterable[str], out: Path) -> pr.Run:
    """A run from the command line, in this process."""
    (program,) = entry_points(group="console_scripts", name="polyrhythm")
    arguments, said = ["polyrhythm", *command, "--out", str(out), "--json"], io.StringIO()
    with (
        mock.patch.object(sys, "argv", arguments),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(io.StringIO()) as trouble,
        contextlib.suppress(SystemExit),
    ):
        program.load()()
    assert said.getvalue(), trouble.getvalue()
    return pr.Run.open(json.loads(said.getvalue())["run_id"], out)


def elsewhere(driver: str) -> Way:
    """Two workers at once."""

    def way(names: Iterable[str], out: Path) -> Carried:
        for name in names:
            yield name, pr.run(of(name), execution=how(name, driver=driver, workers=2), out=out)

    return way


def on_ray(names: Iterable[str], out: Path) -> Carried:
    """On one cluster for all of them: starting it takes seconds."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    with warnings.catch_warnings(), mock.patch.dict(os.environ, quiet):
        warnings.simplefilter("ignore")
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            yield from elsewhere("ray")(names, out)
        finally:
            ray.shutdown()


@final
class Interrupts(Observer):
    """An observer that sends its own process a signal at a version, which is then not yet kept."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def version(self, record: Any, model: object) -> None:
        if record.version == INTERRUPTED_AT:
            signal.raise_signal(self.number)


def killed(names: Iterable[str], out: Path) -> Carried:
    """SIGKILL in the middle of each, in forks of one process without threads; then they are resumed here."""
    wanted = list(names)
    command = [sys.executable, "-W", "ignore", __file__, str(out), *wanted]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment)
    for name in wanted:
        run = pr.Run.open(name, out / "killed")
        assert run.status == "killed", run.status
        yield name, pr.resume(of(name, name=name), run, execution=how(name))


def victims(names: Iterable[str], out: Path) -> None:
    """Carries runs out until each is killed."""
    for name in names:
        child = os.fork()
        if not child:
            try:
                pr.run(
                    of(name, name=name),
                    execution=how(name),
                    out=out / "killed",
                    observers=[Interrupts(signal.SIGKILL)],
                )
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, name


def stopped(names: Iterable[str], out: Path) -> Carried:
    """Ctrl-C in the middle."""
    for name in names:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            run = pr.run(of(name), execution=how(name), out=out, observers=[Interrupts(signal.SIGINT)])
        finally:
            signal.signal(signal.SIGINT, before)
        assert run.status == "stopped", run.status
        yield name, pr.resume(of(name), run, execution=how(name))


def extended(names: Iterable[str], out: Path) -> Carried:
    """Fewer rounds, and then all of them."""
    for name in names:
        begun = pr.run(of(name, rounds=INTERRUPTED_AT), execution=how(name), out=out)
        yield name, pr.resume(of(name), begun, execution=how(name))


def replayed(names: Iterable[str], out: Path) -> Carried:
    """From the order of events, and from the updates that were logged."""
    for name in names:
        logged = not of(name).recipe.sums_only  # of which there are no single updates to be logged
        run = pr.run(of(name), execution=how(name), out=out, log_updates=logged)
        for from_updates in (False, True)[: 1 + logged]:
            verdict = pr.replay(run, of(name), execution=how(name), from_updates=from_updates)
            assert verdict.equal, str(verdict)
        yield name, run


def verified(names: Iterable[str], out: Path) -> Carried:
    for name in names:
        run = pr.run(of(name), execution=how(name), out=out)
        verdict = pr.verify(run, of(name), execution=how(name))
        assert verdict.equal, str(verdict)
        yield name, run


def on_nodes(names: Iterable[str], out: Path) -> Carried:
    from golden_nodes import on_nodes

    return ((name, on_nodes(lambda name=name: of(name), how(name), out)) for name in names)


def on_flower(names: Iterable[str], out: Path) -> Carried:
    from golden_nodes import on_flower

    return ((name, on_flower(lambda name=name: of(name), how(name), out)) for name in names)


WAYS: Mapping[str, Way] = {
    "in line": in_line,
    "in processes": elsewhere("processes"),
    "in threads": elsewhere("threads"),
    "on Ray": on_ray,
    "killed and resumed": killed,
    "stopped and resumed": stopped,
    "finished and extended": extended,
    "replayed": replayed,
    "verified": verified,
    "on nodes": on_nodes,
    "on Flower": on_flower,
}
NEEDS = {"on Ray": "ray", "on Flower": "flwr"}
"""Libraries that a way needs, and that may not be there."""
REAL_TIME = {"on nodes", "on Flower"}
"""Ways in which time and costs are those of nodes, so that only the models must be equal."""
TOGETHER = {"on Ray", "killed and resumed"}
"""Ways that take seconds to begin, whatever they then carry out."""


def missing(way: str) -> str:
    """The library that a way needs and that is not there; else nothing."""
    needed = NEEDS.get(way, "")
    return needed if needed and importlib.util.find_spec(needed) is None else ""


if __name__ == "__main__":
    victims(sys.argv[2:], Path(sys.argv[1]))
