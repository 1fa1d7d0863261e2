"""A report in a browser without a network: nothing complains, nothing is fetched, everything is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import report
from small import experiment

NASTY = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on two methods with two seeds each."""
    out = tmp_path_factory.mktemp("runs")
    for name, cohort in ((NASTY, 2), ("other", 4)):
        for seed in range(2):
            recipe = pr.fedavg(cohort=cohort, epochs=1, batch=5)
            pr.run(experiment(recipe=recipe, seed=seed, rounds=5, name=name), out=out)
    return report.write(out, out / "report.html")


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Callable[..., tuple[Any, list[str]]]]:
    """Opens the report; gives the page, and what was said or fetched beside it."""
    contexts: list[Any] = []

    def open_page(**options: Any) -> tuple[Any, list[str]]:
        contexts.append(browser.new_context(offline=True, **options))
        page, heard = contexts[-1].new_page(), list[str]()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("dialog", lambda dialog: heard.append(dialog.message))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or heard.append(asked.url))
        page.goto(file.as_uri())
        return page, heard

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844), (320, 640)])
def test_it_opens_without_a_network(opened: Any, scheme: str, width: int, height: int) -> None:
    page, heard = opened(color_scheme=scheme, viewport={"width": width, "height": height})
    assert heard == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # no scrolling sideways
    drawn = page.evaluate("Array.from(document.images, i => i.complete && i.naturalWidth > 100)")
    assert len(drawn) >= 4
    assert all(drawn)
    assert page.inner_text("h1").startswith("<img")


def test_figures_follow_the_theme(opened: Any) -> None:
    first = "document.images[0].currentSrc"
    light, dark = (opened(color_scheme=scheme)[0].evaluate(first) for scheme in ("light", "dark"))
    assert light.startswith("data:image/svg+xml")
    assert light != dark


def test_nothing_runs_even_where_markup_got_in(opened: Any, file: Path) -> None:
    """The page's own policy stops a script that no escaping had stopped."""
    text = file.read_text()
    broken = file.with_name("broken.html")
    broken.write_text(text.replace("<h1>", "<h1><script>document.title = 'taken'</script>", 1))
    page, heard = opened()
    page.goto(broken.as_uri())
    assert page.title() != "taken"
    assert any("Content Security Policy" in line for line in heard)


def test_it_can_be_read_with_the_keyboard(opened: Any) -> None:
    page, _ = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_it_prints_all_that_is_folded(opened: Any) -> None:
    page, _ = opened()
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelector('details table').getBoundingClientRect().height") > 50
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_contents_stay_in_view(opened: Any) -> None:
    page, _ = opened(viewport={"width": 1280, "height": 900})
    page.evaluate("document.querySelector('#record').scrollIntoView()")
    box = page.locator("nav").bounding_box()
    assert 0 <= box["y"] < 5
    page.locator("nav a", has_text="Figures").click()
    top = page.locator("#figures h2").bounding_box()["y"]
    assert box["y"] + box["height"] <= top < 200  # not under them


@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_of_a_setting_is_broken(opened: Any, width: int) -> None:
    """Each part of a key between two dots stands on one line."""
    page, _ = opened(viewport={"width": width, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    broken = page.evaluate("""() => {
      const found = [];
      const range = document.createRange();
      for (const cell of document.querySelectorAll('.code th[scope=row]')) {
        for (const text of cell.childNodes) {
          if (text.nodeType !== Node.TEXT_NODE) continue;
          range.selectNodeContents(text);
          if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) found.push(text.data);
        }
      }
      return found;
    }""")
    assert broken == []


def test_figures_leave_no_holes(opened: Any) -> None:
    """Between two figures of a column there is a gap, and never half a page."""
    page, _ = opened(viewport={"width": 1280, "height": 900})
    boxes = [figure.bounding_box() for figure in page.locator("figure").all()]
    for box in boxes:
        below = [
            b["y"]
            for b in boxes
            if b["y"] >= box["y"] + box["height"]
            and b["x"] < box["x"] + box["width"]
            and box["x"] < b["x"] + b["width"]
        ]
        if below and all(b["width"] < 700 for b in (box, next(b for b in boxes if b["y"] == min(below)))):
            assert min(below) - box["y"] - box["height"] < 60


def test_what_is_printed_is_whole(opened: Any) -> None:
    page, _ = opened()
    page.emulate_media(media="print")
    style = "(name, key) => getComputedStyle(document.querySelector(name))[key]"
    mark = page.evaluate("getComputedStyle(document.querySelector('mark')).textDecorationLine")
    assert mark == "underline"  # which needs no background to be seen
    assert page.evaluate(f"({style})('figure', 'breakInside')") == "avoid"
    assert page.evaluate(f"({style})('figure', 'display')") == "block"
    tall = page.evaluate("Math.max(...[...document.images].map((image) => image.getBoundingClientRect().height))")
    assert tall <= 205 * 96 / 25.4 + 1
    for name in ("h2", "caption"):
        assert page.evaluate(f"({style})('{name}', 'breakAfter')") == "avoid"
