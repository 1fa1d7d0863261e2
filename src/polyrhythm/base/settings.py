"""What every named, configurable part has in common: frozen keyword settings, checked when built."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, core_schema

from polyrhythm.base.errors import Mistakes, UserError

Positive = typing.Annotated[float, Gt(0)]
NonNegative = typing.Annotated[float, Ge(0)]
Count = typing.Annotated[int, Ge(1)]
Whole = typing.Annotated[int, Ge(0)]
Fraction = typing.Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True)
class Takes:
    """Annotation of a setting: what it takes in words, where its type does not say it."""

    words: str


Seed = typing.Annotated[int, Ge(0), Lt(2**63), Takes("a whole number from 0 to 2^63 - 1")]  # what a database holds
STRICT = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
Decay = typing.Annotated[float, Ge(0), Lt(1)]
Share = typing.Annotated[float, Ge(0), Lt(1)]
_WORDS = {"tuple_type": "a list, such as [1, 2]"}  # where pydantic's words are for programmers


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
            value = getattr(self, field)
            if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy's or torch's
                object.__setattr__(self, field, value.item())
            elif isinstance(value, list) and field in _tuples(type(self)):  # as files have it
                object.__setattr__(self, field, tuple(value))
            try:  # not `noted`, whose context costs more than most checks
                self.check_value(field, getattr(self, field))
            except UserError as error:
                wrong.add(error)
        wrong.refuse()

    @classmethod
    def check_value(cls, field: str, value: object) -> None:
        """Goes on if a setting may have this value, looked at on its own.

        Raises:
            UserError: it is of the wrong type or out of range.
        """
        try:
            validated(cls, field, value)
        except ValidationError as error:
            said = [part.words for part in typing.get_args(annotations_of(cls)[field]) if isinstance(part, Takes)]
            raise UserError(
                f"{cls.label()}: {field} = {value!r}",
                expected=said[0] if said else allowed(error),
                why=f"{cls.__name__} has no meaning with such a value",
                fix=nearest(error, value) or f"give {field} another value{_default(cls, field)}",
            ) from None

    @classmethod
    def label(cls) -> str:
        """The part's name in recipes, TOML and on the command line: `StopOnDrift` is `stop_on_drift`."""
        return label_of(cls.__name__)

    def text(self, *, every: bool = False) -> str:
        """The part as one writes it, such as "prox(mu=0.01)".

        Args:
            every: write settings that are at their defaults, too, but for those that are off (None, False, 0, empty).
        """
        held = ((f, getattr(self, f.name)) for f in dataclasses.fields(self))
        given = [(f.name, value) for f, value in held if (bool(value) if every else value != f.default)]
        inside = ", ".join(f"{name}={_written(value)}" for name, value in given)
        return f"{self.label()}({inside})" if inside else self.label()

    def describe(self) -> dict[str, Any]:
        """The part as plain data: its name under "name" and every setting, nested parts described too."""
        return {"name": type(self).__name__} | {
            f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.metadata.get("digest", True)
        }


@functools.cache
def label_of(name: str) -> str:
    """A class's name as one writes it in recipes.

    >>> label_of("StopOnDrift"), label_of("prox")
    ('stop_on_drift', 'prox')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def takes(hint: Any) -> str:
    """What a setting takes, from its annotation, in words: "a whole number, 1 or more"."""
    bounds = typing.get_args(hint)[1:] if typing.get_origin(hint) is typing.Annotated else ()
    said = [bound.words for bound in bounds if isinstance(bound, Takes)]
    if said:
        return said[0]
    kind = typing.get_args(hint)[0] if bounds else hint
    if members := [takes(member) for member in members_of(kind)]:
        return f"{', '.join(members[:-1])}{', or ' if members[:-1] else ''}{members[-1]}"
    if typing.get_origin(kind) is typing.Literal:
        return listed(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"{takes(typing.get_args(kind)[0])}, or a list of them"
    if isinstance(kind, type) and issubclass(kind, Settings):
        return f"a table with {listed([field.name for field in dataclasses.fields(kind)])}"
    if kind in (int, float):
        number = "a whole number" if kind is int else "a number"
        return ", ".join([number, *_bounds(bounds)])
    most = [f" of at most {bound.max_length} characters" for bound in bounds if isinstance(bound, MaxLen)]
    return "true or false" if kind is bool else f"a text{''.join(most)}"


def members_of(hint: Any) -> list[Any]:
    """The members of a union but None; nothing for a hint that is none."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [member for member in typing.get_args(hint) if member is not types.NoneType]
    return []


def listed(words: Iterable[Any], last: str = "or") -> str:
    """Words as a list in a sentence: "a, b or c"."""
    *most, end = map(str, words)
    return f"{', '.join(most)} {last} {end}" if most else end


def _bounds(bounds: Iterable[object]) -> Iterator[str]:
    for bound in bounds:
        if isinstance(bound, Ge):
            yield f"{bound.ge:g} or more"
        elif isinstance(bound, Gt):
            yield f"more than {bound.gt:g}"
        elif isinstance(bound, Le):
            yield f"{bound.le:g} or less"
        elif isinstance(bound, Lt):
            yield f"less than {bound.lt:g}"


def descriptions(cls: type) -> dict[str, str]:
    """The sentences on each setting under "Args:" in a docstring, each on one line."""
    arguments = (inspect.getdoc(cls) or "").partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in entries}


def allowed(error: ValidationError) -> str:
    """What pydantic would have taken, in its words: "a valid number"."""
    first = error.errors()[0]
    problem = _WORDS.get(first["type"]) or first["msg"].removeprefix("Input should be ")
    return problem[0].lower() + problem[1:]


def nearest(error: ValidationError, value: object) -> str:
    """A guess at what was meant: a list of the one value, or which of a setting's words; empty where none is near."""
    details = error.errors()[0]
    if details["type"] == "tuple_type" and isinstance(value, (str, int, float)):
        return f"write [{value!r}] for a list of one"
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
    if callable(value):
        return path_of(value)
    # 1 and 1.0 mean the same setting, so they must give the same digest.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _written(value: Any) -> str:
    if isinstance(value, Settings):
        return value.text()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value))}]"
    plain = _plain(value)
    return repr(plain) if isinstance(plain, (str, int, float)) else f"a {type(value).__name__}"


def path_of(value: Any) -> str:
    """The import path of a function, or of the class of something else that can be called, with what it holds."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    held = f"({', '.join(f'{k}={v!r}' for k, v in sorted(vars(value).items()))})" if kind is not value else ""
    return f"{kind.__module__}:{kind.__qualname__}{held}"


def _default(cls: type[Settings], field: str) -> str:
    for f in dataclasses.fields(cls):
        if f.name == field and f.default is not dataclasses.MISSING:
            return f"; its default is {f.default!r}"
    return ""  # it has to be given


def validated(cls: type[Settings], field: str, value: object) -> object:
    """The value, if a setting may have it.

    Raises:
        pydantic.ValidationError: it is of the wrong type or out of range.
    """
    return _adapters(cls)[field].validate_python(value, strict=True)


def fits(hint: Any, value: object) -> bool:
    """Whether an annotation takes a value."""
    try:
        TypeAdapter(hint, config=STRICT).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


_KNOWN: dict[type[Settings], dict[str, SchemaValidator | TypeAdapter[Any]]] = {}


def _adapters(cls: type[Settings]) -> dict[str, SchemaValidator | TypeAdapter[Any]]:
    if cls not in _KNOWN:
        _KNOWN[cls] = _build_adapters(cls)
    return _KNOWN[cls]


_TUPLES: dict[type[Settings], frozenset[str]] = {}


def _tuples(cls: type[Settings]) -> frozenset[str]:
    """The settings that hold tuples, and no lists."""
    if cls not in _TUPLES:
        hints = annotations_of(cls).items()
        _TUPLES[cls] = frozenset(name for name, hint in hints if _may_be(hint, tuple) and not _may_be(hint, list))
    return _TUPLES[cls]


def _may_be(hint: Any, kind: type) -> bool:
    plain = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    return typing.get_origin(plain) is kind or any(_may_be(member, kind) for member in members_of(plain))


def annotations_of(cls: type) -> dict[str, Any]:
    """The annotation of each setting."""
    return typing.get_type_hints(cls, include_extras=True)


def _build_adapters(cls: type[Settings]) -> dict[str, SchemaValidator | TypeAdapter[Any]]:
    hints = annotations_of(cls)
    adapters = dict[str, SchemaValidator | TypeAdapter[Any]]()
    for f in dataclasses.fields(cls):
        # A part inside a part was checked when it was built; here only its class is, and pydantic takes no
        # configuration for a class of its own fields.
        hint: Any = hints[f.name]
        part = isinstance(hint, type) and dataclasses.is_dataclass(hint)
        adapters[f.name] = (
            SchemaValidator(core_schema.is_instance_schema(hint)) if part else TypeAdapter(hint, config=STRICT)
        )
    return adapters
