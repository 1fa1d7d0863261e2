"""Stacked visits on Ray: the in-line numbers for the same `stack`, and shares of GPUs that are only said to be there.

No GPU is at hand. Ray is told of two, and gives them out as if they were; where visits are computed "on a GPU", the
actor's choice of a device is patched to a processor.
"""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
import small
from crews import COMMON, FAMILIES, ROLLING, assert_same, made, run
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import configure
from polyrhythm.config.written import configuration_of
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs import VersionRecord, VisitRecord
from polyrhythm.simulation.workers import executors
from polyrhythm.simulation.workers.on_ray import actors
from small import Log
from worker_models import Dies

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra [ray]")
pytestmark = [needs_ray, pytest.mark.filterwarnings("ignore::ResourceWarning")]  # of Ray's own logs
STACKED: dict[str, Any] = {"engine": "stacked", "model": "mlp"}  # a model whose last bits depend on what is stacked
SCAFFOLD = FAMILIES["scaffold"] | STACKED


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = actors.imported()
        ray.init(num_cpus=3, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


def on_crew(workers: int = 2, **changes: Any) -> Any:
    return run(driver="ray", workers=workers, **changes)


SOME = {name: FAMILIES[name] for name in ("fedavg", "ccfl", "curriculum of clients", "critical periods")}
SOME |= {"moon, which it leaves to torch": FAMILIES["moon"], "partial work": FAMILIES["partial work"]}
SOME |= {"without rounds": ROLLING["fedbuff"], "without rounds, and partial": ROLLING["partial work"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_numbers_are_those_of_the_in_line_driver(name: str) -> None:
    family = SOME[name] | STACKED | {"stack": 3}
    assert_same(run(driver="inline", **family), on_crew(**family))


@pytest.mark.slow
def test_a_cohort_with_visits_that_are_not_taken_is_the_same() -> None:
    family = {"recipe": pr.fedavg(**COMMON, optimiser="adam", keep_state=True), **STACKED}
    assert_same(run(driver="inline", **family), on_crew(**family))


def _by_worker(patch: pytest.MonkeyPatch) -> None:
    whole = executors.groups
    patch.setattr(executors, "groups", lambda given, size: whole(given, size and size + 1))


def _out_of_order(patch: pytest.MonkeyPatch) -> None:
    whole = executors.groups
    patch.setattr(executors, "groups", lambda given, size: whole(given[1:] + given[:1], size))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [None, _by_worker, _out_of_order])
def test_who_carries_groups_out_changes_nothing(
    mutant: Callable[[pytest.MonkeyPatch], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(driver="inline", stack=2, **SCAFFOLD)
    if mutant is None:
        for workers in (1, 3):
            assert_same(alone, on_crew(workers, stack=2, **SCAFFOLD))
        return
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_same(alone, on_crew(stack=2, **SCAFFOLD))


def test_whom_a_client_lies_beside_may_change_its_bits() -> None:
    """Else the law above would say nothing; on some processors the products of one and of three matrices are alike."""
    digests = {run(driver="inline", stack=size, **SCAFFOLD)[0]["digest"] for size in (1, 2, 3, 6)}
    if len(digests) == 1:
        pytest.skip("this processor multiplies one matrix and several to the same bits")


@pytest.mark.parametrize(
    ("workers", "changes", "size"),
    [
        (2, SCAFFOLD, 2),
        (3, SCAFFOLD, 2),
        (1, SCAFFOLD, 4),
        (2, SCAFFOLD | {"stack": 3}, 3),
        (2, ROLLING["fedbuff"] | STACKED, 1),
    ],
)
def test_each_worker_takes_its_part_of_a_turn(workers: int, changes: dict[str, Any], size: int) -> None:
    of = made(driver="ray", workers=workers, **changes)
    assert of.crew.stack == of.computed()["stack"] == size


def test_other_engines_have_no_stack() -> None:
    for changes in ({"engine": "torch"}, {"engine": "auto", "stack": 2}):
        assert "stack" not in made(**changes).computed()
    assert made(engine="stacked", stack=2).computed()["stack"] == 2
    assert [note for note in made(engine="auto", stack=2).notices() if note.startswith("stack=2 has no effect")]


@pytest.mark.slow
def test_all_at_once_is_recorded_as_so_many_and_means_the_same_on_ray() -> None:
    alone = made(engine="stacked")
    size = alone.computed()["stack"]
    assert size == alone.federation.clients
    for how in ({}, {"driver": "ray", "workers": 2}):
        assert made(engine="stacked", stack=size, **how).computed() == alone.computed()
    assert_same(run(engine="stacked"), run(engine="stacked", stack=size, driver="ray", workers=2))


@pytest.mark.slow
def test_visits_are_under_way_between_turns_only_one_by_one() -> None:
    for size, goes_on in ((1, True), (2, False)):
        of = made(driver="ray", workers=1, stack=size, **STACKED)
        clients = of.clients
        crew = of.crew.executor(clients)
        assert crew.goes_on is goes_on
        crew.close()


@pytest.mark.slow
def test_a_run_that_is_resumed_or_verified_elsewhere_has_the_same_groups(tmp_path: Path) -> None:
    written = configure(
        None,
        {"driver": "ray", "workers": 2, "engine": "stacked", "rounds": 2, "clients": 6, "out": str(tmp_path)},
        ["method=fedavg(cohort=5)"],
    )
    (of,) = assemble(written)
    run = pr.run(of, execution=written.execution, out=tmp_path)
    assert (run.machine["stack"], run.machine["driver"]) == (3, "ray")
    assert configuration_of(run).execution.stack == configuration_of(run, driver="inline").execution.stack == 3
    machine = {**run.machine, "gpus": 0.5, "address": "auto"}
    own = {"config": run.config, "machine": machine, "folder": run.folder}
    left: Any = SimpleNamespace(id=run.id, name=run.name, on_nodes=False, **own)

    def of_ray(**changes: Any) -> tuple[Any, ...]:
        found = configuration_of(left, **changes).execution
        return found.driver, found.workers, found.gpus, found.address

    assert of_ray(workers=3) == ("ray", 3, 0.5, "auto")
    assert of_ray(gpus=0.25) == ("ray", 2, 0.25, "auto")
    assert of_ray(driver="inline") == ("inline", None, None, None)
    again = configuration_of(run, driver="inline")
    (inline,) = assemble(again)
    verdict = pr.verify(run, inline, execution=again.execution)
    assert verdict.equal, verdict
    assert pr.replay(run, inline, execution=again.execution).equal


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_a_run_that_was_left_goes_on_in_line_with_the_same_groups(tmp_path: Path, size: int) -> None:
    changes: dict[str, Any] = ROLLING["scaffold"] | STACKED | {"stack": size, "checkpoint": pr.Checkpoint(every=1)}
    of = made(driver="ray", workers=2, **changes)

    def fail(record: VisitRecord | VersionRecord) -> None:
        if isinstance(record, VersionRecord) and record.version == 4:
            raise OSError("the power went")

    with suppress(OSError):
        small.run(of, out=tmp_path / "one", observers=[Log(fail)])
    (left,) = pr.Run.all(tmp_path / "one")
    inline = made(driver="inline", **changes)
    found = small.resume(inline, left.id, out=tmp_path / "one")
    whole = small.run(inline, out=tmp_path / "other")
    assert found.summary["digest"] == whole.summary["digest"]
    assert found.visits.equals(whole.visits)


@pytest.mark.slow
def test_an_error_in_a_group_says_whose_visits_they_were(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def __init__(self, broken: Path) -> None:
            super().__init__()
            self.layer, self.broken = nn.Linear(4, 3), broken

        def forward(self, inputs: Tensor) -> Tensor:
            if self.training and self.broken.exists():
                raise ValueError("too many")
            outputs: Tensor = self.layer(inputs)
            return outputs

    words = []
    for who in ({"driver": "inline"}, {"driver": "ray", "workers": 2}):
        broken = tmp_path / who["driver"]
        model = Broken(broken)
        given = made(engine="stacked", stack=2, model=model, recipe=pr.fedavg(cohort=4, batch=8), **who)
        assert given.chosen.kind == "stacked"
        broken.touch()  # after it was tried out
        with pytest.raises(ValueError, match="too many") as caught:
            carry_out(given, [])
        words.append((str(caught.value), caught.value.__notes__))
    assert words[0] == words[1]
    (note,) = words[0][1]
    assert re.fullmatch(r"this happened in the steps of clients \d, \d, on version 0", note)


@pytest.mark.slow
def test_a_dead_actor_s_group_is_repeated(tmp_path: Path) -> None:
    family = SCAFFOLD | {"model": Dies(4, 3, tmp_path), "stack": 2}
    alone = run(driver="inline", **family)
    for name in ("once", "twice"):
        (tmp_path / name).touch()
    hurt = on_crew(**family)
    assert_same(alone, hurt)
    assert hurt[0]["worker_deaths"] == 2


@pytest.mark.slow
def test_samples_travel_once() -> None:
    of = made(**STACKED)
    clients = of.clients
    data, rest = actors._needs(clients)
    carry_out(of, [])
    assert of.chosen.engine._here is not None  # type: ignore[union-attr]
    again = actors._needs(clients)
    assert len(again[0]) == len(data)
    assert len(again[1]) < len(rest) + of.federation.train.inputs.nbytes  # type: ignore[attr-defined]


# --- shares of GPUs, which nobody has here


def as_if(folder: Path) -> Callable[[float | None], torch.device]:
    """Where an actor computes in tests: on a processor, after it has written down which GPU Ray gave it."""
    place = str(folder)

    def own(gpus: float | None) -> torch.device:
        import ray

        told = f"{gpus} {ray.get_gpu_ids()} {os.environ.get('CUDA_VISIBLE_DEVICES')}"
        with open(os.path.join(place, str(os.getpid())), "w") as file:
            file.write(told)
        return torch.device("cpu")

    return own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "workers", "given"),
    [
        pytest.param(0.25, 3, ["0.25 [0] 0"] * 3, marks=pytest.mark.slow),
        (0.5, 3, ["0.5 [0] 0", "0.5 [0] 0", "0.5 [1] 1"]),
        pytest.param(1.0, 2, ["1.0 [0] 0", "1.0 [1] 1"], marks=pytest.mark.slow),
    ],
)
def test_workers_share_gpus(
    gpus: float, workers: int, given: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors, "own_device", as_if(tmp_path))
    family = FAMILIES["scaffold"] | {"model": "mlp", "stack": 2}
    shared = on_crew(workers, gpus=gpus, **family)
    assert shared[1].plans[0].execution["computed_by"] == "stacked (GPUs of workers)"
    assert shared[1].plans[0].execution["gpus"] == gpus
    assert sorted(file.read_text() for file in tmp_path.iterdir()) == given
    assert_same(run(driver="inline", engine="stacked", **family), shared)


@pytest.mark.slow
def test_a_gpu_that_torch_does_not_see_is_said_before_any_work() -> None:
    if torch.cuda.is_available():
        pytest.skip("there are GPUs here")
    with pytest.raises(UserError, match=r"gpus=0\.5: Ray gave a worker on .* the GPU 0, and torch .* sees none"):
        on_crew(gpus=0.5)


@pytest.mark.parametrize(
    ("gpus", "workers", "words"),
    [
        (1.0, 3, "workers=3 of gpus=1 on a Ray cluster with 2 GPUs and 3 processors"),
        (0.6, 3, "workers of 2 or fewer"),
        (0.1, 4, "workers of 3 or fewer"),
    ],
)
def test_more_shares_than_there_is_room_for_are_refused(gpus: float, workers: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        on_crew(workers, gpus=gpus)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": 0.5}, "gpus=0.5 with driver=auto"),
        ({"gpus": 0.5, "driver": "ray"}, "gpus=0.5 without workers"),
        ({"gpus": 2, "driver": "ray", "workers": 2}, "gpus = 2"),
        ({"gpus": 0, "driver": "ray", "workers": 2}, "gpus = 0"),
        ({"gpus": True, "driver": "ray", "workers": 2}, "gpus = True"),
        ({"gpus": 0.5, "driver": "ray", "workers": 2, "engine": "native"}, "gpus=0.5 with engine=native"),
        ({"device": "cuda", "driver": "ray", "workers": 2}, "device=cuda with driver=ray, and no gpus"),
        ({"stack": 0}, "stack = 0"),
        ({"stack": 2.5}, "stack = 2.5"),
        ({"stack": 2, "engine": "torch"}, "stack=2 with engine=torch"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        made(**changes)


def test_work_that_cannot_be_stacked_gets_no_gpus() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(UserError, match=r"gpus=0.5, and the stacked engine cannot be used here: it has buffers"):
        made(driver="ray", workers=2, gpus=0.5, model=model)


def test_a_share_of_a_gpu_has_a_share_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = made(**STACKED).chosen.engine
    each = 8 * engine.weights.nbytes + 4 * engine._step.kept
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 * each))
    found = []
    for share in (1.0, 0.25):
        shared = engine.on(torch.device("cpu"), share)
        shared.device = torch.device("cuda")
        found.append(shared._size([SimpleNamespace(ends=np.array([4]))] * 40, range(40)))
    assert found == [40, 10]


@pytest.mark.slow
def test_a_group_dies_with_its_worker_three_times_and_the_run_ends(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / str(i)).touch()
    with pytest.raises(RunFailed, match=r"3 worker processes died on the same visits, of clients \d+, \d+:"):
        on_crew(stack=2, engine="stacked", model=Dies(4, 3, tmp_path))
