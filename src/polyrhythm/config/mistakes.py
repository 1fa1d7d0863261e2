"""Says what is wrong with an experiment file and the options over it: everything at once, each with its place."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from polyrhythm.base.errors import UserError, unknown


def explained(error: ValidationError, takes: Mapping[str, str], place: Callable[[str], str]) -> Iterable[UserError]:
    """The mistakes in a configuration.

    Args:
        error: as pydantic found them.
        takes: what each known key takes, in words; keys inside keys with a dot.
        place: where a key was written, in words.
    """
    mistakes: dict[str, UserError] = {}
    for problem in error.errors():
        path = _path(problem, takes)
        mistakes.setdefault(path, _mistake(problem, path, takes, place))
    return mistakes.values()


def _path(problem: ErrorDetails, takes: Mapping[str, str]) -> str:
    """The key, with dots, without what pydantic adds to it: places in a list, branches of a union."""
    parts = [part for part in problem["loc"] if isinstance(part, str)]
    if problem["type"] == "extra_forbidden":
        return ".".join(parts)
    ends = range(len(parts), 0, -1)
    return next((path for end in ends if (path := ".".join(parts[:end])) in takes), ".".join(parts))


def _mistake(problem: ErrorDetails, path: str, takes: Mapping[str, str], place: Callable[[str], str]) -> UserError:
    if path in takes:
        exact = ".".join(str(part) for part in problem["loc"])  # in a list, the line of the element
        return misfit(path, problem["input"], takes[path], place(exact))
    return unknown_key(path, takes, place(path))


def misfit(path: str, value: object, takes: str, place: str) -> UserError:
    """The error of a value that a key does not take."""
    return UserError(
        f"{place}: {path} = {value!r}",
        expected=takes,
        why=f"{path} has no meaning with such a value",
        fix=f"give {path} another value, or leave it out",
    )


def unknown_key(path: str, takes: Mapping[str, str], place: str) -> UserError:
    """The error of a key that nobody knows; one that belongs elsewhere is sent there."""
    from polyrhythm.config.homes import homes

    parent, _, name = path.rpartition(".")
    known = [key.removeprefix(f"{parent}.") for key in takes if key.rpartition(".")[0] == parent]
    error = unknown("key", name, known, where=f"{place} ({parent})" if parent else place)
    elsewhere = [key for key in takes if key.rpartition(".")[2] == name]
    fix = f"did you mean {elsewhere[0]!r}?" if elsewhere else error.fix
    slip = difflib.get_close_matches(name, known, cutoff=0.85)
    if not (elsewhere or parent or slip) and (places := homes(name)):
        typed = place == "the command line"
        ways = [home.override("…") if typed else home.line("…") for home in places]
        fix = f"did you mean {', or '.join(ways)}?"
    if path == "trust":
        return UserError(
            error.found,
            expected="the names of modules on the command line alone: --trust MODULE",
            why="whoever wrote a file would otherwise agree for you that their own code runs here",
            fix="leave it out, look at what it names, and type --trust MODULE for what you trust",
        )
    return UserError(error.found, expected=error.expected, why=error.why, fix=fix)
