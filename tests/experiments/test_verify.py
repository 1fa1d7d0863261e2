"""A recorded run comes out again, or is said to differ, where, and why."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from polyrhythm.experiments.experiment import Evaluation
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.runs import environment
from polyrhythm.runs.database import FILE
from small import Log, federation, prepared


def trial(**changes: Any) -> Prepared:
    values: dict[str, Any] = {
        "rounds": 6,
        "recipe": pr.fedavg(epochs=1, batch=5) | pr.parts.rolling(concurrency=3) | pr.parts.buffer(size=2),
        "fleet": pr.Fleet(devices=pr.fleet.Tiers()),
        "federation": federation(validation=0.2),
        "evaluation": Evaluation(every=4),
        "checkpoint": pr.Checkpoint(every=2, keep=2),
    }
    return prepared(**values | changes)


def alter(out: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(out / FILE, isolation_level=None)) as database:
        database.execute(statement)


def test_a_run_comes_out_again(tmp_path: Path) -> None:
    run = small.run(trial(), out=tmp_path)
    verdict = small.verify(run, trial())
    assert verdict.equal
    assert (verdict.first, verdict.last) == (0, 6)
    assert str(verdict) == f"{run.id}: 7 versions, 0 to 6, all equal to the last bit"
    assert len(set(run.history["digest"])) == 7
    assert run.history["digest"].iloc[-1] == run.summary["digest"]
    assert len(pr.Run.all(tmp_path)) == 1


@pytest.mark.parametrize(("versions", "span"), [(None, (6, 6)), (1, (6, 6)), (2, (5, 6)), (3, (0, 2))])
def test_from_a_checkpoint(tmp_path: Path, versions: int | None, span: tuple[int, int]) -> None:
    run = small.run(trial(), out=tmp_path)  # which keeps those of versions 4 and 5
    verdict = small.verify(run, trial(), from_checkpoint=True, versions=versions)
    assert verdict.equal
    assert (verdict.first, verdict.last) == span
    assert ("from the beginning" in " ".join(verdict.notes)) == (span[0] == 0)


def test_the_first_version_that_differs_is_named(tmp_path: Path) -> None:
    run = small.run(trial(), out=tmp_path)
    alter(tmp_path, "UPDATE versions SET digest = 'x' WHERE version >= 3")
    verdict = small.verify(run, trial())
    assert (verdict.equal, verdict.differs_at, verdict.differs_in, verdict.last) == (False, 3, ("digest",), 3)
    assert "nothing that is recorded" in str(verdict)
    assert small.verify(run, trial(), versions=3).equal


@pytest.mark.parametrize(
    ("column", "value"), [("test", "'{\"accuracy\": 0.5}'"), ("bytes_up", "7"), ("time", "0.25"), ("train_loss", "1")]
)
def test_costs_and_results_are_compared_too(tmp_path: Path, column: str, value: str) -> None:
    run = small.run(trial(), out=tmp_path)
    alter(tmp_path, f"UPDATE versions SET {column} = {value} WHERE version = 4")
    verdict = small.verify(run, trial())
    assert (verdict.differs_at, verdict.differs_in) == (4, (column,))


def test_another_version_of_a_library_explains_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small.run(trial(), out=tmp_path)
    known = environment.library_versions()
    monkeypatch.setattr(environment, "library_versions", lambda: {**known, "torch": "9.9"})
    verdict = small.verify(run, trial(seed=1))
    assert verdict.differs_at == 0
    assert verdict.explained_by == ("seed was 0 and is 1", f"torch {known['torch']} there, 9.9 here")
    assert "explained by: seed was 0 and is 1; torch" in str(verdict)
    assert small.verify(run, trial()).explained_by == ()


def test_a_run_that_was_broken_off_is_compared_as_far_as_it_came(tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        if record.version == 3:
            raise KeyboardInterrupt

    run = small.run(trial(), out=tmp_path, observers=[Log(stop)])
    verdict = small.verify(run, trial())
    assert verdict.equal
    assert verdict.last == run.history.index[-1] < 6


def test_clients_that_exchange_nothing_are_compared_where_they_are_evaluated(tmp_path: Path) -> None:
    alone = trial(recipe=pr.local_only(batch=5))
    run = small.run(alone, out=tmp_path)
    assert [bool(digest) for digest in run.history["digest"]] == [True, False, False, False, True, False, True]
    assert small.verify(run, alone).equal


def test_a_run_without_versions_is_refused(tmp_path: Path) -> None:
    run = small.run(trial(), out=tmp_path)
    alter(tmp_path, "DELETE FROM versions")
    with pytest.raises(pr.UserError, match="no version"):
        small.verify(run, trial())
