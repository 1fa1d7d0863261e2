"""A share of what `fuzz.py` tries, the same every time; the long suite tries two thousand others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import tally
from polyrhythm.config import keys
from texts import KEYS


def test_every_key_is_drawn() -> None:
    assert {key for key in keys.KEYS if "." not in key} == KEYS


def test_each_of_some_files_is_refused_cleanly_or_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tally(16, 0, tmp_path, monkeypatch)
    assert not found.wrong, "\n========\n".join(found.wrong.values())
    assert found.kinds["refused"] > 4
    assert found.kinds["ran"] > 1


@pytest.mark.slow
def test_each_of_many_files_is_refused_cleanly_or_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tally(2000, 1, tmp_path, monkeypatch)
    print(found)
    assert not found.wrong, "\n========\n".join(found.wrong.values())
