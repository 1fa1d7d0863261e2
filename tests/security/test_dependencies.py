"""Dependencies: lower bounds only, downloads that are checked, and an audit of what is installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from polyrhythm.data.sources import cifar, idx

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIRED: list[str] = [
    *PROJECT["project"]["dependencies"],
    *(line for extra in PROJECT["project"]["optional-dependencies"].values() for line in extra),
    *PROJECT["build-system"]["requires"],
]
FOREIGN = sorted({line for line in REQUIRED if not line.startswith("polyrhythm[")})
# Nobody installs it beside anything else: it builds the site, strictly, in an environment of its own.
PINNED = {*PROJECT["project"]["optional-dependencies"]["docs"]} - {"ruff>=0.9"}


@pytest.mark.parametrize("line", FOREIGN)
def test_every_dependency_has_a_lower_bound_and_no_upper_one(line: str) -> None:
    bound = "==" if line in PINNED else ">="
    assert re.fullmatch(rf"[\w.-]+(\[[\w,]+\])?{bound}\d[\w.]*(; sys_platform == '\w+')?", line)


def test_every_dependency_has_its_reason() -> None:
    decisions = (ROOT / "docs" / "decisions.md").read_text()
    for line in FOREIGN:
        assert re.split(r"[>=\[]", line)[0] in decisions, line


def test_what_is_downloaded_is_known_by_its_digest() -> None:
    for download in (cifar.CIFAR10, cifar.CIFAR100):
        assert re.fullmatch("[0-9a-f]{64}", download.sha256)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in (*idx.MNIST_SHA256, *idx.FASHION_SHA256))


@pytest.mark.slow
def test_no_installed_dependency_has_a_known_vulnerability(tmp_path: Path) -> None:
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed: pip install pip-audit")
    installed = {}
    for line in FOREIGN:
        name = re.split(r"[>\[]", line)[0]
        try:
            installed[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    listed = tmp_path / "installed.txt"
    listed.write_text("".join(f"{name}=={version}\n" for name, version in installed.items()))
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--no-deps", "--disable-pip"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    said = done.stdout + done.stderr
    if "ConnectionError" in said or "Could not connect" in said or "timed out" in said:
        pytest.skip("the database of vulnerabilities cannot be reached")
    unknown = re.findall(r"^(\S+) +Dependency not found on PyPI", said, re.MULTILINE)
    if done.returncode == 0 and len(unknown) == len(installed):
        pytest.skip("the database of vulnerabilities knows none of the packages: it cannot be reached from here")
    assert done.returncode == 0, said
