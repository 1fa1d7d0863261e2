"""The build backend: scikit-build-core's, which is told of what only git knows.

The commit that a distribution is made from is written into COMMIT, a file that git ignores and that is there while one
is built. A source distribution holds it at its root, so that a wheel which is made from that one knows it, too; a wheel
holds it as `polyrhythm/base/commit.txt`. `POLYRHYTHM_COMMIT` names the commit where git cannot be asked.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from scikit_build_core import build as _build
from scikit_build_core.build import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

_Settings = Mapping[str, list[str] | str] | None
_ROOT = Path(__file__).parents[1]


def build_sdist(sdist_directory: str, config_settings: _Settings = None) -> str:
    """A source distribution, with COMMIT in it."""
    with _recorded():
        return _build.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None) -> str:
    """A wheel, with the commit in it."""
    with _recorded():
        return _build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    """An installation in place; which commit that is, its checkout knows."""
    with _recorded():
        return _build.build_editable(wheel_directory, config_settings, metadata_directory)


@contextlib.contextmanager
def _recorded() -> Iterator[None]:
    """COMMIT, while something is built; one that is there already came with a source distribution, and stays."""
    place = _ROOT / "COMMIT"
    shipped = place.exists() and (_ROOT / "PKG-INFO").exists()
    if not shipped:
        place.write_text(_commit() + "\n", encoding="utf-8")
    try:
        yield
    finally:
        if not shipped:
            place.unlink(missing_ok=True)


def _commit() -> str:
    """The commit that is checked out, with "-dirty" if files were changed since; "" if nobody knows."""
    if told := os.environ.get("POLYRHYTHM_COMMIT"):
        return told
    if not (_ROOT / ".git").exists():  # else git would answer for a repository around this folder
        return ""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    try:
        return subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
