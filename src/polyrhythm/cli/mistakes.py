"""Says what is wrong with an experiment file and the options over it: everything at once, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from polyrhythm.errors import UserError, unknown


def explained(error: ValidationError, takes: Mapping[str, str], place: Callable[[str], str]) -> UserError:
    """The error of one or more mistakes.

    Args:
        error: as pydantic found them.
        takes: what each known key takes, in words; keys inside keys with a dot.
        place: where a top-level key was written, in words.
    """
    mistakes: dict[str, UserError] = {}
    for problem in error.errors():
        path = _path(problem, takes)
        mistakes.setdefault(path, _mistake(problem, path, takes, place(path.partition(".")[0])))
    first, *more = mistakes.values()
    if not more:
        return first
    lines = [mistake.found + _hint(path, mistake, takes) for path, mistake in mistakes.items()]
    return UserError(
        "\n    ".join([f"{len(lines)} mistakes", *lines]),
        expected="keys and values as `polyrhythm run --help` lists them",
        why="another experiment than the one you meant would run",
        fix="correct all of them",
    )


def _path(problem: ErrorDetails, takes: Mapping[str, str]) -> str:
    """The key, with dots, without what pydantic adds to it: places in a list, branches of a union."""
    parts = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        return ".".join(parts)
    ends = range(len(parts), 0, -1)
    return next((path for end in ends if (path := ".".join(parts[:end])) in takes), ".".join(parts))


def _mistake(problem: ErrorDetails, path: str, takes: Mapping[str, str], place: str) -> UserError:
    if path in takes:
        return UserError(
            f"{place}: {path} = {problem['input']!r}",
            expected=takes[path],
            why=f"{path} has no meaning with such a value",
            fix=f"give {path} another value, or leave it out",
        )
    parent, _, name = path.rpartition(".")
    known = [key.removeprefix(f"{parent}.") for key in takes if key.rpartition(".")[0] == parent]
    return unknown("key", name, known, where=f"{place} ({parent})" if parent else place)


def _hint(path: str, mistake: UserError, takes: Mapping[str, str]) -> str:
    if path not in takes and mistake.fix.startswith("did you mean"):
        return f"; {mistake.fix}"
    return f"; expected {mistake.expected}"
