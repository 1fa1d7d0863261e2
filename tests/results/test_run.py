"""A recorded run can be found, read and drawn."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.figures import save as save_chart
from polyrhythm.results import Run
from polyrhythm.runs import Plan, VersionRecord, naming
from polyrhythm.runs.recorder import Recorder

MakePlan = Callable[..., Plan]
MakeVersion = Callable[..., VersionRecord]
IDS = {"20260301-101500-2a7k": "first", "20260301-101501-9b3c": "twice", "20260302-080000-4d5e": "twice"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan, make_version: MakeVersion) -> Path:
    for run_id, name in IDS.items():
        monkeypatch.setattr(naming, "new_id", lambda run_id=run_id: run_id)
        kept = Recorder(tmp_path)
        kept.begin(make_plan(name=name))
        for number in range(4):
            kept.version(make_version(number, number / 4, train_loss=1 / (number + 1)), lambda: {"w": torch.ones(2)})
        kept.end("finished", "", {"final_accuracy": 0.75, "rounds": 3, "bytes_up": 120_000, "bytes_down": 9})
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "found"),
    [("20260301-101500-2a7k", 0), ("20260301-101501", 1), ("20260302", 2), ("first", 0)],
)
def test_a_run_is_found_by_id_name_or_beginning(folder: Path, reference: str, found: int) -> None:
    assert Run.open(reference, folder).id == list(IDS)[found]


@pytest.mark.parametrize("reference", ["20260301", "2", "twice"])
def test_what_fits_several_runs_is_refused_with_their_ids(folder: Path, reference: str) -> None:
    with pytest.raises(UserError) as refused:
        Run.open(reference, folder)
    fits = [i for i, name in IDS.items() if reference in (name, i[: len(reference)])]
    assert all(run_id in refused.value.found for run_id in fits)
    assert fits[-1] in refused.value.fix


@pytest.mark.parametrize("reference", ["", "%", "20260301-101500-2a7l"])
def test_what_fits_no_run_is_refused(folder: Path, reference: str) -> None:
    with pytest.raises(UserError, match="unknown run"):
        Run.open(reference, folder)


def test_an_exact_id_wins_over_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan) -> None:
    monkeypatch.setattr(naming, "new_id", lambda: "20260303-000000-2222")
    kept = Recorder(folder)
    kept.begin(make_plan(name="20260301-101500-2a7k"))
    kept.end("finished", "", {})
    assert Run.open("20260301-101500-2a7k", folder).name == "first"


def test_a_run_that_goes_on_is_seen_to_grow_and_end(
    tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion
) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    run = Run.open(kept.run_id, tmp_path)
    assert (run.status, run.summary, len(run.history), len(run.visits)) == ("running", {}, 0, 0)
    assert {"loss", "client"} <= set(run.visits.columns)
    kept.version(make_version(0, 0.5), lambda: {"w": torch.ones(2)})
    kept.end("stopped", "Ctrl-C", {"rounds": 0})
    assert (run.status, run.reason, run.summary["rounds"], len(run.history)) == ("stopped", "Ctrl-C", 0, 1)


def test_what_is_printed_of_a_run_says_what_matters(folder: Path) -> None:
    text = str(Run.open("first", folder))
    for part in ("20260301-101500-2a7k", "first", "finished", "fedavg(cohort=2)", "0.7500", "120 kB up", "best, final"):
        assert part in text


def test_weights_that_are_missing_or_damaged(folder: Path) -> None:
    run = Run.open("first", folder)
    assert torch.equal(run.weights("final")["w"], torch.ones(2))
    (run.path / "final.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(UserError, match="damaged"):
        run.weights("final")
    (run.path / "best.safetensors").unlink()
    with pytest.raises(UserError, match="does not exist"):
        run.weights("best")


def test_every_figure_is_a_method(folder: Path) -> None:
    plot = Run.open("first", folder).plot
    (values,) = plot.accuracy(against="client_updates", live=False).to_dict()["datasets"].values()
    assert "params" in plot.accuracy().to_dict()  # in a notebook it can be explored
    assert [(v["x"], v["y"]) for v in values] == [(0, 0.0), (2, 0.25), (4, 0.5), (6, 0.75)]
    assert plot.names == ("accuracy", "loss", "costs", "to_accuracy", "training_loss", "heard")
    assert plot.cohort(live=False) is not None  # of one value, so it is not among them, and drawn all the same
    assert set(plot.names) <= set(dir(plot))
    with pytest.raises(AttributeError, match="no figure 'accurcy'"):
        plot.accurcy()


@pytest.mark.parametrize(("ending", "head"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_charts_are_saved(folder: Path, ending: str, head: bytes) -> None:
    path = folder / f"curve.{ending}"
    Run.open("first", folder).plot.accuracy(save=path)
    assert path.read_bytes().startswith(head)


def test_a_page_needs_no_network(folder: Path) -> None:
    path = folder / "curve.html"
    Run.open("first", folder).plot.accuracy(save=path)
    page = path.read_text()
    assert "vegaEmbed" in page
    assert not re.search(r"<(script|link)[^>]+(src|href)=", page)


def test_a_chart_that_cannot_be_saved(folder: Path) -> None:
    chart = Run.open("first", folder).plot.accuracy()
    with pytest.raises(UserError, match=r"curve\.jpg"):
        save_chart(chart, folder / "curve.jpg")
    with pytest.raises(UserError, match="cannot be written"):
        save_chart(chart, folder / "nowhere" / "curve.svg")


def test_listing_runs_needs_neither_torch_nor_pandas(folder: Path) -> None:
    code = (
        f"import sys; from polyrhythm.results import Run; print(*Run.all({str(folder)!r}));"
        "print({'torch', 'pandas', 'altair'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("set()")


def test_all_runs_are_oldest_first(folder: Path) -> None:
    assert [run.id for run in Run.all(folder)] == list(IDS)
