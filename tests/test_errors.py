"""Errors say four things, name what is near, and survive the way from a worker."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.errors import PolyrhythmError, RunFailed, UserError, unknown

words = st.text(max_size=20)


@given(words, words, words, words)
def test_a_user_error_holds_and_prints_its_four_parts(found: str, expected: str, why: str, fix: str) -> None:
    error = UserError(found, expected=expected, why=why, fix=fix)
    assert (error.found, error.expected, error.why, error.fix) == (found, expected, why, fix)
    assert str(error) == f"{found}\n  expected: {expected}\n  because:  {why}\n  do:       {fix}"


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
