"""What a run has come to can be read from few of its versions, whenever one looked before."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.runs.result_rule import kept, numbers

SCORES = st.none() | st.dictionaries(st.just("accuracy"), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, float("nan")]))
RUNS = st.lists(st.tuples(SCORES, st.none() | SCORES), max_size=70)


@given(scores=RUNS, looks=st.lists(st.integers(0, 70), max_size=6))
def test_numbers_are_those_of_all_versions(scores: list[tuple[Any, Any]], looks: list[int]) -> None:
    rows = [
        {"version": at, "test": test, "validation": other, "client_updates": at}
        for at, (test, other) in enumerate(scores)
    ]
    known, read = [], 0
    for look in sorted(looks):
        known, read = kept([*known, *rows[read:look]], "accuracy"), max(read, min(look, len(rows)))
        assert len(known) <= 25
    assert numbers([*known, *rows[read:]], "accuracy") == numbers(rows, "accuracy")
