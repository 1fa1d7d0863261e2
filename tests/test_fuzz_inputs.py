"""A share of what `fuzz_inputs.py` tries, the same every time; the long suite tries three thousand others."""

from __future__ import annotations

import pytest

from fuzz_inputs import Tally, tally


def right(found: Tally) -> bool:
    assert not found.wrong, "\n========\n".join(f"{which}: {told}" for which, told in found.wrong.items())
    return all(counts["taken"] and counts["refused"] for kind, counts in found.counts.items() if kind != "run")


def test_each_of_some_inputs_is_read_exactly_or_refused_in_words() -> None:
    assert right(tally(range(100), 0, ("table", "arrays", "set", "file")))


@pytest.mark.slow
def test_each_of_many_inputs_is_read_exactly_or_refused_in_words() -> None:
    found = tally(range(3000), 1)
    print(found)
    assert right(found)
