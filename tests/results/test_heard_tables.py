"""Tables of who was heard say what is on record, over seeds, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.results import heard_tables
from polyrhythm.runs.comparison import spread
from small import collection, experiment
from terminal import Command
from terminal import polyrhythm as polyrhythm

AWAY = pr.Fleet(availability=pr.fleet.ByLabels(lowest=0.2, cycle=5.0)) | pr.fleet.FixedLinks(down=1e4, up=1e4)


def recorded(out: Path, seed: int = 0, name: str = "plain", tests: float = 0.25, **changes: Any) -> pr.Run:
    split = pr.federate(collection(120), pr.data.Dirichlet(alpha=0.3), 8, seed, local_test=tests)
    plan = {"federation": split, "seed": seed, "name": name, "fleet": AWAY, "rounds": 8}
    return pr.run(experiment(**{**plan, **changes}), out=out)


def test_each_number_is_of_the_runs_over_seeds(tmp_path: Path) -> None:
    runs = [recorded(tmp_path, seed) for seed in range(2)]
    found = pr.compare(tmp_path)
    (entry,) = found.bias()
    assert entry["by"] == "there"
    for name, value in runs[0].bias.items():
        assert entry[name] == spread([run.bias[name] for run in runs])
        assert value is not None
    heard, availability = heard_tables.heard(found), heard_tables.availability(found)
    assert heard is not None
    assert availability is not None
    cells = dict(zip(heard.head, heard.rows[0], strict=True))
    assert cells["Gini"].startswith(f"{entry['gini']['mean']:.4f} ± ")
    assert cells["clients never heard"].endswith(" %")
    assert float(cells["clients never heard"].split()[0]) == pytest.approx(100 * entry["never_heard"]["mean"], abs=0.06)
    cells = dict(zip(availability.head, availability.rows[0], strict=True))
    assert cells["loss, rarest quarter"].startswith(f"{entry['loss_rare']['mean']:.4f}")
    assert "that they were there" in availability.caption
    assert heard_tables.LACKING not in heard.caption


def test_what_is_missing_is_said_and_how_to_have_it(tmp_path: Path) -> None:
    recorded(tmp_path, tests=0.0)
    table = heard_tables.heard(pr.compare(tmp_path))
    assert table is not None
    assert table.caption.endswith("(local_test=0.2).")
    assert heard_tables.availability(pr.compare(tmp_path)) is None


def test_where_all_were_there_alike_quarters_are_by_how_often_they_were_heard(tmp_path: Path) -> None:
    runs = [recorded(tmp_path, fleet=pr.Fleet()), recorded(tmp_path, name="away")]
    found = pr.compare(runs)
    assert {entry["by"] for entry in found.bias()} == {"heard"}  # one order for all
    table = heard_tables.availability(found)
    assert table is not None
    assert "by how often they were heard" in table.caption
    assert pr.compare(runs[1:]).bias()[0]["by"] == "there"
    assert dict(zip(table.head, table.rows[0], strict=True))["loss with being there"] == "–"


@pytest.mark.parametrize("ending", ["html", "md", "tex"])
def test_a_report_has_both(tmp_path: Path, ending: str) -> None:
    from polyrhythm.report import write

    recorded(tmp_path)
    write(pr.Run.all(tmp_path), tmp_path / f"report.{ending}")
    text = (tmp_path / f"report.{ending}").read_text()
    assert "clients never heard" in text
    assert "rarest quarter" in text


def test_compare_prints_both_and_has_them_as_json(tmp_path: Path, polyrhythm: Command) -> None:
    recorded(tmp_path)
    told = " ".join(polyrhythm("compare", "--out", str(tmp_path), columns=200).out.split())
    assert "Who was heard" in told
    assert "rarest quarter" in told
    (row,) = map(json.loads, polyrhythm("compare", "--out", str(tmp_path), "--json").out.splitlines())
    assert row["bias"]["by"] == "there"
    assert row["bias"]["gini"]["n"] == 1
