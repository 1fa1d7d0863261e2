"""Two families of errors: the user can mend the first, a run could not go on for the second."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import final


class PolyrhythmError(Exception):
    """Everything this library raises on purpose."""


@final
class UserError(PolyrhythmError):
    """Something that the user gave cannot be used. The command line ends with exit code 2.

    Args:
        found: what was found, with the value.
        expected: what would have been right.
        why: why it matters.
        fix: what to do now.
    """

    def __init__(self, found: str, *, expected: str, why: str, fix: str) -> None:
        self.found, self.expected, self.why, self.fix = found, expected, why, fix
        super().__init__(f"{found}\n  expected: {expected}\n  because:  {why}\n  do:       {fix}")

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.found, self.expected, self.why, self.fix), self.__dict__  # which holds the notes


@final
class RunFailed(PolyrhythmError):
    """A run had to stop. What it recorded until then is kept. The command line ends with exit code 1."""


def _restore(found: str, expected: str, why: str, fix: str) -> UserError:
    return UserError(found, expected=expected, why=why, fix=fix)


_OTHER_EXPERIMENT = "a name that is silently ignored would run another experiment than the one you meant"
_MOST_NAMES = 60


def unknown(kind: str, name: str, known: Iterable[str], *, where: str = "", why: str = _OTHER_EXPERIMENT) -> UserError:
    """The error for a name nobody knows, with the nearest names that exist."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    fix = "use one of the names listed above." if names else f"leave {name!r} out"
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return UserError(
        f"unknown {kind} {name!r}{f' in {where}' if where else ''}",
        expected=f"one of {', '.join(names[-_MOST_NAMES:])}{more}" if names else f"no {kind} at all",
        why=why,
        fix=f"did you mean {' or '.join(repr(n) for n in near)}?" if near else fix,
    )
