"""The gallery of the documentation shows every figure, and can be drawn anew."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from polyrhythm import figures
from scripts import script

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return script("docs/make_figures.py")


def test_every_figure_is_shown_with_its_command(maker: ModuleType) -> None:
    page = (DOCS / "figures.md").read_text()
    assert list(maker.SHOWS) == list(figures.CATALOGUE)
    for name in figures.CATALOGUE:
        assert (maker.PICTURES / f"{name}.svg").is_file()
        assert f"](pictures/figures/{name}.svg)" in page
        assert f"--figure {name} " in page


def test_pictures_can_be_drawn_anew(maker: ModuleType, tmp_path: Path) -> None:
    maker.main(["groups", "samples"], folder=tmp_path / "new", rounds=2, seeds=1)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"groups.svg", "samples.svg"}
