"""Puts a value at a key with dots, also inside the texts that name things: `method.lr`, `fleet.faults.dropout`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.settings import label_of
from polyrhythm.config.defaults import default_text
from polyrhythm.config.expressions import Call, Pipe, parse_argument
from polyrhythm.config.keys import KEYS


def names_something(key: str) -> bool:
    """Whether the text of a key is a call, or several with pipes between them, so that settings lie in it."""
    return key in KEYS and KEYS[key].names is not None and key != "faults"


def put_inside(values: dict[str, Any], path: str, value: Any) -> None:
    """Puts a setting into the call that a key stands for; the default one, if nothing else is said.

    `method.lr` is a setting of the recipe, `method.prox.mu` of the part `prox`, and `method.budgets.period` of the
    budgets that are given there, as in `ccfl(budgets=slow_share(period=2))`.

    Raises:
        UserError: there is no such part, or nothing to look into.
    """
    key, *inside = path.split(".")
    text = " | ".join(texts) if isinstance(texts := values.get(key), (list, tuple)) else texts
    if text is None:
        text = default_text(key, values)
    if not isinstance(text, str):
        raise _nothing(path, key, repr(text))
    calls = list(Pipe.of(text).calls)
    found = [place for place, call in enumerate(calls) if _same(call.name, inside[0])] if len(inside) > 1 else []
    place = found[-1] if found else 0
    calls[place] = _with(calls[place], inside[1:] if found else inside, _read(value), path, [c.name for c in calls])
    values[key] = Pipe(calls)


def _with(call: Call, inside: list[str], value: Any, path: str, parts: list[str]) -> Call:
    name, *deeper = inside
    name = name.replace("-", "_")
    if deeper:
        there = call.named.get(name)
        if not isinstance(there, Call):
            calls = [key for key, held in call.named.items() if isinstance(held, Call)]
            raise unknown("part", name, [*parts, *calls], where=path, why="a setting of something that is not there")
        value = _with(there, deeper, value, path, parts)
    return replace(call, named={**call.named, name: value})


def _read(value: Any) -> Any:
    """A value from a file as one in a call: a text may be a name with settings."""
    if isinstance(value, str):
        return parse_argument(value)
    return tuple(map(_read, value)) if isinstance(value, (list, tuple)) else value


def _same(one: str, other: str) -> bool:
    """Whether two names mean the same part; one of the user's own is called as its class is, without the module."""
    return label_of(one.rpartition(":")[2].replace("-", "_")) == label_of(other.replace("-", "_"))


def _nothing(path: str, key: str, there: str) -> UserError:
    return UserError(
        f"{path}, but {key} is {there}",
        expected=f"a text for {key}, such as a name with settings",
        why="the setting would be put into it",
        fix=f"say what {key} is, or leave {path} out",
    )


def put(values: dict[str, Any], path: str, value: Any) -> None:
    """Puts a value at a key, with dots for keys inside keys and inside calls.

    Raises:
        UserError: there is nothing that it could be put into.
    """
    keys = path.split(".")
    if names_something(keys[0]) and len(keys) > 1:
        put_inside(values, path, value)
        return
    inside = values
    for key in keys[:-1]:
        there = inside.get(key)
        inside[key] = dict(there) if isinstance(there, Mapping) else {}
        inside = inside[key]
    inside[keys[-1]] = value
