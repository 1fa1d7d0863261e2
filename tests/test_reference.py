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


def test_tables_and_lists_of_docstrings_stay_what_they_are(maker: ModuleType) -> None:
    table, numbered, last = (
        "| rule | scale |\n| --- | --- |\n| a | 1 |",
        "1. One\n   and more.\n2. Two.",
        "Over\ntwo lines.",
    )
    text = maker._split(f"What.\n\n{table}\n\n{numbered}\n\n{last}").text
    assert text == ("What.", table, "1. One and more.\n2. Two.", "Over two lines.")


def test_no_table_of_the_page_has_collapsed_into_a_line(made: str) -> None:
    assert not [line for line in made.splitlines() if "| --- |" in line and set(line) - set("| -:")]
