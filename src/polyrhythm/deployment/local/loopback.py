"""A federation of Flower's on this machine: a SuperLink and SuperNodes on loopback, with TLS and a key for each node.

Everything that it needs lies in one folder: keys, the SuperLink's database, what nodes remember, logs, and which
processes run. Nothing but loopback is used, and Flower's telemetry and update check are off unless the environment says
otherwise.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.deployment.local.folder import DATABASE, make_private
from polyrhythm.deployment.local.keys import days_left, make_authority, make_node_key
from polyrhythm.deployment.local.ports import check_free
from polyrhythm.deployment.local.processes import Processes, Started, is_there

CONNECTION = "loopback"
REFUSED = 75.0
"""Seconds for which Flower may refuse the key of a node that was killed hard: until it has missed its heartbeat."""
_PATIENCE = 60.0  # seconds for the SuperLink to be there


@final
class Loopback:
    """Starts and stops the federation of a folder.

    Args:
        folder: for everything that belongs to it.
        port: of the SuperLink; the nodes have those after it.
        tell: says what happens.
    """

    def __init__(self, folder: Path, port: int = 8000, tell: Callable[[str], None] = print) -> None:
        self.folder, self._port, self._tell = folder.absolute(), port, tell
        self.processes = Processes(self.folder)
        self._commands: dict[str, list[str]] = {}
        self._refused: dict[str, float] = {}

    @property
    def address(self) -> str:
        """Of the SuperLink."""
        return f"127.0.0.1:{self._port}"

    def up(self, nodes: int, options: str = "") -> None:
        """Starts what does not run yet, and waits until the SuperLink answers.

        Args:
            nodes: how many; node i is client i.
            options: what else their configuration says, as in --node-config.

        Raises:
            UserError: Flower is not installed.
            RunFailed: a program did not start.
        """
        programs()
        make_private(self.folder)
        self.clear()
        running = {started.name for started in self.processes.alive()}
        ports = {"superlink": self._port} | {f"node {client}": self._node_port(client) for client in range(nodes)}
        check_free({name: port for name, port in ports.items() if name not in running})
        self._certify(bool(running))
        # Flower's own settings: where its commands find the SuperLink.
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.address}"\n'
            f'root-certificates = "{self.folder / "ca.crt"}"\n'
        )
        self._start_superlink()
        for client in range(nodes):
            key = self.folder / "nodes" / str(client) / "key"
            make_node_key(key)
            registered = key.with_name("registered.json")
            if not registered.exists():
                about = self.flwr("supernode", "register", str(key.with_suffix(".pub")), CONNECTION, "--format", "json")
                registered.write_text(json.dumps(about))
            self._start(f"node {client}", self._node(client, options))

    def _certify(self, running: bool) -> None:
        """Makes certificates, or makes them anew before they end, if no program holds the old ones."""
        left = days_left(self.folder)
        if running and left is not None:
            if left <= 0:
                raise UserError(
                    f"the certificates in {self.folder} ended {-left:.0f} days ago, and the federation is still up",
                    expected="certificates that are good today",
                    why="no node and no command can connect any more",
                    fix="polyrhythm flower down, and then up again: new ones are made",
                )
            return
        if make_authority(self.folder) and left is not None:
            state = f"good for {left:.0f} more days" if left > 0 else "out of date"
            self._tell(f"the certificates of this federation were {state}, and are made anew")

    def clear(self) -> None:
        """Ends what programs have left that have ended: the server of a run outlives its SuperLink for a while, and
        nobody could go on with the run until it has gone."""
        for started in self.processes.known():
            self.processes.bury(started, self._is_orphan)

    def _is_orphan(self, process: int) -> bool:
        """Whether Flower has started a process for this federation from another that is over. Some of them begin a
        group of their own, and would end by themselves some time later."""
        proc = Path(f"/proc/{process}")
        try:
            words = (proc / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--parent-pid" not in words or is_there(int(words[words.index("--parent-pid") + 1])):
                return False
            return f"FLWR_HOME={self.folder / 'flwr'}".encode() in (proc / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):  # it has ended, or is somebody else's
            return False

    def _start_superlink(self) -> None:
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--ssl-certfile", str(self.folder / "server.crt"), "--ssl-keyfile", str(self.folder / "server.key")]
        command += ["--ssl-ca-certfile", str(self.folder / "ca.crt"), "--enable-supernode-auth"]
        # Else Flower asks the package index for every run's dependencies, and fails without a network.
        command += ["--disable-runtime-dependency-installation", "--database", str(self.folder / DATABASE)]
        started = self._start("superlink", command)
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            if self.processes.ended(started) or time.monotonic() > end:
                last = last_lines(started)
                raise RunFailed(f"the SuperLink did not start: {diagnosed(last) or last}")
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            self.flwr("supernode", "list", CONNECTION, "--format", "json")
        except RunFailed:
            return False
        return True

    def _node_port(self, client: int) -> int:
        return self._port + 1 + client

    def _node(self, client: int, options: str) -> list[str]:
        folder = self.folder / "nodes" / str(client)
        configuration = f'client={client} store="{folder / "memory"}" {options}'.strip()
        command = ["flower-supernode", "--superlink", self.address, "--host", "127.0.0.1"]
        command += ["--root-certificates", str(self.folder / "ca.crt"), "--port", str(self._node_port(client))]
        return [*command, "--auth-supernode-private-key", str(folder / "key"), "--node-config", configuration]

    def _start(self, name: str, command: list[str]) -> Started:
        self._commands[name] = command
        running = next((started for started in self.processes.alive() if started.name == name), None)
        program = shutil.which(command[0], path=self.environment()["PATH"]) or command[0]
        return running or self.processes.start(name, [program, *command[1:]], self.environment())

    def watch(self) -> None:
        """Starts nodes again that have ended, as often as that takes.

        Raises:
            RunFailed: a node cannot come back; or it is the SuperLink that has ended.
        """
        running = {started.name for started in self.processes.alive()}
        for name, command in self._commands.items():
            if name in running:
                continue
            ended = next((started for started in self.processes.known() if started.name == name), None)
            last = "" if ended is None else last_lines(ended)
            if name == "superlink":
                raise RunFailed(
                    f"the SuperLink has ended; the same command starts another, and the run goes on from its last "
                    f"checkpoint. The end of its log:\n{last}"
                )
            self._mourn(name, last)
            self._start(name, command)

    def _mourn(self, name: str, last: str) -> None:
        now = time.monotonic()
        why = diagnosed(last)
        if not why:
            self._refused.pop(name, None)
            self._tell(f"{name} has ended and is started again")
        elif UNKNOWN_KEY not in last:
            raise RunFailed(f"{name}: {why}")
        elif name not in self._refused:
            self._refused[name] = now
            self._tell(f"{name} cannot come back yet: {why}")
        elif now - self._refused[name] > REFUSED:
            raise RunFailed(f"{name} is still refused after {REFUSED:g} s: {why}")
        else:
            time.sleep(2.0)

    def down(self) -> int:
        """Stops what was started, nodes before the SuperLink; gives how many programs that were."""
        known = self.processes.known()
        self._commands.clear()
        nodes, others = [s for s in known if s.name != "superlink"], [s for s in known if s.name == "superlink"]
        for started in [*nodes, *others]:
            if not self.processes.stop(started):
                self._tell(f"{started.name} did not end by itself and was killed")
        return len(known)

    def environment(self) -> dict[str, str]:
        """That of the programs."""
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        beside = str(Path(sys.executable).parent)
        path = os.pathsep.join([beside, os.environ.get("PATH", "")])
        return {**quiet, **os.environ, "FLWR_HOME": str(self.folder / "flwr"), "PATH": path}

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Runs a command of Flower's that answers in JSON.

        Raises:
            RunFailed: it failed.
        """
        done = self._run(*arguments)
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            answer = {"success": False}
        if done.returncode or not answer.get("success", True):
            words = str(answer.get("error-message") or done.stderr or done.stdout)
            raise RunFailed(f"flwr {' '.join(arguments)} failed: {diagnosed(words) or words}")
        return answer

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [shutil.which("flwr", path=self.environment()["PATH"]) or "flwr", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), stdin=subprocess.DEVNULL, check=False
        )

    def begin(self, app: Path, settings: Mapping[str, str | int | float | bool]) -> subprocess.Popen[str]:
        """Starts a run of an app, and gives the process that follows its log."""
        written = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items())
        return self._followed("run", str(app), CONNECTION, "--run-config", written, "--stream")

    def follow(self, run: str) -> subprocess.Popen[str]:
        """The process that follows the log of a run that has begun, once more from its beginning."""
        return self._followed("log", run, CONNECTION, "--stream")

    def goes_on(self, run: str) -> bool:
        """Whether a run has not ended, as far as Flower knows."""
        answer = self.flwr("list", CONNECTION, "--run-id", run, "--format", "json")
        status = next((str(row.get("status", "")) for row in answer.get("runs", [])), "")
        return status.startswith(("pending", "starting", "running"))

    def _followed(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [shutil.which("flwr", path=self.environment()["PATH"]) or "flwr", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
            start_new_session=True,
        )


def programs() -> None:
    """Goes on if Flower is installed beside this Python.

    Raises:
        UserError: it is not.
    """
    beside = Path(sys.executable).parent
    missing = [name for name in ("flwr", "flower-superlink", "flower-supernode") if not _found(name, beside)]
    if missing:
        raise UserError(
            f"{missing[0]} is not there",
            expected="Flower, installed with polyrhythm",
            why="the federation is carried by its programs",
            fix="pip install 'polyrhythm[flower]'",
        )


def _found(name: str, beside: Path) -> bool:
    return (beside / name).exists() or shutil.which(name) is not None


UNKNOWN_KEY = "[code: 2004]"
_SAID: Mapping[str, str] = {
    UNKNOWN_KEY: "the SuperLink does not take its key: it was never registered (`flwr supernode register`), or the "
    "node was killed hard, and the same key is taken again when the old connection has lapsed, in about a minute",
    "[code: 2001]": "the SuperLink asks for a key, and the node has shown none: start it with "
    "--auth-supernode-private-key",
    "certificate has expired": "the SuperLink's certificate has expired: `polyrhythm flower down` and `up` make a new "
    "one; on machines of your own, give the SuperLink and the nodes new ones",
    "certificate is not yet valid": "the SuperLink's certificate is not valid yet: the clocks of two machines differ",
    "ddress already in use": "address in use: another program listens at its port; give it another one, --port",
    "CERTIFICATE_VERIFY_FAILED": "the SuperLink's certificate is not from the authority that the node trusts: give it "
    "the right one, --root-certificates",
    "OpenSSH": "its private key is not in the OpenSSH format: make it with ssh-keygen -t ecdsa -b 384",
}


def diagnosed(log: str) -> str:
    """Why a node has ended, in words, where its log says so; else empty."""
    return next((words for sign, words in _SAID.items() if sign in log), "")


def last_lines(started: Started, most: int = 12) -> str:
    """The end of a program's log."""
    try:
        lines: Sequence[str] = Path(started.log).read_text(errors="replace").splitlines()
    except OSError:
        return "it has said nothing"
    return "\n".join(lines[-most:])
