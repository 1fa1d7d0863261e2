"""Errors say four things, name what is near, and survive the way from a worker."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.errors import Mistakes, PolyrhythmError, RunFailed, UserError, together, unknown
from polyrhythm.base.plain import plain

words = st.text(max_size=20)


@given(words, words, words, words)
def test_a_user_error_holds_and_prints_its_four_parts(found: str, expected: str, why: str, fix: str) -> None:
    error = UserError(found, expected=expected, why=why, fix=fix)
    assert (error.found, error.expected, error.why, error.fix) == (found, expected, why, fix)
    assert str(error) == plain(f"{found}\n  expected: {expected}\n  because:  {why}\n  do:       {fix}")


@pytest.mark.parametrize("error", [UserError("a", expected="b", why="c", fix="d"), RunFailed("stopped")])
@pytest.mark.parametrize("trip", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_errors_cross_processes_with_their_notes(error: PolyrhythmError, trip: object) -> None:
    error = copy.copy(error)
    error.add_note("this happened to client 3")
    other = trip(error)  # type: ignore[operator]
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.args == error.args
    assert other.__notes__ == ["this happened to client 3"]
    for part in ("found", "expected", "why", "fix"):
        assert getattr(other, part, None) == getattr(error, part, None)


def test_the_two_families_are_told_apart() -> None:
    assert not issubclass(UserError, RunFailed)
    assert not issubclass(RunFailed, UserError)
    assert issubclass(UserError, PolyrhythmError)
    assert issubclass(RunFailed, PolyrhythmError)


def test_an_unknown_name_gets_the_names_near_it_and_all_that_exist() -> None:
    error = unknown("setting", "cohrt", ["epochs", "cohort", "batch"], where="fedavg")
    assert error.found == "unknown setting 'cohrt' in fedavg"
    assert error.expected == "one of batch, cohort, epochs"
    assert error.fix == "did you mean 'cohort'?"


def test_a_name_near_to_nothing_gets_no_guess() -> None:
    assert "did you mean" not in unknown("model", "zzz", ["lenet5", "mlp"]).fix
    assert unknown("model", "zzz", []).expected == "no model at all"
    assert "in " not in unknown("model", "zzz", []).found


@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=5, unique=True))
def test_a_name_that_exists_is_its_own_nearest(names: list[str]) -> None:
    assert f"{names[0]!r}" in unknown("part", names[0], iter(names)).fix


def mistake(found: str, fix: str = "mend it") -> UserError:
    return UserError(found, expected="something else", why="reasons", fix=fix)


def test_one_mistake_is_itself_and_several_are_one_error_with_a_line_each() -> None:
    one, other = mistake("a"), mistake("b\n  ^", fix="did you mean 'c'?")
    assert together([one]) is one
    both = together([one, other])
    assert both.found == "2 mistakes\n    a; expected something else\n    b\n      ^; did you mean 'c'?"
    assert both.mistakes == (one, other)
    assert together([both, one]).mistakes == (one, other, one)
    assert [m.found for m in pickle.loads(pickle.dumps(both)).mistakes] == ["a", "b\n  ^"]


def test_mistakes_are_collected_with_their_places() -> None:
    wrong = Mistakes()
    wrong.refuse()
    with wrong.noted("line 3"):
        raise together([mistake("a"), mistake("b")])
    with wrong.noted():
        raise mistake("c")
    with pytest.raises(KeyError), wrong.noted():
        raise KeyError
    with pytest.raises(UserError) as caught:
        wrong.refuse()
    assert [m.found for m in caught.value.mistakes] == ["line 3: a", "line 3: b", "c"]


def test_a_name_that_is_no_text_is_unknown_too() -> None:
    assert unknown("driver", 3, ["inline"]).found == "unknown driver 3"
