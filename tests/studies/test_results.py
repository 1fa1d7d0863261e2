"""The pages in docs/results, their index, and the README's table are one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from polyrhythm.studies.files.catalogue import catalogue
from scripts import ROOT, script

RESULTS = ROOT / "docs" / "results"
PAGES = sorted(path for path in RESULTS.glob("*.md") if path.stem != "index")


def test_index_and_readme_are_current() -> None:
    maker = script("docs/make_results.py")
    pages = maker.found()
    assert (RESULTS / "index.md").read_text(encoding="utf-8") == maker.index(pages), "run: python docs/make_results.py"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == maker.readme(text, pages), "run: python docs/make_results.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_was_made_by_what_it_says(page: Path) -> None:
    """Its name is still known, its data say the same, its pictures are there, and it names no place of a machine."""
    text = page.read_text(encoding="utf-8")
    told = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert told["name"] in catalogue()
    assert f"$ {told['command']}" in text
    assert told["commit"]
    assert told["date"] in text
    for picture in re.findall(r"\]\((pictures/[^)]*)\)", text):
        assert (page.parent / picture).is_file(), picture
    assert not re.search(r"/(home|root|tmp|work|Users)/", text + json.dumps(told))
