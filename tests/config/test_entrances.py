"""Whatever one entrance refuses, all refuse: Python, a file, `--set`, an option. Drawn over every setting."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import given, settings
from hypothesis import strategies as st

import polyrhythm as pr
from polyrhythm.config import configuration
from polyrhythm.config.configuration import configure
from polyrhythm.config.keys import KEYS, Configuration, Key
from polyrhythm.data.unseen import check_unseen
from small import collection, experiment

Values = st.SearchStrategy[Any]

BESIDE: Mapping[str, Mapping[str, Any]] = {"gpus": {"driver": "ray", "workers": 2}}
"""What a setting has no meaning without."""
TEXTS: Mapping[str, Values] = {
    "client_memory": st.sampled_from(["all", "1 GiB", "500 MB", "0 B", "1gib", "-1 GB", "1", "much"]),
    "local_test": st.sampled_from(["a", "half"]),
    "checkpoint.every": st.sampled_from(["never", "5 min", "0.5 h", "30s", "5 weeks", "-1 s", "min"]),
}
ELSEWHERE = {"address"}
"""A cluster that a file names has to be typed, too: tests/security holds that."""
SETTINGS = [key for key in KEYS.values() if key.table is None and key.names is None and key.name not in ELSEWHERE]
MANY = collection(3000)
"""So many that any share of them leaves some."""
IN_PYTHON: Mapping[str, Callable[[Any], object]] = {
    "rounds": lambda value: experiment(rounds=value),
    "seed": lambda value: experiment(seed=value),
    "name": lambda value: experiment(name=value),
    "validation": lambda value: pr.federate(MANY, pr.data.Iid(), 1, 0, validation=value),
    "local_test": lambda value: pr.federate(MANY, pr.data.Iid(), 1, 0, local_test=value),
    "unseen": lambda value: check_unseen(value, 0.2),
}
"""Where a key is a setting of something else than its owner."""


END: Mapping[type, str] = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt"}


def bounds(hint: Any) -> Iterator[Any]:
    """All that is said of a type and of what it is made of."""
    yield from getattr(hint, "__metadata__", ())
    for inner in get_args(hint):
        yield from bounds(inner)


def values(key: Key) -> Values:
    """Values within a setting's range, at its ends, and beyond."""
    ends = [getattr(bound, END[type(bound)]) for bound in bounds(key.kind) if type(bound) in END]
    numbers = st.integers(-3, 10) | st.floats(-2, 12, width=32) | st.booleans() | st.just(float("inf"))
    numbers |= st.sampled_from([end + step for end in ends for step in (0, 1e-6, -1e-6, 0.5, -0.5)] or [0])
    if key.several or get_origin(key.kind) is Literal:
        words = get_args(get_args(key.kind)[0] if key.several else key.kind)
        one = st.sampled_from([*words, "nobody", words[0].upper()])
        return st.lists(one, max_size=3).map(tuple) if key.several else one
    if get_origin(key.kind) is tuple or key.name == "seeds":
        return st.lists(st.integers(-2, 9), max_size=3, unique=True).map(tuple)
    if key.texts <= {int, float, bool}:
        return numbers
    words = TEXTS.get(key.name, st.sampled_from(["a", "natural", "auto", "x" * 201, "deep/er"]))
    return words if key.texts == {str} else words | st.integers(-3, 10) | st.sampled_from([0.0, 0.5, 1.0, 0.999, -0.1])


def as_toml(value: Any) -> str:
    return repr(value) if isinstance(value, float) else json.dumps(value)


def as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(as_text, value))}]"
    return value if isinstance(value, str) else as_toml(value)


def in_python(key: Key, value: Any) -> None:
    name = key.name.rpartition(".")[2]
    make = IN_PYTHON.get(key.name) or (lambda v: key.owner(**{name: v}, **BESIDE.get(key.name, {})))
    make(value)


def in_a_file(key: Key, value: Any) -> Configuration:
    lines = [f"{name} = {as_toml(v)}" for name, v in BESIDE.get(key.name, {}).items()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.toml"
        file.write_text("\n".join([*lines, f"{key.name} = {as_toml(value)}"]))
        return configure(file, {}, [])


def by_set(key: Key, value: Any) -> Configuration:
    beside = [f"{name}={v}" for name, v in BESIDE.get(key.name, {}).items()]
    return configure(None, {}, [*beside, f"{key.name}={as_text(value)}"])


def by_option(key: Key, value: Any) -> Configuration:
    table, _, name = key.name.rpartition(".")
    beside = {k: as_text(v) for k, v in BESIDE.get(key.name, {}).items()}
    if table == "until":
        return configure(None, {"until": f"{name}={as_text(value)}"}, [])
    return configure(None, {key.name: as_text(value), **beside}, [])


def entrances(key: Key) -> list[Callable[[Key, Any], Any]]:
    table = key.name.rpartition(".")[0]
    return [in_python, in_a_file, by_set, *([by_option] if table in ("", "until") else [])]


def refused_by(key: Key, value: Any) -> dict[str, str]:
    """Who refuses a value, and in which words."""
    found = {}
    for entrance in entrances(key):
        try:
            entrance(key, value)
        except pr.UserError as error:
            found[entrance.__name__] = str(error)
    return found


@pytest.mark.parametrize("key", SETTINGS, ids=lambda key: key.name)
@given(data=st.data())
@settings(max_examples=25)
def test_a_value_is_taken_by_all_or_by_none(key: Key, data: st.DataObject) -> None:
    value = data.draw(values(key))
    refused = refused_by(key, value)
    assert len(refused) in (0, len(entrances(key))), (value, refused)
    if not refused:
        one, other = (way(key, value).written() for way in (in_a_file, by_set))
        assert one == other


@pytest.mark.parametrize(
    ("name", "value"), [("until.accuracy", 5), ("until.time", 0), ("gpus", 0.00005), ("workers", 0), ("rounds", 0)]
)
def test_what_once_passed_by_one_of_them_is_refused_by_all(name: str, value: Any) -> None:
    assert len(refused_by(KEYS[name], value)) == len(entrances(KEYS[name]))


def test_that_law_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files were held to nothing."""
    monkeypatch.setattr(configuration, "validated", lambda owner, name, value: value)
    monkeypatch.setattr(Configuration, "__post_init__", lambda self: None)
    refused = refused_by(KEYS["rounds"], 0)
    assert 0 < len(refused) < len(entrances(KEYS["rounds"]))
