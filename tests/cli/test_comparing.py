"""`polyrhythm compare` says what differs and what is shown, fits 80 columns, and breaks no name in a pipe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.results import Run, in_text
from polyrhythm.runs.recorder import Recorder
from records import plan, version
from terminal import Command

LONG = "fedbuff(concurrency=6,buffer=3)|late_reports_wait"


def recorded(out: Path, method: str, scores: list[float], seed: int, **changes: Any) -> None:
    kept = Recorder(out)
    recipe = {"name": "Recipe", "batch": changes.pop("batch", 10)}
    config = {"data": "digits", "clients": 4, "fleet": "tiers", "method": method, "resolved": {"recipe": recipe}}
    kept.begin(plan(name="", seed=seed, config={**config, **changes}, recipe=method))
    for number, score in enumerate(scores):
        kept.version(version(number, score), dict)
    kept.end("finished", "", {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds each: the second is better, the third is not told apart; and one run on other data."""
    out = tmp_path_factory.mktemp("compared")
    for seed in range(3):
        recorded(out, "fedavg", [0.1, 0.4, 0.5 + seed / 100], seed)
        recorded(out, LONG, [0.1, 0.6, 0.9 + seed / 90], seed, batch=20)
        recorded(out, "scaffold", [0.1, 0.3, 0.51 + (seed % 2) / 100], seed)
    recorded(out, "fedavg", [0.1, 0.99], 0, clients=200)
    return out


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_it_fits_its_terminal_and_no_name_is_broken(polyrhythm: Command, folder: Path, columns: int) -> None:
    found = polyrhythm("compare", "--out", str(folder), columns=columns)
    assert found.code == 0, found.err
    assert max(len(line.rstrip()) for line in found.out.splitlines()) <= columns
    assert found.out.count(LONG) >= 3  # in the results, the differences and the sentence


def test_it_says_what_differs_what_is_shown_and_what_is_no_match(polyrhythm: Command, folder: Path) -> None:
    told = flat(polyrhythm("compare", "--out", str(folder), columns=200).out)
    assert "not all methods had the same data, those with another one are not paired" in told
    assert f"recipe.batch: 10; 20 ({LONG})" in told
    assert "Holm: corrected for the 2 tests of this column" in told
    assert f"{LONG} ends highest, final accuracy 0.9111 ± 0.0111 over 3 seeds" in told
    assert "leaves out 0. Left out, as on other data or another fleet: fedavg (clients 200)." in told
    scaffold = next(line for line in told.split(" scaffold ")[2:])
    assert re.match(r"3 \+0\.\d{4} \[−0\.\d{4}, \+0\.\d{4}\]° ", scaffold)


def test_curves_are_to_one_scale_and_end_where_a_method_ends(polyrhythm: Command, folder: Path) -> None:
    told = polyrhythm("compare", "--out", str(folder), columns=200).out
    assert "curves: 0.10 to 0.99 over 2 versions" in told
    drawn, _ = in_text.curves(pr.compare(folder))
    assert {name: len(text) for name, text in drawn.items()} == {
        **{"fedavg (clients 4)": 16, LONG: 16, "scaffold": 16},
        "fedavg (clients 200)": 8,
    }
    assert (drawn[LONG][0], drawn["fedavg (clients 200)"][-1]) == ("▁", "▁")  # a version holds until the next
    assert drawn[LONG][-1] == "▇"


def test_rows_can_be_values_of_a_setting(polyrhythm: Command, folder: Path) -> None:
    runs = [run.id for run in Run.all(folder) if run.config["clients"] == 4]
    lines = polyrhythm("compare", *runs, "--out", str(folder), "--group-by", "recipe.batch", "--json").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["method"], row["n"], len(row["runs"]), row["group_by"]) for row in rows] == [
        ("batch 10", 3, 6, "recipe.batch"),
        ("batch 20", 3, 3, "recipe.batch"),
    ]
    assert rows[1]["settings"]["recipe.batch"] == "20"
    refused = polyrhythm("compare", "--out", str(folder), "--group-by", "recipe.btch")
    assert refused.code == 2
    assert "did you mean 'recipe.batch'" in refused.err


def test_differences_are_to_the_baseline_that_is_named(polyrhythm: Command, folder: Path) -> None:
    lines = polyrhythm("compare", "--out", str(folder), "--baseline", "scaffold", "--json").out.splitlines()
    rows = {row["method"]: row for row in map(json.loads, lines)}
    assert rows["scaffold"]["difference"] is None
    assert rows[LONG]["difference"]["holm"] == pytest.approx(2 * rows[LONG]["difference"]["p"])
    assert rows["fedavg (clients 200)"]["difference"]["n"] == 0


def test_a_figure_of_methods_that_are_no_match_says_so(polyrhythm: Command, folder: Path, tmp_path: Path) -> None:
    drawn = polyrhythm("plot", "--figure", "accuracy", "--out", str(folder), "-o", str(tmp_path / "a.svg"))
    assert drawn.code == 0
    assert "not all methods had the same data" in flat(drawn.err)


def test_a_comparison_prints_itself(folder: Path) -> None:
    found = pr.compare(folder)
    text = str(found)
    assert "object at" not in text
    assert found.verdict in text
    assert all(name in text for name in found.methods)
    assert f"note: {found.notes[0]}" in text
    assert "what differs" in text
    assert max(len(line) for line in text.splitlines() if "▁" in line) <= 80
