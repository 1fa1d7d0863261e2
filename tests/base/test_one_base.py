"""Copies of a model lie in the memory of its frozen part, and nothing that they do reaches the model that was given."""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.unharmed import unharmed
from polyrhythm.base.vectors import CPU
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.models.calling import reads
from polyrhythm.models.flops import count
from polyrhythm.models.probing import first_outputs
from polyrhythm.models.tasks import task
from polyrhythm.runs.files import safetensors_bytes

WIDE = 257  # so that no other tensor of these tests has as many bytes


def model() -> nn.Sequential:
    """A large frozen layer, and a small one that learns."""
    return nn.Sequential(nn.Linear(WIDE, WIDE).requires_grad_(False), nn.Linear(WIDE, 2))


def bases(size: int = WIDE * WIDE * 4) -> int:
    """How often there are so many bytes in memory."""
    gc.collect()
    tensors = [found for found in gc.get_objects() if issubclass(type(found), Tensor)]  # isinstance asks the object
    stores = [t.untyped_storage() for t in tensors if t.layout is torch.strided]
    return len({store.data_ptr() for store in stores if store.nbytes() == size})


def test_an_engine_and_all_its_models_hold_the_frozen_part_once() -> None:
    before = bases()
    given = model()
    assert bases() == before + 1
    engines = [TorchEngine(reads(given), task("classification")) for _ in range(3)]
    held = [(engine.given(), engine.on(CPU), engine.state_of(engine.initial())) for engine in engines]
    first_outputs(given, torch.randn(2, WIDE))
    count(given, torch.randn(2, WIDE), lambda outputs: outputs.sum())
    assert bases() == before + 1
    assert len(held) == 3


FROZEN = Path(__file__).parents[2] / "benchmarks" / "frozen.py"
LAYERS = 16  # of 4 MB each, under adapters of rank 8


@pytest.mark.skipif(sys.platform != "linux", reason="what processes share is read from /proc")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_takes_its_base_once_and_what_its_visits_take(workers: int) -> None:
    """Peak ≤ base + 1.3 (adapters + activations), which are what the same run takes over a base of one layer."""
    most = dict[bool, float]()
    for tied in (False, True):
        about = ["--workers", str(workers), "--layers", str(LAYERS), "--rounds", "1", "--cohort", "4", "--deep"]
        command = [sys.executable, str(FROZEN), *about, *(["--tied"] if tied else [])]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert told["base_mb"] == (4 if tied else 4 * LAYERS)
        most[tied] = told["more_mb"]  # beside the base, which lay there before
    assert most[False] <= 1.3 * most[True]


def test_an_engine_in_another_process_holds_it_once() -> None:
    sent = pickle.dumps(TorchEngine(model(), task("classification")))
    before = bases()
    engine = pickle.loads(sent)
    assert bases() == before + 1
    assert engine.weights.numel()


def test_what_learns_is_of_the_copys_own() -> None:
    given = model()
    flat = FlatModel(given)
    flat.weights.zero_()
    assert given[1].weight.abs().sum() > 0
    state = flat.state()
    flat.weights.fill_(1.0)
    assert float(state["1.weight"].abs().sum()) == 0


def test_a_copy_may_thaw_and_replace_its_own() -> None:
    given = model()
    copied = copy_of(given, one_base=CPU)
    weight = copied.get_parameter("0.weight")
    weight.requires_grad_()
    weight.data = torch.zeros_like(weight)
    assert not given[0].weight.requires_grad
    assert given[0].weight.abs().sum() > 0


def test_what_is_frozen_off_a_border_is_copied_onto_one() -> None:
    given = model()
    whole = torch.randn(WIDE * WIDE + 1)
    given[0].weight.data = whole[1:].view(WIDE, WIDE)
    copied = copy_of(given, one_base=CPU).get_parameter("0.weight")
    assert copied.data_ptr() % 64 == 0
    assert torch.equal(copied, given[0].weight)


def test_a_whole_copy_stands_on_its_own() -> None:
    given = model()
    copy_of(given).get_parameter("0.weight").data.zero_()
    assert given[0].weight.abs().sum() > 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w: w.mul_(2),
        lambda w: w[3:].zero_(),
        lambda w: torch.add(w, 1, out=w),
        lambda w: torch._foreach_add_([w], 1.0),
    ],
)
def test_what_a_trial_writes_into_the_frozen_part_is_undone(spoil: object) -> None:
    given = model()
    then = given[0].weight.detach().clone()
    copied = copy_of(given, one_base=CPU)
    with torch.no_grad(), unharmed(copied):
        spoil(copied.get_parameter("0.weight"))  # type: ignore[operator]
        assert not torch.equal(given[0].weight, then)
    assert torch.equal(given[0].weight, then)


def tensors() -> Iterator[Tensor]:
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8)
    yield from (torch.arange(6).reshape(2, 3).to(kind) for kind in kinds)
    yield from (torch.tensor(True), torch.empty(0, 4), torch.randn(3, 4).t(), torch.randn(2, dtype=torch.complex64))


@pytest.mark.parametrize("count", [0, 9, 10, 11])
def test_a_file_of_weights_is_read_by_the_library(count: int) -> None:
    state = {f"tensor {i}": tensor for i, tensor in enumerate(list(tensors())[:count])}
    try:
        save({name: tensor.contiguous() for name, tensor in state.items()})
    except KeyError as kind:
        pytest.skip(f"this version of safetensors writes no {kind}")
    found = load(safetensors_bytes(state, {"run_id": "á"}))
    assert found.keys() == state.keys()
    assert all(torch.equal(found[n], t) and found[n].dtype == t.dtype for n, t in state.items())
