"""The example notebooks: what is committed is what they gave when they were run in order, and they give it again."""

from __future__ import annotations

import copy
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scripts import ROOT, script

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("nbclient", reason="nbclient is not installed")

maker = script("docs/make_notebooks.py")
NOTEBOOKS = sorted(maker.NOTEBOOKS.glob("*.ipynb"))
NAMES = [
    *("1_first_federation", "2_own_data_and_model", "3_comparing_methods", "4_fleet_and_time_to_accuracy"),
    *("5_own_mechanism", "6_from_simulation_to_nodes"),
]
MOST_BYTES = 200_000
_LOCAL = re.compile(r"/(?:home|root|tmp|work|Users|usr)/|[A-Z]:\\\\|site-packages")
_NOISE = re.compile(r"warning|deprecat|traceback|\x1b|time left", re.IGNORECASE)
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?")
_KERNELS = re.compile(r"\((?:sse2|avx2|avx512)\)")
_DIGEST = re.compile(r"\b[0-9a-f]{16,64}\b")


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_six() -> None:
    assert [path.stem for path in NOTEBOOKS] == NAMES
    assert not list(ROOT.joinpath("examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_was_run_in_order_and_without_a_fault(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_of_one_machine_or_moment_is_in_it(path: Path) -> None:
    notebook = read(path)
    for cell in notebook.cells:
        assert not cell.metadata
        for text in [*_texts(cell), cell.source]:
            assert not _LOCAL.search(text), _LOCAL.search(text)
        for text in _texts(cell):
            assert not _NOISE.search(text), _NOISE.search(text)
    again = maker.settled(copy.deepcopy(notebook))
    assert [cell.id for cell in again.cells] == [cell.id for cell in notebook.cells]
    assert [cell.get("outputs") for cell in again.cells] == [cell.get("outputs") for cell in notebook.cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_are_pictures_that_every_page_can_show(path: Path) -> None:
    kinds = {kind for cell in code(read(path)) for output in cell.outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "image/svg+xml"}
    assert "image/svg+xml" in kinds or path.stem.startswith("6_")
    for cell in code(read(path)):
        assert "<script" not in "".join(_texts(cell))


def test_each_leads_to_the_next() -> None:
    for path, following in pairwise(NOTEBOOKS):
        text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
        assert f"]({following.name})" in text
        for link in re.findall(r"\]\(([^)#]+\.ipynb)\)", text):
            assert (path.parent / link).is_file()


def test_prose_gives_no_result_that_a_cell_should() -> None:
    """Settings stand in prose, and no measured number, which would stay when the code changes."""
    for path in NOTEBOOKS:
        for cell in read(path).cells:
            if cell.cell_type == "markdown":
                prose = re.sub(r"`[^`]*`|```.*?```|\$\$?.*?\$\$?", "", cell.source, flags=re.DOTALL)
                assert not re.search(r"0\.\d{2,}|\b[0-9a-f]{16}\b|\d\s?%", prose), prose


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_gives_again_what_is_committed(path: Path, tmp_path: Path) -> None:
    committed = read(path)
    fresh = copy.deepcopy(committed)
    for cell in code(fresh):
        cell.outputs, cell.execution_count = [], None
    maker.execute(fresh, tmp_path)
    fresh = maker.settled(fresh)
    alike = committed.metadata[maker.KIND] == maker.kind()
    for source, before, now in zip(code(committed), maker.said(committed), maker.said(fresh), strict=True):
        if alike:
            assert now == before, source.source
        else:  # another kind of machine rounds otherwise
            assert _near(before, now), source.source


def _near(before: list[str], now: list[str]) -> bool:
    """Whether the words are the same, and each number at least similar; digests apart, which differ as a whole."""
    one, other = ([_KERNELS.sub("(…)", _DIGEST.sub("DIGEST", line)) for line in lines] for lines in (before, now))
    if [_NUMBER.sub("#", line) for line in one] != [_NUMBER.sub("#", line) for line in other]:
        return False
    found = ([float(text.replace("−", "-")) for text in _NUMBER.findall("\n".join(lines))] for lines in (one, other))
    return all(abs(a - b) <= 0.1 + 0.25 * abs(a) for a, b in zip(*found, strict=True))


def test_what_is_near_is_told_from_what_is_not() -> None:
    assert _near(["accuracy 0.93, digest db7ae709aaf9ce42"], ["accuracy 0.95, digest 0123456789abcdef"])
    assert not _near(["accuracy 0.93"], ["accuracy 0.53"])
    assert not _near(["accuracy 0.93"], ["loss 0.93"])
    assert not _near(["accuracy 0.93"], [])


def test_ids_and_clocks_are_no_part_of_what_is_compared() -> None:
    cell = nbformat.v4.new_code_cell("x")
    cell.outputs = [
        nbformat.v4.new_output("stream", text="run 20261129-154611-gm59 ──── 3\nstarted   2026-11-29\nwall time 2 s\n"),
        nbformat.v4.new_output("execute_result", data={"text/plain": "0.5"}),
    ]
    assert list(maker.said(nbformat.v4.new_notebook(cells=[cell]))) == [["run RUN 3", "0.5"]]


def _texts(cell: Any) -> list[str]:
    outputs = cell.get("outputs", [])
    return [text for o in outputs for text in [o.get("text", ""), *map(str, o.get("data", {}).values())]]
