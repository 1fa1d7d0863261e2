"""What a notebook and a prompt show of what users hold: one line that says something, and a small escaped table."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

import polyrhythm as pr
from polyrhythm.base import html
from polyrhythm.fleet import Faults, Tiers
from small import collection, experiment, federation

NASTY = "<script>alert('x')</script>"


@final
class Table(HTMLParser):
    """The cells of a table, its caption, and every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("th", "td", "caption"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    return pr.run(experiment(name=NASTY), out=tmp_path_factory.mktemp("runs"))


def values(run: pr.Run) -> dict[str, tuple[Any, list[str]]]:
    """Each with what its line and its table have to say."""
    recipe = pr.fedavg(cohort=3, lr=0.25) | pr.parts.prox(mu=0.5)
    return {
        "collection": (collection(), ["60", "15", "3 classes"]),
        "federation": (federation(), ["4", "15 to 15", "iid"]),
        "recipe": (recipe, ["cohort=3", "mu=0.5", "lr=0.25"]),
        "fleet": (pr.Fleet(devices=Tiers(slowdown=(1, 4))) | Faults(dropout=0.125), ["[1, 4]", "dropout=0.125"]),
        "experiment": (experiment(recipe=recipe, rounds=7), ["blobs", "7 rounds", "fedavg | prox"]),
        "run": (run, [f"{run.summary['final_accuracy']:.4f}", run.id]),
        "comparison": (pr.compare([run]), [f"{run.summary['final_accuracy']:.4f}"]),
    }


@pytest.mark.parametrize("what", ["collection", "federation", "recipe", "fleet", "experiment", "run", "comparison"])
def test_a_line_and_a_table(run: pr.Run, what: str) -> None:
    value, told = values(run)[what]
    line, table = repr(value), Table(value._repr_html_())
    assert "\n" not in line
    assert line.startswith(f"<{type(value).__name__}")
    assert len(line) < 250
    assert " at 0x" not in line
    for words in told:
        assert words in line
        assert any(words in cell for cell in table.cells), (words, table.cells)
    tags = [tag for tag, _ in table.tags]
    assert tags.count("caption") == tags.count("table") > 0
    assert all(attributes.get("scope") in ("row", "col") for tag, attributes in table.tags if tag == "th")
    assert "script" not in tags


def test_samples_and_shares_are_a_line() -> None:
    items = [(np.zeros(4, np.float32), n % 2) for n in range(12)]
    held = [
        federation().test,
        pr.federate(collection(), pr.data.Iid(), clients=2, seed=0, validation=0.2).validation,
        pr.data.dataset(items, items[:4]).train,
        federation().shares,
    ]
    for value, many in zip(held, ("15 of", "12 of", "12 of", "60 samples of 4"), strict=True):
        assert repr(value) == str(value)
        assert repr(value).startswith(f"<{type(value).__name__}: {many}")
        assert len(repr(value)) < 100
    assert repr(held[0]) == "<ArraySamples: 15 of shape [4], targets int64>"


def test_every_text_is_escaped(run: pr.Run) -> None:
    data = pr.data.arrays(
        np.zeros((20, 2)),
        np.array([NASTY, "b"] * 10),
        columns={NASTY: np.arange(20)},
        name=NASTY,
        features=[NASTY, "b"],
    )
    split = pr.federate(data, pr.data.Iid(), clients=2, seed=0)
    for shown in (data, split, run, pr.compare([run]), experiment(name=NASTY), pr.fedavg().called(NASTY)):
        text = shown._repr_html_()
        assert "<script" not in text
        assert "&lt;script" in text
    assert "<script" not in html.facts(NASTY, {NASTY: NASTY}) + html.table(NASTY, [NASTY, NASTY], [[NASTY, NASTY]])


def test_long_lists_of_names_are_cut_and_counted() -> None:
    data = pr.data.arrays(np.zeros((60, 1)), np.arange(60) % 30)
    assert "and 18 more" in data._repr_html_()
    assert "30 classes" in repr(data)


def test_a_list_of_runs_is_a_line_for_each_and_one_printed_is_its_table(run: pr.Run) -> None:
    assert repr([run, run]).count("\n") == 0
    assert f"{run.summary['final_accuracy']:.4f}" in str(run)
    assert len(str(run).splitlines()) > 10


def test_what_was_asked_of_the_fleet_is_shown_beside_what_it_did(tmp_path: Path) -> None:
    fleet = pr.Fleet(devices=Tiers(slowdown=(1, 4)))
    shown = str(pr.run(experiment(fleet=fleet), out=tmp_path))
    (asked,) = (line for line in shown.splitlines() if "devices " in line)
    assert "tiers" in asked
    assert "of its time" in next(line for line in shown.splitlines() if "fleet " in line)


def test_a_run_whose_record_is_gone_still_has_a_line(tmp_path: Path) -> None:
    run = pr.run(experiment(name="night"), out=tmp_path / "runs")
    for file in (tmp_path / "runs").glob("runs.sqlite*"):
        file.unlink()
    assert repr(run) == f"<Run night, {run.id}: its record cannot be read>"


def test_a_part_is_written_as_one_types_it() -> None:
    assert pr.parts.prox(mu=0.5).text() == "prox(mu=0.5)"
    assert pr.parts.prox().text() == "prox"
    assert pr.parts.prox().text(every=True) == "prox(mu=0.01)"
    assert pr.data.Dirichlet(alpha=0.3).text() == "dirichlet(alpha=0.3)"
    assert Tiers(slowdown=(1, 4)).text() == "tiers(slowdown=[1, 4])"


def test_a_study_shows_its_trials_best_first(tmp_path: Path) -> None:
    def made(setting: Any, seed: int) -> pr.Experiment:
        data = pr.federate(collection(), pr.data.Iid(), clients=3, seed=seed, validation=0.2)
        return experiment(federation=data, recipe=pr.fedavg(cohort=2, lr=setting["lr"]), seed=seed)

    search = pr.studies.Search(kind="grid", space={"lr": (0.001, 0.5)})
    found = pr.study(pr.studies.Study(name="rates", rows={"": made}, search=search), out=tmp_path, workers=1)
    assert "2 trials" in repr(found)
    cells = Table(found._repr_html_()).cells
    best = found.best()
    assert best is not None
    assert cells[:6] == [cells[0], "trial", "lr", "validation accuracy", "state", str(best.number)]


def test_figures_say_which_there_are(run: pr.Run) -> None:
    assert "accuracy" in repr(run.plot)
