"""The stacked engine as on a GPU, where there is none.

- Another device: torch's fake tensors have shapes and devices and no numbers, and refuse what mixes devices. A second
  processor, `cpu:1`, stands for the GPU: a device that this torch was not built for refuses even to be indexed.
- What is there for CUDA alone is reached by doubles. `PLACES` names each function that speaks of it, and the test that
  reaches it there; one test holds that table to the code, and another that every such line is really run.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import polyrhythm as pr
from adapters import Decoder, Encoder, padded, walks
from laws.test_engines import experiment, story
from laws.world import near
from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.surroundings import plain_surroundings
from polyrhythm.core.protocols import Done, Job
from polyrhythm.data.holding import Holding
from polyrhythm.engines import stacked
from polyrhythm.engines.devices import device_of, named
from polyrhythm.engines.exactness import WORKSPACE, computing
from polyrhythm.engines.kinds import Precision
from polyrhythm.engines.selection import candidates
from polyrhythm.engines.stacked import StackedEngine
from polyrhythm.engines.step import Step
from polyrhythm.methods.local.schedules import Cosine
from polyrhythm.runs.environment import machine
from polyrhythm.simulation.workers.on_ray.visitor import own_device
from polyrhythm.simulation.workers.worker import out_of_memory
from small import dealt

ELSEWHERE = torch.device("cpu", 1)
GPU = torch.device("cuda", 0)
SIZES = (8, 4, 11, 2, 6)
RECIPES = {
    "scaffold": pr.scaffold(cohort=5, batch=3, epochs=1, clip=0.5, momentum=0.9),
    "prox, rates of its own": pr.fedprox(cohort=5, batch=4, steps=3, mu=0.1, schedule=Cosine(unit="step")),
}


def turn(net: str, recipe: pr.Recipe, sizes: Sequence[int] = SIZES, **changes: Any) -> tuple[StackedEngine, list[Job]]:
    """The engine of a run and the visits of its last turn, as they were given to it."""
    heard: list[tuple[StackedEngine, list[Job]]] = []
    whole = StackedEngine.local_rounds

    def hearing(engine: StackedEngine, jobs: Sequence[Job]) -> Iterator[Done | None]:
        heard.append((engine, list(jobs)))
        return whole(engine, jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedEngine, "local_rounds", hearing)
        story(experiment(net, sizes, recipe, "stacked", **changes))
    return heard[-1]


class _Indices:
    """Positions that NumPy can have: inside of the mode even a tensor that was there before gives no numbers."""

    def __init__(self, found: Tensor) -> None:
        self._found = found.numpy()

    def numpy(self) -> np.ndarray:
        return self._found


class _Held(Holding):  # type: ignore[misc]
    def __init__(self, holding: Holding) -> None:
        arrays = holding.arrays()
        assert arrays is not None
        assert arrays[2] is not None
        self._arrays = arrays[0], arrays[1], _Indices(arrays[2])

    def arrays(self) -> Any:
        return self._arrays


def _moved(module: nn.Module, device: torch.device) -> nn.Module:
    """In place of `Module.to`, which cannot put a fake parameter in the place of one with numbers."""
    known = dict[int, nn.Parameter]()
    for part in module.modules():
        for name, old in part._parameters.items():
            if old is not None:
                fresh = nn.Parameter(old.detach().to(device), old.requires_grad)
                part._parameters[name] = known.setdefault(id(old), fresh)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else buffer.to(device)
    return module


def taken_elsewhere(engine: StackedEngine, jobs: Sequence[Job]) -> list[Tensor]:
    """Where the visits end on the other device, in shapes alone."""
    jobs = [dataclasses.replace(job, data=_Held(job.data)) for job in jobs]  # type: ignore[arg-type]
    jobs.sort(key=lambda job: -len(job.ends))
    assert engine.weights.device == torch.device("cpu")
    ended: list[Tensor] = []
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True):
        patch.setattr(nn.Module, "to", _moved)
        patch.setattr(Tensor, "__deepcopy__", lambda tensor, memo: tensor.clone())  # of buffers: fakes share no memory
        patch.setattr(FakeTensor, "tolist", lambda sums: [[0.0] * sums.shape[1]] * sums.shape[0])
        there = StackedEngine(engine.reference, engine._step.on(ELSEWHERE), ELSEWHERE)
        found, _ = there._together(jobs, None, jobs[:1])
        ended = [weights for weights, _ in found]
    assert all(isinstance(weights, FakeTensor) for weights in ended)
    return ended


@pytest.mark.parametrize("net", ["perceptron", "tied", "lenet5", "adapters", "padded texts"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_nothing_of_a_round_mixes_devices_and_it_ends_on_the_processor(net: str, recipe: pr.Recipe) -> None:
    changes: dict[str, Any] = {}
    if net == "adapters":
        net, changes = "perceptron", {"federation": dealt(walks(sum(SIZES)), list(SIZES)), "model": Decoder()}
    if net == "padded texts":
        net, changes = "perceptron", {"federation": padded(17), "model": Encoder()}
    engine, jobs = turn(net, recipe, **changes)
    ended = taken_elsewhere(engine, jobs)
    assert [weights.device for weights in ended] == [torch.device("cpu")] * len(jobs)
    assert {weights.shape for weights in ended} == {engine.weights.shape}


def _inputs_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StackedEngine, "_samples", lambda engine, job: job.data.arrays()[:2])


def _starts_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stacked, "_together", lambda vectors, uploads: torch.stack(list(vectors)))


def _the_model_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Step, "on", lambda step, device: step)


@pytest.mark.parametrize("mutant", [_inputs_stay, _starts_stay, _the_model_stays])
def test_what_is_left_on_the_processor_is_found(mutant: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, jobs = turn("tied", RECIPES["scaffold"])
    mutant(monkeypatch)
    with pytest.raises(RuntimeError, match=r"same device|different devices"):
        taken_elsewhere(engine, jobs)


# Memory.


def sides(patch: pytest.MonkeyPatch, most: int = 99, late: int = 0) -> list[int]:
    """How many clients lie side by side in each step; there is no memory for more than `most` after `late` steps."""
    found, whole = list[int](), Step.__call__

    def step(self: Step, weights: Tensor, batch: Any) -> Any:
        if weights.dim() == 2:
            found.append(len(weights))
            if len(weights) > most and len(found) > late:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return whole(self, weights, batch)

    patch.setattr(Step, "__call__", step)
    return found


def test_a_cohort_that_has_no_room_is_cut_into_equal_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, jobs = turn("perceptron", pr.fedavg(cohort=4, batch=None, epochs=1), (8, 8, 8, 8))
    each = stacked.VECTORS * engine.weights.nbytes + 8 * engine._step.kept
    found = sides(monkeypatch)
    for room, expected in ((4, [4]), (3, [2, 2]), (2, [2, 2]), (1, [1] * 4), (0.5, [1] * 4)):
        monkeypatch.setattr(stacked, "ROOM", int(room * each))
        found.clear()
        list(engine.local_rounds(jobs))
        assert found == expected, room


@pytest.mark.parametrize("late", [0, 2])
def test_where_memory_is_short_half_as_many_lie_side_by_side_and_that_is_said(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is short in the middle of a round, of which nothing is left then: momenta are those of one round."""
    recipe = pr.fedavg(cohort=5, batch=3, epochs=1, momentum=0.9, keep_state=True)
    alone, short = (experiment("perceptron", SIZES, recipe, "stacked") for _ in range(2))
    expected = story(alone)
    found = sides(monkeypatch, most=2, late=late)
    with pytest.warns(UserWarning, match="no memory for 5 clients side by side: from now on it is 2 at most") as heard:
        given = story(short)
    assert len(heard) == 1
    failed = next(i for i, size in enumerate(found) if i >= late and size > 2)
    assert max(found[failed + 1 :]) == 2  # remembered
    for mine, wanted in zip(given, expected, strict=True):
        assert near(mine.turn.state.weights, wanted.turn.state.weights, 1e-5)


def test_memory_that_is_too_short_for_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    short = experiment("perceptron", SIZES, RECIPES["scaffold"], "stacked")
    sides(monkeypatch, most=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            story(short)


@pytest.mark.parametrize(("share", "size"), [(1.0, 4), (0.5, 2), (0.25, 1)])
def test_on_a_gpu_room_is_half_of_its_memory_or_of_a_share(
    share: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, jobs = turn("perceptron", pr.fedavg(cohort=4, batch=None, epochs=1), (8, 8, 8, 8))
    each = stacked.VECTORS * engine.weights.nbytes + 8 * engine._step.kept
    has = SimpleNamespace(total_memory=2 * 4 * each)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: {GPU: has}[device])
    there = StackedEngine(engine.reference, engine._step, GPU, share)
    assert there._size(jobs, range(4)) == size


# Exactness.


def _flags() -> tuple[Any, ...]:
    cudnn, cublas = torch.backends.cudnn, torch.backends.cuda.matmul
    told = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    return cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark, cublas.allow_tf32, *told


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_a_gpu_computes_as_exactly_as_it_is_asked_and_the_same_every_time(precision: Precision) -> None:
    before, tf32 = _flags(), precision == "tf32"
    with computing(GPU, precision):
        assert _flags() == (tf32, True, False, tf32, True, True)
    assert _flags() == before
    with pytest.raises(ZeroDivisionError), computing(GPU, precision):
        raise ZeroDivisionError
    assert _flags() == before


@pytest.mark.parametrize("device", [GPU, torch.device("cpu")])
def test_products_of_sixteen_bits_are_those_of_the_device(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *of: True)
    with computing(device, "bfloat16"):
        assert torch.is_autocast_enabled(device.type)
        assert torch.get_autocast_dtype(device.type) == torch.bfloat16
    assert not torch.is_autocast_enabled(device.type)


def test_cublas_is_told_before_a_gpu_is_used_unless_somebody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv(WORKSPACE, ":16:8")
    device_of("cuda")
    assert os.environ[WORKSPACE] == ":16:8"
    monkeypatch.delenv(WORKSPACE)
    device_of("cuda")
    assert os.environ[WORKSPACE] == ":4096:8"


# Streams.


class _Streams:
    """Notes what is done in which stream."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.current = ["main"]
        main = SimpleNamespace(wait_stream=lambda other: self.done.append(("main waits", other)))
        patch.setattr(torch.cuda, "Stream", lambda device: ("beside", device))
        patch.setattr(torch.cuda, "current_stream", lambda device: main)
        patch.setattr(torch.cuda, "stream", self._within)
        patch.setattr(Tensor, "pin_memory", lambda tensor: self._pinned(tensor))
        patch.setattr(Tensor, "record_stream", lambda tensor, stream: self.done.append(("kept", id(tensor))))
        self._to = Tensor.to
        patch.setattr(Tensor, "to", lambda tensor, *where, **how: self._moved(tensor, *where, **how))

    @contextlib.contextmanager
    def _within(self, stream: Any) -> Iterator[None]:
        self.current.append(stream[0])
        yield
        self.current.pop()

    def _pinned(self, tensor: Tensor) -> Tensor:
        self.done.append(("pinned", self.current[-1]))
        return tensor.clone()

    def _moved(self, tensor: Tensor, *where: Any, **how: Any) -> Tensor:
        if where and where[0] == GPU:
            self.done.append(("moved", self.current[-1], how.get("non_blocking", False)))
            return tensor
        return self._to(tensor, *where, **how)


def test_the_next_piece_is_brought_beside_the_work_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pieces of two: both come in the stream beside, from pinned memory; the second before the first is read."""
    engine, jobs = turn("perceptron", pr.fedavg(cohort=4, batch=None, epochs=2), (8, 8, 8, 8))
    expected = [engine.weights.clone() for done in engine.local_rounds(jobs) if done is not None]
    streams = _Streams(monkeypatch)
    monkeypatch.setattr(StackedEngine, "_size", lambda self, jobs, taken: min(2, len(taken)))
    monkeypatch.setattr(stacked, "computing", lambda device, precision: contextlib.nullcontext())
    there = StackedEngine(engine.reference, engine._step, GPU)
    take, ended, cohort = stacked._Cohort.take, stacked._Cohort.ended, stacked._Cohort
    monkeypatch.setattr(cohort, "take", lambda self, step: (streams.done.append(("step",)), take(self, step))[1])
    monkeypatch.setattr(cohort, "ended", lambda self: (streams.done.append(("read",)), ended(self))[1])
    found = [there.weights.clone() for done in there.local_rounds(jobs) if done is not None]
    assert len(found) == len(expected) == 4
    assert all(near(mine, wanted, 1e-6) for mine, wanted in zip(found, expected, strict=True))
    moved = [what for what in streams.done if what[0] == "moved"]
    assert moved
    assert {what[1:] for what in moved} == {("beside", True)}
    order = "".join(
        {"moved": "m", "main waits": "w", "step": "s", "read": "r"}.get(what[0], "") for what in streams.done
    )
    assert re.fullmatch(r"m+w(s+)m+r+w\1r", order), order
    tensors = sum(what[0] == "kept" for what in streams.done)
    assert tensors >= 2 * 10


def test_whoever_has_no_room_yet_is_brought_when_the_others_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, jobs = turn("perceptron", pr.fedavg(cohort=4, batch=None, epochs=1), (8, 8, 8, 8))
    expected = [engine.weights.clone() for done in engine.local_rounds(jobs) if done is not None]
    monkeypatch.setattr(StackedEngine, "_size", lambda self, jobs, taken: min(2, len(taken)))
    brought, tries = StackedEngine._brought, list[int]()

    def short(self: StackedEngine, jobs: Sequence[Job]) -> Any:
        tries.append(len(jobs))
        if len(tries) == 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return brought(self, jobs)

    monkeypatch.setattr(StackedEngine, "_brought", short)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is halved
        found = [engine.weights.clone() for done in engine.local_rounds(jobs) if done is not None]
    assert tries == [2, 2, 2]
    assert all(near(mine, wanted, 1e-6) for mine, wanted in zip(found, expected, strict=True))


# Around the engine.


def test_the_generators_of_gpus_are_seeded_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    of_gpu = torch.Generator().manual_seed(3)
    before = of_gpu.get_state()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", (of_gpu,))
    with seeded_torch(0, "network", "tried out"):
        drawn = torch.rand(3, generator=of_gpu)
        assert torch.equal(drawn, torch.rand(3))  # the same stream as the processor's
    assert torch.equal(of_gpu.get_state(), before)


def test_autocast_for_gpus_around_a_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda of: of == "cuda")
    with pytest.raises(UserError, match="autocast is switched on"), plain_surroundings():
        pass


@pytest.mark.parametrize("there", [True, False])
def test_the_record_names_the_gpu(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "card")
    assert machine()["accelerator"] == ("card" if there else "none")


def test_an_actor_computes_on_the_gpu_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert own_device(0.25) == GPU
    assert own_device(None) == torch.device("cpu")


def test_a_worker_knows_when_a_gpu_has_no_memory_left() -> None:
    assert out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory."))
    assert not out_of_memory(RuntimeError("CUDA error: an illegal instruction was encountered"))


# Devices.


@pytest.mark.parametrize(
    ("asked", "there", "expected"),
    [
        *(("auto", 2, GPU), ("cuda", 1, GPU), ("cuda:1", 2, torch.device("cuda", 1)), ("cpu", 2, torch.device("cpu"))),
        *(("cuda:2", 2, None), ("cuda", 0, None), ("auto", 0, torch.device("cpu"))),
    ],
)
def test_a_device_is_one_that_is_there(
    asked: str, there: int, expected: torch.device | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device.index}")
    if expected is None:
        with pytest.raises(UserError, match="device"):
            device_of(asked)
        return
    assert device_of(asked) == expected
    assert named(expected) == ("cpu" if expected.type == "cpu" else f"card {expected.index}")


@pytest.mark.parametrize(("at_once", "expected"), [(1, ("native",)), (2, ("native", "stacked"))])
def test_on_a_gpu_visits_that_come_together_are_stacked(at_once: int, expected: tuple[str, ...]) -> None:
    assert candidates("auto", GPU, at_once) == expected
    assert candidates("auto", torch.device("cpu"), at_once) == ("native",)


def test_a_gpu_without_a_share_for_actors_is_refused() -> None:
    with pytest.raises(UserError, match="device=cuda with driver=ray, and no gpus"):
        pr.Execution(driver="ray", workers=2, device="cuda")


# The list of all of them.

SOURCE = Path(pr.__file__).parent
PLACES: dict[str, Callable[..., None]] = {
    "engines/devices.py device_of": test_a_device_is_one_that_is_there,
    "engines/devices.py named": test_a_device_is_one_that_is_there,
    "engines/stacked.py _size": test_on_a_gpu_room_is_half_of_its_memory_or_of_a_share,
    "engines/stacked.py _tried": test_where_memory_is_short_half_as_many_lie_side_by_side_and_that_is_said,
    "engines/stacked.py _halve": test_where_memory_is_short_half_as_many_lie_side_by_side_and_that_is_said,
    "engines/stacked.py _together": test_whoever_has_no_room_yet_is_brought_when_the_others_have_gone,
    "engines/selection.py candidates": test_on_a_gpu_visits_that_come_together_are_stacked,
    "engines/uploads.py _stream": test_the_next_piece_is_brought_beside_the_work_and_waited_for,
    "engines/uploads.py beside": test_the_next_piece_is_brought_beside_the_work_and_waited_for,
    "engines/uploads.py hand_over": test_the_next_piece_is_brought_beside_the_work_and_waited_for,
    "engines/exactness.py _told": test_a_gpu_computes_as_exactly_as_it_is_asked_and_the_same_every_time,
    "experiments/execution.py _check_engine": test_a_gpu_without_a_share_for_actors_is_refused,
    "base/streams.py seeded_torch": test_the_generators_of_gpus_are_seeded_and_put_back,
    "base/surroundings.py plain_surroundings": test_autocast_for_gpus_around_a_run_is_refused,
    "runs/environment.py machine": test_the_record_names_the_gpu,
    "simulation/workers/worker.py out_of_memory": test_a_worker_knows_when_a_gpu_has_no_memory_left,
    "simulation/workers/on_ray/visitor.py own_device": test_an_actor_computes_on_the_gpu_that_it_was_given,
}
"""Every function of the source that names CUDA, and the test that reaches that."""


def _named(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and re.match(r"cuda(:\d+)?$", node.value) is not None
    return isinstance(node, ast.Attribute) and node.attr == "cuda" and not isinstance(node.value, ast.Call)


def _spoken_of() -> dict[str, set[int]]:
    """The lines that name CUDA, but annotations and imports, by file and function."""
    found: dict[str, set[int]] = {}
    for path in SOURCE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = [node for statement in function.body for node in _within(statement)]
                lines = {node.lineno for node in inside if _named(node)}  # type: ignore[attr-defined]
                if lines:
                    found[f"{path.relative_to(SOURCE)} {function.name}"] = lines
    return found


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """All below, but functions and classes of their own, and annotations."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from _within(child)


def test_every_place_that_names_cuda_is_in_the_table() -> None:
    assert _spoken_of().keys() == PLACES.keys()


@pytest.mark.slow
def test_every_line_that_names_cuda_is_run_by_the_test_of_its_place() -> None:
    """In a process of its own, which notes what is run in the files in question while it runs these tests."""
    names = sorted({test.__name__ for test in PLACES.values()})
    files = {place.split()[0] for place in PLACES}
    found = subprocess.run(
        [sys.executable, "-c", TRACED, str(SOURCE), json.dumps(sorted(files)), *(f"{__file__}::{n}" for n in names)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    run = {tuple(line) for line in json.loads(found.stdout.splitlines()[-1])}
    for place, lines in _spoken_of().items():
        file = place.split()[0]
        assert {(file, line) for line in lines} <= run, place


TRACED = """
import json, os, sys, threading
import pytest
source, files, *tests = sys.argv[1:]
watched = {os.path.join(source, name): name for name in json.loads(files)}
run = set()

def called(frame, event, argument):
    name = watched.get(frame.f_code.co_filename)
    if name is None:
        return None
    def line(frame, event, argument):
        run.add((name, frame.f_lineno))
        return line
    return line(frame, event, argument)

threading.settrace(called)
sys.settrace(called)
code = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *tests])
sys.settrace(None)
print()
print(json.dumps(sorted(run)))
sys.exit(code)
"""
