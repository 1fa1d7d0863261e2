"""From a call in text to the thing it makes: its settings, checked against what that takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.config.expressions import Call
from polyrhythm.config.setting_checks import check_setting, hints_of

T = TypeVar("T")


def make_from(call: Call, make: Callable[..., T], convert: Callable[[str, Any], Any]) -> T:
    """The thing that a call makes.

    Args:
        call: of a name that is known, with its settings.
        make: what it stands for.
        convert: a setting's value from its name and what stands in the text.

    Raises:
        UserError: settings that it has not, or values that cannot be; all of them.
    """
    return make(**settings_of(call, make, convert))


def settings_of(
    call: Call, make: Callable[..., Any], convert: Callable[[str, Any], Any], skip: int = 0
) -> dict[str, Any]:
    """The settings of a call, checked against what it takes: their names, and each value on its own."""
    wrong, settings = Mistakes(), dict[str, Any]()
    if not skip:
        with wrong.noted():
            refuse_positional(call, make)
    parameters = list(inspect.signature(make).parameters.values())[skip:]
    known = {p.name: p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    shared = _shared(make, parameters)
    names = [*known, *shared]
    anything = not shared and any(p.kind is p.VAR_KEYWORD for p in parameters)  # of the user's own
    if missing := [] if call.positional and not skip else _missing(call, known.values()):
        wrong.add(
            UserError(
                f"{call.name} without {missing[0]}",
                expected=f"{call.name}({', '.join(f'{name}=…' for name in missing)})",
                why=f"{missing[0]} has no default",
                fix=f"give {missing[0]} a value",
            )
        )
    for name, value in call.named.items():
        with wrong.noted():
            if name not in names and not anything:
                raise unknown("setting", name, names, where=call.name)
            settings[name] = convert(name, value)
            check_setting(make, name, settings[name])
    wrong.refuse()
    return settings


def _shared(make: Callable[..., Any], parameters: list[inspect.Parameter]) -> list[str]:
    """The settings that a recipe shares with others: the keys of its `**common: Unpack[...]`."""
    variable = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return [name for name in hints_of(make) if name not in {p.name for p in parameters}] if variable else []


def refuse_positional(call: Call, make: Callable[..., Any], without: frozenset[str] = frozenset()) -> None:
    """Refuses settings without a name, or without a value.

    Args:
        call: as it was written.
        make: what it stands for.
        without: what that takes and is no setting.
    """
    if not call.positional:
        return
    first = call.positional[0]
    known = [name for name in _names_of(make) if name not in without]
    if isinstance(first, Call) and first == Call(first.name, (), {}) and key_of(first.name) in known:
        raise UserError(
            f"{call}: {first} has no value",
            expected=f"{first}=… with a value",
            why=f"{first} alone does not say what it is to be",
            fix=f"write {call.name}({first}=…)",
        )
    missing = [name for name in _missing(call, inspect.signature(make).parameters.values()) if name in known]
    given = [f"{name}={'…' if place else str(first)}" for place, name in enumerate(missing)]
    raise UserError(
        f"{call}: {first!s} has no name",
        expected=f"settings as name=value: {', '.join(known)}" if known else f"{call.name} without settings",
        why="which setting it belongs to would be a guess",
        fix=f"write {call.name}({', '.join(given)})" if missing else f"write {call.name}(name={first!s}), by its name",
    )


def _missing(call: Call, parameters: Iterable[inspect.Parameter]) -> list[str]:
    """What a call has to give, and does not."""
    return [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in call.named
    ]


def _names_of(make: Callable[..., Any]) -> list[str]:
    """The names of everything that it takes."""
    parameters = list(inspect.signature(make).parameters.values())
    return [
        *(p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)),
        *_shared(make, parameters),
    ]


def plain(name: str, value: Any) -> Any:
    """A setting that is a value, or a list of them, and no thing with settings of its own."""
    if isinstance(value, tuple):
        return tuple(plain(name, v) for v in value)
    if not isinstance(value, Call):
        return value
    if value.positional or value.named:
        raise UserError(
            f"{name}={value}",
            expected="a number, a text, true, false, none, or a list of them",
            why=f"{name} takes no settings of its own",
            fix="leave the brackets out; a text with brackets needs quotes",
        )
    return value.name


def key_of(name: str) -> str:
    """A name as it is looked up: with underscores, however it was written."""
    return name.replace("-", "_")
