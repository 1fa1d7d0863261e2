"""The folder of a federation: keys, Flower's database, what nodes remember. Nobody else may read it."""

from __future__ import annotations

import os
from pathlib import Path

from polyrhythm.base.errors import UserError

_FOLDERS = ("flwr", "nodes", "logs", "project")
_FILES = ("ca.key", "ca.crt", "server.key", "server.crt", "processes.json")
DATABASE = "state.db"


def make_private(folder: Path) -> None:
    """Makes the folder with what Flower would make readable by everybody; one that is there is closed to others.

    A folder in which there is anything else keeps its permissions, and only what belongs to the federation is closed.

    Raises:
        UserError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if all(path.name in (*_FOLDERS, *_FILES) or path.name.startswith(DATABASE) for path in folder.iterdir()):
            folder.chmod(0o700)
        for name in _FOLDERS:
            (folder / name).mkdir(exist_ok=True, mode=0o700)
            (folder / name).chmod(0o700)
        os.close(os.open(folder / DATABASE, os.O_WRONLY | os.O_CREAT, 0o600))
        for path in folder.glob(f"{DATABASE}*"):
            path.chmod(0o600)
    except OSError as error:
        raise UserError(
            f"{error.filename or folder} cannot be made: {error.strerror or error}",
            expected="a folder of yours, or one that does not exist yet",
            why="keys, logs and what nodes remember lie there",
            fix="give another one with --dir, or correct its permissions",
        ) from error
