"""Worker processes: the numbers of the in-line driver, to the last bit, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
from crews import FAMILIES, MUTANTS, SIZES, assert_same, assert_same_error, first_only, letting, made, run
from polyrhythm.base.compiled import extension
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.session import carry_out
from polyrhythm.methods.recipe import Recipe
from polyrhythm.simulation.simulator import InlineDriver
from polyrhythm.simulation.workers import choosing, fork_server, packing, processes
from polyrhythm.simulation.workers.executors import Clients, Done, OneByOne, VisitFuture, VisitTask, Waiting
from polyrhythm.simulation.workers.processes import Processes
from small import Explodes, Log, collection, dealt, logged
from worker_models import Dies, Fussy, Greedy, Holds


@pytest.fixture(scope="module", autouse=True)
def _no_fork_server_is_left() -> Iterator[None]:
    yield
    fork_server.close()


QUICK = {"fedavg", "scaffold", "ccfl", "moon", "alt", "curriculum", "compressed", "partial work", "a fussy model"}


@pytest.mark.parametrize("family", [pytest.param(f, marks=[pytest.mark.slow] * (f not in QUICK)) for f in FAMILIES])
def test_numbers_are_those_of_the_in_line_driver_for_any_number_of_workers(family: str) -> None:
    alone = run(driver="inline", **FAMILIES[family])
    for workers in (1, 2, 3):
        crew = run(driver="processes", workers=workers, **FAMILIES[family])
        assert (crew[0]["driver"], crew[0]["workers"]) == ("processes", workers)
        assert_same(alone, crew)


@pytest.mark.parametrize("mutant", first_only(MUTANTS))
def test_the_law_above_can_fail(
    mutant: Callable[[pytest.MonkeyPatch, type[Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(driver="inline", **FAMILIES["scaffold"])
    mutant(monkeypatch, Processes)
    with pytest.raises(AssertionError):
        assert_same(alone, run(driver="processes", workers=2, **FAMILIES["scaffold"]))


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    model = Dies(4, 3, tmp_path)
    alone = run(driver="inline", model=model)
    for name in ("once", "twice"):
        (tmp_path / name).touch()
    hurt = run(driver="processes", workers=2, model=model)
    assert_same(alone, hurt)
    assert not list(tmp_path.iterdir())
    assert hurt[0]["worker_deaths"] == 2


def test_a_worker_without_memory_is_replaced_and_changes_nothing(tmp_path: Path) -> None:
    model = Greedy(4, 3, tmp_path)
    alone = run(driver="inline", model=model)
    (tmp_path / "once").touch()
    hurt = run(driver="processes", workers=2, model=model)
    assert_same(alone, hurt)
    assert hurt[0]["worker_deaths"] == 1


def test_a_visit_that_never_has_enough_memory_ends_the_run(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / str(i)).touch()
    with pytest.raises(RunFailed, match="perhaps for lack of memory"):
        run(driver="processes", workers=2, model=Greedy(4, 3, tmp_path))


def test_a_worker_killed_between_two_turns_changes_nothing() -> None:
    alone = run(driver="inline")
    of = made()
    pool = Processes(clients_of(of), 2)
    with contextlib.closing(pool):
        driver = InlineDriver(of.recipe, of.setup, of.chosen.engine, of.data_of, of.world(), executor=pool)
        for moment in driver.moments(of.chosen.engine.initial()):
            if moment.turn.released is not None:
                for number in pool.numbers:
                    os.kill(number, signal.SIGKILL)
            weights = moment.turn.state.weights
    ends = alone[1].states[-1]
    assert all(torch.equal(part, ends[name]) for name, part in of.chosen.engine.layout.named(weights).items())


def test_a_visit_that_kills_every_worker_ends_the_run(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / str(i)).touch()
    with pytest.raises(RunFailed, match=r"3 worker processes died on the same visit, of client \d+"):
        run(driver="processes", workers=2, model=Dies(4, 3, tmp_path))


def test_an_error_in_a_worker_is_the_error_of_the_run() -> None:
    assert_same_error("processes")


def test_of_several_errors_the_first_counts() -> None:
    model = Explodes(4, 3, 0.0, "raise")
    data = collection()
    samples = len(data.train)
    tried = {int(place) for few in (4, 5) for place in np.linspace(0, samples - 1, few)}  # a model is before round 1
    data.train.inputs[[place for place in range(samples) if place not in tried], 0] = 0.0  # type: ignore[attr-defined]
    found = []
    for driver in ("inline", "processes"):
        with pytest.raises(ValueError, match="a sensor is broken") as caught:
            run(driver=driver, model=model, federation=dealt(data, SIZES))
        found.append(caught.value.__notes__)
    assert found[0] == found[1]


def clients_of(of: pr.Experiment) -> Clients:
    return of.clients


def gone(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


def test_no_worker_outlives_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    begin = processes.WorkerPool.worker

    def noted(pool: Any, room: int) -> Any:
        worker = begin(pool, room)
        numbers.append(worker[0])
        return worker

    monkeypatch.setattr(processes.WorkerPool, "worker", noted)

    def stop(record: object) -> None:
        assert not any(map(gone, numbers[-2:]))
        if len(numbers) == 4:
            raise KeyboardInterrupt

    carry_out(made(driver="processes", workers=2), [Log(stop)])
    assert all(map(gone, numbers))
    summary = carry_out(made(driver="processes", workers=2), [Log(stop)])
    assert summary["status"] == "stopped"
    assert len(numbers) == 4
    assert all(map(gone, numbers))


def test_ctrl_c_ends_a_run_and_its_workers(tmp_path: Path) -> None:
    code = "import sys; from polyrhythm.cli import main; sys.argv[0] = 'polyrhythm'; main()"
    options = ["run", "--rounds", "100000", "--driver", "processes", "--workers", "2", "--out", str(tmp_path)]
    command = subprocess.Popen(
        [sys.executable, "-c", code, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 240
        while len(members(command.pid)) != 5 and time.monotonic() < deadline:  # itself, fork server, pool, two workers
            time.sleep(0.05)
        assert time.monotonic() < deadline, members(command.pid)
        time.sleep(0.5)
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does
        said, _ = command.communicate(timeout=240)
        assert command.returncode == 130, said
        assert members(command.pid) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
        command.communicate()


def members(group: int) -> list[int]:
    """The processes of a group that are running, zombies apart."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, of, state in rows if int(of) == group and not state.startswith("Z")]


def test_what_cannot_be_sent_is_refused_with_a_reason() -> None:
    model = Holds(4, 3, lambda: None)
    with pytest.raises(UserError, match="cannot be sent to another process"):
        run(driver="processes", model=model)


def test_what_cannot_be_read_there_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    @final
    class Local(nn.Linear):
        """A class that only this process can find."""

    monkeypatch.setattr(sys.modules["worker_models"], "Local", Local, raising=False)
    Local.__module__, Local.__qualname__ = "worker_models", "Local"
    with pytest.raises(UserError, match="Local"):
        run(driver="processes", model=Local(4, 3))


def test_the_rule_falls_back_where_nothing_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "LARGE_VISIT", 1)
    monkeypatch.setattr(choosing, "LARGE_RUN", 1)
    monkeypatch.setattr(choosing, "cores", lambda: 2)
    model = Holds(4, 3, lambda: None)
    summary, log = run(model=model)
    assert summary["driver"] == "inline"
    assert any("visits run one after the other" in note for note in log.plans[0].notices)
    summary, log = run()
    assert (summary["driver"], summary["workers"]) == ("processes", 2)
    assert "visits run in 2 processes at once" in log.plans[0].notices


RULE: dict[str, tuple[dict[str, Any], tuple[str, int]]] = {
    "small": ({"parameters": 50_000, "num_samples": 65.0}, ("inline", 1)),
    "large visits": ({}, ("processes", 4)),
    "few processors": ({"processors": 1}, ("inline", 1)),
    "fewer visits than processors": ({"at_once": 3}, ("processes", 3)),
    "visits one by one": ({"at_once": 1}, ("inline", 1)),
    "a short run": ({"rounds": 1}, ("inline", 1)),
    "nobody knows how long": ({"rounds": None}, ("processes", 4)),
    "workers are asked for": ({"workers": 2, "parameters": 10}, ("processes", 2)),
    "one worker is asked for": ({"workers": 1}, ("inline", 1)),
    "in line is asked for": ({"asked": "inline"}, ("inline", 1)),
    "processes are asked for": ({"asked": "processes", "parameters": 10}, ("processes", 4)),
    "an engine that lets go": ({"engine": True}, ("threads", 4)),
}


@final
class Free:
    """An engine of which only one thing matters."""

    releases_lock = True


@pytest.mark.parametrize("case", RULE)
def test_the_rule(case: str) -> None:
    changes, expected = RULE[case]
    given: dict[str, Any] = {
        **{"asked": "auto", "workers": None, "engine": None, "parameters": 60_000, "num_samples": 600.0},
        **{"at_once": 10, "rounds": 100, "processors": 4},
    }
    given |= changes
    given["engine"] = Free() if given["engine"] else None
    crew = choosing.choose(**given)
    assert (crew.driver, crew.workers) == expected


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UserError, match="driver = 'proceses'"):
        made(driver="proceses")
    with pytest.raises(UserError, match="workers = 0"):
        made(workers=0)
    with pytest.raises(UserError, match="driver=inline with workers=2"):
        made(driver="inline", workers=2)
    with pytest.raises(UserError, match="holds the interpreter's lock"):
        run(driver="threads")


@pytest.mark.parametrize(
    "family", ["fedavg", "scaffold", "moon", "a fussy model", "a model that draws whenever it is looked at"]
)
def test_threads_give_the_same_numbers(family: str) -> None:
    alone = run(driver="inline", **FAMILIES[family])
    of = letting(**FAMILIES[family])
    log = Log()
    before = torch.random.get_rng_state()
    assert_same(alone, (carry_out(of, [log]), log))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.skipif(extension() is None, reason="the native engine was not compiled")
@pytest.mark.parametrize("family", ["fedavg", "scaffold", "ccfl", "buffered and rolling"])
def test_the_native_engine_gives_the_same_numbers_whoever_carries_visits_out(family: str) -> None:
    alone = run(driver="inline", engine="native", **FAMILIES[family])
    for driver in ("threads", "processes"):
        crew = run(driver=driver, workers=2, engine="native", **FAMILIES[family])
        assert crew[0]["driver"] == driver
        assert_same(alone, crew)


def test_the_longest_visits_of_a_round_begin_first() -> None:
    of = made()
    seen: list[list[int]] = []

    class Spy:
        goes_on = True
        deaths = 0

        def __init__(self) -> None:
            self._here = OneByOne(clients_of(of))

        def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
            waiting = Waiting()
            waiting.add(tasks)
            order = [waiting.take().task.assignment.client for _ in tasks]
            seen.append([len(of.data_of(client)) for client in order])
            return self._here.start(tasks)

        def done(self, future: VisitFuture) -> Done:
            return self._here.done(future)

        def close(self) -> None:
            """Nothing to end."""

    driver = InlineDriver(of.recipe, of.setup, of.chosen.engine, of.data_of, of.world(), executor=Spy())
    for _ in driver.moments(of.chosen.engine.initial()):
        pass
    full = [sizes for sizes in seen if sizes]
    assert len(full) == 4
    for sizes in full:
        assert sizes == sorted(sizes, reverse=True)


VALUES = {
    "scalars": torch.tensor(3.0),
    "half": torch.arange(5).bfloat16(),
    "flags": torch.tensor([True, False]),
    "empty": torch.empty(0, 3),
    "strided": torch.arange(12.0).reshape(3, 4).t(),
    "large": torch.arange(100_000, dtype=torch.float64),
}


@pytest.mark.parametrize("room", [0, 100, 10**7])
def test_values_arrive_as_they_were_sent(room: int) -> None:
    here, there = socket.socketpair()
    segment = np.zeros(room, dtype=np.uint8)
    shared = torch.arange(9.0)
    value = {**VALUES, "slot": shared, "array": np.arange(7), "twice": [VALUES["half"], VALUES["half"]], "none": None}
    sender = threading.Thread(target=packing.send, args=(here, value, (1, shared), segment))
    sender.start()
    with here, there:
        got = packing.receive(there, [VALUES["large"], shared], segment)
        sender.join()
    segment[:] = 255  # nothing of it may stay there
    assert got["slot"] is shared
    assert got["none"] is None
    assert got["twice"][0] is got["twice"][1]
    assert np.array_equal(got["array"], np.arange(7))
    for name, tensor in VALUES.items():
        assert got[name].dtype == tensor.dtype
        assert torch.equal(got[name], tensor), name
        assert got[name].data_ptr() % 64 == 0


def test_a_worker_has_a_lane_for_errands_and_two_for_reports() -> None:
    memory = np.zeros(3 * 640 + 100, dtype=np.uint8)
    tasks, reports = packing.segments(memory)
    for number, segment in enumerate((tasks, *reports), start=1):
        assert not segment.any()
        assert (segment.ctypes.data - memory.ctypes.data) % 64 == 0
        segment[:] = number
    assert [len(segment) for segment in (tasks, *reports)] == [640] * 3


@pytest.mark.parametrize(("room", "value", "whole"), [(10**7, VALUES, True), (100, VALUES, False), (10**7, "", False)])
def test_the_head_of_a_value_tells_whether_the_rest_lies_in_the_lane(room: int, value: object, whole: bool) -> None:
    here, there = socket.socketpair()
    segment = np.zeros(room, dtype=np.uint8)
    sender = threading.Thread(target=packing.send, args=(here, value, None, segment))
    sender.start()
    with here, there:
        begun = packing.head(there)
        assert begun.in_lane == whole
        got = packing.receive(there, segment=segment, begun=begun)
        sender.join()
    assert len(got) == len(value)  # type: ignore[arg-type]


def test_values_in_shared_memory_are_aligned_and_may_be_written() -> None:
    where = packing.put(VALUES)
    got, again = packing.get(where), packing.get(where)
    os.close(where)
    for name, tensor in VALUES.items():
        assert torch.equal(got[name], tensor), name
        assert got[name].data_ptr() % 64 == 0
    got["large"].zero_()
    assert torch.equal(again["large"], VALUES["large"])


def test_an_engine_arrives_as_it_was_made() -> None:
    of = made(model=Fussy(4, 3))
    before = of.chosen.engine.initial()
    list(InlineDriver(of.recipe, of.setup, of.chosen.engine, of.data_of, of.world()).moments(before))
    where = packing.put(of.chosen.engine)
    there: TorchEngine = packing.get(where)
    os.close(where)
    assert there.layout == of.chosen.engine.layout
    module: Any = there.module
    assert module.again.weight is module.middle.weight
    assert not module.first.bias.requires_grad
    assert float(module.seen.sum()) == 0.0  # not what training left


def test_recipes_and_tasks_can_be_sent() -> None:
    for changes in FAMILIES.values():
        recipe: Recipe = changes.get("recipe", pr.fedavg())
        where = packing.put(recipe)
        assert packing.get(where).digest == recipe.digest
        os.close(where)


def test_a_small_run_stays_in_line() -> None:
    summary, _ = logged()
    assert (summary["driver"], summary["workers"]) == ("inline", 1)
