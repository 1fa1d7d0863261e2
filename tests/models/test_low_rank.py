"""Low-rank adapters on any module: what they compute, what learns, and what a run with them leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.models.building import build
from polyrhythm.models.catalogue import MODELS
from polyrhythm.models.low_rank import LowRank, adapted, fitted, hold_residuals, scales_of, with_lora
from polyrhythm.models.narrowing import narrow
from polyrhythm.models.projection import with_projection
from polyrhythm.models.ranks import adapters_of, ranks_of
from small import experiment, run


class Conv1D(nn.Module):
    """A linear layer whose weights are [inputs, outputs], as transformers has it."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


Conv1D.__module__ = "transformers.pytorch_utils"

LAYERS: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "linear": (nn.Linear(5, 4), torch.randn(3, 5)),
    "linear, no bias": (nn.Linear(5, 4, bias=False), torch.randn(2, 3, 5)),
    "convolution": (nn.Conv2d(2, 4, 3, stride=2, padding=1), torch.randn(3, 2, 6, 6)),
    "embedding": (nn.Embedding(7, 4), torch.tensor([[1, 6], [0, 1]])),
    "Conv1D": (Conv1D(4, 5), torch.randn(3, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_an_adapted_layer_computes_with_w_and_r_and_s_b_a(name: str) -> None:
    """The same layer with W + R + s B A put into it; and with B and R zero the base to the bit."""
    layer, inputs = LAYERS[name]
    module = nn.Sequential(layer)
    with torch.no_grad():
        plain = module(inputs)
    made = adapted(nn.Sequential(layer), rank=2, alpha=3.0, targets=("0",), head=False)
    with torch.no_grad():
        assert torch.equal(made(inputs), plain)
    assert scales_of(made) == {"0": 1.5}
    part = hold_residuals(made)[0]
    assert isinstance(part, LowRank)
    with torch.no_grad():
        part.lora_B.normal_()
        part.lora_residual.normal_()
        added = part.lora_residual + 1.5 * part.lora_B @ part.lora_A
        weight: Any = layer.weight
        turned = name in ("embedding", "Conv1D")
        before = weight.clone()
        weight += added.t() if turned else added.view(weight.shape)
        wanted = layer(inputs)
        weight.copy_(before)
        assert torch.allclose(made(inputs), wanted, atol=1e-5)


def test_what_learns_is_the_adapters_and_the_head() -> None:
    made = pr.models.with_lora(MODELS["mlp"], rank=2)((1, 4, 4), 3)
    names = [s.name for s in FlatModel(made).layout.segments]
    assert sum(".lora_" in name for name in names) == len(names) - 2
    headless = pr.models.with_lora(MODELS["mlp"], rank=2, head=False)((1, 4, 4), 3)
    assert [s.name for s in FlatModel(headless).layout.segments] == names[:-2]
    half = pr.models.with_lora(MODELS["mlp"], rank=2, freeze="A")((1, 4, 4), 3)
    assert not any(name.endswith("lora_A") for name in (s.name for s in FlatModel(half).layout.segments))
    assert not adapters_of(half, FlatModel(half).layout)


def test_a_is_drawn_within_one_over_the_root_of_its_inputs() -> None:
    layer = LowRank(nn.Linear(400, 4), rank=8, scale=1.0)
    assert 0.9 / 20 < float(layer.lora_A.detach().abs().max()) <= 1 / 20
    assert not layer.lora_B.detach().any()


def test_dropout_is_of_the_adapter_alone() -> None:
    made = adapted(nn.Sequential(nn.Linear(50, 3)), rank=2, targets=("0",), dropout=0.5, head=False)
    inputs = torch.randn(4, 50)
    with torch.no_grad():
        assert torch.equal(made.train()(inputs), made(inputs))  # B is zero
        made[0].lora_B.normal_()
        assert not torch.equal(made(inputs), made(inputs))
        made.eval()
        assert torch.equal(made(inputs), made(inputs))


def test_targets_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"targets = \['q_proj'\]") as caught:
        adapted(nn.Sequential(nn.Linear(2, 2), nn.Conv2d(4, 4, 1, groups=2)), rank=1, targets=("q_proj",))
    assert "that can have an adapter: 0" in caught.value.expected
    with pytest.raises(UserError, match="it has none"):
        adapted(nn.Sequential(nn.ReLU()), rank=1)


def test_a_smaller_rank_is_the_first_rows_and_columns_and_shares_the_base() -> None:
    made = adapted(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), rank=3, alpha=6.0)
    with torch.no_grad():
        made[0].lora_B.normal_()
    axes = ranks_of(made, FlatModel(made).layout)
    portion = axes.portion([range(2)])
    assert portion is not None
    small = narrow(made, portion)
    assert torch.equal(small[0].lora_A, made[0].lora_A[:2])
    assert torch.equal(small[0].lora_B, made[0].lora_B[:, :2])
    assert small[0].scale == made[0].scale == 2.0
    assert small[0].base.weight.data_ptr() == made[0].base.weight.data_ptr()
    with pytest.raises(UserError, match="no adapter of which A and B learn"):
        ranks_of(nn.Linear(2, 2), FlatModel(nn.Linear(2, 2)).layout)


class OfOutputs(nn.Sequential):
    def __init__(self, outputs: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, outputs))


class OfNothing(OfOutputs):
    def __init__(self) -> None:
        super().__init__(10)


@pytest.mark.parametrize("builder", [OfOutputs, OfNothing, lambda shape, outputs: OfOutputs(outputs)])
def test_a_builder_takes_what_it_takes_whatever_is_put_on_its_network(builder: Any) -> None:
    for changed in (with_lora(builder, rank=2), with_projection(builder, size=4)):
        assert build(changed, (1, 8, 8), 10)(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
        with pytest.raises(UserError, match="unknown setting 'widht'"):
            build(changed, (1, 8, 8), 10, widht=3)


def test_a_module_of_ones_own_is_not_changed() -> None:
    own = adapted(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), rank=2)
    before = {name: p.requires_grad for name, p in own.named_parameters()}
    for part in (pr.parts.residual_in_base(), pr.parts.freeze_factor()):
        done = run(experiment(model=own, recipe=pr.fedavg(cohort=2, batch=8) | part, rounds=1))
        assert {name: p.requires_grad for name, p in own.named_parameters()} == before
        assert done.status == "finished"
    assert fitted(own, "fedit") is own


def test_the_model_of_a_run_has_what_the_server_has_changed() -> None:
    """Also where another process opens the run, and the model is made without it."""
    made = pr.models.with_lora(MODELS["mlp"], rank=2)
    done = run(experiment(model=made, recipe=pr.fedex_lora(cohort=4, batch=8, lr=0.5), rounds=2))
    opened = pr.Run.open(done.id)
    for found in (done.model(), opened.model(model=made)):
        moved = [p for name, p in found.named_parameters() if name.endswith("lora_residual")]
        assert moved
        assert all(bool(p.any()) for p in moved)
    again = run(experiment(model=made, recipe=pr.fedex_lora(cohort=4, batch=8), rounds=1, initial=done))
    assert again.history["test_loss"].iloc[0] == pytest.approx(done.history["test_loss"].iloc[-1], abs=1e-6)
