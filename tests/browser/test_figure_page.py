"""A figure as a page of its own, and pictures in fonts that are wider than the one they were measured with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from browser.conftest import PHONE
from polyrhythm import figures
from polyrhythm.results import Run

NASTY = "</script><script>document.title = 'taken'</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two seeds of one method, one of a method with a long name that is markup, ten more."""
    folder = tmp_path_factory.mktemp("paged")
    for seed in (0, 1):
        pr.run(
            small.experiment(recipe=pr.fedavg(cohort=2, epochs=1, batch=5), seed=seed, rounds=12, name="plain"),
            out=folder,
        )
    pr.run(small.experiment(recipe=pr.scaffold(cohort=2, batch=5), rounds=6, name=NASTY), out=folder)
    for mu in range(1, 11):
        recipe = pr.fedprox(cohort=2, epochs=1, batch=5, mu=mu / 100)
        pr.run(small.experiment(recipe=recipe, rounds=4, name=f"a method with a name, {mu}"), out=folder)
    return Run.all(folder)


@pytest.fixture
def opened(runs: list[Run], tmp_path: Path, page: Any) -> Any:
    """Writes a figure's page and opens it."""

    def open_page(name: str = "accuracy", few: int = 3, **options: Any) -> Any:
        file = tmp_path / f"{name}.html"
        figures.save(figures.draw(name, runs[:few], live=True, **options), file)
        page.goto(file.as_uri())
        page.locator("#figure .marks").first.wait_for()
        return page

    return open_page


def test_a_page_has_a_title_and_a_language_and_nothing_of_a_run_acts_in_it(opened: Any) -> None:
    page = opened()
    assert page.title() == "Accuracy – Polyrhythm"
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.get_by_role("heading", name="Accuracy").count() == 1
    assert page.get_by_role("figure", name="Accuracy").count() == 1
    assert page.locator("summary").get_attribute("aria-label") == "Save this figure"
    assert page.locator("#figure svg:not([aria-hidden=true])").count() == 0
    assert NASTY in page.locator("#figure").text_content() or page.locator("#figure canvas").count()


@pytest.mark.parametrize("name", ["accuracy", "costs", "epochs", "participation", "staleness"])
def test_a_page_fits_a_phone(opened: Any, page: Any, name: str) -> None:
    page.set_viewport_size(PHONE)
    opened(name, few=13)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    box = page.locator("#figure svg.marks, #figure canvas.marks").bounding_box()
    assert 250 < box["width"] <= PHONE["width"]


def test_a_page_can_be_explored(opened: Any) -> None:
    page = opened()
    box = page.locator("#figure .marks").first.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 150)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert re.search(r"plain\s+0\.\d+ ± [\d.e-]+, n = 2", tip.inner_text())
    assert "n = 1" in tip.inner_text()
    labels = page.locator("#figure .role-axis-label").first.locator("text")
    before = labels.all_text_contents()
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(300)
    assert labels.all_text_contents() == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_timeout(500)
    assert labels.all_text_contents() != before
    page.locator("#figure .role-legend-label text", has_text="plain").click()
    page.wait_for_timeout(500)
    seen = page.locator("#figure g.mark-line path").evaluate_all("all => all.map(p => getComputedStyle(p).opacity)")
    assert set(seen) == {"0", "1"}


WIDER = """() => {
  const texts = [...document.querySelectorAll("svg text")];
  for (const text of texts) text.style.fontFamily = "DejaVu Sans, Verdana, sans-serif";
  const seen = texts.filter((text) => text.textContent.trim() && text.getAttribute("opacity") !== "0");
  const boxes = seen.map((text) => [text.textContent, text.getBoundingClientRect()]);
  const before = (a, b) => a.right - 1 <= b.left || a.bottom - 2 <= b.top;
  const beside = (a, b) => before(a, b) || before(b, a);
  const pairs = boxes.flatMap(([one, a], i) => boxes.slice(i + 1).map(([two, b]) => [one, two, beside(a, b)]));
  return pairs.filter(([,, apart]) => !apart);
}"""


@pytest.mark.parametrize("name", ["accuracy", "costs", "epochs", "staleness", "participation"])
def test_words_do_not_collide_in_a_wider_font(runs: list[Run], tmp_path: Path, page: Any, name: str) -> None:
    file = tmp_path / "a.svg"
    figures.save(figures.draw(name, runs, width=460), file)
    page.set_content(file.read_text())
    assert page.evaluate(WIDER) == []
