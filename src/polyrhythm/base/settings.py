"""What every named, configurable part has in common: frozen keyword settings, checked when built."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from polyrhythm.base.errors import Mistakes, UserError

Positive = typing.Annotated[float, Gt(0)]
NonNegative = typing.Annotated[float, Ge(0)]
Count = typing.Annotated[int, Ge(1)]
Fraction = typing.Annotated[float, Ge(0), Le(1)]
STRICT = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
Decay = typing.Annotated[float, Ge(0), Lt(1)]
_WORDS = {"tuple_type": "a list, such as [1, 2] (in Python a tuple)"}  # where pydantic's words are for programmers


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of every part. Values are checked strictly against the annotations when the part is built.

    Raises:
        UserError: values of the wrong type or out of range, all of them, naming the part, the setting and what is
            allowed.
    """

    def __post_init__(self) -> None:
        wrong = Mistakes()
        for field in _adapters(type(self)):
            with wrong.noted():
                self.check_value(field, getattr(self, field))
        wrong.refuse()

    @classmethod
    def check_value(cls, field: str, value: object) -> None:
        """Goes on if a setting may have this value, looked at on its own.

        Raises:
            UserError: it is of the wrong type or out of range.
        """
        try:
            _adapters(cls)[field].validate_python(value, strict=True)
        except ValidationError as error:
            raise UserError(
                f"{cls.label()}: {field} = {value!r}",
                expected=allowed(error),
                why=f"{cls.__name__} has no meaning with such a value",
                fix=nearest(error, value) or f"give {field} another value; its default is {_default(cls, field)}",
            ) from None

    @classmethod
    def label(cls) -> str:
        """The part's name in recipes, TOML and on the command line: `StopOnDrift` is `stop_on_drift`."""
        return label_of(cls.__name__)

    def describe(self) -> dict[str, Any]:
        """The part as plain data: its name under "name" and every setting, nested parts described too."""
        return {"name": type(self).__name__} | {
            f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.metadata.get("digest", True)
        }


def label_of(name: str) -> str:
    """A class's name as one writes it in recipes.

    >>> label_of("StopOnDrift"), label_of("prox")
    ('stop_on_drift', 'prox')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def allowed(error: ValidationError) -> str:
    """What pydantic would have taken, in its words: "a valid number"."""
    first = error.errors()[0]
    problem = _WORDS.get(first["type"]) or first["msg"].removeprefix("Input should be ")
    return problem[0].lower() + problem[1:]


def nearest(error: ValidationError, value: object) -> str:
    """A guess at which of a setting's words was meant; empty if it does not take words, or none is near."""
    details = error.errors()[0]
    if details["type"] != "literal_error" or not isinstance(value, str):
        return ""
    words = re.findall(r"'([^']*)'", details["ctx"]["expected"])
    near = difflib.get_close_matches(value, words, n=2)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def canonical_json(value: Mapping[str, Any]) -> str:
    """One text for one value: sorted keys, no spaces, exact floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.describe()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Path):
        return value.as_posix()
    # 1 and 1.0 mean the same setting, so they must give the same digest.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _default(cls: type[Settings], field: str) -> str:
    for f in dataclasses.fields(cls):
        if f.name == field and f.default is not dataclasses.MISSING:
            return repr(f.default)
    return "none: it must be given"


_KNOWN: dict[type[Settings], dict[str, TypeAdapter[Any]]] = {}


def _adapters(cls: type[Settings]) -> dict[str, TypeAdapter[Any]]:
    if cls not in _KNOWN:
        _KNOWN[cls] = _build_adapters(cls)
    return _KNOWN[cls]


def _build_adapters(cls: type[Settings]) -> dict[str, TypeAdapter[Any]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    adapters = {}
    for f in dataclasses.fields(cls):
        # A part inside a part was checked when it was built; here only its class is, and pydantic takes no
        # configuration for a class of its own fields.
        part = isinstance(hints[f.name], type) and issubclass(hints[f.name], Settings)
        adapters[f.name] = TypeAdapter(hints[f.name], config=None if part else STRICT)
    return adapters
