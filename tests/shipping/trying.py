"""What is tried with an installation that no checkout is near: the commands of the first pages, and one request.

Programs are started by their path, and find nothing else: neither a compiler nor anything of this checkout's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUICKSTART = [
    *("run", "--data", "digits", "--clients", "20", "--partition", "dirichlet(alpha=0.3)"),
    *("--method", "fedavg(cohort=10)", "--rounds", "30", "--seed", "0", "--json", "--out"),
]
# A mechanism of the user's own, in a file beside the run.
OWN = [
    *("run", "--clients", "4", "--method", "fedavg(epochs=1) | own_mechanism:SharedDirection(strength=0.5)"),
    *("--rounds", "3", "--json", "--out"),
]
# Each reads files of the package that are no Python: a schema, styles and templates, the reproductions, a project.
READERS = [
    ["schema"],
    ["show", "--out", "runs"],
    ["report", "--out", "runs", "--output", "report.html"],
    ["plot", "--out", "runs", "--figure", "accuracy", "--output", "accuracy.svg"],
    ["study", "list"],
    ["bench", "--work", "mlp-fmnist", "--repeats", "1"],
    ["flower", "new", "project"],
]


def environment(folder: Path, beside: Path | None = None) -> Path:
    """A bare environment; its interpreter.

    Args:
        folder: of the environment.
        beside: the interpreter of another one, whose packages are found after its own; so PyTorch need lie there once.
    """
    venv.create(folder)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if beside is not None:
        (packages(python) / "beside.pth").write_text(f"{packages(beside)}\n")
    return python


def packages(python: Path) -> Path:
    """Where an environment keeps its packages."""
    return Path(call([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=ROOT).strip())


def pip(python: Path, *arguments: str, cwd: Path, **variables: str) -> str:
    """Installs into an environment, with the constraints that `make` installs with; ours serves, and is not in it."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    return call([*command, "--constraint", str(ROOT / "constraints.txt"), *arguments], cwd=cwd, **variables)


def run(python: Path, *arguments: str, cwd: Path) -> str:
    """What a command of ours says."""
    return call([str(python), "-m", "polyrhythm", *arguments], cwd=cwd, PATH=str(python.parent))


def quickstart(python: Path, folder: Path) -> dict[str, str]:
    """What the command of the first page gives, run in a folder."""
    folder.mkdir(exist_ok=True)
    return dict(json.loads(run(python, *QUICKSTART, "runs", cwd=folder)))


def own_mechanism(python: Path, folder: Path) -> dict[str, str]:
    """What a run with a mechanism of the user's own gives."""
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "examples" / "own_mechanism.py", folder)
    return dict(json.loads(run(python, *OWN, "own", cwd=folder)))


def dashboard(python: Path, folder: Path) -> str:
    """The first page of the dashboard of the runs of a folder.

    Raises:
        SystemExit: it does not start, or answers with something else.
    """
    command = [str(python), "-m", "polyrhythm", "ui", "runs", "--port", "0"]
    shown = bare_environment(PATH=str(python.parent), PYTHONUNBUFFERED="1")
    with subprocess.Popen(
        command, cwd=folder, env=shown, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        said = ""
        try:
            for line in server.stdout:
                said += line
                if found := re.search(r"http://\S+", line):
                    with urllib.request.urlopen(found[0], timeout=60) as answer:
                        page: str = answer.read().decode()
                    if "<title>" not in page:
                        raise SystemExit(f"{found[0]} is no page:\n{page}")
                    return page
        finally:
            server.terminate()
    raise SystemExit(f"the dashboard did not start:\n{said}")


def refusal(python: Path, *arguments: str, cwd: Path) -> str:
    """What a command says that cannot be carried out.

    Raises:
        SystemExit: it was carried out, or ended in a traceback.
    """
    command = [str(python), "-m", "polyrhythm", *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=bare_environment(PATH=str(python.parent)), capture_output=True, text=True
    )
    if not done.returncode or "Traceback" in done.stderr:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}\nshould have been refused in words")
    return done.stderr


def bare_environment(**variables: str) -> Mapping[str, str]:
    """The variables of this process, but for those that would have Python import something of this shell's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "POLYRHYTHM"))}
    return kept | {"PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"} | variables


def call(command: Sequence[str], *, cwd: Path, **variables: str) -> str:
    """What a command says, away from the checkout; ends if it fails.

    Raises:
        SystemExit: with what it said.
    """
    begun = time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=bare_environment(**variables), capture_output=True, text=True)
    told = " ".join(Path(word).name if word.startswith(os.sep) else word for word in command[:6])
    if time.monotonic() - begun > 1:
        print(f"{time.monotonic() - begun:6.1f} s  {told} …", flush=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}\nended with {done.returncode}")
    return done.stdout
