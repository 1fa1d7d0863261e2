"""`polyrhythm data NAME`: where a data set is published, and whether a copy is the official one."""

from __future__ import annotations

from pathlib import Path

from polyrhythm.data.published import PUBLISHED
from terminal import Command


def test_every_set_with_clients_of_its_own_says_where_it_is(polyrhythm: Command) -> None:
    for name, known in PUBLISHED.items():
        found = polyrhythm("data", name)
        assert found.code == 0, found.err
        for text in (known.where, known.column, known.licence, known.known_from, *known.sums.values()):
            assert text in found.out
    assert polyrhythm("data", "about", "nothing").code == 2


def test_a_copy_is_compared(polyrhythm: Command, tmp_path: Path) -> None:
    (tmp_path / "processed.va.data").write_bytes(b"1,2")
    found = polyrhythm("data", "heart-disease", str(tmp_path))
    assert found.code == 2
    assert found.out.count("another one than the official one") == 1
    assert "is not heart-disease as it is published" in found.err
    assert polyrhythm("data", "hapt", str(tmp_path)).code == 2
