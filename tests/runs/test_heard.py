"""Who was heard: every number against one that was worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.figures.heard import histogram
from polyrhythm.fleet.state import FleetState
from polyrhythm.runs.database import FILE
from polyrhythm.runs.heard import Behind, Heard, behind, by_groups, gini, numbers, quarters, spearman
from small import collection, dealt, experiment

NAN = math.nan


def held(**changes: Any) -> Heard:
    """Four clients; the last was never heard, the third has no test of its own."""
    values: dict[str, Any] = {
        "clients": np.array([0, 1, 2, 5]),
        "updates": np.array([3, 1, 2, 0]),
        "samples": np.array([10, 20, 30, 40]),
        "there": np.array([0.9, 0.2, 0.5, 0.1]),
        "came": np.empty((0, 2), dtype=np.int64),
        "scores": np.array([0.9, 0.6, NAN, 0.3]),
        "losses": np.array([0.5, 1.0, NAN, 2.0]),
        "whole": True,
    }
    return Heard(**values | changes)


def test_the_numbers_are_those_worked_out_by_hand() -> None:
    made = [Behind(1, 0.3, 0.3), Behind(2, 0.5, 0.6)]
    assert numbers(held(), made, "there") == {
        "never_heard": 0.25,
        "never_heard_samples": 0.4,
        # Of 0, 1, 2, 3: (2 (1*0 + 2*1 + 3*2 + 4*3) / (4 * 6)) - 5 / 4.
        "gini": pytest.approx(40 / 24 - 1.25),
        "samples_behind": 0.4,
        "loss_rare": 2.0,
        "loss_common": 0.5,
        "score_rare": 0.3,
        "score_common": 0.9,
        "loss_by_availability": -1.0,  # of those with a test: 0.9, 0.2, 0.1 against 0.5, 1.0, 2.0
        "loss_by_participation": -1.0,
    }


def test_what_is_not_on_record_has_no_number() -> None:
    nothing = held(scores=np.full(4, NAN), losses=np.full(4, NAN), there=np.full(4, NAN), whole=False)
    assert set(numbers(nothing, [], "there").values()) == {None}
    silent = numbers(held(updates=np.zeros(4, dtype=np.int64)), [], "there")
    assert (silent["never_heard"], silent["gini"], silent["loss_by_participation"]) == (1.0, None, None)


def test_a_quarter_has_everybody_who_is_alike() -> None:
    order = np.array([0.1, 0.1, 0.1, 0.4, 0.5, 0.6, 0.9, 0.8, NAN, 0.0])
    values = np.array([*range(9), NAN], dtype=float)  # the last is rarest of all, and was not measured
    rare, common = quarters(order, values)
    assert rare.tolist() == [0, 1, 2]
    assert common.tolist() == [6, 7]
    assert [part.tolist() for part in quarters(np.ones(4), np.ones(4))] == [[], []]


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        # Ranks 1, 2, 3, 4, 5 and 2, 1, 4, 3, 5: 1 - 6 * 4 / (5 * 24).
        ([1, 2, 3, 4, 5], [6, 5, 8, 7, 9], 0.8),
        # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
        ([1, 2, 2, 9], [1, 2, 3, 4], math.sqrt(0.9)),
        ([1, 2, NAN, 3, 7], [3, 2, 9, 1, NAN], -1.0),
        ([1, 1, 1], [1, 2, 3], None),
        ([1, 2], [1, 2], None),
    ],
)
def test_rank_correlation(one: list[float], other: list[float], wanted: float | None) -> None:
    found = spearman(np.array(one, dtype=float), np.array(other, dtype=float))
    assert found == (None if wanted is None else pytest.approx(wanted))


def test_groups_go_from_the_rarest_to_the_commonest() -> None:
    ten = held(
        clients=np.arange(4),
        there=np.array([0.1, 0.2, 0.8, 0.9]),
        losses=np.array([4.0, 2.0, 1.0, 1.0]),
        scores=np.array([0.1, NAN, 0.5, 0.7]),
    )
    assert by_groups(ten, "there", 2) == [
        {"place": pytest.approx(0.15), "loss": 3.0, "score": 0.1, "clients": 2},
        {"place": pytest.approx(0.85), "loss": 1.0, "score": 0.6, "clients": 2},
    ]
    assert by_groups(held(there=np.ones(4)), "there", 2) == []


def test_a_histogram_has_a_bar_of_those_never_heard() -> None:
    assert [(b["updates"], b["clients"], b["share"]) for b in histogram([0, 0, 1, 2, 3, 7, 0, 0], 2)] == [
        ("never", 4, 0.5),
        ("1 to 2", 2, 0.25),
        ("3 to 4", 1, 0.125),
        ("7 to 8", 1, 0.125),
    ]
    assert [b["updates"] for b in histogram([1, 2], 1)] == ["1", "2"]


def uneven(**changes: Any) -> pr.Experiment:
    """Four clients with 6, 12, 18 and 24 samples."""
    return experiment(federation=dealt(collection(60), [6, 12, 18, 24]), **changes)


def test_samples_behind_a_version_are_those_of_its_clients(tmp_path: Path) -> None:
    run = pr.run(uneven(), out=tmp_path)
    samples, ever = {0: 6, 1: 12, 2: 18, 3: 24}, set[int]()
    for version, row in run.samples_behind.iterrows():
        cohort = set(run.visits[run.visits["version"] == version - 1]["client"])  # type: ignore[operator]
        ever |= cohort
        assert row["share"] == pytest.approx(sum(samples[c] for c in cohort) / 60)
        assert row["so_far"] == pytest.approx(sum(samples[c] for c in ever) / 60)
    assert len(run.samples_behind) == 3
    assert run.heard["updates"].tolist() == [int((run.visits["client"] == c).sum()) for c in range(4)]
    assert run.bias["samples_behind"] == pytest.approx(run.samples_behind["share"].mean())


def test_updates_of_a_buffer_are_behind_the_version_they_went_into(tmp_path: Path) -> None:
    fleet = pr.Fleet(devices=pr.fleet.Tiers()) | pr.fleet.FixedLinks(down=1e4, up=1e4)
    run = pr.run(uneven(recipe=pr.fedbuff(concurrency=3, buffer=2, batch=5), rounds=6, fleet=fleet), out=tmp_path)
    samples = [6, 12, 18, 24]
    assert run.history["staleness_max"].max() > 0
    came = run.visits[run.visits["status"] == "trained"].reset_index().sort_values(["finished", "dispatch"])
    pairs = [came["client"].tolist()[i : i + 2] for i in range(0, 12, 2)]
    wanted = [sum(samples[c] for c in set(pair)) / 60 for pair in pairs]
    assert run.samples_behind["share"].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("on", [0.25, 1.0])
def test_how_long_clients_were_there_is_known_when_the_run_ends(tmp_path: Path, on: float) -> None:
    fleet = pr.Fleet(availability=pr.fleet.Periodic(period=40.0, on=on, zones=4, spread=0.0))
    fleet |= pr.fleet.FixedLinks(down=1e3, up=1e3, latency=1.0)
    run = pr.run(uneven(fleet=fleet, rounds=5), out=tmp_path)
    end = float(run.history["time"].max())
    world = FleetState(fleet, 4, run.seed, range(4))
    steps = np.linspace(0, end, 4000, endpoint=False) + end / 8000
    wanted = [np.mean([world.span(client, now)[0] for now in steps]) for client in range(4)]
    assert run.heard["there"].tolist() == pytest.approx(wanted, abs=2e-3)
    assert run.members["there"].tolist() == run.heard["there"].tolist()


def test_it_is_not_known_of_a_run_that_was_stopped(tmp_path: Path) -> None:
    from polyrhythm.runs.observer import Observer

    class Stop(Observer):
        def version(self, record: Any, model: Any) -> None:
            if record.version == 2:
                raise KeyboardInterrupt

    run = pr.run(uneven(), out=tmp_path, observers=[Stop()])
    assert run.status == "stopped"
    assert run.heard["there"].isna().all()
    gone = pr.resume(uneven(), run, out=tmp_path)
    assert gone.heard["there"].tolist() == [1.0] * 4


def test_a_client_that_comes_and_goes_all_the_time_is_followed_for_a_while() -> None:
    fleet = pr.Fleet(availability=pr.fleet.Periodic(period=1.0, on=0.25, zones=1, spread=0.0))
    assert FleetState(fleet, 1, 0, [0]).share_there(0, 1e9) == pytest.approx(0.25)
    assert FleetState(fleet, 1, 0, [0]).share_there(0, 0.0) == 1.0


def test_only_a_federation_that_is_whole_has_shares(tmp_path: Path) -> None:
    run = pr.run(uneven(), out=tmp_path)
    assert behind(run.folder, run.number, held(whole=False)) == []


def test_what_is_no_number_in_a_record_is_said(tmp_path: Path) -> None:
    import sqlite3

    run = pr.run(uneven(), out=tmp_path)
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("UPDATE visits SET client = 'nobody' WHERE dispatch = 0")
    with pytest.raises(UserError, match="damaged"):
        run.heard  # noqa: B018


def test_nobody_is_left_out_of_gini() -> None:
    assert gini([0, 0, 0, 4]) == pytest.approx(0.75)
    assert gini([2, 2, 2, 2]) == pytest.approx(0.0)
