"""What an engine takes is held to torch before a run: modules that look like what it runs and compute otherwise."""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from fuzz_modules import tally
from polyrhythm.base.compiled import extension
from polyrhythm.base.streams import generators
from polyrhythm.data import ArraySamples
from polyrhythm.engines import proof, selection
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native import program, reading
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.proof import prove
from polyrhythm.engines.step import Step
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.engines.unsupported import Unlike
from polyrhythm.models.tasks import task
from small import experiment, federation, logged, prepared

compiled = pytest.mark.skipif(extension() is None, reason="polyrhythm was installed without its compiled extension")
LARGE = pr.fedavg(cohort=2, epochs=1, batch=10, lr=0.5)


class Net(nn.Module):
    """Two layers, between which something may be odd."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head, self.drop = nn.Linear(4, 6), nn.Linear(6, 3), nn.Dropout(0.5)
        self.calls = 0
        self.kept: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.trunk(inputs))
        outputs: Tensor = self.head(hidden)
        return outputs


class Probe(Net):
    """A frozen trunk, the usual idiom of transfer."""

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = functional.relu(self.trunk(inputs))
        outputs: Tensor = self.head(hidden)
        return outputs


class Flip(Net):
    """Other outputs in evaluation."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return outputs if self.training else -outputs


class Decorated(Net):
    """A method without gradients."""

    @torch.no_grad()
    def hidden(self, inputs: Tensor) -> Tensor:
        return functional.relu(self.trunk(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.hidden(inputs))
        return outputs


class Always(Net):
    """Dropout that does not stop in evaluation."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(functional.dropout(functional.relu(self.trunk(inputs)), 0.5))
        return outputs


class Never(Net):
    """Dropout that its module keeps in evaluation."""

    def train(self, mode: bool = True) -> Never:
        super().train(mode)
        self.drop.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.drop(functional.relu(self.trunk(inputs))))
        return outputs


class Counts(Net):
    """Another function from the third pass on."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        outputs = super().forward(inputs)
        return functional.relu(outputs) if self.calls > 2 else outputs


class ByWeights(Net):
    """A branch on weights that tracing does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.held = [self.head.weight]

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return functional.relu(outputs) if self.held[0].sum() > 100 else outputs


class Drawn(Net):
    """Stochastic depth by Python's generator."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return functional.relu(outputs) if random.random() < 0.5 else outputs


class ByGradients(Net):
    """A branch on whether autograd looks on."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return outputs if torch.is_grad_enabled() else -outputs


class Traced(Net):
    """Something else while it is traced."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs if isinstance(inputs, torch.fx.Proxy) else -inputs)


class BySize(Net):
    """Something else for large batches, by a way that leaves no trace in tracing."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        try:
            return -outputs if len(inputs) > 8 else outputs
        except RuntimeError:  # a symbol has no length
            return outputs


class ByType(Net):
    """Something else for large batches of evaluation."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        large = isinstance(inputs, Tensor) and len(inputs) > 10 and not self.training
        return -outputs if large else outputs


class ForOne(Net):
    """Something else for a single sample."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return -outputs if isinstance(inputs, Tensor) and len(inputs) == 1 else outputs


class ByClass(Net):
    """A counter of the class."""

    passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        type(self).passes += 1
        outputs = super().forward(inputs)
        return functional.relu(outputs) if type(self).passes > 10_000 else outputs


PASSES = [0]


class ByVariable(Net):
    """A counter beside the class."""

    def forward(self, inputs: Tensor) -> Tensor:
        PASSES[0] += 1
        outputs = super().forward(inputs)
        return functional.relu(outputs) if PASSES[0] > 10_000 else outputs


class ByDefault(Net):
    """A counter among the arguments."""

    def hidden(self, inputs: Tensor, seen: list[int] = []) -> Tensor:  # noqa: B006
        seen.append(1)
        return functional.relu(self.trunk(inputs)) if len(seen) < 10_000 else self.trunk(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.hidden(inputs))
        return outputs


def enclosed() -> nn.Module:
    """A counter around the class."""
    passes = 0

    class Enclosed(Net):
        def forward(self, inputs: Tensor) -> Tensor:
            nonlocal passes
            passes += 1
            outputs = super().forward(inputs)
            return functional.relu(outputs) if passes > 10_000 else outputs

    return Enclosed()


class Counting:
    """An activation that counts."""

    def __init__(self) -> None:
        self.calls, self.kept = 0, torch.zeros(1)

    def __call__(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return functional.relu(inputs) if self.calls < 10_000 else inputs


class Called(Net):
    """A counter in what it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.act = Counting()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.act(self.trunk(inputs)))
        return outputs


class Schedules(Net):
    """A share of dropout that every pass changes."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.drop.p *= 0.9
        outputs: Tensor = self.head(self.drop(functional.relu(self.trunk(inputs))))
        return outputs


def lying(layer: str, name: str, value: int) -> nn.Module:
    net = Net()
    setattr(net.get_submodule(layer), name, value)
    return net


def hooked(hook: Callable[[Tensor], Tensor | None]) -> Net:
    net = Net()
    for parameter in net.trunk.parameters():
        parameter.register_hook(hook)  # type: ignore[no-untyped-call]
    return net


ODD: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "no_grad": (Probe, "gradients switched on or off"),
    "decorated": (Decorated, "gradients switched on or off"),
    "mode": (Flip, "in evaluation without gradients, it uses neg"),
    "dropout that stays": (Always, "in evaluation without gradients, it drops out"),
    "counts": (Counts, "a pass changes calls"),
    "branch on weights": (ByWeights, "computes aten.sum"),
    "Python's generator": (Drawn, "draws random numbers by itself"),
    "branch on gradients": (ByGradients, "in evaluation without gradients, it uses neg"),
    "branch on tracing": (Traced, "not torch's|and not"),
    "large batches": (BySize, "outputs for 10 samples in training"),
    "large batches of evaluation": (ByType, "outputs for 60 samples in evaluation"),
    "one sample": (ForOne, "outputs for 1 samples in training"),
    "counter of the class": (ByClass, "a pass changes ByClass.passes"),
    "counter beside the class": (ByVariable, "a pass changes ByVariable.PASSES"),
    "counter among the arguments": (ByDefault, "a pass changes ByDefault.hidden's default"),
    "counter around the class": (enclosed, "a pass changes Enclosed.passes"),
    "counter in an activation": (Called, "a pass changes act"),
    "dropout by schedule": (Schedules, "a pass changes drop.p"),
    "far too many outputs": (lambda: lying("head", "out_features", 300_000), "its layer says"),
    "too few outputs": (lambda: lying("head", "out_features", 2), "its layer says"),
    "too many numbers in between": (lambda: lying("trunk", "out_features", 7), "its layer says|reads 6"),
    "gradient hook": (lambda: hooked(lambda gradient: gradient * 0), "hooks, which change its gradient"),
}


@compiled
@pytest.mark.parametrize("name", ODD)
def test_what_computes_something_else_is_left_to_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Which refuses some of it.
    monkeypatch.setattr("polyrhythm.experiments.choosing.repeated", lambda *given, **how: ())
    make, words = ODD[name]
    made = prepared(model=make(), recipe=LARGE, engine="native")
    assert made.chosen.kind == "torch"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(made.chosen.why_not)


def plain(net: nn.Module, steps: int = 1) -> tuple[nn.Module, Tensor]:
    """What PyTorch makes of a module in some steps on the 40 samples of one client, and its outputs in evaluation."""
    data = federation(1).train
    inputs, labels = data.batch(torch.arange(len(data)))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    net.train()
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(net(inputs), labels).backward()
        optimiser.step()
    net.eval()
    with torch.no_grad():
        return net, net(inputs)


@compiled
@pytest.mark.parametrize(
    "name",
    [
        *("no_grad", "decorated", "mode", "branch on gradients", "branch on tracing", "gradient hook"),
        *("large batches", "large batches of evaluation"),
    ],
)
@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_a_run_is_of_the_module_that_was_written(name: str, driver: Any, tmp_path: Path) -> None:
    """Three full-batch steps of one client are three steps of gradient descent."""
    make = MASKED if name == "gradient hook" else ODD[name][0]
    torch.manual_seed(0)
    module = make()
    expected, outputs = plain(make_like(make, module), steps=3)
    one = federation(1)
    run = pr.run(
        experiment(
            federation=dataclasses.replace(one, test=one.train),
            model=module,
            recipe=pr.fedavg(cohort=1, epochs=1, batch=None, lr=0.5),
        ),
        execution=pr.Execution(driver=driver, workers=None if driver == "inline" else 2),
        out=tmp_path,
    )
    for key, value in expected.state_dict().items():
        assert torch.allclose(run.weights("final")[key], value, atol=1e-5), key
    accuracy = float((outputs.argmax(1) == one.train.targets).double().mean())
    assert run.summary["final_accuracy"] == pytest.approx(accuracy)
    assert [n for n in run.notices if n.startswith("engine: torch, since the native one")] or driver == "processes"


class Masked(Net):
    """Gradients of the trunk are masked by a method of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.share = 0.25
        self.trunk.weight.register_hook(self.halved)  # type: ignore[no-untyped-call]

    def halved(self, gradient: Tensor) -> Tensor:
        return gradient * self.share


MASKED = Masked


def make_like(make: Callable[[], nn.Module], module: nn.Module) -> nn.Module:
    """Another one with the same weights."""
    other = make()
    other.load_state_dict(module.state_dict())
    return other


@compiled
def test_the_rule_is_silent_on_what_is_unknown_and_not_on_what_is_unlike() -> None:
    tanh = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    assert not [n for n in prepared(recipe=LARGE, model=tanh).notices() if "engine" in n]
    notices = prepared(recipe=LARGE, model=Probe()).notices()
    assert [n for n in notices if n.startswith("engine: torch, since the native one cannot be used here: in training")]


@compiled
def test_what_is_the_same_is_taken() -> None:
    for make in (Net, Never):
        assert prepared(recipe=LARGE, model=make()).chosen.kind == "native"
    assert not [
        layer
        for layer in prepared(model=Never(), engine="native").chosen.engine.program.layers  # type: ignore[union-attr]
        if isinstance(layer, program.Dropout)
    ]


@compiled
def test_activations_that_are_kept_do_no_harm() -> None:
    class Keeps(Net):
        def forward(self, inputs: Tensor) -> Tensor:
            self.kept = functional.relu(self.trunk(inputs))
            outputs: Tensor = self.head(self.kept)
            return outputs

    torch.manual_seed(0)
    net = Keeps()
    ours, theirs = (logged(model=net, recipe=LARGE, engine=engine)[1].states[-1] for engine in ("native", "torch"))
    assert prepared(model=net, recipe=LARGE, engine="native").chosen.kind == "native"
    assert all(torch.allclose(ours[key], theirs[key], atol=1e-6) for key in ours)
    assert net.kept is None


@compiled
def test_the_proof_leaves_everything_as_it_was() -> None:
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    net = Net()
    before, weights = generators(), {key: value.clone() for key, value in net.state_dict().items()}
    for engine in ("native", "stacked"):
        made = prepared(model=net, recipe=LARGE, engine=engine)
        assert made.chosen.kind == engine
        initial = made.chosen.engine.state_of(made.initial)
        assert all(torch.equal(initial[key], value) for key, value in weights.items())
        assert not made.chosen.engine.reference.gradient.any()
    assert all(torch.equal(net.state_dict()[key], value) for key, value in weights.items())
    assert generators() == before


# A proof that cannot fail is none: programs, steps and passes of an engine that are not the module's.


def wrong_program(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(native, "program_of", lambda *given: change(reading.program_of(*given)))

    return mutate


def without_relu(of: program.Program) -> program.Program:
    return dataclasses.replace(of, layers=tuple(p for p in of.layers if not isinstance(p, program.Relu)))


def without_bias(of: program.Program) -> program.Program:
    layers = [dataclasses.replace(p, bias=-1) if isinstance(p, program.Linear) else p for p in of.layers]
    return dataclasses.replace(of, layers=tuple(layers))


def drops_more(of: program.Program) -> program.Program:
    layers = [dataclasses.replace(p, share=0.6) if isinstance(p, program.Dropout) else p for p in of.layers]
    return dataclasses.replace(of, layers=tuple(layers))


def elsewhere(of: program.Program) -> program.Program:
    return dataclasses.replace(of, places={**of.places, "trunk": of.places["head"]})


class Drops(Net):
    """Dropout as it should be."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.drop(functional.relu(self.trunk(inputs))))
        return outputs


@compiled
@pytest.mark.parametrize(
    ("mutate", "words"),
    [
        (wrong_program(without_relu), "squared loss|loss|gradient"),
        (wrong_program(without_bias), "its gradient of"),
        (wrong_program(drops_more), r"drops out \[\(0.5, \d+\)\]"),
        (wrong_program(lambda of: dataclasses.replace(of, smoothing=0.1)), "gradient|loss"),
        (wrong_program(elsewhere), "its trunk are not torch's"),
        (lambda patch: patch.setattr(native.Passes, "over", halved_passes), "outputs in evaluation"),
    ],
    ids=["no relu", "no bias", "more dropout", "another loss", "another place", "another evaluation"],
)
def test_the_proof_finds_what_is_wrong(
    mutate: Callable[[pytest.MonkeyPatch], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"model": Drops(), "recipe": pr.moon(cohort=2, layer="trunk"), "engine": "native"}
    assert isinstance(prepared(**asked).chosen.engine, NativeEngine)
    mutate(monkeypatch)
    made = prepared(**asked)
    assert isinstance(made.chosen.engine, TorchEngine)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(made.chosen.why_not)


_OVER = native.Passes.over


def halved_passes(self: Any, *given: Any, **more: Any) -> Any:
    return ((outputs / 2, targets) for outputs, targets in _OVER(self, *given, **more))


_CALL = Step.__call__


def test_a_step_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepared(model=Net(), engine="stacked").chosen.kind == "stacked"
    monkeypatch.setattr(Step, "__call__", twice)
    made = prepared(model=Net(), engine="stacked")
    assert made.chosen.kind == "torch"
    assert "its gradient" in made.chosen.why_not


def twice(self: Step, weights: Tensor, batch: Any) -> Any:
    """A step that is right for two clients, as many as the step itself tries out, and wrong for one."""
    gradients, *losses = _CALL(self, weights, batch)
    alone = weights.dim() == 1 or len(weights) == 1
    return [2 * g for g in gradients] if alone else gradients, *losses


def test_what_depends_on_the_size_of_a_batch_is_not_filled_up() -> None:
    class BySize(Net):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(-inputs if len(inputs) > 4 else inputs)

    made = prepared(model=BySize(), recipe=LARGE, engine="stacked")
    assert made.chosen.kind == "torch"
    assert "depend on whether there are 10" in made.chosen.why_not


@compiled
def test_an_engine_that_was_tried_out_clips_whole_gradients() -> None:
    """Pieces of a gradient that a step without clipping leaves behind are no part of the next one's norm."""
    recipe = pr.fedavg(cohort=2, epochs=1, batch=3) | pr.parts.local_sgd(lr=0.1, clip=0.01)
    states = [
        logged(model="lenet5", federation=images(), recipe=recipe, engine=e)[1].states for e in ("native", "torch")
    ]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*(s[-1].values() for s in states), strict=True))


def images() -> pr.data.Federation:
    generator = np.random.default_rng(0)
    data = pr.data.arrays(generator.normal(size=(24, 1, 16, 16)).astype(np.float32), np.arange(24) % 3)
    return pr.federate(data, pr.data.Iid(), clients=4, seed=0)


def test_modules_as_people_write_them() -> None:
    """A share of what `fuzz_modules.py` tries, the same every time; the long suite tries two thousand others."""
    found = tally(range(16), ("torch", "native", "stacked"))
    assert not found.wrong, "\n\n".join(found.wrong.values())
    assert found.taken["torch"] > 10
    assert found.taken["stacked"] > 4
    assert found.taken["native"] > 1 or extension() is None


@pytest.mark.slow
def test_many_modules_as_people_write_them() -> None:
    found = tally(range(10_000, 12_000), ("torch", "native", "stacked"))
    print(found)
    assert not found.wrong, "\n\n".join(found.wrong.values())


@compiled
def test_without_the_proof_the_fuzz_finds_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "prove", lambda *given, **more: None)
    monkeypatch.setattr(native, "program_of", lambda *given: without_bias(reading.program_of(*given)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tally(range(30), ("native",)).wrong


def near_ties() -> nn.Module:
    """A pooling over sums that are equal but for the order in which they are added up."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(64, 4, 2, stride=2, bias=False)
    with torch.no_grad():
        convolution.weight.copy_(convolution.weight[:, :1, :1, :1].expand_as(convolution.weight))
    return nn.Sequential(convolution, nn.MaxPool2d(4), nn.Flatten(), nn.Linear(4, 3))


def permuted(samples: int = 16) -> ArraySamples:
    """Images [64, 8, 8] of which each patch of 2 × 2 holds the same numbers in another order."""
    generator = np.random.default_rng(0)
    patches = generator.permuted(generator.normal(size=(samples, 1, 256)).repeat(16, axis=1), axis=2)
    images = patches.reshape(samples, 4, 4, 64, 2, 2).transpose(0, 3, 1, 4, 2, 5).reshape(samples, 64, 8, 8)
    return ArraySamples(torch.tensor(images, dtype=torch.float32), torch.arange(samples) % 3)


def tied(**changes: Any) -> NativeEngine:
    """An engine for that, of a program in which something may be otherwise."""
    engine = NativeEngine(near_ties(), task("classification"), (64, 8, 8))
    engine._training = native.compiled(dataclasses.replace(engine.program, **changes))
    return engine


@compiled
def test_where_rounding_decides_steps_may_lie_apart_as_far_as_it_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    prove(tied(), permuted(), batch=16)
    monkeypatch.setattr(proof, "ROUNDINGS", 0)
    with pytest.raises(Unlike, match=r"its gradient of 0\.weight is not torch's"):
        prove(tied(), permuted(), batch=16)


@compiled
def test_no_more_roundings_are_tried_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, in_double = list[str](), proof._Trial._in_double

    def counted(trial: Any, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        tried.append("step")
        return in_double(trial, weights)

    monkeypatch.setattr(proof._Trial, "_in_double", counted)
    prove(tied(), permuted(), batch=16)
    explained = len(tried)
    with pytest.raises(Unlike):
        prove(tied(smoothing=0.3), permuted(), batch=16)
    assert 2 <= explained <= 6 < 1 + proof.ROUNDINGS == len(tried) - explained


@compiled
def test_what_rounding_does_not_explain_is_refused_there_as_well() -> None:
    with pytest.raises(Unlike, match=r"its gradient of 3\.weight is not torch's"):
        prove(tied(smoothing=0.3), permuted(), batch=16)
