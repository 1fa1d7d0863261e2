"""Text of somebody else, whatever it is the name of and wherever it is shown, is text and nothing more."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.base.plain import in_cell, plain
from terminal import Command

ORDERS = "\x1b]0;taken\x07\x1b[2J\x1b[31m\r\x9b1m\x7f\u202e\u2028"
"""For terminals, and what turns text around."""
EVIL = (
    "=1+1</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    f"{ORDERS}\\input{{x}}$y_1$|](javascript:alert(3))`b` *c* [red]r[/red] &lt; %"
)
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


class Fails(nn.Module):
    """A model that says something wicked in its fourth visit."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
            if int(self.steps) > 12:
                raise ValueError(EVIL)
        outputs: Tensor = self.inner(inputs)
        return outputs


@dataclass(frozen=True)
class Folder:
    """Runs in which everything is called by a wicked name."""

    path: Path
    good: str
    failed: str


def federation() -> pr.Federation:
    draws = np.random.default_rng(0)
    labels = np.array([f"{EVIL}A", f"{EVIL}B", "c"])[draws.integers(0, 3, 90)]
    who = np.array([f"{EVIL}{i % 3}" for i in range(90)])
    features = [f"{EVIL}{i}" for i in range(4)]
    data = pr.data.arrays(
        draws.normal(size=(90, 4)).astype("f4"), labels, columns={EVIL: who}, name=EVIL, features=features
    )
    return pr.federate(data, pr.data.ByColumn(column=EVIL), clients=None, seed=0, local_test=0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    out, split = tmp_path_factory.mktemp("wicked"), federation()
    recipe = pr.fedavg(cohort=2, epochs=1).called(EVIL)
    values = {"federation": split, "recipe": recipe, "rounds": 2, "name": EVIL}
    runs = [pr.run(pr.Experiment(**values, model="mlp", seed=seed), out=out) for seed in (0, 1)]
    with pytest.raises(ValueError, match="alert"):
        pr.run(pr.Experiment(**values | {"name": "failed", "rounds": 9}, model=Fails()), out=out)
    with sqlite3.connect(out / "runs.sqlite") as database:
        ((failed,),) = database.execute("SELECT run_id FROM runs WHERE name = 'failed'")
        if not database.execute("SELECT 1 FROM runs WHERE status = 'failed' AND reason LIKE '%alert%'").fetchone():
            database.execute("UPDATE runs SET status = 'failed', reason = ? WHERE run_id = ?", (EVIL, failed))
    return Folder(out, runs[0].id, failed)


SHOWN = {
    "runs": "runs",
    "runs as JSON": "runs --json",
    "a run": "show {good}",
    "a run as JSON": "show {good} --json",
    "a failed run": "show {failed}",
    "a comparison": "compare",
    "a comparison as JSON": "compare --json",
    "an unknown run": "show nobody",
    "a run that cannot go on": "resume {good}",
    "a run that cannot be verified": "verify {good}",
    "figures": "plot",
}


@pytest.mark.parametrize("columns", [60, 200])
@pytest.mark.parametrize("what", SHOWN)
def test_a_name_gives_the_terminal_no_orders(polyrhythm: Command, folder: Folder, what: str, columns: int) -> None:
    words = SHOWN[what].format(good=folder.good, failed=folder.failed)
    found = polyrhythm(*words.split(), "--out", str(folder.path), columns=columns)
    assert found.code in (0, 1, 2)
    assert found.out + found.err
    assert not UNSEEN.findall(found.out + found.err)
    if "--json" in words:
        assert [json.loads(line) for line in found.out.splitlines()]
    elif "nobody" in words or "show" in words:
        assert "[red]r[/red]" in re.sub(r"\s+", "", found.out + found.err)


@pytest.mark.parametrize("shown", [str, repr])
def test_python_prints_no_orders(folder: Folder, shown: type[str]) -> None:
    run, compared = pr.Run.open(folder.good, folder.path), pr.compare(folder.path)
    data = federation()
    experiment = pr.Experiment(federation=data, model="mlp", recipe=pr.fedavg(), rounds=2, name=EVIL)
    for value in (run, compared, data, data.test, experiment):
        assert not UNSEEN.findall(shown(value))
    for error in (RunFailed(EVIL), UserError(EVIL, expected=EVIL, why=EVIL, fix=EVIL)):
        assert not UNSEEN.findall(str(error))
        assert "<script>" in str(error)


@pytest.mark.parametrize("ending", [".html", ".md", ".tex"])
def test_a_report_holds_text(polyrhythm: Command, folder: Folder, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"report{ending}"
    assert polyrhythm("report", "-o", str(file), "--out", str(folder.path)).code == 0
    text = file.read_text()
    assert not UNSEEN.findall(text)
    assert "alert(1)" in text
    if ending == ".html":
        assert not {"script", "img onerror"} & _tags(text)
    elif ending == ".md":
        outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
        assert "alert(1)" in outside
        assert not re.search(r"(?<!\\)(?:<|\$y|\|\]|\]\()", outside)
    else:
        assert not re.search(r"\\input\{x|[^\\]\$y|(?<!\\)% ", re.sub("(?m)^%.*", "", text))


def _tags(text: str) -> set[str]:
    """The names of all tags, and of those with handlers also that."""
    found = set[str]()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.add(tag)
            found.update(f"{tag} {name}" for name, _ in attrs if name.startswith("on"))

    Reader().feed(text)
    return found


FIGURES = ("accuracy", "participation", "groups", "timeline", "labels")


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_holds_text(polyrhythm: Command, folder: Folder, tmp_path: Path, figure: str) -> None:
    for ending in (".svg", ".html"):
        file = tmp_path / f"figure{ending}"
        found = polyrhythm("plot", folder.good, "--figure", figure, "-o", str(file), "--out", str(folder.path))
        assert found.code == 0, found.err
        text = file.read_text()
        if ending == ".svg":
            assert not [e.tag for e in ElementTree.fromstring(text).iter() if e.tag.endswith(("script", "image"))]
        else:
            assert "<script>alert" not in text
            assert "<img src=x" not in text


def test_a_figure_of_a_wicked_name_is_drawn(tmp_path: Path) -> None:
    import altair as alt

    from polyrhythm.figures import save

    rows = [{"name": EVIL, "value": 1.0}, {"name": "\ue000", "value": 2.0}]
    chart = alt.Chart(alt.InlineData(values=rows), title=EVIL).mark_bar().encode(x="name:N", y="value:Q")
    for ending in (".svg", ".png", ".pdf", ".html"):
        save(chart, tmp_path / f"chart{ending}")
    page = (tmp_path / "chart.html").read_text()
    assert r"\u003cscript>alert(1)\u003c/script>" in page
    assert "<script>alert" not in page
    assert "alert(1)" in "".join(ElementTree.parse(tmp_path / "chart.svg").getroot().itertext())


def test_predictions_hold_no_formulas(polyrhythm: Command, folder: Folder, tmp_path: Path) -> None:
    rows, file = tmp_path / "rows.npy", tmp_path / "found.csv"
    np.save(rows, np.random.default_rng(1).normal(size=(40, 4)).astype("f4"))
    found = polyrhythm("predict", folder.good, "--data", str(rows), "-o", str(file), "--out", str(folder.path))
    assert found.code == 0, found.err
    cells = [row["prediction"] for row in csv.DictReader(io.StringIO(file.read_text(), newline=""))]
    assert len(cells) == 40
    assert {cell for cell in cells if cell != "c"} <= {f"'{plain(EVIL)}A", f"'{plain(EVIL)}B"} != set()
    assert "take for formulas" in " ".join(found.err.split())


def test_what_is_a_number_is_no_formula() -> None:
    assert [in_cell(text) for text in ("-1", "+2.5e3", "@a", "\tb", "a=b")] == ["-1", "+2.5e3", "'@a", "'\tb", "a=b"]


def test_letters_of_all_alphabets_are_seen() -> None:
    text = "Ünïcode – 中文, हिन्दी, עברית, emoji 👩\u200d🔬, narrow\u202fspace\n\tand a line"
    assert plain(text) == text
