"""What steps in less memory keep, and where they are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import polyrhythm as pr
from adapters import walks
from laws.test_less_memory import SIZES, deep
from polyrhythm.base.errors import UserError
from polyrhythm.engines.frugal import Frugal, blocks
from polyrhythm.experiments.prepared import Prepared, prepare
from small import dealt


def kept(frugal: Frugal, model: nn.Module, samples: int) -> int:
    """Bytes that a pass keeps until its gradient is there, but weights."""
    weights, total = {p.untyped_storage().data_ptr() for p in model.parameters()}, 0

    def note(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total += 0 if tensor.untyped_storage().data_ptr() in weights else tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), frugal.around(model):
        model(walks(samples).train.batch(torch.arange(samples))[0])
    return total


def test_recomputed_blocks_keep_what_goes_in() -> None:
    model = deep(0.3)
    assert len(blocks(model)) == 2
    assert kept(Frugal(recompute=True), model, 8) < 0.6 * kept(Frugal(), model, 8)
    assert all("forward" not in vars(block) for block in blocks(model))


def made(model: Any = None, recipe: pr.Recipe | None = None, **how: Any) -> Prepared:
    federation = dealt(walks(24), SIZES)
    if model is not None:
        federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0)
    recipe = recipe or pr.fedavg(cohort=2, batch=4)
    experiment = pr.Experiment(federation=federation, model=model or deep(0.0), recipe=recipe, rounds=1)
    return prepare(experiment, pr.Execution(**how))


def test_the_engine_says_how() -> None:
    assert made(micro_batch=2, recompute=True).chosen.name == "torch (2 samples at once, recomputed)"
    assert made().chosen.name == "torch"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"micro_batch": 2, "engine": "native"}, "micro_batch=2 with engine=native"),
        ({"recompute": True, "engine": "stacked"}, "recompute=true with engine=stacked"),
        ({"micro_batch": 2, "precision": "bfloat16"}, "micro_batch=2 with precision=bfloat16"),
        ({"micro_batch": 2, "driver": "ray", "workers": 2, "gpus": 0.5}, "micro_batch=2 with gpus=0.5"),
        ({"micro_batch": 0}, "micro_batch = 0"),
        ({"micro_batch": 2, "model": "batchnorm"}, "BatchNorm computes a sample from all others"),
        ({"recompute": True, "model": "batchnorm"}, "its passes may change its buffers"),
        ({"recompute": True, "model": "mlp"}, "it has no repeated blocks"),
        ({"micro_batch": 2, "model": "mlp", "recipe": pr.moon(cohort=2, mu=1.0)}, "looks at whole batches"),
        ({"micro_batch": 2, "model": "mlp", "recipe": pr.per_fedavg(cohort=2)}, "looks at whole batches"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(how: dict[str, Any], words: str) -> None:
    if how.get("model") == "batchnorm":
        how = how | {"model": nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))}
    with pytest.raises(UserError, match=words):
        made(**how)


class Centred(nn.Linear):
    """Looks at how far a sample is from the mean of its batch."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs.flatten(1))
        return outputs - outputs.mean(dim=0)


def test_so_is_a_model_that_looks_at_whole_batches() -> None:
    with pytest.raises(UserError, match="depends on the others of its batch"):
        made(model=Centred(64, 10), micro_batch=2)
