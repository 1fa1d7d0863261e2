"""A run's events in their order give its models again, computed or from what clients sent."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.runs.database import FILE
from polyrhythm.runs.updates import START, file_of
from small import Log
from surviving import scenarios

QUICK = (
    *("scaffold", "rolling, coming and going", "whoever comes", "a deadline and over-selection"),
    *("asked for their loss", "all kinds of faults"),
)


def trial(name: str, **changes: Any) -> Prepared:
    return scenarios.prepared(name, **{"rounds": 8, "driver": "auto", "workers": None} | changes)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    return small.run(trial("scaffold"), out=tmp_path_factory.mktemp("runs"), log_updates=True)


def alter(run: pr.Run, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(run.folder / FILE, isolation_level=None)) as database:
        database.execute(statement)


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in scenarios.MAKE if n not in {*QUICK, "alone"})],
)
def test_a_run_is_replayed_in_full_and_at_the_server_alone(tmp_path: Path, name: str) -> None:
    run = small.run(trial(name), out=tmp_path, log_updates=True)
    for from_updates in (False, True):
        verdict = small.replay(run, trial(name), from_updates=from_updates)
        assert verdict.equal, str(verdict)
        assert (verdict.first, verdict.last) == (0, 8)


def test_keeping_updates_changes_nothing(tmp_path: Path, recorded: pr.Run) -> None:
    run = small.run(trial("scaffold"), out=tmp_path)
    assert run.summary["digest"] == recorded.summary["digest"]
    assert run.history.drop(columns="wall").equals(recorded.history.drop(columns="wall"))
    assert not (run.path / START).exists()


def test_the_server_alone_needs_every_update(tmp_path: Path) -> None:
    run = small.run(trial("fedavg", rounds=3), out=tmp_path, log_updates=True)
    first = run.path / file_of(0)
    content = first.read_bytes()
    first.write_bytes(content[:-1])
    with pytest.raises(pr.RunFailed, match="is damaged"):
        small.replay(run, trial("fedavg", rounds=3), from_updates=True)
    first.unlink()
    with pytest.raises(pr.RunFailed, match="does not have the report of visit 0"):
        small.replay(run, trial("fedavg", rounds=3), from_updates=True)
    assert small.replay(run, trial("fedavg", rounds=3)).equal


def test_another_order_of_arrival_is_another_run(tmp_path: Path) -> None:
    name = "rolling, coming and going"
    run = small.run(trial(name), out=tmp_path)
    alter(run, "UPDATE events SET number = 7 - number WHERE kind = 'visit' AND number IN (0, 7)")
    with pytest.raises(pr.RunFailed, match="which the server has not sent out"):
        small.replay(run, trial(name))


def test_the_log_of_another_run_is_known(tmp_path: Path) -> None:
    run = small.run(trial("fedavg"), out=tmp_path)
    assert small.replay(run, trial("fedavg", seed=5)).differs_at == 0
    verdict = small.replay(run, trial("asked for their loss"))
    assert not verdict.equal
    assert verdict.explained_by[0].startswith("method was")
    other = small.run(trial("asked for their loss"), out=tmp_path)
    with pytest.raises(pr.RunFailed, match="it is not the server of that run"):
        small.replay(other, trial("fedavg"))


def test_a_run_that_went_on_has_one_log(tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        if record.version == 5:
            raise KeyboardInterrupt

    often = pr.Checkpoint(every=2)
    made = trial("rolling, coming and going", checkpoint=often)
    run = small.run(made, out=tmp_path, observers=[Log(stop)], log_updates=True)
    assert run.status == "stopped"
    found = small.resume(made, run)
    assert found.events.index.tolist() == list(range(1, len(found.events) + 1))
    for from_updates in (False, True):
        assert small.replay(found, made, from_updates=from_updates).equal


def test_what_has_no_log_is_refused(tmp_path: Path) -> None:
    run = small.run(trial("fedavg", rounds=2), out=tmp_path)
    with pytest.raises(pr.UserError, match="no log of updates"):
        small.replay(run, trial("fedavg", rounds=2), from_updates=True)
    alter(run, "DELETE FROM events")
    with pytest.raises(pr.UserError, match="no log of events"):
        small.replay(run, trial("fedavg", rounds=2))
    alone = small.run(trial("alone", rounds=2), out=tmp_path)
    with pytest.raises(pr.UserError, match="nothing arrives"):
        small.replay(alone, trial("alone", rounds=2))
