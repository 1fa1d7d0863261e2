"""Whether two methods are a match: the same data, fleet and budget, by the configurations of their runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Config = Mapping[str, Any]
_KINDS: Mapping[str, tuple[str, ...]] = {
    "data": ("data", "clients", "partition", "validation", "local_test", "unseen"),
    "fleet": ("fleet",),
    "budget": ("rounds", "until"),
}
_SHOWN = 3  # methods by name


def paired(one: Config, other: Config) -> bool:
    """Whether a seed means the same clients and devices to both, so that their runs are pairs.

    A budget may differ: a server that steps with each report makes many versions for one of a server that waits.
    """
    return all(_same(_settings(one, kind), _settings(other, kind)) for kind in ("data", "fleet"))


def notes(methods: Mapping[str, Config]) -> list[str]:
    """In which of the three methods differ from the first, and what becomes of it, in words.

    Args:
        methods: the configuration of a run of each.
    """
    told = []
    base = next(iter(methods.values()))
    for kind in _KINDS:
        own = _settings(base, kind)
        if all(_same(own, _settings(config, kind)) for config in methods.values()):
            continue
        groups: dict[str, list[str]] = {}
        for name, config in methods.items():
            groups.setdefault(_words(config, kind), []).append(name)
        shown = "; ".join(f"{words} ({_list(names)})" for words, names in groups.items())
        then = "read them at equal cost" if kind == "budget" else "those with another one are not paired"
        told.append(f"not all methods had the same {kind}, {then}: {shown}")
    return told


def names(configs: Sequence[Config]) -> list[str]:
    """What tells the data and fleets of some runs apart, in words: for each what it has that not all of them have."""
    keys = [key for kind in ("data", "fleet") for key in _KINDS[kind]]
    apart = [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]
    return [_list_words(config, apart) or "none" for config in configs]


def _settings(config: Config, kind: str) -> dict[str, Any]:
    """What must be alike; a centralised run has all samples in one place, however they would be dealt."""
    resolved = config.get("resolved") or config
    if kind == "fleet":
        return {"fleet": resolved.get("fleet")}
    recipe = resolved.get("recipe", resolved.get("method"))
    centralised = isinstance(recipe, Mapping) and recipe.get("regime") == "centralised"
    keys = [key for key in _KINDS[kind] if not (centralised and key in ("clients", "partition"))]
    return {key: config[key] for key in keys if key in config}


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two agree in whatever both say in the same way: files write parts in words, Python in full."""
    return all(one[key] == other[key] for key in one.keys() & other.keys() if type(one[key]) is type(other[key]))


def _words(config: Config, kind: str) -> str:
    return _list_words(config, _KINDS[kind]) or "none"


def _list_words(config: Config, keys: Iterable[str]) -> str:
    found = []
    for key in keys:
        value = config.get(key)
        if isinstance(value, Mapping):
            given = {k: v for k, v in value.items() if k != "name" and v is not None and not isinstance(v, Mapping)}
            inner = ", ".join(f"{k} {v}" for k, v in given.items())
            value = f"{value['name']}({inner})" if value.get("name") and key != "until" else inner
        if value not in (None, "", 0, 0.0):
            found.append(f"{value}" if key in ("data", "partition", "fleet") else f"{key.replace('_', ' ')} {value}")
    return ", ".join(found)


def _list(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
