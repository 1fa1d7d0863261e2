"""docs/reference.md says what the code says."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from scripts import script

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return script("docs/make_reference.py")


@pytest.fixture(scope="module")
def made(maker: ModuleType) -> str:
    page: str = maker.page()
    return page


def test_the_page_is_current(made: str) -> None:
    written = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert written == made, "run: python docs/make_reference.py"


def test_every_name_has_its_entry(made: str) -> None:
    from polyrhythm.config import names
    from polyrhythm.data import PARTITIONS, SOURCES
    from polyrhythm.models import MODELS

    headings = {line.lstrip("# ") for line in made.splitlines() if line.startswith("#")}
    of_fleets = (names.DEVICES, names.FLEETS, names.OF_FLEETS)
    for known in (names.RECIPES, names.PARTS, PARTITIONS, SOURCES, MODELS, *of_fleets):
        assert set(known) <= headings


def test_settings_are_read_from_all_parents(maker: ModuleType) -> None:
    """What a part inherits is explained with it."""
    from polyrhythm.parts import server_adam

    explained = maker.parsed(server_adam).args
    assert {"lr", "beta1", "beta2", "initial"} <= set(explained)


def test_tables_survive_bars(maker: ModuleType) -> None:
    assert maker.table(("a",), [("x | y",)]).endswith("| x \\| y |")
