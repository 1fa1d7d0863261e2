"""What every named, configurable part has in common: frozen keyword settings, checked when built."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from polyrhythm.errors import UserError

Positive = typing.Annotated[float, Gt(0)]
NonNegative = typing.Annotated[float, Ge(0)]
Count = typing.Annotated[int, Ge(1)]
Fraction = typing.Annotated[float, Ge(0), Le(1)]
_STRICT = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
Decay = typing.Annotated[float, Ge(0), Lt(1)]
_WORDS = {"tuple_type": "a list, such as [1, 2] (in Python a tuple)"}  # where pydantic's words are for programmers


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of every part. Values are checked strictly against the annotations when the part is built.

    Raises:
        UserError: a value of the wrong type or out of range, naming the part, the setting and what is allowed.
    """

    def __post_init__(self) -> None:
        for field, adapter in _adapters(type(self)).items():
            value = getattr(self, field)
            try:
                adapter.validate_python(value, strict=True)
            except ValidationError as error:
                first = error.errors()[0]
                problem = _WORDS.get(first["type"]) or first["msg"].removeprefix("Input should be ")
                raise UserError(
                    f"{self.label()}: {field} = {value!r}",
                    expected=problem[0].lower() + problem[1:],
                    why=f"{type(self).__name__} has no meaning with such a value",
                    fix=f"give {field} another value; its default is {_default(type(self), field)}",
                ) from None

    @classmethod
    def label(cls) -> str:
        """The part's name in recipes, TOML and on the command line: `StopOnDrift` is `stop_on_drift`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def describe(self) -> dict[str, Any]:
        """The part as plain data: its name under "name" and every setting, nested parts described too."""
        return {"name": type(self).__name__} | {
            f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.metadata.get("digest", True)
        }


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
        adapters[f.name] = TypeAdapter(hints[f.name], config=None if part else _STRICT)
    return adapters
