"""Where each key stands in a file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.config.lines import lines_of


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", {}),
        ("# rounds = 1\n\nrounds = 3 # seed = 2\nseed=4", {"rounds": 3, "seed": 4}),
        ("[a.b]\nc = 1\n\n[d]\n'e f'.g = 2", {"a.b": 1, "a.b.c": 2, "d": 4, "d.e f.g": 5}),
        ('x = """\na = 1\n""quoted\\"""""\ny = 2', {"x": 1, "y": 4}),
        ("x = '''\na = 1\n'''\ny = 2", {"x": 1, "y": 4}),
        ('x = "a = 1 # \\" ["\ny = 2', {"x": 1, "y": 2}),
        ("x = [ # one\n  1, [2,\n 3],\n]\ny = 2", {"x": 1, "x.0": 2, "x.1": 2, "x.1.0": 2, "x.1.1": 3, "y": 5}),
        ("x = {a = 1, b = {c = 2.5}}\ny = 2", {"x": 1, "x.a": 1, "x.b": 1, "x.b.c": 1, "y": 2}),
        ("[[x]]\na = 1\r\nb = 1979-05-27 07:32:00", {"x": 1, "x.a": 2, "x.b": 3}),
    ],
)
def test_each_key_has_the_line_that_it_stands_on(text: str, lines: dict[str, int]) -> None:
    tomllib.loads(text)
    assert lines_of(text) == lines


keys = st.text("abc_-", min_size=1, max_size=3)
scalars = st.sampled_from(["1", "2.5", "true", '"a # b = 1"', "'[x]'", '"""\nk = 1\n"""', "'''\n[t]\n'''"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3).map(lambda v: "[\n" + "".join(f" {x}, # y = 1\n" for x in v) + "]"),
    max_leaves=4,
)


def paths(value: Any, before: str = "") -> Iterator[str]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield f"{before}{key}"
        yield from paths(inner, f"{before}{key}.")


@given(st.dictionaries(keys, st.dictionaries(keys, values, min_size=1, max_size=3), max_size=3))
def test_every_key_that_toml_finds_is_found_where_its_name_is(tables: dict[str, dict[str, str]]) -> None:
    text = "".join(
        f"\n[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    found = lines_of(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    for name, table in tables.items():
        assert text.splitlines()[found[name] - 1] == f"[{name}]"
        for key in table:
            assert text.splitlines()[found[f"{name}.{key}"] - 1].startswith(f"{key} = ")
