"""Which commit is named: a checkout's own, or the one that was written down."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from polyrhythm.base.origin import commit


def git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@a.example", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a checkout with one commit, and with another commit written down."""
    place = tmp_path / "src" / "polyrhythm"
    (place / "base").mkdir(parents=True)
    (place / "base" / "commit.txt").write_text("0123abc\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return place


def test_a_checkout_is_asked(package: Path) -> None:
    head = git(package, "rev-parse", "HEAD").strip()
    assert commit(package) == head
    (package / "base" / "commit.txt").write_text("changed")
    assert commit(package) == f"{head}-dirty"


def test_what_is_installed_was_written_down(package: Path) -> None:
    """Also where it lies in somebody's repository: that one's commits are not ours."""
    installed = package.parents[1] / "lib" / "site-packages" / "polyrhythm"
    installed.parent.mkdir(parents=True)
    package.rename(installed)
    assert commit(installed) == "0123abc"
    (installed / "base" / "commit.txt").write_text("\n")
    assert commit(installed) == ""
    (installed / "base" / "commit.txt").unlink()
    assert commit(installed) == ""


def test_nobody_knows_where_git_is_missing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit(package) == ""
