"""Visits that workers carry out while the clock goes on: the numbers of the in-line driver, to the last bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import pytest
import torch

import polyrhythm as pr
from crews import (
    COMMON,
    ROLLING,
    ROLLS,
    TIERS,
    WAITING,
    assert_same,
    first_only,
    forgotten,
    letting,
    made,
    old_weights,
    run,
)
from polyrhythm.base.compiled import extension
from polyrhythm.base.errors import RunFailed
from polyrhythm.core import client
from polyrhythm.core.forecast import Ahead
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.experiments.session import carry_out
from polyrhythm.methods.recipe import Recipe
from polyrhythm.runs import VersionRecord, VisitRecord
from polyrhythm.simulation.simulator import InlineDriver
from polyrhythm.simulation.visits import DeviceForecast, Visits
from polyrhythm.simulation.workers import choosing, executors, fork_server
from polyrhythm.simulation.workers.executors import Done, OneByOne, VisitFuture, VisitTask
from polyrhythm.simulation.workers.processes import Processes
from small import Explodes, Log, collection
from worker_models import Dies


@pytest.fixture(scope="module", autouse=True)
def _no_fork_server_is_left() -> Iterator[None]:
    yield
    fork_server.close()


LONG = {"fisher traces", "afl for silos", "feddyn with momentum", "quantised", "batches left over", "sparse", "mifa"}


@pytest.mark.parametrize("family", [pytest.param(f, marks=[pytest.mark.slow] * (f in LONG)) for f in ROLLING | WAITING])
def test_numbers_are_those_of_the_in_line_driver_for_any_number_of_workers(family: str) -> None:
    changes = (ROLLING | WAITING)[family]
    alone = run(driver="inline", **changes)
    for workers in (1, 2, 3):
        assert_same(alone, run(driver="processes", workers=workers, **changes))


@pytest.mark.parametrize("family", ["fedbuff", "scaffold", "partial work", "visits that go wrong"])
def test_threads_give_the_same_numbers(family: str) -> None:
    log = Log()
    assert_same(run(driver="inline", **ROLLING[family]), (carry_out(letting(**ROLLING[family]), [log]), log))


@pytest.mark.skipif(extension() is None, reason="the native engine was not compiled")
@pytest.mark.parametrize("driver", ["threads", "processes"])
def test_the_native_engine_gives_the_same_numbers(driver: Any) -> None:
    for family in ("scaffold", "cc_fedadam"):
        alone = run(driver="inline", engine="native", **ROLLING[family])
        assert_same(alone, run(driver=driver, workers=2, engine="native", **ROLLING[family]))


@final
class Idler:
    """An executor that does nothing before it must, and notes how much it has to do then."""

    goes_on = True
    deaths = 0

    def __init__(self, of: pr.Experiment) -> None:
        of_ = of.clients
        self._here = OneByOne(of_)
        self._open = 0
        self.open: list[int] = []

    def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        self._open += len(tasks)
        return self._here.start(tasks)

    def done(self, future: VisitFuture) -> Done:
        self.open.append(self._open)
        self._open -= 1
        return self._here.done(future)

    def close(self) -> None:
        """Nothing to end."""


@pytest.mark.parametrize("family", ROLLING | WAITING)
def test_all_that_is_under_way_may_be_computed_at_once_where_it_is_foreseen(family: str) -> None:
    of = made(**(ROLLING | WAITING)[family])
    idler = Idler(of)
    driver = InlineDriver(of.recipe, of.setup, of.chosen.engine, of.data_of, of.world(), executor=idler)
    under_way = [len(driver.under_way()) for _ in driver.moments(of.chosen.engine.initial())]
    if family in WAITING:
        assert max(idler.open[8:]) == 1  # after the first turn
    elif of.recipe.fills_places:
        assert max(idler.open[8:]) == max(under_way[8:]) >= (1 if "come and go" in family else 4)


@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_a_visit_is_planned_once_by_whoever_drives(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, priced = Counter[int](), Counter[tuple[int, int]]()
    plan, seconds = executors.plan_visit, DeviceForecast.seconds

    def noted(*given: Any) -> VisitPlan:
        planned[given[3].dispatch] += 1
        return plan(*given)

    def asked(pace: Any, samples: int, forward_samples: int) -> float:
        priced[id(pace), samples] += 1
        paces.append(pace)  # so that no other has its id
        return seconds(pace, samples, forward_samples)

    paces: list[Any] = []
    monkeypatch.setattr(executors, "plan_visit", noted)
    monkeypatch.setattr(client, "plan_visit", None)
    monkeypatch.setattr(DeviceForecast, "seconds", asked)
    summary = run(driver=driver, **ROLLING["partial work"])[0]
    assert len(planned) >= summary["visits"]
    assert set(planned.values()) == {1}
    assert set(priced.values()) == {1}


def _nothing_beside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recipe, "extra_vectors", property(lambda self: 0))


def _told_unseen(patch: pytest.MonkeyPatch) -> None:
    """What was foreseen is not held against what came."""
    patch.setattr(
        Visits,
        "told",
        lambda visits, v: (
            replace(
                v, foreseen=False, report=visits._report(v.assignment).heard(after=v.report.duration, at=v.outcome.time)
            )
            if v.foreseen
            else v
        ),
    )


def _sends_no_extras(patch: pytest.MonkeyPatch) -> None:
    _nothing_beside(patch)
    _told_unseen(patch)


def _a_batch_less(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ahead, "samples", lambda self, steps: self._used(steps - 1))
    _told_unseen(patch)


def _stops_are_foreseen(patch: pytest.MonkeyPatch) -> None:
    whole = executors.plan_visit
    patch.setattr(executors, "plan_visit", lambda *given: replace(whole(*given), sure=True))
    _told_unseen(patch)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "what is sent beside an update is free": (_sends_no_extras, "scaffold"),
    "a batch less": (_a_batch_less, "fedbuff"),
    "a visit that may end early does not": (_stops_are_foreseen, "alt"),
    "clients forget": (lambda patch: forgotten(patch, Processes), "scaffold"),
    "one model for all versions": (lambda patch: old_weights(patch, Processes), "fedbuff"),
}


@pytest.mark.parametrize("mutant", first_only(MUTANTS))
def test_the_law_above_can_fail(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, family = MUTANTS[mutant]
    changes = (ROLLING | WAITING)[family]
    alone = run(driver="inline", **changes)
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        assert_same(alone, run(driver="processes", workers=2, **changes))


def test_a_part_that_sends_more_than_it_says_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _nothing_beside(monkeypatch)
    with pytest.raises(RunFailed, match=r"were foreseen. A part of the recipe says that it `sends_alike`"):
        run(driver="processes", workers=2, **ROLLING["scaffold"])


@pytest.mark.parametrize("family", ["scaffold", "fedbuff"])
def test_killed_workers_change_nothing(family: str, tmp_path: Path) -> None:
    changes = ROLLING[family] | {"model": Dies(4, 3, tmp_path), "fleet": TIERS}
    alone = run(driver="inline", **changes)
    for name in ("once", "twice"):
        (tmp_path / name).touch()
    hurt = run(driver="processes", workers=2, **changes)
    assert_same(alone, hurt)
    assert hurt[0]["worker_deaths"] == 2


def test_an_error_is_told_in_the_same_words() -> None:
    mark = float(collection().train.batch(torch.tensor([30]))[0][0, 0])
    words = []
    for driver in ("inline", "processes"):
        with pytest.raises(ValueError, match="a sensor is broken") as caught:
            run(driver=driver, **ROLLING["fedbuff"] | {"model": Explodes(4, 3, mark, "raise")})
        words.append((str(caught.value), caught.value.__notes__))
    assert words[0] == words[1]


@pytest.mark.parametrize("goes_on_with", ["inline", "processes"])
def test_a_run_goes_on_with_visits_that_workers_were_at(tmp_path: Path, goes_on_with: str) -> None:
    recipe = pr.scaffold(**COMMON) | ROLLS | pr.parts.buffer(size=2)
    of = made(recipe=recipe, fleet=TIERS, rounds=8, checkpoint=pr.Checkpoint(every=1, keep=3))

    def fail(record: VisitRecord | VersionRecord) -> None:
        if isinstance(record, VersionRecord) and record.version == 5:
            raise OSError("the power went")

    with suppress(OSError):
        pr.run(
            of.experiment,
            execution=replace(of.execution, driver="processes", workers=2),
            out=tmp_path / "one",
            observers=[Log(fail)],
        )
    (left,) = pr.Run.all(tmp_path / "one")
    how: dict[str, Any] = {"driver": goes_on_with} | ({"workers": 3} if goes_on_with == "processes" else {})
    found = pr.resume(of.experiment, left.id, execution=replace(of.execution, **how), out=tmp_path / "one")
    whole = pr.run(of.experiment, execution=replace(of.execution, driver="inline"), out=tmp_path / "other")
    assert found.summary["digest"] == whole.summary["digest"]
    assert found.history.drop(columns="wall").equals(whole.history.drop(columns="wall"))
    assert found.visits.equals(whole.visits)


def test_a_visit_that_somebody_is_at_is_kept_as_such(tmp_path: Path) -> None:
    of = made(**ROLLING["fedbuff"])
    with closing(Processes(of.clients, 2)) as pool:
        driver = InlineDriver(of.recipe, of.setup, of.chosen.engine, of.data_of, of.world(), executor=pool)
        for moment in driver.moments(of.chosen.engine.initial()):
            if moment.turn.released is not None and moment.turn.state.version == 3:
                break
        left = [visit for visit in driver.state().agenda.under_way() if visit.foreseen]
    assert left
    assert all(visit.report.update is None and visit.report.steps > 0 for visit in left)


@pytest.mark.parametrize("family", ROLLING | WAITING)
def test_the_rule_takes_workers_where_ends_are_foreseen(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "LARGE_VISIT", 1)
    monkeypatch.setattr(choosing, "LARGE_RUN", 1)
    monkeypatch.setattr(choosing, "cores", lambda: 2)
    crew = made(**(ROLLING | WAITING)[family]).crew
    assert (crew.driver, crew.workers) == (("inline", 1) if family in WAITING else ("processes", 2))


def test_a_run_is_as_large_as_its_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six clients of ten samples, fifteen parameters: 150 a visit, and four at work at a time."""
    monkeypatch.setattr(choosing, "LARGE_VISIT", 1)
    monkeypatch.setattr(choosing, "cores", lambda: 2)
    recipes = {pr.fedbuff(concurrency=4, buffer=4): 4, pr.fedbuff(concurrency=4, buffer=2): 2, pr.fedavg(cohort=3): 3}
    for recipe, visits in recipes.items():
        monkeypatch.setattr(choosing, "LARGE_RUN", 8 * visits * 150)
        assert made(recipe=recipe, rounds=8, engine="torch").crew.driver == "processes"
        assert made(recipe=recipe, rounds=4, engine="torch").crew.driver == "inline"
