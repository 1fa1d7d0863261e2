"""What a thing with a name takes: its settings, by annotation, and whether a value fits."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import STRICT, Settings, allowed, nearest


def hints_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotation of each setting; those that a recipe shares with others included."""
    try:
        found = dict(typing.get_type_hints(make.__init__ if _is_plain(make) else make, include_extras=True))
    except (NameError, TypeError):  # of the user's own, with annotations that only a type checker can read
        found = {}
    found.pop("return", None)
    for parameter in inspect.signature(make).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            for shared in typing.get_args(found.pop(parameter.name, None)):
                found |= typing.get_type_hints(shared, include_extras=True)
    return found


def _is_plain(make: object) -> bool:
    """Whether it is a class whose settings are those of its constructor."""
    return isinstance(make, type) and not dataclasses.is_dataclass(make)


def check_setting(make: Callable[..., Any], name: str, value: object) -> None:
    """Goes on if a setting may have this value, looked at on its own.

    Raises:
        UserError: it is of the wrong type or out of range.
    """
    if isinstance(make, type) and issubclass(make, Settings):
        make.check_value(name, value)
        return
    adapter = _adapter(hints_of(make).get(name, Any))
    if adapter is None:
        return
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError as error:
        title = make.__name__
        raise UserError(
            f"{title}: {name} = {value!r}",
            expected=allowed(error),
            why=f"{title} has no meaning with such a value",
            fix=nearest(error, value) or f"give {name} another value, or leave it out",
        ) from None


def _adapter(hint: Any) -> TypeAdapter[Any] | None:
    own = isinstance(hint, type) and issubclass(hint, Settings)  # for which pydantic takes no configuration
    try:
        return TypeAdapter(hint, config=None if own else STRICT)
    except PydanticUserError:
        return None  # an annotation of a kind that cannot be checked
