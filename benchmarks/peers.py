"""The same rounds on Flower, pfl, fluke and PFLlib, by hand, and on polyrhythm: seconds, memory, start-up, accuracy.

Each peer gets an environment of its own from the package index, with the torch of constraints.txt, made when it is not
there yet. All take the same samples, clients, initial weights and settings, and draw cohorts and batches as they do.
They run in turn, and again; a round counts with its median, over all runs, without the first and the last of a run.
Memory is the proportional set size of a program and all its children, at its most; start-up is what the first round
takes more than the others, from the command on. Whoever cannot be installed or fails has a row that says why. PFLlib is
no package: PFLLIB in the environment names a checkout of it. The works `cnn-mnist` and `logistic-mnist` are its own, 20
clients who all take part in each round, in batches of 10, with 200 samples each.

    python benchmarks/peers.py --repeats 3 lenet5-fmnist mlp-fmnist
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from polyrhythm.bench import bare

HERE = Path(__file__).parent
ROOT = HERE.parent
PROGRAMS = HERE / "peers"
sys.path.append(str(PROGRAMS))
import more  # noqa: E402

more.add(bare)
RATES = {"lenet5-fmnist": 0.1, "mlp-fmnist": 0.005, "cnn-mnist": 0.005, "logistic-mnist": 0.005}
ROUNDS, TEST_CLIENTS, ALIKE = 12, 10, 0.03


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program, the package that it needs, and how many processes torchrun makes of it (0: none)."""

    program: str
    package: str = ""
    module: str = ""
    processes: int = 0


PEERS = {
    "polyrhythm": Peer("ours.py"),
    "bare loop": Peer("by_hand.py"),
    "Flower": Peer("on_flower.py", "flwr[simulation]", "flwr.simulation, ray"),
    "pfl": Peer("on_pfl.py", "pfl[pytorch]", "pfl.model.pytorch", processes=2),
    "fluke": Peer("on_fluke.py", "fluke-fl"),
    "PFLlib": Peer("on_pfllib.py"),
}
QUIET = {
    **{"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"},
    **{"OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled", "PYTHONWARNINGS": "ignore"},
}


def environment(name: str, peer: Peer, folder: Path) -> Path:
    """The Python that has a peer installed.

    Raises:
        RuntimeError: it could not be installed, in the words of pip.
    """
    if not peer.package:
        return Path(sys.executable)
    python = folder / name.lower() / "bin" / "python"
    if python.exists():
        check = f"import importlib.metadata as m; m.version({peer.package.split('[')[0]!r})"
        if subprocess.run([python, "-c", check], check=False, capture_output=True).returncode == 0:
            return python
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    done = subprocess.run([python, *install, "torch", peer.package], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"cannot be installed: {last_line(done.stderr)}")
    return python


def last_line(text: str) -> str:
    """The last line of some output that says something."""
    return next((line.strip()[:160] for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def write_job(name: str, path: Path) -> None:
    """Makes data up: those of the bare loop, and some more for a test."""
    work = bare.WORKS[name]
    inputs, targets = bare.made_up(dataclasses.replace(work, clients=work.clients + TEST_CLIENTS))
    held = work.clients * work.samples
    torch.manual_seed(0)
    job = {"inputs": inputs[:held], "targets": targets[:held]}
    job |= {"test_inputs": inputs[held:], "test_targets": targets[held:]}
    parts = {key: part.clone() for key, part in job.items()}
    weights = [p.detach().clone() for p in work.model().parameters()]
    torch.save({"name": name, "rounds": ROUNDS, "lr": RATES[name], **parts, "weights": weights}, path)


def run(peer: Peer, python: Path, job: Path, folder: str) -> dict[str, Any]:
    """One run: its line of JSON, when it was started, and the most memory that it held.

    Raises:
        RuntimeError: it failed, in its own last words.
    """
    paths = [str(PROGRAMS), str(Path(bare.__file__).parent), *([] if peer.package else [str(ROOT / "src")])]
    settings = {**os.environ, **QUIET, "PEER_JOB": str(job), "PYTHONPATH": ":".join(paths), "FLWR_HOME": folder}
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(peer.processes)] if peer.processes else []
    started = time.time()
    program = subprocess.Popen(
        [str(python), *launcher, str(PROGRAMS / peer.program)],
        **{"cwd": folder, "env": settings, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
    )
    most, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.3):
            most[0] = max(most[0], memory(program.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, errors = program.communicate()
    over.set()
    watcher.join()
    lines = [line for line in output.splitlines() if line.startswith('{"peer"')]
    if not lines:
        raise RuntimeError(f"failed: {last_line(errors)}")
    return {**json.loads(lines[-1]), "started": started, "memory_mb": most[0]}


def memory(process: int) -> float:
    """The proportional set size of a process and of all that it started, in MB."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
        except OSError:
            continue  # it has ended
    total, waiting = 0, [process]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def measured(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What several runs of one peer tell."""
    seconds = [b - a for told in runs for a, b in zip(told["ends"][:-2], told["ends"][1:-1], strict=True)]
    median = statistics.median(seconds)
    return {
        "peer": runs[0]["peer"],
        "engine": runs[0].get("engine", ""),
        "median": round(median, 4),
        "min": round(min(seconds), 4),
        "start_up": round(statistics.median(told["ends"][0] - told["started"] for told in runs) - median, 2),
        "memory_mb": round(statistics.median(told["memory_mb"] for told in runs)),
        "accuracy": round(statistics.median(told["accuracy"] for told in runs), 4),
    }


def compare(name: str, repeats: int, environments: Path, folder: str) -> None:
    """Prints a work's table and, for programs that read it, a JSON line of each row."""
    job = Path(folder) / f"{name}.pt"
    write_job(name, job)
    runs: dict[str, list[dict[str, Any]]] = {peer: [] for peer in PEERS}
    failed: dict[str, str] = {}
    for _ in range(repeats):
        for who, peer in PEERS.items():
            if who not in failed:
                try:
                    runs[who].append(run(peer, environment(who, peer, environments), job, folder))
                except (RuntimeError, subprocess.CalledProcessError) as reason:
                    failed[who] = str(reason)
    rows = {who: measured(told) for who, told in runs.items() if told and who not in failed}
    ours = rows["polyrhythm"]
    print(f"{name}: {ROUNDS} rounds, {repeats} runs of each in turn, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<18} {'s a round':>9} {'least':>8} {'ours is':>8} {'start-up s':>10} {'MB':>6} {'accuracy':>8}")
    for who in PEERS:
        if who in failed:
            print(f"{who:<18} {failed[who]}")
            continue
        row = rows[who]
        times = f"{row['median'] / ours['median']:.2f} ×"
        apart = abs(row["accuracy"] - ours["accuracy"])
        doubt = f"  other work? its accuracy is {apart:.3f} away" if apart > ALIKE else ""
        print(
            f"{row['peer']:<18} {row['median']:>9.4f} {row['min']:>8.4f} {times:>8} {row['start_up']:>10.2f} "
            f"{row['memory_mb']:>6} {row['accuracy']:>8.3f}{doubt}"
        )
    for who in PEERS:
        print(json.dumps({"work": name, **rows.get(who, {"peer": who, "failed": failed.get(who)})}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", choices=[*RATES, []], help="by default all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", action="append", choices=list(PEERS)[1:], help="beside ours; by default all")
    parser.add_argument("--evaluated", action="store_true", help="ours and PFLlib measure every version")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "peers")
    given = parser.parse_args()
    os.environ["PEER_EVALUATES"] = "1" if given.evaluated else "0"
    for who in [who for who in PEERS if given.peer and who not in ("polyrhythm", *given.peer)]:
        del PEERS[who]
    for name in given.work or RATES:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, given.repeats, given.environments.resolve(), folder)


if __name__ == "__main__":
    main()
