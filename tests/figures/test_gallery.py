"""The gallery of the documentation shows every figure, and can be drawn anew."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from polyrhythm import figures

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_figures", DOCS / "make_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
