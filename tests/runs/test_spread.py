"""How results are spread over clients and classes, by hand; and what a damaged record gives."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.experiments.members import stratified
from polyrhythm.runs.spread import by_device, newest, of_clients, quantile, spread


def test_the_spread_of_twenty_clients_by_hand() -> None:
    values = [i / 20 for i in range(1, 21)]
    found = spread([math.nan, *reversed(values)])
    assert found is not None
    assert found.clients == 20
    assert found.mean == pytest.approx(0.525)
    assert found.sd == pytest.approx(np.std(values))
    assert (found.worst, found.best, found.lowest) == (pytest.approx(0.075), pytest.approx(0.975), 0.05)
    assert found.median == pytest.approx(0.525)
    assert spread([math.nan]) is None


def test_of_few_clients_the_worst_tenth_is_the_worst_one() -> None:
    found = spread([0.9, 0.2, 0.5])
    assert found is not None
    assert (found.worst, found.median, found.best) == (0.2, 0.5, 0.9)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 0.77, 1.0])
def test_quantiles_are_those_of_numpy(share: float) -> None:
    known = [0.1, 0.2, 0.5, 0.7, 0.75]
    assert quantile(known, share) == pytest.approx(np.quantile(known, share))


def test_groups_of_devices_leave_out_what_is_undefined_and_who_has_none() -> None:
    assert by_device(["b", "a", "a", "", "b"], [0.5, 0.2, 0.4, 0.9, math.nan]) == {"a": pytest.approx(0.3), "b": 0.5}


@pytest.mark.parametrize("most", [3, 7, 10, 29])
def test_a_sample_has_every_group_in_proportion_and_small_and_large_clients(most: int) -> None:
    groups = {c: "rare" if c == 17 else "slow" if c % 3 == 0 else "fast" for c in range(30)}
    sizes = np.array([(7 * c) % 30 for c in range(30)])
    chosen = stratified(range(30), groups, sizes, most)
    assert len(chosen) == len(set(chosen)) == most
    assert chosen == sorted(chosen)
    assert 17 in chosen
    slow = [c for c in chosen if groups[c] == "slow"]
    assert abs(len(slow) - most / 3) <= 1
    fast = [int(sizes[c]) for c in chosen if groups[c] == "fast"]
    assert len(fast) < 4 or (min(fast) < 10 and max(fast) > 19)


def test_with_more_groups_than_places_the_largest_are_heard() -> None:
    groups = {c: "a" if c < 8 else str(c) for c in range(12)}
    assert stratified(range(12), groups, np.ones(12, dtype=int), 2)[0] < 8


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    plan = small.experiment(federation=small.federation(local_test=0.25), fleet=pr.Fleet(devices=pr.fleet.Tiers()))
    return pr.run(plan, out=tmp_path_factory.mktemp("tested"))


def test_what_is_said_of_a_run_is_what_is_on_record(tested: pr.Run) -> None:
    last = tested.client_results.loc[3]["accuracy"].tolist()
    over = spread(last)
    assert over is not None
    said = newest(tested.folder, tested.number, "accuracy")
    assert f"worst tenth of clients {over.worst:.4f}, median {over.median:.4f}, best tenth {over.best:.4f}" in said
    for name, value in by_device(tested.members["device"].tolist(), last).items():
        assert f"{name} {value:.4f} (n = " in said
    assert "fairness" in str(tested)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE client_results SET scores = x'00'", "client_results"),
        ("UPDATE client_results SET scores = 'many'", "client_results"),
        ("UPDATE client_results SET losses = NULL", "client_results"),
        ("UPDATE client_results SET scores = zeroblob(8000000)", "1,000,000 numbers where 4 belong"),
        ("UPDATE class_results SET present = zeroblob(400)", "100 numbers where 3 belong"),
        ("UPDATE class_results SET confusion = zeroblob(4)", "1 numbers where 9 belong"),
    ],
)
def test_numbers_that_do_not_belong_there_are_damage(tested: pr.Run, tmp_path: Path, change: str, said: str) -> None:
    with sqlite3.connect(tested.folder / "runs.sqlite") as source, sqlite3.connect(tmp_path / "runs.sqlite") as copy:
        source.backup(copy)
        copy.execute(change)
    run = pr.Run.all(tmp_path)[0]
    read = run.confusion if "class" in change else lambda: of_clients(run.folder, run.number)
    with pytest.raises(UserError, match=said):
        read()
