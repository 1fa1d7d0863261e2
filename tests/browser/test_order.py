"""Order in the list of runs: tags, notes, archive; a thousand runs, any width, two tab stops."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from browser.conftest import until
from polyrhythm.runs.database_writer import Writer

pytest.importorskip("starlette", reason="polyrhythm[ui] is not installed")
pytest.importorskip("uvicorn", reason="polyrhythm[ui] is not installed")

Serve = Callable[..., str]
MANY = 450


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Gives the address of a dashboard of a folder, one for all tests that ask for the same."""
    from browser.serving import dashboard

    started = dict[tuple[Path, bool], str]()
    with contextlib.ExitStack() as running:

        def start(folder: Path, *, control: bool = False) -> str:
            if (folder, control) not in started:
                started[folder, control] = running.enter_context(dashboard(folder, control=control))
            return started[folder, control]

        yield start


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for seed in (0, 1, 2):
        pr.run(small.experiment(seed=seed, name=f"night {seed}"), out=folder)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded, tmp_path / "runs")


@pytest.fixture(scope="module")
def many(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hundreds of runs with rows alone."""
    folder = shutil.copytree(recorded, tmp_path_factory.mktemp("many") / "runs")
    for number in range(MANY - 3):
        writer = Writer(folder)
        seed, method = number % 3, ("fedavg(cohort=10)", "scaffold(cohort=10)")[number % 2]
        writer.start(
            {"run_id": f"20260101-000000-{number:04}", "name": f"a rather long name of a run, number {number}"}
            | {"status": "finished", "started": "2026-01-01T00:00:00+00:00", "seed": seed, "rounds": 9}
            | {"headline": "accuracy", "recipe": "fedavg", "recipe_digest": "0", "parameters": 9, "clients": 100}
            | {"config": {"data": "digits", "method": method, "clients": 100}, "config_digest": "0", "notices": []}
            | {"libraries": {}, "machine": {}}
        )
        writer.close()
    return folder


def opened(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-shown]")


def rows(page: Any) -> Any:
    return page.locator("table.runs tbody tr")


def test_tags_and_archive_of_a_list_are_seen_by_all(serve: Serve, folder: Path, page: Any) -> None:
    first, second, third = pr.Run.all(folder)
    first.tag("paper", "<b>bold</b>")
    second.archive()
    third.pin()
    third.note = "looks odd"
    opened(page, serve(folder))
    assert rows(page).count() == 2
    assert "2 runs, 1 in the archive" in page.locator("#count").inner_text()
    assert page.locator(".tag").all_inner_texts() == ["baseline", "<b>bold</b>", "paper"]
    page.get_by_label("Tag", exact=True).select_option("paper")
    assert rows(page).count() == 1
    page.get_by_label("Tag", exact=True).select_option("")
    page.get_by_label("Search").fill("odd")
    assert rows(page).count() == 1
    page.get_by_label("Search").fill("")
    page.get_by_label("Archive, too").check()
    assert rows(page).count() == 3
    page.reload()
    page.wait_for_selector("html[data-shown]")
    assert rows(page).count() == 3
    rows(page).first.locator("input").check()
    assert page.get_by_role("button", name="Add tag").count() == 0
    opened(page, f"{page.url.split('?')[0]}run?run={third.id}")
    assert page.locator(".said").inner_text() == "looks odd"
    assert page.locator("details.labels").count() == 0
    for text in ("blobs", "iid", "4, with 15 samples each", "logistic: 15 parameters", "uniform"):
        assert page.locator(".made").get_by_text(text, exact=True).count() == 1


def test_runs_are_labelled_in_a_dashboard_that_may(serve: Serve, folder: Path, page: Any) -> None:
    ids = [run.id for run in pr.Run.all(folder)]
    address = serve(folder, control=True)
    page.goto(address)
    page.get_by_role("link", name="night 0").wait_for()
    for run_id in ids[:2]:
        page.locator(f"#c-{run_id}").check()
    page.get_by_role("textbox", name="New tag").fill("paper")
    page.get_by_role("button", name="Add tag").click()
    page.locator(".tag", has_text="paper").nth(1).wait_for()
    page.get_by_role("button", name="Archive", exact=True).click()
    rows(page).nth(1).wait_for(state="detached")
    assert [(run.tags, run.is_archived) for run in pr.Run.all(folder, archived=True)] == [
        *([(("paper",), True)] * 2),
        ((), False),
    ]
    page.goto(f"{address.partition('?')[0]}run?run={ids[0]}")
    page.wait_for_selector("html[data-shown]")
    page.get_by_text("Name, tags, note").click()
    page.get_by_label("Name", exact=True).fill("<i>other</i>")
    page.get_by_label("Tags, with commas between").fill("paper, second")
    page.get_by_label("Note", exact=True).fill("one\n<script>alert(1)</script>")
    page.get_by_label("In the archive").uncheck()
    page.get_by_label("Baseline of this folder").check()
    page.get_by_role("button", name="Save").click()
    page.locator("h1", has_text="<i>other</i>").wait_for()
    run = pr.Run.open(ids[0], folder)
    assert (run.name, run.tags, run.note) == ("<i>other</i>", ("paper", "second"), "one\n<script>alert(1)</script>")
    assert (run.is_archived, run.is_pinned) == (False, True)
    assert page.locator(".said").inner_text() == "one\n<script>alert(1)</script>"


@pytest.mark.parametrize("width", [390, 900, 1024, 1280])
def test_a_list_fits_any_width_and_breaks_no_column(serve: Serve, many: Path, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, serve(many))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate("document.querySelector('tbody .of-method').getBoundingClientRect().width")
    assert wide > 130
    tall = page.evaluate("Math.max(...[...document.querySelectorAll('tbody tr')].map((r) => r.offsetHeight))")
    assert tall < (180 if width < 820 else 110)


def test_a_table_has_two_tab_stops_and_arrows_go_from_row_to_row(serve: Serve, many: Path, page: Any) -> None:
    opened(page, serve(many))
    stops = page.locator("tbody input[tabindex='0'], tbody a[tabindex='0']")
    assert stops.count() == 2
    assert page.locator("tbody input:not([tabindex]), tbody a:not([tabindex])").count() == 0
    stops.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert page.locator("tbody tr").nth(2).locator("input:checked").count() == 1
    assert stops.count() == 2
    page.keyboard.press("Tab")
    assert page.locator(":focus").get_attribute("href") == rows(page).nth(2).locator("a").get_attribute("href")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run?*")


def test_a_long_list_is_drawn_bit_by_bit_and_what_stays_is_not_drawn_again(serve: Serve, many: Path, page: Any) -> None:
    opened(page, serve(many))
    assert rows(page).count() < 250
    page.evaluate("for (const row of document.querySelectorAll('tbody tr')) row.known = true")
    page.get_by_label("Search").fill("rather long name")
    assert page.evaluate("[...document.querySelectorAll('tbody tr')].filter((row) => row.known).length") > 90
    page.get_by_label("Search").fill("")

    def whole() -> bool:
        page.mouse.wheel(0, 20000)
        return bool(rows(page).count() == MANY)

    until(page, whole, lambda: rows(page).count())
    page.get_by_label("Search").fill("scaffold seed 2")
    page.wait_for_timeout(100)
    assert set(page.locator("td.of-method .dim").all_inner_texts()) == {"seed 2"}
