"""What is shipped is what git has: the rules that choose files, and the comparison that `make test-wheel` makes."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts import ROOT, script

building = script("tests/shipping/building.py")
FILES = {
    "src/polyrhythm/py.typed",
    "src/polyrhythm/runs/recorded.py",
    "src/polyrhythm/native/lanes.h",
    "src/polyrhythm/a.cpp",
}
INSTALLED = {"polyrhythm/py.typed", "polyrhythm/runs/recorded.py"}
NATIVE = "polyrhythm/base/_native.cpython-313-x86_64-linux-gnu.so"


def test_what_is_whole_is_found_to_be() -> None:
    assert building.differences(FILES, FILES, INSTALLED) == []
    assert building.differences(FILES, FILES, {*INSTALLED, NATIVE}) == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_missing_is_named(name: str) -> None:
    installed = INSTALLED - {name.removeprefix("src/")}
    found = building.differences(FILES, FILES - {name}, installed)
    assert found[0] == f"missing from the sdist: {name}"
    assert found[1:] == [f"missing from the wheel: {name.removeprefix('src/')}"] * (len(installed) < len(INSTALLED))


def test_a_file_that_is_too_much_is_named() -> None:
    stray = {"src/polyrhythm/notes.txt"}
    assert building.differences(FILES, FILES | stray, INSTALLED) == ["too much in the sdist: src/polyrhythm/notes.txt"]
    for name in ("polyrhythm/a.cpp", "tests/small.py", "polyrhythm/engines/_native.so"):
        assert building.differences(FILES, FILES, {*INSTALLED, name}) == [f"too much in the wheel: {name}"]


def test_archives_are_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as sdist:
        for name in (*FILES, "PKG-INFO", "tests/src/no.py"):
            sdist.addfile(tarfile.TarInfo(f"polyrhythm-1/{name}"), io.BytesIO())
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name in (*INSTALLED, "polyrhythm-1.dist-info/RECORD"):
            wheel.writestr(name, "")
    assert building.in_sdist(tmp_path / "a.tar.gz") == FILES
    assert building.in_wheel(tmp_path / "a.whl") == INSTALLED


# The rules, without building: git's own patterns are those of scikit-build-core.


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout, so there is no list of files to hold the rules to")
    files: set[str] = building.tracked()
    assert len(files) > 400
    return files


@pytest.fixture(scope="module")
def rules() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]


def matched(patterns: Sequence[str], files: set[str], place: Path) -> set[str]:
    """Those of some files that patterns take, as a .gitignore with them in the same root would."""
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    (place / ".gitignore").write_text("\n".join(patterns))
    command = ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "--stdin"]
    found = subprocess.run(command, cwd=place, input="\0".join(sorted(files)), capture_output=True, text=True)
    assert found.returncode in (0, 1), found.stderr
    return {name for name in found.stdout.split("\0") if name}


def left_out(rules: Any, files: set[str], place: Path) -> set[str]:
    """The files that would not be in the source distribution."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    return matched([*ignored, *rules["sdist"]["exclude"]], files, place) - matched(
        rules["sdist"]["include"], files, place
    )


def test_no_file_of_the_package_is_left_out_of_the_sdist(rules: Any, tracked: set[str], tmp_path: Path) -> None:
    assert left_out(rules, tracked, tmp_path) == set()


def test_a_pattern_without_its_slash_is_found(rules: Any, tracked: set[str], tmp_path: Path) -> None:
    wrong = {**rules, "sdist": {**rules["sdist"], "exclude": [".ci", "runs"]}}
    assert "src/polyrhythm/runs/recorded.py" in left_out(wrong, tracked, tmp_path)


def test_only_sources_of_the_engine_are_left_out_of_the_wheel(rules: Any, tracked: set[str], tmp_path: Path) -> None:
    assert rules["wheel"]["packages"] == ["src/polyrhythm"]
    taken = matched(rules["wheel"]["exclude"], tracked, tmp_path)
    assert taken == {name for name in tracked if name.endswith((".cpp", ".h"))}
    assert taken
