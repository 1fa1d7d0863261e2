"""The pictures of the documentation can be drawn anew, and each page of a mechanism shows its own."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from scripts import script

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return script("docs/make_pictures.py")


@pytest.mark.slow
def test_every_picture_can_be_drawn(maker: ModuleType, tmp_path: Path) -> None:
    """From short runs, into a folder that does not exist yet."""
    maker.main(folder=tmp_path / "pictures", rounds=3)
    drawn = {path.stem: path.read_text() for path in (tmp_path / "pictures").iterdir()}
    assert drawn.keys() == maker.DRAWN.keys()
    assert all(text.startswith("<svg") and ("<path" in text) for text in drawn.values())


def test_every_picture_is_shown(maker: ModuleType) -> None:
    pages = "".join(page.read_text().replace("](../pictures", "](pictures") for page in DOCS.rglob("*.md"))
    assert all(f"](pictures/{name}.svg)" in pages for name in maker.DRAWN)


def test_staleness_counts_versions_between(maker: ModuleType) -> None:
    """Four updates by hand: two released as version 1, two as version 2, of which one began on version 0."""
    import pandas as pd

    class Recorded:
        history = pd.DataFrame({"accepted": [0, 2, 2]}, index=pd.RangeIndex(3, name="version"))
        visits = pd.DataFrame(
            {"finished": [1.0, 3.0, 1.5, 4.0], "version": [0, 0, 0, 1]}, index=pd.RangeIndex(4, name="dispatch")
        )

    assert maker.staleness(Recorded()) == [0, 0, 1, 0]
