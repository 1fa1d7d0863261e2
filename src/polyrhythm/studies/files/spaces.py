"""Spaces as they are written: keys of an experiment, each with a list of values or a range."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.config.keys import OF_NO_NUMBER, TAKES
from polyrhythm.config.layers import ConfigSource
from polyrhythm.studies.space import Range, Setting

_OF_RANGE = {"low", "high", "log"}
# What no trial may differ in: who computes and where it is kept, which decides no number; and what it is judged by.
_NOT_TRIED = {*OF_NO_NUMBER, "seed", "seeds", "validation"}


def space_of(
    table: Mapping[str, Any], inside: str, said: ConfigSource, wrong: Mistakes
) -> dict[str, Range | tuple[Any, ...]]:
    """The space of a table: keys with dots, and keys inside keys."""
    found: dict[str, Range | tuple[Any, ...]] = {}
    for key, value in leaves(table):
        with wrong.noted(said.where(f"{inside}.{key}")):
            _check_key(key)
            found[key] = _values(key, value)
    return found


def settings_of(listed: Any, inside: str, said: ConfigSource, wrong: Mistakes) -> tuple[Setting, ...]:
    """The settings of a list of tables."""
    with wrong.noted(said.where(inside)):
        if not all(isinstance(setting, dict) for setting in listed):
            raise UserError(
                f"{inside} = {listed!r:.120}",
                expected="tables, each with keys of an experiment",
                why="each is a setting that is tried",
                fix='settings = [{"method.lr" = 0.1}, {"method.lr" = 0.3}]',
            )
    found = tuple(dict(leaves(setting)) for setting in listed if isinstance(setting, dict))
    for key in (key for setting in found for key in setting):
        with wrong.noted(said.where(inside)):
            _check_key(key)
    return found


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a table, by their keys with dots."""
    for key, value in table.items():
        if isinstance(value, dict) and not ({"low", "high"} & {*value}):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check_key(key: str) -> None:
    if key.partition(".")[0] in _NOT_TRIED:
        raise UserError(
            f"{key} in the space of a search",
            expected="settings of the experiment",
            why="all trials are judged by the same data and run with all seeds, and the others decide no number",
            fix=f"set {key.partition('.')[0]} at the top of the file, for all trials",
        )
    if key.partition(".")[0] not in TAKES:
        raise unknown("key", key.partition(".")[0], [k for k in TAKES if "." not in k])


def _all_differ(values: Sequence[Any]) -> bool:
    """Whether values differ from each other; what no experiment has, such as dates, does not count as a value."""
    with contextlib.suppress(TypeError):
        return len({json.dumps(value) for value in values}) == len(values)
    return False


def _values(key: str, value: Any) -> Range | tuple[Any, ...]:
    if isinstance(value, dict) and {"low", "high"} <= {*value} <= _OF_RANGE:
        return Range(**value)
    if isinstance(value, (list, tuple)) and value and _all_differ(value):
        return tuple(value)
    raise UserError(
        f"{key} = {value!r}",
        expected="a list of different values, or a range such as {low = 0.01, high = 1.0, log = true}",
        why="it says which values are tried",
        fix=f"for a single value set {key} at the top of the file",
    )
