"""The stacked engine as on a GPU, where there is none.

- Another device: torch's fake tensors have shapes and devices and no numbers, and refuse what mixes devices. A second
  processor, `cpu:1`, stands for the GPU: a device that this torch was not built for refuses even to be indexed.
- What is there for CUDA alone is reached by doubles: the choice of a device and its name (`engines/devices.py`), its
  memory, cuDNN's flags and what follows when there is no memory left (`engines/stacked.py`).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import polyrhythm as pr
from laws.test_engines import experiment, story
from laws.world import near
from polyrhythm.base.errors import UserError
from polyrhythm.core.protocols import Done, Job
from polyrhythm.data.holding import Holding
from polyrhythm.engines import stacked
from polyrhythm.engines.devices import device_of, named
from polyrhythm.engines.stacked import StackedEngine
from polyrhythm.engines.step import Step
from polyrhythm.methods.local.schedules import Cosine

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
    return module


def taken_elsewhere(engine: StackedEngine, jobs: Sequence[Job]) -> list[Tensor]:
    """Where the visits end on the other device, in shapes alone."""
    jobs = [dataclasses.replace(job, data=_Held(job.data)) for job in jobs]  # type: ignore[arg-type]
    jobs.sort(key=lambda job: -len(job.ends))
    assert engine.weights.device == torch.device("cpu")
    made = torch.tensor
    ended: list[Tensor] = []
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True):
        patch.setattr(nn.Module, "to", _moved)
        patch.setattr(torch, "tensor", lambda data, *, device, **how: made(data, **how).to(device))
        patch.setattr(FakeTensor, "tolist", lambda sums: [[0.0] * sums.shape[1]] * sums.shape[0])
        there = StackedEngine(engine.reference, engine._step.on(ELSEWHERE), ELSEWHERE)
        found = there._together(jobs)
        ended = [weights for weights, _ in found]
    assert all(isinstance(weights, FakeTensor) for weights in ended)
    return ended


@pytest.mark.parametrize("net", ["perceptron", "tied", "lenet5"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_nothing_of_a_round_mixes_devices_and_it_ends_on_the_processor(net: str, recipe: pr.Recipe) -> None:
    engine, jobs = turn(net, recipe)
    ended = taken_elsewhere(engine, jobs)
    assert [weights.device for weights in ended] == [torch.device("cpu")] * len(jobs)
    assert {weights.shape for weights in ended} == {engine.weights.shape}


def _inputs_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StackedEngine, "_samples", lambda engine, job: job.data.arrays()[:2])


def _starts_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stacked, "_together", lambda vectors, device: torch.stack(list(vectors)))


def _the_model_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Step, "on", lambda step, device: step)


@pytest.mark.parametrize("mutant", [_inputs_stay, _starts_stay, _the_model_stays])
def test_what_is_left_on_the_processor_is_found(mutant: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, jobs = turn("tied", RECIPES["scaffold"])
    mutant(monkeypatch)
    with pytest.raises(RuntimeError, match="same device"):
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


def test_a_gpu_computes_in_float32_and_the_same_every_time() -> None:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    with stacked._exact(GPU):
        flags = torch.backends.cudnn
        assert (flags.allow_tf32, flags.deterministic, flags.benchmark) == (False, True, False)
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic) == before


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
