"""What is declared in one place and repeated in another: versions, bounds, workflows, what a container is made from."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from scripts import ROOT, script

release = script("tests/shipping/release.py")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SAYS = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "src/polyrhythm/__init__.py")


def test_all_places_name_one_version() -> None:
    assert release.disagreements(ROOT) == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in SAYS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


@pytest.mark.parametrize("name", SAYS[1:])
def test_another_version_is_found(copy: Path, name: str) -> None:
    (copy / name).write_text((copy / name).read_text().replace(PROJECT["project"]["version"], "9.9.9"))
    (found,) = release.disagreements(copy)
    assert name in found
    assert "9.9.9" in found


def test_a_release_needs_its_tag_and_a_date(copy: Path) -> None:
    version = PROJECT["project"]["version"]
    changelog = re.sub(
        r"^## \S+ — .+$", f"## {version} — unreleased", (copy / "CHANGELOG.md").read_text(), count=1, flags=re.M
    )
    (copy / "CHANGELOG.md").write_text(changelog)
    assert release.disagreements(copy) == []
    assert "unreleased" in release.disagreements(copy, f"v{version}")[0]
    (copy / "CHANGELOG.md").write_text(changelog.replace("— unreleased", "— 2026-12-01", 1))
    assert release.disagreements(copy, f"v{version}") == []
    assert "the tag says 9.9.9" in release.disagreements(copy, "v9.9.9")[0]
    assert "without its v" in release.disagreements(copy, version)[0]


def test_the_lowest_versions_are_those_that_are_declared() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (tested, *_) = map(Requirement, extras["test"])
    needed = [*PROJECT["project"]["dependencies"], *(line for extra in tested.extras for line in extras[extra])]
    declared = {r.name: str(r.specifier) for r in map(Requirement, needed)}
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = {r.name: str(r.specifier) for r in map(Requirement, (line for line in lines if line[0] != "#"))}
    assert lowest.keys() == declared.keys()
    for name, bound in declared.items():
        exact = lowest[name].removeprefix("==")
        assert re.fullmatch(re.escape(bound.removeprefix(">=")) + r"(\.0)*", exact), name


def test_every_extra_is_in_all_but_those_that_go_with_nothing() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == extras.keys() - {"all", "flower", "test", "dev", "docs"}
    assert script("tests/shipping/extras.py").FEATURES.keys() == everything.extras | {"flower"}


def test_the_workflows_are_workflows() -> None:
    check = pytest.importorskip("check_jsonschema", reason="check-jsonschema is of the extra dev")
    files = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    assert len(files) == 3
    assert check.main(["--builtin-schema", "vendor.github-workflows", *files], standalone_mode=False) in (None, 0)


def test_actions_are_named_by_their_hashes() -> None:
    texts = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = [match for text in texts for match in re.findall(r"uses: (\S+)@(\S+)(?: +# (v[\d.]+))?", text)]
    assert used
    for name, at, version in used:
        assert re.fullmatch("[0-9a-f]{40}", at), name
        assert version, f"{name}: which version is it?"
    assert len({name for name, _, _ in used}) == len(set(used)), "an action is used in two versions"


def test_a_container_has_what_a_wheel_is_made_from() -> None:
    """What .dockerignore lets through is what the build reads, and Dockerfile copies nothing else."""
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    build, files = PROJECT["build-system"], PROJECT["project"]["license-files"]
    fragments = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    read = {"pyproject.toml", "CMakeLists.txt", "src", *build["backend-path"], *files, *(f["path"] for f in fragments)}
    assert let == read | {"constraints.txt"}
    assert all((ROOT / name).exists() for name in let)


def test_the_page_of_an_index_has_no_link_into_the_repository() -> None:
    text = (ROOT / "README.md").read_text()
    assert "](docs/" in text
    outside = "[there](https://a.example/b)"
    text += outside
    for change in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert re.findall(r"\]\((?!#)[^)]*\)", text) == [outside.removeprefix("[there")]
    assert "a Ray cluster" in text


def test_nothing_is_compiled_for_the_processor_that_builds() -> None:
    """Sets of instructions are named, each for a file of its own; see CMakeLists.txt."""
    assert "-march=" not in (ROOT / "CMakeLists.txt").read_text()
    assert "-mtune" not in (ROOT / "CMakeLists.txt").read_text()


def test_version_says_engine_and_commit() -> None:
    done = subprocess.run([sys.executable, "-m", "polyrhythm", "--version"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == f"polyrhythm {PROJECT['project']['version']}"
    assert re.fullmatch(r"native engine (avx512|avx2|plain|not built, .*)", lines[1])
    assert re.fullmatch(r"commit ([0-9a-f]{40}(-dirty)?|unknown)", lines[2])
