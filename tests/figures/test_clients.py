"""Figures of single clients, classes and devices show what was recorded, nobody left out in silence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.figures.classes import accuracies, shares
from polyrhythm.figures.clients import apart, bands, last_of_each, tiles
from polyrhythm.figures.devices import accepted, levels, spent
from polyrhythm.figures.effort import drift
from polyrhythm.figures.theme import THEMES
from polyrhythm.results import Run
from polyrhythm.runs.heard import gini, lorenz
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ClassResultsRecord
from polyrhythm.runs.spread import ClientResults
from small import collection, experiment, federation

FLEET = pr.Fleet(devices=pr.fleet.Tiers()) | pr.fleet.Energy(battery=1.0, charging=0.001)
SMALL = FLEET | pr.fleet.Energy(battery=1e-4, charging=1e-5)
OF_CLIENTS = ("client_results", "fairness", "client_map", "device_gap")
OF_CLASSES = ("classes", "class_map", "confusion")
OF_HEARD = ("heard", "samples_behind", "samples_heard", "availability")
OF_DEVICES = ("visits", "lorenz", "staleness_over_time", "energy", "battery")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of FedAvg, one run of FedBuff and one of ALT, with tests of clients' own, tiers and batteries."""
    out = tmp_path_factory.mktemp("clients")
    for name, seed, recipe in [
        ("plain", 0, pr.fedavg(cohort=2, epochs=1, batch=5)),
        ("plain", 1, pr.fedavg(cohort=2, epochs=1, batch=5)),
        ("buffer", 0, pr.fedbuff(concurrency=3, buffer=2, batch=5)),
        ("alt", 0, pr.alt(cohort=2, batch=5)),
    ]:
        split = pr.federate(collection(120), pr.data.Iid(), 6, seed, local_test=0.25)
        model = "mlp" if name == "alt" else "logistic"
        plan = experiment(federation=split, recipe=recipe, model=model, seed=seed, fleet=FLEET, name=name, rounds=8)
        pr.run(plan, out=out)
    return out


def rows(chart: Any) -> list[dict[str, Any]]:
    return [row for values in chart.to_dict()["datasets"].values() for row in values]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", [*OF_CLIENTS, *OF_CLASSES, *OF_DEVICES, *OF_HEARD, "drift"])
def test_each_is_drawn_of_several_methods_in_both_themes(folder: Path, name: str, theme: Any) -> None:
    assert rows(figures.draw(name, pr.Run.all(folder), theme=theme))


def test_without_their_records_they_say_what_to_do(tmp_path: Path) -> None:
    run = pr.run(experiment(), out=tmp_path)
    for name in OF_CLIENTS:
        assert "local_test" in figures.why_not(name, [run])
    assert "local_test" in figures.why_not("availability", [run])
    assert "fleet" in figures.why_not("battery", [run])
    assert "fedbuff" in figures.why_not("staleness_over_time", [run])
    assert "alt" in figures.why_not("drift", [run])
    assert not figures.why_not("classes", [run])
    alike = pr.run(experiment(federation=federation(local_test=0.25)), out=tmp_path)
    assert "like devices" in figures.why_not("device_gap", [alike])
    everybody = experiment(federation=federation(local_test=0.25), recipe=pr.fedavg(cohort=4, epochs=1, batch=5))
    assert "phones" in figures.why_not("availability", [pr.run(everybody, out=tmp_path)])


def results(*versions: tuple[int, tuple[float, ...]], devices: tuple[str, ...] = ("a", "a", "b")) -> ClientResults:
    with_losses = [(version, scores, scores) for version, scores in versions]
    return ClientResults(tuple(range(len(devices))), devices, with_losses, len(devices))


def test_bands_are_quantiles_over_clients_and_undefined_ones_are_left_out() -> None:
    (row,) = bands(results((4, (0.2, math.nan, 0.6))))
    assert row == {
        "version": 4,
        "worst": 0.2,
        "q10": pytest.approx(0.24),
        "q25": pytest.approx(0.3),
        "q50": pytest.approx(0.4),
        "q75": pytest.approx(0.5),
        "q90": pytest.approx(0.56),
    }


def test_the_worst_client_stands_at_the_left() -> None:
    found = last_of_each(results((0, (0.1, 0.1, 0.1)), (4, (0.9, 0.2, math.nan))))
    assert found == [{"share": 0.0, "score": 0.2}, {"share": 0.5, "score": 0.9}, {"share": 1.0, "score": 0.9}]


def test_the_gap_is_between_the_means_of_groups() -> None:
    assert apart(results((1, (0.2, 0.4, 0.9)), (2, (0.5, 0.5, math.nan)))) == {1: pytest.approx(0.6)}


def test_the_map_has_every_client_and_what_is_undefined_is_no_number() -> None:
    cells = tiles(results((0, (0.5, 0.1, math.nan)), (3, (0.7, 0.2, math.nan))))
    assert [(c["client"], c["version"], c["score"]) for c in cells] == [
        *(("a: 1", 0, 0.1), ("a: 1", 3, 0.2), ("a: 0", 0, 0.5), ("a: 0", 3, 0.7)),
        *(("b: 2", 0, None), ("b: 2", 3, None)),
    ]


def test_a_large_map_is_thinned_and_keeps_the_last_version() -> None:
    many = results(*((v, tuple(c / 1000 for c in range(300))) for v in range(200)), devices=("",) * 300)
    cells = tiles(many)
    assert len({cell["row"] for cell in cells}) == 100
    assert max(cell["version"] for cell in cells) == 199
    assert len({cell["version"] for cell in cells}) == 60


def test_a_sample_of_clients_is_said(tmp_path: Path) -> None:
    split = pr.federate(collection(240), pr.data.Iid(), 12, 0, local_test=0.25)
    plan = experiment(federation=split, evaluation=pr.Evaluation(client_results=5), fleet=FLEET)
    run = pr.run(plan, out=tmp_path)
    for name in ("client_results", "client_map"):
        assert "5 of 12 clients" in str(figures.draw(name, [run]).to_dict()["title"])


def test_shares_of_a_class_that_does_not_occur_are_no_numbers() -> None:
    row = ClassResultsRecord(version=1, present=(4, 0), right=(3, 0), confusion=(3, 1, 0, 0))
    assert accuracies(row) == [0.75, None]
    assert shares(row) == [[0.75, 0.25], [None, None]]


def test_the_matrix_that_is_drawn_is_the_recorded_one(folder: Path) -> None:
    (run,) = Run.find("buffer", folder)
    drawn = rows(figures.draw("confusion", [run]))
    counted = {(row["class"], row["put"]): row["samples"] for row in drawn}
    recorded = run.confusion()
    assert counted == {(a, b): recorded.loc[a, b] for a in recorded.index for b in recorded.columns}


def test_class_names_of_the_same_beginning_stay_apart(tmp_path: Path) -> None:
    import dataclasses

    long = "a class with a very long name indeed"
    data = dataclasses.replace(collection(), classes=(long + " 1", long + " 2", "b"))
    run = pr.run(experiment(federation=pr.federate(data, pr.data.Iid(), 4, 0)), out=tmp_path)
    assert len({row["class"] for row in rows(figures.draw("confusion", [run]))}) == 3


def visit(client: int, finished: float, joules: float, **changes: Any) -> dict[str, Any]:
    given = {"dispatch": 0, "client": client, "finished": finished, "joules": joules, "status": "trained", "reason": ""}
    return given | changes


def test_who_never_took_part_counts_in_the_lorenz_curve() -> None:
    visits = [visit(0, 1, 1), visit(0, 2, 1), visit(1, 3, 1), visit(2, 4, 1, status="lost")]
    counts = accepted(visits, range(4))
    assert counts == {0: 2, 1: 1, 2: 0, 3: 0}
    assert lorenz(list(counts.values())) == [
        *({"share": 0.0, "y": 0.0}, {"share": 0.25, "y": 0.0}, {"share": 0.5, "y": 0.0}),
        *({"share": 0.75, "y": pytest.approx(1 / 3)}, {"share": 1.0, "y": 1.0}),
    ]


def test_gini_by_hand() -> None:
    assert gini([3, 3, 3]) == pytest.approx(0.0)
    assert gini([0, 0, 0, 8]) == pytest.approx(0.75)
    values = [5, 1, 9, 2]
    by_pairs = sum(abs(a - b) for a in values for b in values) / (2 * len(values) * sum(values))
    assert gini(values) == pytest.approx(by_pairs)
    assert gini([0, 0]) == 0.0


def test_updates_that_are_drawn_are_those_that_were_accepted(folder: Path) -> None:
    (run,) = Run.find("buffer", folder)
    drawn = rows(figures.draw("visits", [run]))
    assert {row["client"] for row in drawn} == set(range(6))
    assert sum(row["updates"] for row in drawn) == run.history["client_updates"].iloc[-1]
    assert {row["client"]: row["device"] for row in drawn} == run.members["device"].to_dict()


def test_energy_of_all_groups_is_that_of_the_run(folder: Path) -> None:
    (run,) = Run.find("buffer", folder)
    drawn = rows(figures.draw("energy", [run]))
    last = {row["group"]: row["y"] for row in drawn}
    assert math.fsum(last.values()) == pytest.approx(run.visits["joules"].sum())
    assert spent([visit(1, 2.0, 3.0), visit(0, 1.0, 2.0)], {0: "", 1: "b"}) == [
        *({"group": "b", "x": 0.0, "y": 0.0}, {"group": "b", "x": 2.0, "y": 3.0}, {"group": "b", "x": 2.0, "y": 3.0}),
        *({"group": "no group", "x": 0.0, "y": 0.0}, {"group": "no group", "x": 1.0, "y": 2.0}),
        {"group": "no group", "x": 2.0, "y": 2.0},
    ]


def test_batteries_run_down_and_are_charged_in_between() -> None:
    found = levels([visit(0, 10, 4), visit(0, 12, 1), visit(0, 100, 2), visit(1, 5, 99)], 10.0, 0.5)
    assert found[0] == [(0.0, 1.0), (10, 0.6), (12, pytest.approx(0.6)), (100, pytest.approx(0.8))]
    assert found[1] == [(0.0, 1.0), (5, 0.0)]


def test_the_charge_that_is_drawn_is_the_one_that_the_fleet_has(tmp_path: Path) -> None:
    """What the simulated fleet remembers, a picture makes again from visits alone."""
    remembered: dict[int, tuple[float, float]] = {}

    class Looks(Observer):
        def at_rest(self, version: int, state: Any, *, surely: bool) -> None:
            remembered.update(state().driver.world.charge)

    split = pr.federate(collection(120), pr.data.Iid(), 6, 0, local_test=0.25)
    plan = experiment(federation=split, recipe=pr.fedbuff(concurrency=3, buffer=2, batch=5), fleet=SMALL, rounds=20)
    run = pr.run(plan, out=tmp_path, observers=[Looks()])
    assert SMALL.energy.battery is not None
    visits = run.visits.reset_index().to_dict("records")
    found = levels(visits, SMALL.energy.battery, SMALL.energy.charging)
    over = {client: charge for client, charge in remembered.items() if charge[1] <= found[client][-1][0]}
    assert len(over) > 2
    for client, (joules, when) in over.items():
        at = dict(found[client])
        assert at[when] * SMALL.energy.battery == pytest.approx(joules)
        assert 0 < joules < SMALL.energy.battery


@pytest.mark.parametrize(("steps", "measures", "kept"), [(0, {"similarity": 1, "threshold": 0}, 0), (2, {}, 0)])
def test_only_visits_that_were_watched_have_a_drift(steps: int, measures: dict[str, float], kept: int) -> None:
    one = {"version": 3, "steps": steps, "epochs": 1.0, "measures": measures}
    assert len(drift([one])) == kept


def test_drift_is_that_of_the_visits(folder: Path) -> None:
    (run,) = Run.find("alt", folder)
    drawn = [row for row in rows(figures.draw("drift", [run])) if "epochs" in row]
    assert [row["similarity"] for row in drawn] == run.visits["measures_similarity"].dropna().tolist()
