"""The frozen part of a model is in memory once for a driver and all its workers."""

from __future__ import annotations

import os
import sys

import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.models.tasks import task
from polyrhythm.simulation.workers import packing
from polyrhythm.simulation.workers.shared_base import SMALLEST, number_of, shared_base

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared so on Linux")
WIDE = 256


def model() -> nn.Sequential:
    """A large frozen layer, and a small one that learns."""
    return nn.Sequential(nn.Linear(WIDE, WIDE).requires_grad_(False), nn.Linear(WIDE, 2))


def test_what_is_frozen_moves_with_all_its_copies_and_is_not_packed() -> None:
    given = model()
    before, engine = given[0].weight.clone(), TorchEngine(given, task("classification"))
    base = shared_base(engine.at_rest())
    assert [storage.nbytes() for storage in base] == [4 * WIDE * WIDE]  # the bias is too small
    assert given[0].weight.is_shared()
    assert torch.equal(given[0].weight, before)
    assert engine.state_of(engine.initial())["0.weight"].is_shared()
    lent = {storage.data_ptr(): (number, storage.nbytes()) for number, storage in enumerate(base)}
    where, whole = packing.put(engine, lent), packing.put(engine)
    assert os.fstat(where).st_size + 4 * WIDE * WIDE <= os.fstat(whole).st_size
    there: TorchEngine = packing.get(where, [number_of(storage) for storage in base])
    weight = there.at_rest().get_parameter("0.weight")
    assert torch.equal(weight, before)
    weight.data.zero_()  # in a worker, pages of its own
    assert torch.equal(given[0].weight, before)
    os.close(where)
    os.close(whole)


def test_what_learns_and_what_is_small_stays_where_it_is() -> None:
    small = nn.Linear(8, 8).requires_grad_(False)
    assert SMALLEST > 4 * 8 * 8
    assert not shared_base(nn.Sequential(small, nn.Linear(WIDE, WIDE)))


def test_runs_of_processes_are_the_same(tmp_path: object) -> None:
    torch.manual_seed(0)
    given = nn.Sequential(nn.Flatten(), nn.Linear(64, WIDE).requires_grad_(False), nn.Linear(WIDE, 10))
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0)
    plan = pr.Experiment(federation=federation, model=given, recipe=pr.fedavg(cohort=2, lr=0.1), rounds=2)
    ways = (pr.Execution(driver="inline"), pr.Execution(driver="processes", workers=2))
    digests = [pr.run(plan, execution=way, out=str(tmp_path)).history["digest"].iloc[-1] for way in ways]
    assert digests[0] == digests[1]
