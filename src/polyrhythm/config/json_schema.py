"""A JSON Schema of experiment files, for editors: keys, their values, and every name with its settings.

It is made from what reads the files: the configuration's own types, and the signatures of whatever has a name. A text
that names things is held to a pattern, so an editor marks an unknown recipe, part or setting. What a pattern cannot
know (whether a value fits its setting, and parts each other) is left to `polyrhythm check`. It marks nothing that is
right.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

from polyrhythm.config import names
from polyrhythm.config.keys import KEYS, TAKES, Key, inside
from polyrhythm.config.setting_checks import hints_of
from polyrhythm.data import PARTITIONS, SOURCES
from polyrhythm.models.catalogue import AROUND, MODELS
from polyrhythm.models.tasks import TASKS
from polyrhythm.trackers import TRACKERS

Schema = dict[str, Any]
Named = Mapping[str, Callable[..., Any]]

_INSIDE = r"(?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*"  # brackets in brackets, three deep
_VALUE = rf"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\({_INSIDE}\)|[^"'()\[\]|,=])+"""
_PIPE = {"type": "string", "pattern": r"\|"}  # several parts in one text of a list: not looked into
_TRACKER = "|".join(TRACKERS)
_IMPORTED = rf"[A-Za-z_][\w.]*:[A-Za-z_]\w*(?:\s*\({_INSIDE}\))?"
_OWN = {"type": "string", "pattern": rf"^\s*{_IMPORTED}\s*$"}


def schema(**tables: Schema) -> Schema:
    """The whole schema.

    Args:
        tables: those that a file may have beside the keys of an experiment, by name.
    """
    properties = {name: _property(key) for name, key in KEYS.items() if "." not in name}
    for name, more in _texts().items():
        properties[name] = {k: v for k, v in properties[name].items() if k in ("default", "description")} | more
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "An experiment of polyrhythm",
        "type": "object",
        "additionalProperties": False,
        "description": "What `polyrhythm run` reads, and with tables for it `polyrhythm study`. Keys may be left out.",
        "properties": properties | tables,
        "not": {"required": ["seed", "seeds"]},
        "definitions": _definitions(),
    }


def _property(key: Key) -> Schema:
    """What a key takes, by its annotation."""
    if key.table is not None:
        inner = {name: _property(KEYS[f"{key.name}.{name}"]) for name in inside(key.name)}
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": inner,
            "description": TAKES[key.name],
        }
    made = without_null(TypeAdapter(key.hint).json_schema())
    if key.several:
        made = {"anyOf": [made, made["items"]]}
    default = {} if key.default is None else {"default": TypeAdapter(Any).dump_python(key.default, mode="json")}
    return {**made, **default, "description": TAKES[key.name]}


def _texts() -> dict[str, Schema]:
    """The keys that are text with a meaning."""
    headed, around = dict(MODELS) | dict(AROUND), {name.removeprefix("with_"): make for name, make in AROUND.items()}
    return {
        "data": _one_of("data_set"),
        "partition": _one_of("partition"),
        "model": {
            "anyOf": [
                *_one_of("model")["anyOf"],
                _OWN,
                {"type": "string", "pattern": _pipe(headed, around), "examples": ["hf(path=folder) | lora(rank=8)"]},
            ]
        },
        "method": {
            "anyOf": [
                {
                    "type": "string",
                    "pattern": _pipe(names.RECIPES, names.PARTS, own=True),
                    "examples": ["fedavg | prox(mu=0.1)"],
                },
                {
                    "type": "array",
                    "minItems": 1,
                    "items": [{"anyOf": [_ref("recipe"), _OWN, _PIPE]}],
                    "additionalItems": {"anyOf": [_ref("part"), _OWN, _PIPE]},
                },
            ]
        },
        "task": _one_of("task"),
        "fleet": {
            "anyOf": [
                _ref("fleet"),
                {"type": "string", "pattern": _pipe({**names.DEVICES, **names.FLEETS}, names.OF_FLEETS)},
            ]
        },
        "until": {"anyOf": [_property(KEYS["until"]), {"type": "string", "pattern": "="}]},
        "seeds": {
            "anyOf": [
                {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
                {"type": "string", "pattern": r"^\s*\d+(-\d+)?\s*(,\s*\d+(-\d+)?\s*)*$"},
            ]
        },
        "track": {
            "anyOf": [
                {"type": "array", "items": {"enum": list(TRACKERS)}},
                {"type": "string", "pattern": rf"^\s*({_TRACKER})\s*(,\s*({_TRACKER})\s*)*$"},
            ]
        },
        "local_test": {
            "anyOf": [
                {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
                {"type": "string", "pattern": r"^(natural|\s*[-+]?[\d_.]+([eE][-+]?\d+)?\s*)$"},
            ]
        },
    }


def _definitions() -> dict[str, Schema]:
    """Everything that has a name, of each kind: a text that is a call of one of them."""
    headed = dict(MODELS) | dict(AROUND)
    return {
        "recipe": _calls(names.RECIPES),
        "part": _calls(names.PARTS),
        "data_set": _calls(SOURCES),
        "partition": _calls(PARTITIONS),
        "model": _calls(headed, given=("shape", "outputs", "builder")),
        "task": _calls(TASKS),
        "fleet": _calls({**names.DEVICES, **names.FLEETS}),
        "part_of_a_fleet": _calls(names.OF_FLEETS),
    }


def _calls(named: Named, given: Iterable[str] = ()) -> Schema:
    return {
        "anyOf": [
            {
                "type": "string",
                "title": name,
                "description": _help(make),
                "pattern": rf"^\s*{_call(name, make, given)}\s*$",
                "examples": [name],
            }
            for name, make in sorted(named.items())
        ]
    }


def _pipe(first: Named, rest: Named, *, own: bool = False) -> str:
    """A pattern of a name and others after pipes; with `own`, each may be an import path."""
    imported = [_IMPORTED] if own else []
    begin = "|".join([*(_call(name, make) for name, make in first.items()), *imported])
    more = "|".join([*(_call(name, make) for name, make in rest.items()), *imported])
    return rf"^\s*(?:{begin})\s*(?:\|\s*(?:{more})\s*)*$"


def _call(name: str, make: Callable[..., Any], given: Iterable[str] = ()) -> str:
    """A pattern of a name with settings, all of which it has."""
    settings = "|".join(_spelt(key) for key in settings_of(make) if key not in given)
    before = rf"{_VALUE},?" if make in AROUND.values() else ""  # the model that it is put around has no name
    after = rf"(?:\s*(?:{settings})\s*={_VALUE},?)*" if settings else ""
    return rf"{_spelt(name)}(?:\s*\({before}{after}\s*\))?"


def settings_of(make: Callable[..., Any]) -> list[str]:
    """What something with a name takes, in order; those that a recipe shares with others come last."""
    own = [p.name for p in inspect.signature(make).parameters.values() if p.kind is not p.VAR_KEYWORD]
    return own + [name for name in hints_of(make) if name not in own and _is_shared(make)]


def _is_shared(make: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(make).parameters.values())


def _spelt(name: str) -> str:
    """A name, whose underscores may be hyphens."""
    return re.sub(r"[-_]", "[-_]", name)


def _help(make: Callable[..., Any]) -> str:
    """The first paragraph of its docstring, and its settings with their defaults."""
    first = (inspect.getdoc(make) or "").partition("\n\n")[0].replace("\n", " ")
    signature = inspect.signature(make).parameters.values()
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in signature if p.kind != p.VAR_KEYWORD]
    return f"{first}\nSettings: {', '.join(shown)}" if shown else first


def _one_of(kind: str) -> Schema:
    return {"anyOf": [_ref(kind)]}


def _ref(kind: str) -> Schema:
    return {"$ref": f"#/definitions/{kind}"}


def without_null(value: Any) -> Any:
    """TOML has no null: a key is there or not."""
    if isinstance(value, list):
        return [without_null(v) for v in value]
    if not isinstance(value, dict):
        return value
    kept = {k: without_null(v) for k, v in value.items() if not (k == "default" and v is None)}
    choices = [choice for choice in kept.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del kept["anyOf"]
        kept |= choices[0]
    elif choices:
        kept["anyOf"] = choices
    return kept
