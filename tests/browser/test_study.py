"""The page of a study: its figures, its table, what failed, and two keys of one's choice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import polyrhythm as pr
import small
from browser.conftest import PHONE
from polyrhythm.studies import Search, Study

pytest.importorskip("starlette", reason="polyrhythm[ui] is not installed")
pytest.importorskip("uvicorn", reason="polyrhythm[ui] is not installed")


def make(setting: Any, seed: int) -> pr.Experiment:
    recipe = pr.fedavg(cohort=2, **setting)
    return small.experiment(federation=small.federation(validation=0.2), recipe=recipe, seed=seed, rounds=2)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a dashboard of a folder with a study, two of whose trials have failed."""
    folder = tmp_path_factory.mktemp("searched")
    space = {"lr": (0.001, 0.01, 0.1), "epochs": (1, 2), "batch": (5, 10)}
    pr.study(Study(name="tune", rows={"": make}, search=Search(space=space), seeds=(5, 6)), out=folder, workers=1)
    path = folder / "studies" / "tune" / "record.json"
    record = json.loads(path.read_text())
    for trial in record["trials"][:2]:
        trial |= {"state": "failed", "score": None, "reason": "<img src=x onerror=alert(1)>"}
    path.write_text(json.dumps(record))
    from browser.serving import dashboard

    with dashboard(folder) as address:
        yield address


def opened(page: Any, address: str) -> None:
    """From the list of runs, by its links."""
    page.goto(address)
    page.get_by_role("link", name="Studies").click()
    page.get_by_role("link", name="tune").click()
    page.locator("#figure-history svg.marks").wait_for()


def test_a_study_is_found_and_shown(address: str, page: Any) -> None:
    opened(page, address)
    rows = page.locator("table.trials tbody tr")
    assert rows.count() == 12
    assert "best" in rows.first.inner_text()
    assert page.locator("table.trials tr.best").count() == 1
    scores = [
        float(text) for text in page.locator("table.trials td.number:nth-child(5)").all_inner_texts() if text != "–"
    ]
    assert (scores, len(scores)) == (sorted(scores, reverse=True), 10)
    assert page.locator("table.trials tr.failed").count() == 2
    assert page.locator("table.trials img").count() == 0
    assert "<img src=x onerror=alert(1)>" in rows.last.inner_text()
    assert page.get_by_text("12 trials, 2 failed; grid search").count() == 1
    for name in ("importance", "parallel", "contour", "slice-lr"):
        page.locator(f"#figure-{name}").scroll_into_view_if_needed()
        page.locator(f"#figure-{name} svg.marks").wait_for()
    page.get_by_label("two keys", exact=True).select_option("batch")
    page.locator("#figure-contour").get_by_text("batch and", exact=False).first.wait_for()
    page.locator("#figure-history").scroll_into_view_if_needed()
    page.get_by_label("history over").select_option("time")
    page.locator("#figure-history text", has_text="minutes since").wait_for()
    page.get_by_role("link", name="side by side").click()
    page.locator("table.methods tbody tr").wait_for()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_study_fits_a_phone(address: str, page: Any, colours: str) -> None:
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme=colours)
    opened(page, address)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    tall = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.trials tbody tr')].map((row) => row.offsetHeight))"
    )
    assert tall < 90


def test_a_study_that_is_not_there_is_said(address: str, browser: Any) -> None:
    page = browser.new_page()  # whose console may complain of the answer
    page.goto(f"{address}study?study=nobody")
    assert "unknown study 'nobody'" in page.get_by_role("alert").inner_text()
    page.close()
