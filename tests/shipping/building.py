"""Builds the source distribution, from it the wheel, and tries that one where no checkout is near.

    python tests/shipping/building.py        # or make test-wheel; minutes

Both must hold exactly the files that git has under `src`: C++ in the source distribution alone, the compiled engine in
the wheel alone. The wheel is then installed in a bare environment, with the constraints that `make` installs with, and
must give the digest that this checkout gives, and find the data that it ships with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
QUICKSTART = [
    *("run", "--data", "digits", "--clients", "20", "--partition", "dirichlet(alpha=0.3)"),
    *("--method", "fedavg(cohort=10)", "--rounds", "30", "--seed", "0", "--json", "--out"),
]
# Each reads files of the package that are no Python: a schema, styles and templates, the reproductions.
READERS = [
    ["schema"],
    ["report", "--out", "runs", "--output", "report.html"],
    ["plot", "--out", "runs", "--figure", "accuracy", "--output", "accuracy.svg"],
    ["reproduce", "list"],
]
_SOURCES = {".cpp", ".h"}
_NATIVE = "polyrhythm/base/_native."


def tracked(root: Path = ROOT) -> set[str]:
    """The files that git has under `src`, from the project's root."""
    listed = subprocess.run(["git", "ls-files", "-z", "src"], cwd=root, check=True, capture_output=True, text=True)
    return {name for name in listed.stdout.split("\0") if name}


def in_sdist(archive: Path) -> set[str]:
    """The files under `src` of a source distribution, from its root."""
    with tarfile.open(archive) as files:
        names = {str(PurePosixPath(*PurePosixPath(m.name).parts[1:])) for m in files.getmembers() if m.isfile()}
    return {name for name in names if name.startswith("src/")}


def in_wheel(archive: Path) -> set[str]:
    """The files of a wheel, but for its metadata."""
    with zipfile.ZipFile(archive) as files:
        names = {name for name in files.namelist() if not name.endswith("/")}
    return {name for name in names if not name.partition("/")[0].endswith(".dist-info")}


def differences(git: Iterable[str], sdist: Iterable[str], wheel: Iterable[str]) -> list[str]:
    """What is missing from one of the two, or is too much in it; in words, nothing if both are right.

    Args:
        git: files, from the project's root.
        sdist: files under `src`, likewise.
        wheel: files, as they are installed.
    """
    installed = {name.removeprefix("src/") for name in git if PurePosixPath(name).suffix not in _SOURCES}
    pure = {name for name in wheel if not name.startswith(_NATIVE)}
    pairs = (("sdist", {*git}, {*sdist}), ("wheel", installed, pure))
    return [
        f"{word} the {place}: {name}"
        for place, wanted, found in pairs
        for word, names in (("missing from", wanted - found), ("too much in", found - wanted))
        for name in sorted(names)
    ]


def build(folder: Path) -> tuple[Path, Path]:
    """A source distribution, and the wheel that comes from it and not from the checkout."""
    _call([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], cwd=folder)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def install(wheel: Path, folder: Path) -> Path:
    """A bare environment with a wheel and what it depends on, and nothing else; its interpreter."""
    venv.create(folder)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]  # ours serves, so that it need not be installed there
    _call([*pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel)], cwd=folder)
    return python


def quickstart(python: Path, folder: Path) -> dict[str, str]:
    """What the command of the first page gives, run in a folder."""
    folder.mkdir()
    return dict(json.loads(_call([str(python), "-m", "polyrhythm", *QUICKSTART, "runs"], cwd=folder)))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="polyrhythm-wheel-") as place:
        return _try(Path(place).resolve())


def _try(place: Path) -> int:
    (place / "dist").mkdir()
    sdist, wheel = build(place / "dist")
    files = tracked(), in_sdist(sdist), in_wheel(wheel)
    print(f"git {len(files[0])} files, {sdist.name} {len(files[1])}, {wheel.name} {len(files[2])}")
    if wrong := differences(*files):
        print(*wrong, sep="\n")
        return 1
    python = install(wheel, place / "environment")
    where = _call([str(python), "-c", "import polyrhythm; print(polyrhythm.__file__)"], cwd=place).strip()
    print(f"installed in {where}")
    if not Path(where).is_relative_to(place):
        print("that is not where the wheel was installed")
        return 1
    found = {name: quickstart(py, place / name) for name, py in (("wheel", python), ("checkout", Path(sys.executable)))}
    for name, line in found.items():
        print(f"{name}: digest {line['digest']}, {line['engine']} engine")
    for reader in READERS:
        _call([str(python), "-m", "polyrhythm", *reader], cwd=place / "wheel")
    print(f"it reads what it ships with: {', '.join(reader[0] for reader in READERS)}")
    if found["wheel"]["digest"] != found["checkout"]["digest"]:
        print("the digests differ")
        return 1
    return 0


def _call(command: Sequence[str], *, cwd: Path) -> str:
    """What a command says, away from the checkout and from what this shell would have Python import; ends if it fails.

    Raises:
        SystemExit: with what it said.
    """
    begun = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    told = " ".join(Path(word).name if word.startswith(os.sep) else word for word in command[:4])
    print(f"{time.monotonic() - begun:6.1f} s  {told} …", flush=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}\nended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
