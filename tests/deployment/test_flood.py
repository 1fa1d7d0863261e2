"""Spoiled answers over the real wire, with a real SuperLink and the real server of a run. Needs flwr.

The same as `python tests/flood.py --answers N`, which tells more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs flwr: pip install 'polyrhythm[flower]'")

from flood import METHODS, federated, flood


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_nodes_that_answer_what_they_like_end_nothing(tmp_path: Path, name: str) -> None:
    with federated(tmp_path, 8880, clients=20, honest=4, seed=1) as (federation, swarm):
        outcome = flood(tmp_path, federation, swarm, name, answers=100, honest=4, clients=20, seed=1)
    assert sum(outcome.sent.values()) == 100
    assert len(outcome.sent) > 15
    assert len(outcome.tally) > 5
