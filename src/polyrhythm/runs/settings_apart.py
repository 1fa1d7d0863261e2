"""Settings of runs by dotted key: those that there are, and those in which some runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polyrhythm.base.errors import unknown
from polyrhythm.runs.settings_text import text

Config = Mapping[str, Any]
RESOLVED = "resolved"
NOT_SET = "not set"
_PER_RUN = ("seed",)
_SHOWN = 3  # values of a setting that the runs of one row do not share


def flat(config: Config, prefix: str = "") -> dict[str, str]:
    """A configuration as one level of texts, with dots between the keys.

    >>> flat({"fleet": {"links": {"down": 1000000}}, "corrections": [{"name": "Prox", "mu": 0.1}]})
    {'fleet.links.down': '1000000', 'corrections': 'prox(mu=0.1)'}
    """
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = _in_one(value)
    return found


def _in_one(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, dict) and "name" in one for one in value):
        return " | ".join(map(text, value))
    return json.dumps(value)


def settings(config: Config) -> dict[str, str]:
    """A configuration in one level, but for the seed: as it was written, then what followed from that.

    A recipe from Python is written in full under `method`, one of a file in words; its settings have one key in both.
    """
    if isinstance(config.get("method"), Mapping):
        config = {("recipe" if key == "method" else key): value for key, value in config.items()}
    known = {key: value for key, value in flat(config).items() if key not in _PER_RUN}
    written = {key: value for key, value in known.items() if not key.startswith(f"{RESOLVED}.")}
    return written | {key.removeprefix(f"{RESOLVED}."): value for key, value in known.items() if key not in written}


def differing(rows: Sequence[Iterable[Config]]) -> dict[str, tuple[str | None, ...]]:
    """The settings in which rows differ, with the value in each; None where it has none.

    Args:
        rows: the configurations of the runs of each. Where those do not share a value, all of theirs are named.
    """
    of = [[settings(config) for config in row] for row in rows]
    keys = dict.fromkeys(key for row in of for one in row for key in one)
    found = {key: tuple(shared([one.get(key) for one in row]) for row in of) for key in keys}
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}


def varying(configs: Iterable[Config]) -> list[str]:
    """The keys of the settings that some runs do not share: those by which they can be grouped."""
    return list(differing([[config] for config in configs]))


def check_key(key: str, configs: Sequence[Config]) -> None:
    """Goes on if one of the runs has a setting of this key.

    Raises:
        UserError: none has; says which are near.
    """
    if any(value_of(config, key) is not None for config in configs):
        return
    known = dict.fromkeys(one for config in configs for one in settings(config))
    key = full_key(key)
    last = key.rpartition(".")[2]
    alike = [one for one in known if one.rpartition(".")[2] == last]
    raise unknown("setting", key, alike or known, why="rows of a comparison are the values of a setting")


def value_of(config: Config, key: str) -> str | None:
    """The value of a setting, or a part as one writes it; None if there is none of that key."""
    known, key = settings(config), full_key(key)
    if key in known:
        return known[key]
    for held in ({**config, "recipe": config.get("method")}, config.get(RESOLVED) or {}):
        for part in key.split("."):
            held = held.get(part) if isinstance(held, Mapping) else None
        if isinstance(held, Mapping):
            return text(dict(held))
    return None


def full_key(key: str) -> str:
    """The key of a setting as `settings` has it.

    >>> full_key("resolved.recipe.batch"), full_key("method.batch"), full_key("method")
    ('recipe.batch', 'recipe.batch', 'method')
    """
    key = key.removeprefix(f"{RESOLVED}.")
    return f"recipe.{key.removeprefix('method.')}" if key.startswith("method.") else key


def shared(values: Sequence[str | None]) -> str | None:
    """The value that all have, or those of some."""
    several = list(dict.fromkeys(values))
    if len(several) == 1:
        return several[0]
    shown = ", ".join(NOT_SET if value is None else value for value in several[:_SHOWN])
    return shown + (f" and {len(several) - _SHOWN} more" if len(several) > _SHOWN else "")
