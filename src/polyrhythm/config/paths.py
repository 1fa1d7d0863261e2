"""Where things may be written: where there can be a folder, and for a file in the one that the command runs in.

A file may come from somebody else. Whoever types a folder on the command line means it.
"""

from __future__ import annotations

import os
from pathlib import Path

from polyrhythm.base.errors import UserError


def check_inside(key: str, text: str) -> None:
    """Goes on if a path from a file leads into the working folder, links followed.

    Raises:
        UserError: it leads out of it, or is no path at all.
    """
    here = Path.cwd().resolve()
    try:
        place = (here / text).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, or links that go round in circles
        raise _refused(key, text, f"which is no path ({error})") from None
    if not place.is_relative_to(here):
        raise _refused(key, text, f"which leads out of {here}")


def check_folder(out: str) -> None:
    """Goes on if a run could make its folder there; nothing is made.

    Raises:
        UserError: it could not.
    """
    place = Path(out).absolute()
    there = next(part for part in (place, *place.parents) if part.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"{out} cannot be used: {there} is {'not writable' if there.is_dir() else 'a file'}",
            expected="a folder in which files can be read and written",
            why="the run could not be recorded",
            fix="correct its permissions, or use another folder (--out FOLDER)",
        )


def _refused(key: str, text: str, problem: str) -> UserError:
    return UserError(
        f"{key} = {text!r}, {problem}",
        expected="a folder inside the one that you run in",
        why="an experiment file may come from somebody else, and must not write into your other folders",
        fix=f"give it on the command line: --{key} FOLDER",
    )
