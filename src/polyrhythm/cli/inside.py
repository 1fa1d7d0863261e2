"""Where an experiment file may have things written: in the folder that the command runs in, and nowhere else.

A file may come from somebody else. Whoever types a folder on the command line means it.
"""

from __future__ import annotations

from pathlib import Path

from polyrhythm.errors import UserError


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


def _refused(key: str, text: str, problem: str) -> UserError:
    return UserError(
        f"{key} = {text!r}, {problem}",
        expected="a folder inside the one that you run in",
        why="an experiment file may come from somebody else, and must not write into your other folders",
        fix=f"give it on the command line: --{key} FOLDER",
    )
