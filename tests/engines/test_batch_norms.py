"""Norms over whole batches on the native engine: what is read, and that runs with their statistics are torch's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.compiled import extension
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.core.protocols import Opening
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.data.holding import Holding
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.native.program import BatchNorm, Program
from polyrhythm.engines.native.reading import program_of
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.engines.unsupported import Unlike, Unsupported
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models import build
from polyrhythm.models.resnet import BasicBlock
from polyrhythm.models.tasks import task
from polyrhythm.runs import VisitRecord
from small import Log, collection

from .beside_torch import hold_trace

compiled = pytest.mark.skipif(extension() is None, reason="polyrhythm was installed without its compiled extension")
SHAPE = (3, 4, 6)
ENGINES = ("native", "torch")


def network(*, dropout: float = 0.0) -> nn.Module:
    """Plain convolutions, a block whose shortcut is one, too, and a norm of what a linear layer gives."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16, momentum=0.3),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Conv2d(16, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16, affine=False),
        BasicBlock(16, 24, 2, nn.BatchNorm2d),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 20),
        nn.BatchNorm1d(20, eps=1e-3),
        nn.ReLU(),
        nn.Linear(20, 3),
    )


def read(module: nn.Module, shape: tuple[int, ...] = SHAPE) -> Program:
    flat = FlatModel(module)
    return program_of(flat.module.train(), flat.layout, task("classification"), shape)


def test_the_program_of_a_norm() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.Flatten(), nn.Linear(32, 3))
    at = {segment.name: segment.offset for segment in FlatModel(module).layout.segments}
    program = read(module)
    assert program.layers[1] == BatchNorm(
        weights=at["1.weight"], bias=at["1.bias"], channels=4, epsilon=1e-5, momentum=0.3, live=True
    )
    assert (program.statistics, program.counts) == ((0, 1), (2,))


@pytest.mark.parametrize("model", ["resnet9", "resnet18"])
def test_the_zoos_residual_networks_have_one(model: str) -> None:
    module = build(model, (3, 32, 32), 10, norm="batch")
    program = read(module, (3, 32, 32))
    norms = [layer for layer in program.layers if isinstance(layer, BatchNorm)]
    assert program.idle == ()
    assert len(norms) == len(program.counts) == sum(isinstance(m, nn.BatchNorm2d) for m in module.modules())
    assert all(norm.live for norm in norms)


class Frozen(nn.BatchNorm2d):
    """A norm of torch's, as far as its class goes."""


class Keeps(nn.Module):
    """Keeps the mode of its norm, whatever it is put into."""

    def __init__(self, training: bool, *, learns: bool = True) -> None:
        super().__init__()
        self.kept, self.norm, self.last = training, nn.BatchNorm2d(3), nn.Linear(72, 3)
        self.norm.requires_grad_(learns)

    def train(self, mode: bool = True) -> Keeps:
        super().train(mode)
        self.norm.train(self.kept)
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.flatten(self.norm(inputs), 1))
        return outputs


def after(*layers: nn.Module, width: int = 72) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3))


def shared() -> nn.Module:
    one, other = nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3, affine=False)
    other.running_mean = one.running_mean
    return after(one, other)


def not_travelling() -> nn.Module:
    norm = nn.BatchNorm2d(3)
    norm.register_buffer("running_mean", torch.zeros(3), persistent=False)
    return after(norm)


def without_a_weight() -> nn.Module:
    norm = nn.BatchNorm2d(3)
    norm.weight = None  # type: ignore[assignment]
    return after(norm)


def with_another_buffer() -> nn.Module:
    norm = nn.BatchNorm2d(3)
    norm.register_buffer("own", torch.zeros(3))
    return after(norm)


TWICE = nn.BatchNorm2d(3, affine=False)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (after(nn.BatchNorm2d(3, momentum=None)), "the mean of all batches"),
        (after(nn.BatchNorm2d(3, track_running_stats=False)), "no running statistics"),
        (after(nn.BatchNorm2d(3).double()), "not float32"),
        (after(Frozen(3)), "buffers, which its passes may change"),
        (after(TWICE, TWICE), "used twice"),
        (shared(), "used twice"),
        (not_travelling(), "does not travel"),
        (without_a_weight(), "a bias and no weight"),
        (with_another_buffer(), "buffers that none of its batch norms reads"),
        (nn.Sequential(nn.Flatten(), nn.BatchNorm1d(72), nn.Linear(72, 3)), "flattened"),
        (Keeps(False, learns=False), "frozen or tied"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_why_others_have_none(module: nn.Module, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        read(module)


def test_a_norm_in_training_mode_in_evaluation_is_left_to_torch() -> None:
    with pytest.raises(Unlike, match="training mode in evaluation"):
        read(Keeps(True))


def test_a_norm_that_stays_in_evaluation_mode_is_not_live() -> None:
    program = read(Keeps(False))
    assert isinstance(program.layers[0], BatchNorm)
    assert not program.layers[0].live
    assert (program.statistics, program.counts) == ((0, 1), ())


def images(samples: int = 43) -> Collection:
    drawn = np.random.default_rng(0).normal(size=(samples, *SHAPE))
    held = ArraySamples(torch.tensor(drawn, dtype=torch.float32), torch.arange(samples) % 3)
    return dataclasses.replace(collection(), train=held, test=held)


def made(model: nn.Module, data: Collection, recipe: pr.Recipe) -> pr.Experiment:
    """Two clients."""
    return pr.Experiment(federation=pr.federate(data, pr.data.Iid(), 2, 0), model=model, recipe=recipe, rounds=2)


def computed(experiment: pr.Experiment, engine: str, folder: Path) -> dict[str, Tensor]:
    execution = pr.Execution(engine=engine)  # type: ignore[arg-type]
    assert prepare(experiment, execution).chosen.kind == engine
    return pr.run(experiment, execution=execution, out=folder).weights()


def hold(model: nn.Module, data: Collection, recipe: pr.Recipe, folder: Path, *, at_home: bool = False) -> None:
    """Goes on if both engines end with the same weights, statistics and counts; none of these travels `at_home`."""
    first, (ours, theirs) = model.state_dict(), (computed(made(model, data, recipe), e, folder) for e in ENGINES)
    moved = apart = 0.0
    for name, value in theirs.items():
        if not value.is_floating_point():
            assert torch.equal(ours[name], value)
            assert "num_batches_tracked" in name
        elif "running" in name:
            went = float((value - first[name]).norm())
            assert float((ours[name] - value).norm()) <= 1e-3 * went, name
            assert went > 1e-2 or at_home, name
        else:
            apart += float((ours[name] - value).square().sum())
            moved += float((value - first[name]).square().sum())
    assert moved**0.5 > 0.02
    assert apart**0.5 < 2e-3 * moved**0.5


TRAINED: dict[str, Any] = {"cohort": 2, "epochs": 1, "batch": 10, "lr": 0.02}
RECIPES = {
    "plain": pr.fedavg(**TRAINED),
    "two at a time": pr.fedavg(cohort=2, epochs=1, batch=2, lr=0.01),
    "whole blocks": pr.fedavg(cohort=2, epochs=2, batch=16, lr=0.02),
    "a last batch of one": pr.fedavg(cohort=2, epochs=2, batch=20, lr=0.02),
    "all samples": pr.fedavg(cohort=2, epochs=3, batch=64, lr=0.02),
    "several epochs, clipped": pr.fedavg(cohort=2, epochs=2, batch=11, lr=0.02, clip=0.5),
    "momentum": pr.fedavg(**TRAINED, momentum=0.9, weight_decay=1e-3),
    # A bias before a norm has no gradient but rounding, which Adam would scale up without an epsilon.
    "adam": pr.fedavg(cohort=2, epochs=1, batch=8) | pr.parts.local_adam(lr=0.005, epsilon=1e-2),
    "fedprox": pr.fedprox(**TRAINED, mu=0.1),
    "scaffold": pr.scaffold(**TRAINED),
    "feddyn": pr.feddyn(**TRAINED),
    "moon": pr.moon(**TRAINED, layer="features"),
    "alt": pr.alt(**TRAINED | {"epochs": 3}, representation="features"),
    "fedrep": pr.fedrep(**TRAINED | {"epochs": 2}),
    "ditto": pr.ditto(**TRAINED),
    "apfl": pr.apfl(**TRAINED),
    "widths": pr.heterofl(**TRAINED, ratio=(1.0, 0.5), scaler=False),
    "norms at home": pr.fedavg(**TRAINED) | pr.parts.personal_layers(layers=("norms",)),
}


@compiled
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_is_that_of_torch_to_rounding(recipe: str, tmp_path: Path) -> None:
    hold(network(), images(), RECIPES[recipe], tmp_path, at_home=recipe == "norms at home")


@compiled
def test_a_run_with_augmented_samples_is_that_of_torch(tmp_path: Path) -> None:
    x, labels = (t.numpy() for t in images().train.batch(torch.arange(43)))
    augmented = pr.data.arrays(x[:40], labels[:40], test=(x[40:], labels[40:]), augment=True)
    hold(network(), augmented, RECIPES["plain"], tmp_path)


@compiled
def test_norms_that_stay_in_evaluation_mode_train_as_in_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Keeps(False)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            torch.nn.init.uniform_(buffer, 0.5, 2)
    ours, theirs = (computed(made(module, images(), RECIPES["plain"]), engine, tmp_path) for engine in ENGINES)
    for name, value in theirs.items():
        assert torch.allclose(ours[name], value, rtol=1e-4, atol=1e-6)
        assert torch.equal(value, module.state_dict()[name]) == ("running" in name or "tracked" in name)


@compiled
def test_dropout_beside_norms_leaves_their_statistics_close(tmp_path: Path) -> None:
    module = network(dropout=0.2)
    ours, theirs = (computed(made(module, images(), RECIPES["plain"]), engine, tmp_path) for engine in ENGINES)
    for name, value in theirs.items():
        assert torch.allclose(ours[name].double(), value.double(), atol=0.3)


def loaded(model: nn.Module, data: Collection) -> tuple[NativeEngine, TorchEngine, Holding]:
    """Both engines in a visit, with statistics that have moved."""
    for number, buffer in enumerate(model.buffers()):
        if buffer.is_floating_point():
            torch.nn.init.uniform_(buffer, 0.5 + 0.01 * number, 1.5)
    aim, held = task("classification"), Holding(data.train, None)
    engines = NativeEngine(model, aim, data.train.shape), TorchEngine(model, aim)
    for engine in engines:
        start = engine.initial()
        engine.open(Opening(data=held, start=start, received=start, previous=start, reuse=False))
    return (*engines, held)


@compiled
def test_evaluation_is_by_running_statistics() -> None:
    native, reference, held = loaded(network(dropout=0.5), images())
    model = native.initial()
    assert native.evaluate(model, held) == pytest.approx(reference.evaluate(model, held), rel=1e-5)
    for ours, theirs in zip(native.frozen_outputs("received"), reference.frozen_outputs("received"), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    inputs, targets = held.batch(np.arange(20), None)
    for layer in ("features", "6.bn1"):
        found = [e.frozen_features("previous", layer, inputs, np.arange(20)) for e in (native, reference)]
        assert torch.allclose(found[0], found[1].flatten(1), atol=1e-5)
    native.compute(inputs, targets, np.arange(20))
    assert native.evaluate(model, held) == pytest.approx(reference.evaluate(model, held), rel=1e-5)


@compiled
def test_a_gradient_elsewhere_leaves_the_visits_statistics_alone() -> None:
    native, reference, held = loaded(network(), images())
    inputs, targets = held.batch(np.arange(20), None)
    start, at = native.buffers(), native.weights + 0.01
    given = tuple(buffer + 1 for buffer in start)
    for buffers in (None, given):
        ours, theirs = (e.slope(at, inputs, targets, np.arange(20), buffers) for e in (native, reference))
        assert float((ours.gradient - theirs.gradient).norm()) < 1e-3 * float(theirs.gradient.norm())
        for one, other in zip(ours.buffers, theirs.buffers, strict=True):
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(one, other) for one, other in zip(native.buffers(), start, strict=True))


@compiled
def test_what_is_watched_in_training_is_in_eval_mode_before_the_step() -> None:
    native, reference, held = loaded(network(), images())
    inputs, targets = held.batch(np.arange(20), None)
    for _ in range(2):
        ours, theirs = (e.compute(inputs, targets, np.arange(20), watch="features") for e in (native, reference))
        assert ours.pair is not None
        assert theirs.pair is not None
        assert torch.allclose(ours.pair[0], theirs.pair[0], rtol=1e-4, atol=1e-5)
    for one, other in zip(native.buffers(), reference.buffers(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@compiled
def test_one_number_of_a_channel_raises_as_in_torch() -> None:
    native, reference, held = loaded(network(), images())
    inputs, targets = held.batch(np.arange(1), None)
    for engine in (native, reference):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
            engine.compute(inputs, targets, np.arange(1))


@compiled
def test_each_samples_own_gradient_is_that_of_torch() -> None:
    model = network()
    for buffer in model.buffers():
        if buffer.is_floating_point():
            torch.nn.init.uniform_(buffer, 0.5, 1.5)
    hold_trace(model, images(), close=1e-3)


@compiled
def test_a_run_that_was_broken_off_has_the_same_bits(tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        if isinstance(record, VisitRecord) and record.version == 1:
            raise KeyboardInterrupt

    plan = made(network(dropout=0.2), images(), RECIPES["momentum"])
    how = pr.Execution(engine="native", checkpoint=pr.Checkpoint(every=1))
    whole = pr.run(plan, execution=how, out=tmp_path / "whole")
    stopped = pr.run(plan, execution=how, out=tmp_path / "two", observers=[Log(stop)])
    assert stopped.status == "stopped"
    assert pr.resume(plan, stopped, execution=how, out=tmp_path / "two").summary["digest"] == whole.summary["digest"]


@compiled
def test_any_width_of_registers_gives_the_same_bits() -> None:
    found = []
    for kernels in (name for name in extension().kernels() if name != "plain"):
        data = images(53)
        engine = NativeEngine(network(), task("classification"), data.train.shape, kernels)
        held, start = Holding(data.train, None), engine.initial()
        engine.open(Opening(data=held, start=start, received=start, previous=None, reuse=False))
        for _ in range(2):
            engine.compute(*held.batch(np.arange(53), None), np.arange(53))
        found.append((engine.gradient.clone(), *engine.buffers()))
    assert all(torch.equal(one, other) for others in found[1:] for one, other in zip(found[0], others, strict=True))
