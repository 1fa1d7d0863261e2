"""The small language of names with settings."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.config.expressions import Call, parse_call, parse_pipeline, parse_value

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n not in ("true", "false", "none"))
numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False, width=32)
texts = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=8)
plain = numbers | texts | st.booleans() | st.none()


def calls(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.builds(lambda name, named: Call(name, (), named), names, st.dictionaries(names, values, max_size=3))


values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3).map(tuple) | calls(inner), max_leaves=6)


@given(st.lists(calls(values), min_size=1, max_size=3))
def test_what_is_written_is_what_is_read(pipeline: list[Call]) -> None:
    assert parse_pipeline(" | ".join(map(str, pipeline))) == tuple(pipeline)


@given(values)
def test_a_value_is_read_back_with_its_type(value: Any) -> None:
    found = parse_call(str(Call("f", (), {"x": value}))).named["x"]
    assert found == value
    assert type(found) is type(value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UserError):
        assert parse_pipeline(text)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("fedavg |", 8, "a name was expected"),
        ("fedavg(lr=)", 10, "a name was expected"),
        ("fedavg(lr=1 2)", 12, "')' was expected"),
        ("fedavg(lr=1, lr=2)", 13, "lr is given twice"),
        ("fedavg(lr=1) prox", 13, "nothing more was expected"),
        ("fedavg(lr=1, 2)", 13, "a setting needs its name"),
        ("fedavg(lr=!)", 10, "'!' has no meaning here"),
        ("(lr=1)", 0, "a name was expected"),
        ("fedavg(lr=1", 11, "')' was expected"),
    ],
)
def test_a_refusal_marks_the_place(text: str, place: int, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_pipeline(text)
    written, mark = caught.value.found.splitlines()[-2:]
    assert problem in mark
    assert mark.index("^") - (len(written) - len(written.lstrip())) - written.lstrip().index(text) == place or (
        written[mark.index("^") :] == text[place:]
    )


def test_hyphens_paths_and_constants() -> None:
    assert parse_call("fashion-mnist(pad=2)").name == "fashion-mnist"
    assert parse_call("package.module:Name(a-b=1)") == Call("package.module:Name", (), {"a_b": 1})
    assert parse_value("-0.5") == -0.5
    assert parse_value("[1, [true, none], hello]")[1] == (True, None)
    assert parse_value("hello") == "hello"
    assert parse_value("1e-3") == 0.001


@pytest.mark.parametrize("path", ["/data/x.csv", "../a-b/c.json.gz", "~/sets/1.npz", "data/x.npz", "./7", "a/"])
def test_a_path_needs_no_quotes(path: str) -> None:
    assert parse_call(f"table(path={path}, test=0.5)").named == {"path": path, "test": 0.5}
    assert parse_value(path) == path
    with pytest.raises(UserError, match="a name was expected"):
        parse_call(path)


def test_nothing_is_evaluated() -> None:
    with pytest.raises(UserError):
        parse_pipeline("fedavg(lr=1+1)")
    assert parse_pipeline("__import__(name='os')")[0].name == "__import__"  # a name like any other, known to nobody
