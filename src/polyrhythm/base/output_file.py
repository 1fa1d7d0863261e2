"""Whether a file can be written, asked before the work whose result goes into it."""

from __future__ import annotations

import os
from pathlib import Path

from polyrhythm.base.errors import UserError


def check_output(path: Path | str, what: str) -> None:
    """Goes on if a file could be written there; nothing is made.

    Args:
        path: of the file.
        what: would be written, such as "the report".

    Raises:
        UserError: it could not.
    """
    path = Path(path)
    problem = _problem(path)
    if not problem:
        return
    missing = problem.startswith("there is no folder")
    raise UserError(
        f"{path} cannot be written: {problem}",
        expected="a file in a folder that exists and can be written",
        why=f"{what} would be lost, after all the work",
        fix=f"make the folder (mkdir -p {path.parent}), or give another file" if missing else "give another file",
    )


def _problem(path: Path) -> str:
    """What is in the way, in words; "" for nothing."""
    folder = path.parent
    try:
        if path.is_dir():
            return "it is a folder"
        if not folder.exists():
            return f"there is no folder {folder}"
        if not folder.is_dir():
            return f"{folder} is a file"
        if path.exists():
            return "" if os.access(path, os.W_OK) else "it is there already and may not be changed"
        return "" if os.access(folder, os.W_OK | os.X_OK) else f"the folder {folder} may not be written"
    except (OSError, ValueError) as error:  # a name that is too long, or no path at all
        return str(getattr(error, "strerror", None) or error)
