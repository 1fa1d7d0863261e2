"""Looks at everything that a sweep will try, before any of it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.experiments.prepared import prepare, what_and_how
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.searches.definition import Side, Sweep, check_validation, in_words
from polyrhythm.studies.searches.space import Range, Setting

Locate = Callable[[str, str, Any], str]
"""Where a value of a key of a side was written, in words; of the key "" the side itself, if
anything needs to be said."""


def check(sweep: Sweep, locate: Locate | None = None) -> None:
    """Goes on if every setting makes an experiment that has validation data.

    All settings are looked at that are known beforehand. Of a search by results ("tpe") it is each value of a list, and
    both ends of a range, with the first values of all others.

    Raises:
        UserError: some do not; each mistake once, with the value that all settings with that mistake share, or the
            first of them.
    """
    wrong = Mistakes()
    for name, side in sweep.sides.items():
        settings = sweep.known(name)
        settings = list(_corners(side)) if settings is None else settings
        for mistake in _mistakes(side, name, settings, sweep.seeds[0], locate or _in_words):
            wrong.add(mistake)
    wrong.refuse()


def _mistakes(side: Side, name: str, settings: list[Setting], seed: int, locate: Locate) -> Iterator[UserError]:
    found: dict[str, tuple[UserError, list[int]]] = {}
    for number, setting in enumerate(settings):
        try:
            experiment, execution = what_and_how(side.make(setting, seed))
            check_validation(experiment)
            prepare(experiment, execution)  # builds the model, and checks it against the data
        except UserError as error:
            for mistake in error.mistakes:
                found.setdefault(str(mistake), (mistake, []))[1].append(number)
    for mistake, numbers in found.values():
        place = _place(name, settings, numbers, locate)
        yield mistake.at(place) if place else mistake


def _place(side: str, settings: list[Setting], numbers: list[int], locate: Locate) -> str:
    """What settings with a mistake share and no others have; in words."""
    if len(numbers) == len(settings) > 1:
        return locate(side, "", None)
    first, rest = settings[numbers[0]], [s for i, s in enumerate(settings) if i not in {*numbers}]
    for key, value in first.items():
        text = to_json(value)
        shared = all(to_json(settings[i].get(key)) == text for i in numbers)
        if shared and not any(to_json(other.get(key)) == text for other in rest):
            return locate(side, key, value)
    many = f"{len(numbers)} of {len(settings)} trials, such as " if len(numbers) > 1 else ""
    return ": ".join(part for part in (locate(side, "", None), f"{many}{in_words(first)}") if part)


def _in_words(side: str, key: str, value: Any) -> str:
    of_side = f"{side}: " if side and key else side
    return f"{of_side}{in_words({key: value})}" if key else of_side


def _corners(side: Side) -> Iterator[Setting]:
    """Each value on its own, with the first of all others."""
    ends = {key: (v.low, v.high) if isinstance(v, Range) else v for key, v in side.space.items()}
    first = {key: values[0] for key, values in ends.items()}
    yield first
    for key, values in ends.items():
        yield from ({**first, key: value} for value in values[1:])
