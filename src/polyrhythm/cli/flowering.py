"""`polyrhythm flower`: a project for Flower, and a federation of Flower's on this machine."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import typer

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.run_display import print_plan, print_result
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import configure
from polyrhythm.deployment.local.loopback import Loopback, programs
from polyrhythm.deployment.local.project import PACKAGE, is_ours, write_project
from polyrhythm.experiments.prepared import prepare
from polyrhythm.results import Run
from polyrhythm.results.progress import LiveProgress
from polyrhythm.runs.records import Plan, VersionRecord

_LOOK = 0.3  # seconds between two looks at the record
_OURS = re.compile(r"^.*?\bpolyrhythm: (.*)$")
_BEGUN = re.compile(r"^run (\S+) in (.*)$")


def new(folder: Path, screen: Screen, trust: Trust) -> None:
    """Writes a project.

    Raises:
        UserError: the folder is not empty, or cannot be written.
    """
    for path in write_project(folder, trust=trust):
        screen.print(str(path), highlight=False, markup=False)
    named = "".join(f" --trust {module}" for module in trust.modules)
    screen.print(f"try it: polyrhythm flower up {folder}{named}", highlight=False, markup=False)


def up(
    what: Path | None,
    nodes: int | None,
    settings: list[str],
    trust: Trust,
    *,
    out: str,
    folder: Path,
    port: int,
    keep: bool,
    resume: bool,
    log_updates: bool,
    as_json: bool,
    wait: float = 300.0,
) -> None:
    """Starts a federation, runs an experiment on it, and stops it.

    Args:
        what: an experiment file, or the folder of a project; the small experiment of a new project if None.
        nodes: how many, one for each client; as many as the experiment has clients if None.
        settings: keys of the experiment, as `key=value`.
        trust: the modules that the user has named; told to the server and to the nodes.
        out: the folder of the record.
        folder: for all that belongs to the federation.
        port: of the SuperLink.
        keep: whether the federation goes on when the run is over.
        resume: whether an unfinished run of the same experiment goes on.
        log_updates: whether what nodes send is kept.
        as_json: prints one line of JSON.
        wait: seconds until all nodes must be there.

    Raises:
        UserError: something is wrong that can be known before the first round.
        RunFailed: the run, or the federation, could not go on.
        typer.Exit: it was stopped.
    """
    programs()
    app = _project(what, folder, settings, trust)
    if nodes is not None:
        settings = [f"clients={nodes}", *settings]
    configuration = configure(app / PACKAGE / "experiment.toml", {}, settings, trust)
    (experiment,) = assemble(configuration)
    screen = Screen(stderr=as_json)
    if not as_json:
        print_plan(screen, prepare(experiment, configuration.execution))
    federation = Loopback(folder, port, tell=screen.note)
    run_settings: dict[str, Any] = {"set": "; ".join(settings), "out": str(Path(out).absolute())}
    if trust.modules:
        run_settings["trust"] = " ".join(trust.modules)
    run_settings |= {"resume": resume, "log-updates": log_updates, "wait": wait}
    try:
        with stopped_by_sigterm():
            federation.up(experiment.federation.clients, _for_nodes(trust))
            run = _Followed(federation, screen).go(app, run_settings, out)
    finally:
        if keep:
            federation.clear()
        else:
            federation.down()
    summary = {"status": run.status, "reason": run.reason, **run.summary}
    if as_json:
        print_json({"run_id": run.id, **summary})
    else:
        print_result(screen, run, summary, out)
    if run.status == "stopped":
        raise typer.Exit(INTERRUPTED)


def down(folder: Path, screen: Screen) -> None:
    """Stops what `up` has left."""
    count = Loopback(folder, tell=screen.note).down()
    screen.print(f"{count} programs stopped" if count else f"nothing of {folder} is running", highlight=False)


def _for_nodes(trust: Trust) -> str:
    """What the configuration of nodes says of the modules that the user has named."""
    return f'trust="{" ".join(trust.modules)}"' if trust.modules else ""


def _project(what: Path | None, folder: Path, settings: list[str], trust: Trust) -> Path:
    """The folder of the project to run; one for an experiment file is written into the federation's."""
    if what is not None and what.is_dir():
        if not (what / "pyproject.toml").exists():
            raise UserError(
                f"{what} has no pyproject.toml",
                expected="a project, as `polyrhythm flower new` writes it, or an experiment file",
                why="Flower runs projects",
                fix="polyrhythm flower new DIR, or give the path of an experiment file",
            )
        return what
    text = None
    if what is not None:
        configure(what, {}, settings, trust)  # what is wrong with it is said with its own name and lines
        text = what.read_text(encoding="utf-8")
    project = folder / "project"
    if any(project.glob("*")) and not is_ours(project):
        raise UserError(
            f"{project} is there, and none of polyrhythm's projects",
            expected="a folder for the federation alone",
            why="the project that is run would be written in its place",
            fix="give another folder with --dir",
        )
    for path in sorted(project.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    write_project(project, text, trust)
    return project


@final
class _Followed:
    """A run on a federation, shown while it goes."""

    def __init__(self, federation: Loopback, screen: Screen) -> None:
        self._federation, self._screen = federation, screen
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._said: list[str] = []
        self._run: Run | None = None
        self._flower_run = ""
        self._stream: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._heard = self._known = 0  # lines of ours, and how many of them were heard in an earlier log

    def go(self, app: Path, settings: dict[str, Any], out: str) -> Run:
        """The whole run; Ctrl-C ends it.

        Raises:
            RunFailed: it did not begin, or could not go on.
        """
        self._listen_to(self._federation.begin(app, settings))
        progress = LiveProgress(self._screen)
        try:
            for version in self._versions(out, progress):
                progress.version(version, dict)
        except KeyboardInterrupt:
            if self._flower_run:
                self._federation.flwr("stop", self._flower_run, "loopback", "--format", "json")
            raise
        finally:
            progress.end("finished", "", {})
            self._listen_to(None)
        if self._run is None or self._run.status in ("running", "killed"):
            raise RunFailed("\n".join(self._said[-30:]) or "Flower has said nothing")
        if self._run.status == "failed":
            raise RunFailed(self._run.reason)
        return self._run

    def _listen_to(self, stream: subprocess.Popen[str] | None) -> None:
        """Follows another log, or none, in place of the one before."""
        if self._stream is not None and self._reader is not None:
            self._stream.terminate()
            self._stream.wait()
            self._reader.join()
            if self._stream.stdout is not None:
                self._stream.stdout.close()
        self._stream = stream
        if stream is not None:
            self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
            self._reader.start()

    def _read(self, stream: subprocess.Popen[str]) -> None:
        assert stream.stdout is not None
        for line in stream.stdout:
            self._lines.put(line.rstrip("\n"))

    def _versions(self, out: str, progress: LiveProgress) -> Iterator[VersionRecord]:
        """The versions of the record, as they are made."""
        shown = -1
        while True:
            silent = self._stream is None or self._stream.poll() is not None
            self._hear(out, progress)
            for row in [] if self._run is None else self._run.versions:
                if row["version"] > shown:
                    shown = row["version"]
                    yield VersionRecord(**row)
            if self._run is not None and self._run.status not in ("running", "killed"):
                return
            self._federation.watch()
            if silent:
                if not self._flower_run or not self._federation.goes_on(self._flower_run):
                    return
                # Flower's command may end before the run does, for example on a busy machine.
                self._listen_to(None)
                self._hear(out, progress)
                self._known, self._heard = self._heard, 0
                self._listen_to(self._federation.follow(self._flower_run))
            time.sleep(_LOOK)

    def _hear(self, out: str, progress: LiveProgress) -> None:
        """Shows what the server says, and finds the run that it speaks of."""
        while not self._lines.empty():
            line = self._lines.get()
            self._said.append(line)
            if started := re.search(r"started run (\d+)", line):
                self._flower_run = started[1]
            if not (ours := _OURS.match(line)):
                continue
            self._heard += 1
            if self._heard <= self._known:
                continue
            text = ours[1].removeprefix("note: ")
            if begun := _BEGUN.match(text):
                self._run = Run.open(begun[1], out)
                progress.begin(_plan_of(self._run))
            else:
                self._screen.note(text)


def _plan_of(run: Run) -> Plan:
    """What the progress must know of a run."""
    return Plan(
        name=run.name,
        config=run.config,
        recipe=run.recipe,
        recipe_digest="",
        seed=run.seed,
        rounds=run.config["rounds"],
        notices=(),
        headline=run.headline,
        parameters=0,
        clients=0,
    )
