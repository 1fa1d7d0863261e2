"""Which commit this code is of."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def commit(package: Path = _PACKAGE) -> str:
    """The commit of a checkout, as git says it now, or the one that was written down when the package was built.

    "-dirty" is added if files of git's were changed since; "" if nobody knows.

    Args:
        package: the folder of the package.
    """
    root = package.parents[1]
    if package == root / "src" / "polyrhythm" and (root / ".git").exists():
        command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
        try:
            return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):  # no git, or a repository that is somebody else's
            return ""
    try:
        return (package / "base" / "commit.txt").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
