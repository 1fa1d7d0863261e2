"""Figures in the dashboard, as a reader explores them: zoom, range, logarithms, smoothing, crosshair."""

from __future__ import annotations

import io
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import polyrhythm as pr
import small
from browser import conftest
from polyrhythm.results import Run

pytest.importorskip("starlette", reason="polyrhythm[ui] is not installed")
pytest.importorskip("uvicorn", reason="polyrhythm[ui] is not installed")

FORMULA = "=1+1"
ACCURACY = "#figure-accuracy"
Compared = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds each of two short methods of which one is named like a formula, and a long one."""
    folder = tmp_path_factory.mktemp("explored")
    for name, recipe, rounds, seeds in (
        ("plain", pr.fedavg(cohort=2, epochs=1, batch=5), 10, 2),
        (FORMULA, pr.scaffold(cohort=2, epochs=1, batch=5), 10, 2),
        ("long", pr.fedprox(cohort=2, epochs=1, batch=5, mu=1.0), 40, 1),
    ):
        for seed in range(seeds):
            pr.run(small.experiment(seed=seed, recipe=recipe, rounds=rounds, name=name), out=folder)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Of a dashboard of it."""
    from browser.serving import dashboard

    with dashboard(folder) as address:
        yield address


@pytest.fixture
def compared(address: str, folder: Path, page: Any) -> Compared:
    """Opens the comparison of all runs."""

    def open_page(query: str = "") -> Any:
        ids = "&".join(f"run={run.id}" for run in Run.all(folder))
        page.goto(f"{address}compare?{ids}{query}")
        page.locator(f"{ACCURACY} .marks").wait_for()
        page.locator(".methods-shown button").nth(2).wait_for()
        page.locator(ACCURACY).scroll_into_view_if_needed()
        return page

    return open_page


def asked(page: Any) -> dict[str, list[str]]:
    """What the address holds beside the runs."""
    query = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).query)
    return {key: values for key, values in query.items() if key != "run"}


def until(page: Any, holds: Callable[[], bool], what: str) -> None:
    conftest.until(page, holds, lambda: f"{what}: {asked(page)}")


def ticks(page: Any, figure: str = ACCURACY, *, upright: bool = False) -> list[float]:
    """The numbers at an axis."""
    axes = page.locator(f"{figure} .role-axis-label")
    texts = [axis.locator("text").all_text_contents() for axis in axes.all()]
    texts = [found for found in texts if found]
    return [float(text.replace(",", "").replace("−", "-")) for text in texts[1 if upright else 0]]


def legend(page: Any, figure: str = ACCURACY) -> set[str]:
    return set(page.locator(f"{figure} .role-legend-label text").all_text_contents())


def drag(page: Any, start: float, end: float, *, shift: bool = False) -> None:
    """Over the accuracy, from a share of its width to another."""
    box = page.locator(f"{ACCURACY} .marks").bounding_box()
    left, wide, y = box["x"] + 60, box["width"] - 80, box["y"] + 150
    page.mouse.move(left + start * wide, y)
    if shift:
        page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(left + end * wide, y + 3, steps=4)
    page.mouse.up()
    if shift:
        page.keyboard.up("Shift")


def test_a_stretch_that_is_dragged_over_is_zoomed_into_and_there_is_a_way_back(compared: Compared) -> None:
    page = compared()
    whole = ticks(page)
    assert (whole[0], whole[-1]) == (0, 40)
    drag(page, 0.5, 0.75)
    until(page, lambda: "from" in asked(page), "not zoomed")
    start, end = float(asked(page)["from"][0]), float(asked(page)["to"][0])
    assert 15 < start < 25 < end < 35
    until(page, lambda: start <= min(ticks(page)) <= max(ticks(page)) <= end, "the axis stayed")
    page.locator("#figure-loss").scroll_into_view_if_needed()
    until(page, lambda: start <= min(ticks(page, "#figure-loss")), "the other figure stayed")
    assert page.get_by_label("Axis from").input_value() == asked(page)["from"][0]
    page.reload()
    page.locator(f"{ACCURACY} .marks").wait_for()
    assert start <= min(ticks(page)) <= max(ticks(page)) <= end
    page.get_by_role("button", name="Reset zoom of Accuracy").click()
    until(page, lambda: ticks(page) == whole, "no way back")
    assert asked(page) == {}


def test_a_wheel_scrolls_the_page_and_zooms_only_with_a_key(compared: Compared) -> None:
    page = compared()
    box = page.locator(f"{ACCURACY} .marks").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 150)
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 60)
    until(page, lambda: page.evaluate("scrollY") > before, "the page did not scroll")
    assert asked(page) == {}
    box = page.locator(f"{ACCURACY} .marks").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 150)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    until(page, lambda: "from" in asked(page), "the wheel did not zoom")
    page.wait_for_timeout(1200)
    ends = [float(asked(page)[key][0]) for key in ("from", "to")]
    drag(page, 0.6, 0.4, shift=True)
    until(page, lambda: float(asked(page)["from"][0]) > ends[0], "it did not move")
    moved = [float(asked(page)[key][0]) for key in ("from", "to")]
    assert moved[1] - moved[0] <= ends[1] - ends[0] + 0.01
    page.get_by_role("button", name="Reset", exact=True).click()
    until(page, lambda: asked(page) == {}, "not reset")


def test_a_range_is_typed_in(compared: Compared) -> None:
    page = compared()
    page.get_by_label("Axis from").fill("4")
    page.get_by_label("Axis to").fill("8")
    page.keyboard.press("Enter")
    until(page, lambda: asked(page) == {"from": ["4"], "to": ["8"]}, "not taken")
    until(page, lambda: (min(ticks(page)), max(ticks(page))) == (4, 8), "not drawn")
    page.get_by_label("Axis to").fill("")
    page.keyboard.press("Enter")
    until(page, lambda: asked(page) == {"from": ["4"], "to": ["40"]}, "no end of its own")
    page.get_by_label("Axis to").fill("8")
    page.keyboard.press("Enter")
    page.get_by_label("Axis to").fill("2")
    page.keyboard.press("Enter")
    assert (
        page.get_by_label("Axis to").evaluate("input => input.validationMessage") == "more than where the axis begins"
    )
    assert asked(page) == {"from": ["4"], "to": ["8"]}
    page.get_by_label("Over", exact=True).select_option("samples")  # where 4 to 8 means nothing
    until(page, lambda: asked(page) == {"across": ["samples"]}, "the range stayed")


def test_logarithms_smoothing_and_seeds_are_said_and_kept(compared: Compared) -> None:
    page = compared()
    lines = page.locator(f"{ACCURACY} g.mark-line path")
    before = lines.count()
    page.get_by_label("single seeds").check()
    until(page, lambda: lines.count() == before + 4, "no single seeds")
    page.get_by_label("log x").check()
    page.get_by_label("log y").check()
    page.get_by_label("smoothing").select_option("5")
    wanted = {"log": ["xy"], "smooth": ["5"], "seeds": ["1"]}
    until(page, lambda: asked(page) == wanted, "not kept")
    said = page.locator(f"{ACCURACY} .role-title-subtitle")
    for words in ("mean of 5 neighbouring places", "what lies at 0 has no place", "thin: single seeds"):
        until(page, lambda words=words: words in said.text_content(), words)
    page.reload()
    page.locator(f"{ACCURACY} .marks").wait_for()
    assert "mean of 5 neighbouring places" in said.text_content()
    assert page.get_by_label("log y").is_checked()
    assert page.get_by_label("smoothing").input_value() == "5"
    page.get_by_role("button", name="Reset", exact=True).click()
    until(page, lambda: asked(page) == {} and "neighbouring" not in " ".join(said.all_text_contents()), "not reset")


def test_one_crosshair_reads_every_method_wherever_the_pointer_is(compared: Compared, folder: Path) -> None:
    page = compared()
    box = page.locator(f"{ACCURACY} .marks").bounding_box()
    page.mouse.move(box["x"] + 60 + 0.1 * (box["width"] - 80), box["y"] + box["height"] * 0.4)
    readout = page.locator(f"{ACCURACY} .readout")
    readout.wait_for()
    read = [row.inner_text().split("\t") for row in readout.locator("tbody tr").all()]
    assert [row[0].strip() for row in read] == ["plain", FORMULA, "long"]
    assert [row[3] for row in read] == ["2", "2", "1"]
    place = int(readout.locator("caption").inner_text().removeprefix("server version: "))
    scores = [dict(run.scores)[place] for run in Run.find("plain", folder)]
    mean = sum(scores) / 2
    assert read[0][1] == f"{mean:.4f}"
    assert read[0][2] == f"{abs(scores[0] - scores[1]) / 2**0.5:.4f}"
    page.mouse.move(box["x"] + 60 + 0.9 * (box["width"] - 80), box["y"] + 150)  # where only the long one goes
    read = [row.inner_text().split("\t") for row in readout.locator("tbody tr").all()]
    assert [row[4] for row in read] == ["10", "10", ""]
    page.mouse.move(5, 5)
    assert not readout.is_visible()


def test_values_are_read_with_arrow_keys(compared: Compared) -> None:
    page = compared()
    stage = page.get_by_role("group", name="Accuracy: arrow keys read its values")
    stage.focus()
    caption = page.locator(f"{ACCURACY} .readout caption")
    for key, place in (("ArrowRight", 0), ("ArrowRight", 1), ("End", 40), ("ArrowLeft", 39), ("Home", 0)):
        page.keyboard.press(key)
        assert caption.inner_text() == f"server version: {place}"
    assert page.locator(f"{ACCURACY} .readout").get_attribute("aria-live") == "polite"
    page.keyboard.press("Escape")
    assert not caption.is_visible()


def test_a_method_is_hidden_by_the_legend_and_by_keyboard_and_the_last_one_stays(compared: Compared) -> None:
    page = compared()
    page.locator(f"{ACCURACY} .role-legend-label text", has_text="long").click()
    until(page, lambda: asked(page) == {"hide": ["long"]}, "the legend does nothing")
    until(page, lambda: legend(page) == {"plain", FORMULA}, "it is still there")
    until(page, lambda: max(ticks(page)) == 10, "the axis was left as it was")
    button = page.get_by_role("button", name=FORMULA, exact=True)
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator(":focus").inner_text() == FORMULA
    until(page, lambda: asked(page) == {"hide": ["long", FORMULA]}, "not hidden")
    page.get_by_role("button", name="plain", exact=True).click()
    assert asked(page) == {"hide": ["long", FORMULA]}  # nothing at all would be left
    page.reload()
    page.locator(f"{ACCURACY} .marks").wait_for()
    until(page, lambda: page.locator(f"{ACCURACY} g.mark-line path").count() == 1, "all came back")
    page.get_by_role("button", name="Reset", exact=True).click()
    until(page, lambda: legend(page) == {"plain", FORMULA, "long"}, "they stay away")


def taken(page: Any, kind: str) -> bytes:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Accuracy as {kind}").click()
    return Path(waiting.value.path()).read_bytes()


def test_what_is_taken_along_is_what_is_seen(compared: Compared, folder: Path) -> None:
    page = compared("&from=2&to=6&hide=long")
    until(page, lambda: legend(page) == {"plain", FORMULA}, "not as the address says")
    table = pd.read_csv(io.BytesIO(taken(page, "CSV")))
    assert set(table["method"]) == {"plain", f"'{FORMULA}"}  # no formula in a spreadsheet
    assert set(table["x"]) == {2, 3, 4, 5, 6}
    assert len(table) == 10  # each once, though a band has them, too
    row = table[(table["method"] == "plain") & (table["x"] == 4)].iloc[0]
    scores = [dict(run.scores)[4] for run in Run.find("plain", folder)]
    assert row["n"] == 2
    assert row["y"] == pytest.approx(sum(scores) / 2)
    assert row["sd"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    picture = taken(page, "SVG").decode()
    assert ">long<" not in picture
    assert ">40<" not in picture
    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    until(page, lambda: "#15181C" in taken(page, "SVG").decode(), "the picture stays light")
    assert taken(page, "PNG").startswith(b"\x89PNG")


def test_text_of_runs_cannot_act_in_a_table(compared: Compared) -> None:
    """Formulas in spreadsheets, escapes in terminals: what a name could hold, handed to the page by its server."""
    page = compared()
    nasty = ["=1+1", " +1", "-2", "@SUM(A1)", "\t=1", "\x1b[31mred", "a\x9bb", 'say "no", twice']

    def answer(route: Any) -> None:
        found = route.fetch()
        body = found.json()
        value = {"y": 0.5, "raw": 0.5, "low": 0.4, "high": 0.6, "sd": None, "n": 1}
        rows = [{"method": name, "x": x, **value} for x, name in enumerate(nasty)]
        body["data"] = dict.fromkeys(body["data"], rows)
        route.fulfill(response=found, json=body)

    page.route("**/api/figure?name=accuracy*", answer)
    page.get_by_label("smoothing").select_option("3")
    page.wait_for_timeout(1500)
    table = pd.read_csv(io.BytesIO(taken(page, "CSV")), keep_default_na=False)
    assert list(table["method"]) == [
        *("'=1+1", "' +1", "'-2", "'@SUM(A1)", "�=1", "�[31mred", "a�b", 'say "no", twice')
    ]


def test_an_address_can_be_copied(compared: Compared) -> None:
    page = compared("&log=y")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_pictures_are_pictures_to_those_who_hear_them(compared: Compared) -> None:
    page = compared()
    for frame in page.locator(".frame").all():
        frame.scroll_into_view_if_needed()
        frame.locator("svg.marks, canvas.marks").wait_for()
    frames = page.locator(".frame").evaluate_all(
        "all => all.map(f => [f.getAttribute('role'), f.getAttribute('aria-label').length > 20,"
        " [...f.querySelectorAll('svg, canvas')].every(inner => inner.closest('[aria-hidden=true]'))])"
    )
    assert len(frames) > 5
    assert all(found == ["img", True, True] for found in frames)


def test_figures_of_one_value_are_named_and_drawn_on_demand(address: str, folder: Path, page: Any) -> None:
    page.goto(f"{address}run?run={Run.find('plain', folder)[0].id}")
    page.locator(f"{ACCURACY} .marks").wait_for()
    assert "Cohort (2 in every version)" in page.locator(".flat").inner_text()
    assert page.locator("#figure-cohort").count() == 0
    page.get_by_role("button", name="draw Cohort all the same").click()
    page.locator("#figure-cohort .marks").wait_for(state="attached")
    assert page.locator("#figure-cohort").evaluate("f => f.getBoundingClientRect().top < innerHeight")
    assert "Cohort" not in page.locator(".flat").inner_text()


@pytest.mark.parametrize("width", [390, 900, 1024, 1440])
def test_controls_and_figures_fit(compared: Compared, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    compared("&smooth=3&log=xy")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drawn = page.locator(f"{ACCURACY} .marks .background").first.bounding_box()
    assert drawn["width"] > 200


def test_a_printed_page_has_all_figures_on_white(compared: Compared, page: Any) -> None:
    page.emulate_media(color_scheme="dark")
    page.add_init_script("window.print = () => { window.printed = document.documentElement.dataset.theme; }")
    compared()
    page.get_by_role("button", name="Print").click()
    until(page, lambda: page.evaluate("window.printed") == "light", "not printed")
    assert page.locator(".frame").count() == page.locator(".frame").locator("svg.marks, canvas.marks").count()
    until(page, lambda: page.evaluate("document.documentElement.dataset.theme") is None, "the theme stayed")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".controls").is_visible()
    assert not page.locator(".tools").first.is_visible()
    assert page.locator("table.methods").is_visible()
