"""The dashboard as its visitor sees it: lists, a run that grows, a comparison, a stop, keyboard, phone."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import polyrhythm as pr
import small
from browser.conftest import PHONE, until
from polyrhythm.results import Run

pytest.importorskip("starlette", reason="polyrhythm[ui] is not installed")
pytest.importorskip("uvicorn", reason="polyrhythm[ui] is not installed")

LONG = """
import sys
sys.path.insert(0, sys.argv[1])
import time
import polyrhythm as pr
import small
slow = small.Log(lambda record: time.sleep(0.02))
pr.run(small.experiment(rounds=4000, name="a long one"), out=sys.argv[2], observers=[slow])
"""
Serve = Callable[..., str]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        for recipe in (pr.fedavg(cohort=2, epochs=1, batch=5), pr.scaffold(cohort=2, epochs=1, batch=5)):
            pr.run(small.experiment(seed=seed, recipe=recipe, rounds=8), out=folder)
    pr.run(small.experiment(name="<img src=x onerror=alert(1)>"), out=folder)
    return folder


@pytest.fixture(scope="module")
def serve(folder: Path) -> Iterator[Serve]:
    """Gives the address of a dashboard that may control runs or not, one for all tests that ask for the same."""
    from browser.serving import dashboard

    started = dict[bool, str]()
    with contextlib.ExitStack() as running:

        def start(*, control: bool = False) -> str:
            if control not in started:
                started[control] = running.enter_context(dashboard(folder, control=control))
            return started[control]

        yield start


@pytest.fixture
def long_run(folder: Path) -> Iterator[str]:
    """A run in another process, that goes on for longer than the test; gives its id."""
    before = {run.id for run in Run.all(folder)}
    tests = str(Path(__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", LONG, tests, str(folder)])
    while not (found := [run.id for run in Run.all(folder) if run.id not in before]):
        assert process.poll() is None
    yield found[0]
    if process.poll() is None:
        process.terminate()
    process.wait(120)


def rows(page: Any) -> Any:
    return page.locator("table.runs tbody tr")


def test_runs_are_found(serve: Serve, page: Any) -> None:
    address = serve()
    page.goto(address)
    page.wait_for_selector("html[data-shown]")
    page.get_by_label("Search").fill("finished")
    assert rows(page).count() == 5
    page.get_by_label("Search").fill("scaff seed")
    assert rows(page).count() == 2
    assert "search=scaff" in page.url
    page.reload()
    page.wait_for_selector("html[data-shown]")
    assert rows(page).count() == 2
    page.get_by_label("Search").fill("")
    page.get_by_label("State", exact=True).select_option("finished")
    page.get_by_label("Order").select_option("score")
    found = [float(text) for text in page.locator("td.of-result .number").all_inner_texts()]
    assert found == sorted(found, reverse=True)
    page.get_by_label("Search").fill("nobody is called that")
    assert "No run fits" in rows(page).inner_text()


def test_a_curve_grows_while_its_run_trains(serve: Serve, long_run: str, page: Any) -> None:
    page.goto(f"{serve()}run?run={long_run}")
    figure = page.locator("#figure-accuracy")
    figure.locator("svg.marks, canvas").wait_for()
    curve = figure.locator("g.mark-line path, .mark-symbol path").first
    first, version = curve.get_attribute("d"), page.locator(".far .number").inner_text()
    until(page, lambda: curve.get_attribute("d") != first, lambda: "the curve stayed as it was")
    until(page, lambda: page.locator(".far .number").inner_text() != version, lambda: "its number stayed as it was")


def test_runs_are_compared(serve: Serve, page: Any) -> None:
    page.goto(serve())
    page.get_by_label("Search").fill("seed 0")
    page.wait_for_timeout(200)
    for box in page.locator("tbody input[type=checkbox]").all()[-2:]:
        box.check()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.locator("table.methods tbody tr").nth(1).wait_for()
    page.locator("#figure-accuracy svg.marks").wait_for()
    assert {"fedavg", "scaffold"} <= set(
        " ".join(page.locator("table.methods th[scope=row]").all_inner_texts()).split()
    )
    page.get_by_label("Over", exact=True).select_option("bytes")
    page.locator("#figure-accuracy text", has_text="traffic").first.wait_for()


def test_a_run_is_stopped(serve: Serve, long_run: str, page: Any, folder: Path) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    address = serve(control=True)
    assert "token=" in address
    page.goto(address)
    page.get_by_role("link", name="a long one").first.wait_for()
    assert "token" not in page.url
    page.goto(f"{address.partition('?')[0]}run?run={long_run}")
    page.get_by_role("button", name="Stop this run").click()
    page.locator("h1 ~ .state.stopped").wait_for()
    page.get_by_text("asked to stop", exact=True).wait_for()
    assert pr.Run.open(long_run, folder).status == "stopped"


def test_who_only_looks_has_no_button(serve: Serve, long_run: str, page: Any) -> None:
    page.goto(f"{serve()}run?run={long_run}")
    page.wait_for_selector("html[data-shown]")
    assert page.get_by_role("button", name="Stop this run").count() == 0


def test_names_are_text(serve: Serve, page: Any, folder: Path) -> None:
    address = serve()
    page.goto(address)
    page.get_by_role("link", name="<img src=x onerror=alert(1)>").click()
    page.locator("#figure-accuracy svg.marks").wait_for()
    assert "<img" in page.locator("h1").inner_text()
    assert page.locator("main img").count() == 0


def test_a_keyboard_is_enough(serve: Serve, page: Any) -> None:
    page.goto(serve())
    page.wait_for_selector("html[data-shown]")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.locator(":focus").get_attribute("id") == "search"
    for _ in range(40):
        page.keyboard.press("Tab")
        if (page.locator(":focus").get_attribute("id") or "").startswith("c-"):
            break
    page.keyboard.press("Space")
    assert page.locator("tbody input:checked").count() == 1
    page.get_by_role("link", name="Open 1 run").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/run?*")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_it_is_legible_on_a_phone(serve: Serve, page: Any, folder: Path, colours: str) -> None:
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme=colours)
    ids = [run.id for run in Run.all(folder)[:4]]
    address = serve()
    for path in ("", f"run?run={ids[0]}", "compare?" + "&".join(f"run={run_id}" for run_id in ids)):
        page.goto(address + path)
        if path:
            page.locator("#figure-accuracy svg.marks").wait_for()
        else:
            page.wait_for_selector("html[data-shown]")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


def test_a_theme_is_kept(serve: Serve, page: Any) -> None:
    address = serve()
    page.goto(address)
    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    page.reload()
    assert page.get_by_role("button", name="Theme: dark").count() == 1
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


def test_a_seed_that_is_searched_for_is_a_number_and_not_a_digit_of_an_id(serve: Serve, page: Any) -> None:
    page.goto(serve())
    page.wait_for_selector("html[data-shown]")
    for typed, seeds in (("scaffold seed 1", {"seed 1"}), ("seed 0", {"seed 0"}), ("seed 7", set())):
        page.get_by_label("Search").fill(typed)
        page.wait_for_function("text => document.querySelector('#search').value === text", arg=typed)
        page.wait_for_timeout(100)
        assert set(page.locator("td.of-method .dim").all_inner_texts()) == seeds, typed
    page.get_by_label("Search").fill("scaffold seed 1")
    page.wait_for_timeout(100)
    assert page.locator("tbody tr").count() == 1


def test_what_is_wrong_is_said_in_all_its_parts(serve: Serve, browser: Any) -> None:
    page = browser.new_page()  # whose console may complain of the answer
    page.goto(f"{serve()}run?run=nope")
    said = page.get_by_role("alert").inner_text()
    page.close()
    assert "no run 'nope'" in said
    assert "go back to the list of runs" in said
    assert "[object" not in said


def test_a_link_keeps_axis_set_and_selection(serve: Serve, page: Any, folder: Path) -> None:
    ids = [run.id for run in Run.all(folder)[:2]]
    page.goto(f"{serve()}compare?run={ids[0]}&run={ids[1]}")
    page.locator("#figure-accuracy svg.marks").wait_for()
    page.get_by_label("Over", exact=True).select_option("bytes")
    assert "across=bytes" in page.url
    page.reload()
    page.locator("#figure-accuracy text", has_text="traffic").first.wait_for()
    page.goto(serve())
    page.wait_for_selector("html[data-shown]")
    page.get_by_label("Search").fill("scaffold")
    page.get_by_role("button", name="Select all 2").click()
    page.reload()
    page.wait_for_selector("html[data-shown]")
    assert page.locator("tbody input:checked").count() == 2
    assert page.get_by_role("link", name="Compare 2 runs").count() == 1


def test_a_figure_can_be_taken_along(serve: Serve, page: Any, folder: Path) -> None:
    run = Run.all(folder)[0]
    page.goto(f"{serve()}run?run={run.id}")
    page.locator("#figure-accuracy svg.marks").wait_for()
    taken = {}
    for kind in ("SVG", "PNG", "CSV"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Accuracy as {kind}").click()
        assert waiting.value.suggested_filename == f"accuracy.{kind.lower()}"
        taken[kind] = Path(waiting.value.path()).read_bytes()
    assert taken["SVG"].startswith(b"<svg")
    assert taken["PNG"].startswith(b"\x89PNG")
    table = pd.read_csv(io.BytesIO(taken["CSV"]))
    assert table["y"].tolist() == pytest.approx([score for _, score in run.scores])


def test_a_comparison_is_sorted_by_keyboard_and_keeps_it_in_its_address(serve: Serve, page: Any, folder: Path) -> None:
    ids = "&".join(f"run={run.id}" for run in Run.all(folder)[:4])
    page.goto(f"{serve()}compare?{ids}")
    page.locator("table.methods tbody tr").nth(1).wait_for()

    def finals() -> list[float]:
        return [
            float(text.split()[0]) for text in page.locator("table.methods tbody td:nth-child(3)").all_inner_texts()
        ]

    head = page.get_by_role("button", name="Final accuracy")
    head.focus()
    page.keyboard.press("Enter")
    assert finals() == sorted(finals(), reverse=True)
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Final accuracy")
    page.keyboard.press("Enter")  # the focus has stayed there
    assert finals() == sorted(finals())
    assert page.locator("th[aria-sort]").count() == 1
    page.reload()
    page.locator("th[aria-sort=ascending]").wait_for()


def test_a_comparison_says_what_differs_and_what_is_shown(serve: Serve, page: Any, folder: Path) -> None:
    runs = Run.all(folder)[:4]
    page.goto(f"{serve()}compare?" + "&".join(f"run={run.id}" for run in runs))
    page.locator("table.settings tbody tr").first.wait_for()
    expected = pr.compare(runs)
    assert page.locator("table.settings tbody th").all_inner_texts() == list(expected.settings)
    assert page.locator(".verdict").inner_text() == expected.verdict
    page.locator("#figure-differences").scroll_into_view_if_needed()
    page.locator("#figure-differences svg.marks").wait_for()
    assert page.locator("table.methods td", has_text="baseline").count() == 1


def test_rows_can_be_values_of_a_setting(serve: Serve, page: Any, folder: Path) -> None:
    page.goto(f"{serve()}compare?" + "&".join(f"run={run.id}" for run in Run.all(folder)[:4]))
    page.locator("table.methods tbody tr").nth(1).wait_for()
    page.get_by_label("Rows", exact=True).select_option("recipe.sharing.name")
    page.locator("table.methods a", has_text="name Equal").wait_for()
    assert "group_by=recipe.sharing.name" in page.url
    page.locator("#figure-accuracy text", has_text="name Equal").first.wait_for()
    page.reload()
    page.locator("table.methods a", has_text="name BySamples").wait_for()
    page.get_by_label("Differences to").select_option("name Equal")
    page.locator("table.methods tr", has_text="name Equal").locator("td", has_text="baseline").wait_for()
