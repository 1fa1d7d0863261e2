"""Words that runs are searched for by: the same in the command line as in the dashboard."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import final

_SEED = re.compile(r"\bseed[\s:=]*(\d+)\b")
_PART = 4  # characters of an id from which on any part of it is meant: a single digit is in every one


@final
class Search:
    """Search: words in any order, all of which must fit; `seed 2` is a number and no letters of an id.

    >>> Search("scaffold seed 2").fits("20260301-142530-7kx2", 0, ["scaffold(cohort=4)"])
    False

    Args:
        text: what is typed.
    """

    def __init__(self, text: str) -> None:
        self._seeds = {int(seed) for seed in _SEED.findall(text.lower())}
        self._terms = _SEED.sub(" ", text.lower()).split()

    def fits(self, run_id: str, seed: int, words: Iterable[str]) -> bool:
        """Whether a run is meant.

        Args:
            run_id: its id, which is known by its beginning or by a good part of it.
            seed: its seed.
            words: what else is known of it: name, method, data, state, tags, note.
        """
        if self._seeds and seed not in self._seeds:
            return False
        text = " ".join([*words, "seed"]).lower()
        return all(
            term in text or run_id.startswith(term) or (len(term) >= _PART and term in run_id) for term in self._terms
        )
