"""Two families of errors: the user can mend the first, a run could not go on for the second."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import final

from polyrhythm.base.plain import plain


class PolyrhythmError(Exception):
    """Everything this library raises on purpose. Its words may be shown anywhere, whatever names stand in them."""

    def __init__(self, *words: object) -> None:
        super().__init__(*(plain(text) if isinstance(text, str) else text for text in words))


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
        self._several: tuple[UserError, ...] = ()
        super().__init__(f"{found}\n  expected: {expected}\n  because:  {why}\n  do:       {fix}")

    @property
    def mistakes(self) -> tuple[UserError, ...]:
        """Each of the mistakes that were found together; only itself if it is one."""
        return self._several or (self,)

    def at(self, place: str) -> UserError:
        """The same mistake with the place where it was written before what was found."""
        return UserError(f"{place}: {self.found}", expected=self.expected, why=self.why, fix=self.fix)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.found, self.expected, self.why, self.fix), self.__dict__  # which holds the notes


@final
class Mistakes:
    """Collects what is wrong, so that all of it is said at once.

    wrong = Mistakes()
    for name, value in settings.items():
        with wrong.noted(f"line {lines[name]}"):
            check(name, value)
    wrong.refuse()
    """

    def __init__(self) -> None:
        self._found: list[UserError] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, *mistakes: UserError) -> None:
        """Takes note of mistakes."""
        for mistake in mistakes:
            self._found += mistake.mistakes

    @contextlib.contextmanager
    def noted(self, place: str = "") -> Iterator[None]:
        """Takes note of what the block refuses, with the place where it was written, and goes on after the block."""
        try:
            yield
        except UserError as error:
            self.add(*((mistake.at(place) for mistake in error.mistakes) if place else [error]))

    def refuse(self) -> None:
        """Goes on if nothing was wrong.

        Raises:
            UserError: the one mistake, or all of them in one error.
        """
        if self._found:
            raise together(self._found)


@final
class RunFailed(PolyrhythmError):
    """A run had to stop. What it recorded until then is kept. The command line ends with exit code 1."""


@contextlib.contextmanager
def placed(place: str) -> Iterator[None]:
    """Says of what the block refuses where it was written."""
    try:
        yield
    except UserError as error:
        raise together(mistake.at(place) for mistake in error.mistakes) from error


def together(mistakes: Iterable[UserError]) -> UserError:
    """One error of one or more mistakes. Of several, each is said in a line with what would have been right."""
    several = tuple(one for mistake in mistakes for one in mistake.mistakes)
    if len(several) == 1:
        return several[0]
    lines = [f"{m.found}; {m.fix if m.fix.startswith('did you mean') else f'expected {m.expected}'}" for m in several]
    error = UserError(
        "\n    ".join([f"{len(several)} mistakes", *(line.replace("\n", "\n    ") for line in lines)]),
        expected="what is said in each of these lines",
        why="another experiment than the one you meant would run",
        fix="correct all of them",
    )
    error._several = several
    return error


def _restore(found: str, expected: str, why: str, fix: str) -> UserError:
    return UserError(found, expected=expected, why=why, fix=fix)


_OTHER_EXPERIMENT = "a name that is silently ignored would run another experiment than the one you meant"
_MOST_NAMES = 60


def check_kind(name: str, value: object, kind: type | tuple[type, ...], example: str) -> None:
    """Goes on if an argument is of a kind.

    Raises:
        UserError: it is something else, such as a name in text.
    """
    if not isinstance(value, kind):
        raise UserError(
            f"{name} is {in_short(value)}",
            expected=example,
            why="names in text mean something only in experiment files and on the command line"
            if isinstance(value, str)
            else "nothing else has what is read of it",
            fix=f"give {name}={example}",
        )


def in_short(value: object) -> str:
    """What a value is, in a few words: "the function fedavg", "a str: 'fedavg'"."""
    if callable(value) and hasattr(value, "__name__"):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    return f"a {type(value).__name__}: {value!r:.80}"


def not_called(value: object) -> str:
    """What to do about a class or function that stands in place of what it makes; empty for anything else."""
    return f"call it: {value.__name__}(…)" if callable(value) and hasattr(value, "__name__") else ""


def unknown(
    kind: str, name: object, known: Iterable[str], *, where: str = "", why: str = _OTHER_EXPERIMENT
) -> UserError:
    """The error for a name nobody knows, with the nearest names that exist."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    fix = "use one of the names listed above." if names else f"leave {name!r} out"
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return UserError(
        f"unknown {kind} {name!r}{f' in {where}' if where else ''}",
        expected=f"one of {', '.join(names[-_MOST_NAMES:])}{more}" if names else f"no {kind} at all",
        why=why,
        fix=f"did you mean {' or '.join(repr(n) for n in near)}?" if near else fix,
    )
