"""Every recipe on the native engine is the recipe on torch, whichever way the engine goes: at once, or step by step."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.threads import one_thread
from polyrhythm.core.protocols import Done, Job, Opening
from polyrhythm.data import ArraySamples
from polyrhythm.data.holding import Holding
from polyrhythm.engines.looking import EVALUATION_BATCH
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native import passes
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.native.passes import Passes
from polyrhythm.engines.native.program import Place, Program
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.correction import BatchView, Correction, ModelContrast, Push
from polyrhythm.methods.local.optimisers import LocalAdam, LocalOptimiser
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.participation.critical_periods import FisherTrace
from polyrhythm.models.tasks import task
from small import ready

from .law import Mutation, law, swap
from .native import NETS, PROGRAM, Functional, compare, federation, jobs, local, needs_extension, story
from .world import near

_MOMENTS = native.moments_of
_COMPUTE = NativeEngine.compute
_ROUND = NativeEngine.local_round
_TRACE = Passes.fisher
_OVER = Passes.over


METHODS = {
    "fedprox": pr.fedprox(mu=0.3),
    "scaffold": pr.scaffold(),
    "feddyn": pr.feddyn(),
    "fedcm": pr.fedcm(alpha=0.3),
    "fedlalr": pr.fedlalr(epsilon=1e-3),
    "fedcm_moving": pr.fedcm(alpha=0.3, momentum=0.9, weight_decay=0.1, clip=0.4) | pr.parts.prox(mu=0.3),
    "vrl_sgd": pr.vrl_sgd(),
    "fednova": pr.fednova(),
    "fedcl": pr.fedcl(),
    "curriculum_fl": pr.curriculum_fl(),
    "ccfl": pr.ccfl(),
    "cc_fedavg": pr.cc_fedavg(),
    "fedavgm": pr.fedavgm(),
    "random_epochs": pr.fedavg() | pr.parts.random_epochs(epochs=2, spread=1),
    "power": pr.fedavg() | pr.parts.power(alpha=0.1),
    "cosine": pr.fedavg() | pr.parts.cosine(unit="step"),
    "fisher": pr.fedavg() | pr.parts.critical_periods(detector=FisherTrace()),
    "oort": pr.oort(cohort=3),
    "power_of_choice": pr.power_of_choice(cohort=2),
    "fisher_model": pr.fedavg() | pr.parts.critical_periods(detector=FisherTrace(labels="model")),
    "clipped": pr.fedcl(clip=0.4),
    "moon": pr.moon(mu=2.0),
    "moon_logits": pr.fedavg() | pr.parts.model_contrast(mu=1.0, temperature=0.2, layer="logits"),
    "moon_scaffold": pr.scaffold() | pr.parts.model_contrast(mu=1.0),
    "moon_half": pr.moon(mu=2.0, epochs=0.5),
    "alt": pr.alt(a=0.9, b=0.099, epochs=5),
    "alt_least": pr.alt(a=0.5, b=0.49, epochs=5, batch_rule="min"),
    "alt_most": pr.alt(a=0.9, b=0.099, epochs=5, batch_rule="max_k", momentum=0.5),
    "alt_sample": pr.alt(a=0.9, b=0.099, epochs=4.5, batch_rule="sample", representation="logits"),
    "alt_moon": pr.moon(mu=1.0, epochs=5) | pr.parts.stop_on_drift(a=0.9, b=0.099),
    "adam": pr.fedavg() | pr.parts.local_adam(lr=0.003, epsilon=1e-3),
    "adam_kept": pr.fedprox(mu=0.1) | pr.parts.local_adam(lr=0.003, epsilon=1e-3, keep_state=True, weight_decay=0.1),
    "adamw": pr.fedavg() | pr.parts.local_adam(lr=0.003, epsilon=1e-3, decoupled=True, weight_decay=0.1, clip=0.5),
    "both_scores": pr.curriculum_fl(score="both", epochs=1),
    "predictions": pr.curriculum_fl(score="both_pred"),
    "easy_clients": pr.fedavg(cohort=2) | pr.parts.client_curriculum(),
    "local": pr.local_only(),
    "centralised": pr.centralised(),
}


def terms(**settings: Any) -> Mutation:
    """The mutant whose terms have other settings."""
    return jobs(lambda job: {"terms": tuple(dataclasses.replace(term, **settings) for term in job.terms)})


def moments(**settings: Any) -> Mutation:
    """The mutant whose Adam has other settings."""

    def given(job: Job) -> dict[str, Any] | None:
        made = _MOMENTS(job)
        return made | settings if made is not None and isinstance(job.optimiser, LocalAdam) else made

    return swap(native, "moments_of", given)


def places(change: Callable[[Place], Place]) -> Mutation:
    """The mutant that takes representations from other places."""

    def made(*arguments: Any) -> Program:
        whole = PROGRAM(*arguments)
        moved = {name: place if name == "logits" else change(place) for name, place in whole.places.items()}
        return dataclasses.replace(whole, places=moved)

    return swap(native, "program_of", made)


def _unpaired(self: NativeEngine, job: Job) -> Done | None:
    done = _ROUND(self, job)
    return done and dataclasses.replace(done, pair=done.pair and (done.pair[1], done.pair[1]))


SIZES = (13, 20, 16)  # so that the last batches are of three sizes


def each_on_one(nets: Sequence[str], *also: Mapping[str, str]) -> list[dict[str, str]]:
    """Every method, on each net in turn, and a few more."""
    turns = zip(METHODS, itertools.cycle(nets), strict=False)
    return [{"method": method, "net": net} for method, net in turns] + [dict(case) for case in also]


@law(
    method=st.sampled_from(tuple(METHODS)),
    net=st.sampled_from(("perceptron", "functional")),
    cases=each_on_one(
        ("perceptron", "functional"),
        # What looks at representations is on both.
        *({"method": method, "net": "functional"} for method in ("moon", "alt")),
        *({"method": method, "net": "perceptron"} for method in ("fisher", "moon_logits")),
    ),
    broken_by={
        "no shift": jobs(lambda job: {"push": job.push and Push(pull=job.push.pull)}),
        "no pull": jobs(lambda job: {"push": job.push and Push(shift=job.push.shift)}),
        "no factor": jobs(lambda job: {"push": job.push and dataclasses.replace(job.push, factor=1.0)}),
        "squares of nothing": jobs(lambda job: {"gradient_squares": False}),
        "one rate": jobs(lambda job: {"rates": job.rates[:1] * len(job.rates)}),
        "no term": jobs(lambda job: {"terms": ()}),
        "a weaker term": terms(mu=0.5),
        "a colder term": terms(temperature=0.1),
        "no drift": swap(NativeEngine, "local_round", _unpaired),
        "moments begin anew": moments(taken=0),
        "decay of the weights": moments(decoupled=True),
        "decay of the gradient": moments(decoupled=False),
        "another second moment": moments(beta2=0.9),
        "twice the traces": swap(Passes, "fisher", lambda *given: 2 * _TRACE(*given)),
    },
)
def test_every_method_is_the_same(method: str, net: str) -> None:
    compare(METHODS[method], net, sizes=SIZES)


_calls = iter(range(10**9))


def _recalled(self: NativeEngine, *given: Any) -> Any:
    self._step = next(_calls)
    return _COMPUTE(self, *given)


def dropping(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return pr.models.build("mlp", shape, outputs, hidden=(19, 7), dropout=0.3)


@law(
    method=st.sampled_from(tuple(METHODS)),
    net=st.sampled_from(("perceptron", "functional", "dropping")),
    cases=each_on_one(("dropping", "perceptron", "functional")),
    broken_by={
        "no term": swap(native, "slopes_of", lambda *given: {}),
        "masks by call": swap(NativeEngine, "compute", _recalled),
        "one mask for all steps": jobs(lambda job: {"first": 0}),
        "another mask": jobs(lambda job: {"seed": job.seed ^ 1}),
    },
)
def test_a_step_alone_is_a_step_of_a_round(method: str, net: str) -> None:
    needs_extension()
    shape = "perceptron" if net == "dropping" else net
    model = dropping if net == "dropping" else NETS[net][0]
    what = {"federation": federation(shape, SIZES), "model": model, "recipe": METHODS[method], "rounds": 3}
    with one_thread():
        at_once = story(ready(pr.Experiment, **what, engine="native"))
        stepwise = ready(pr.Experiment, **what, engine="native")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NativeEngine, "local_round", lambda self, job: None)
            apart = story(stepwise)
    for one, other in zip(at_once, apart, strict=True):
        assert near(one.turn.state.weights, other.turn.state.weights, 2e-6)
        assert (one.report is None) == (other.report is None)
        if one.report is not None and other.report is not None:
            assert (one.report.steps, one.report.forward_samples) == (other.report.steps, other.report.forward_samples)


@final
@dataclass(frozen=True, kw_only=True)
class Shrink(Correction):
    """Adds strength * the mean square of a representation: a term of a user's own."""

    strength: float = 0.05
    layer: str = "features"

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.layer,)

    def term(self, view: BatchView) -> Tensor:
        return self.strength * view.features("current", self.layer).square().mean()


@final
@dataclass(frozen=True, kw_only=True)
class Signs(LocalOptimiser):
    """Steps by the sign of the gradient where it is large: an optimiser of a user's own."""

    def step_(self, weights: Tensor, gradient: Tensor, rate: float, state: dict[str, Tensor | int]) -> None:
        weights.add_(gradient.clamp_(-0.1, 0.1), alpha=-rate)

    def start(self, like: Tensor) -> dict[str, Tensor | int]:
        return {}


def _noise(inputs: Tensor, generator: torch.Generator) -> Tensor:
    return inputs + 0.3 * torch.randn(inputs.shape, generator=generator)


def augmented(net: str) -> pr.data.Federation:
    """Noise of a net's shape, with more noise whenever it is read."""
    made = federation(net, SIZES)
    noisy = ArraySamples(made.train.inputs, made.train.targets, augmentations=[_noise])  # type: ignore[attr-defined]
    return dataclasses.replace(made, shares=dataclasses.replace(made.shares, samples=noisy))


OWN = {
    "term": lambda recipe: dataclasses.replace(recipe, corrections=(*recipe.corrections, Shrink())),
    "two terms": lambda recipe: dataclasses.replace(recipe, corrections=(Shrink(layer="logits"), ModelContrast())),
    "optimiser": lambda recipe: dataclasses.replace(recipe, optimiser=Signs()),
    "samples": lambda recipe: recipe,
}


WITH_OWN = ("fedprox", "scaffold", "moon", "alt", "adam", "fisher", "both_scores", "clipped")


@law(
    own=st.sampled_from(tuple(OWN)),
    method=st.sampled_from(WITH_OWN),
    net=st.sampled_from(("perceptron", "ccfl-mlp")),
    cases=[
        {"own": own, "method": method, "net": ("perceptron", "ccfl-mlp")[(i + j) % 2]}
        for i, own in enumerate(OWN)
        for j, method in enumerate(WITH_OWN)
        if own != "optimiser" or "travel" not in METHODS[method].needs()
    ],
    broken_by={
        "no term": swap(native, "slopes_of", lambda *given: {}),
        "another place": places(lambda place: dataclasses.replace(place, layers=place.layers - 1)),
        "no traces": swap(passes, "batches", lambda data: iter(())),
    },
)
def test_what_is_of_a_users_own_is_the_same(own: str, method: str, net: str) -> None:
    recipe = METHODS[method]
    if own == "optimiser" and "travel" in recipe.needs():
        return
    data = {"federation": augmented(net)} if own == "samples" else {}
    compare(OWN[own](recipe), net, sizes=SIZES, **data)


@law(
    rule=st.sampled_from(("mean", "min", "max")),
    examples=3,
    broken_by={"judged with dropout": swap(NativeEngine, "one_mode", property(lambda self: True))},
)
def test_dropout_is_not_judged(rule: Any) -> None:
    # With hardly a step, the model stays where it was: only dropout could move the representation.
    needs_extension()
    recipe = pr.alt(a=0.999, b=0.0, cohort=3, epochs=3, batch_rule=rule) | local(momentum=0.0)
    recipe = dataclasses.replace(recipe, optimiser=dataclasses.replace(recipe.optimiser, lr=1e-12))
    data = federation("perceptron", (33, 40, 35))
    with one_thread():
        moments = story(ready(pr.Experiment, federation=data, model=dropping, recipe=recipe, rounds=1, engine="native"))
    reports = [m.report for m in moments if m.report is not None]
    assert [r.steps for r in reports] == [12, 12, 12]
    assert all(r.measures["similarity"] > 0.999 for r in reports)
    assert all(
        r.forward_samples == 4 * r.num_samples for r in reports
    )  # the received model once, and its own at each step


class InPlace(nn.Module):
    """What a layer gives is changed by the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(2, 3, 3)
        self.flat = nn.Flatten()
        self.cut = nn.ReLU(inplace=True)
        self.projection = nn.Sequential(nn.Linear(3 * 9 * 5, 8), nn.Identity())
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.cut(self.flat(self.wide(inputs)))
        outputs: Tensor = self.head(nn.functional.relu(self.projection(hidden), inplace=True))
        return outputs


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "functional": (Functional, (2, 11, 7), 3),
    "in place": (InPlace, (2, 11, 7), 3),
    "moon-cnn": (lambda: pr.models.build("moon-cnn", (1, 16, 16), 3), (1, 16, 16), 3),
    "alexnet": (lambda: pr.models.build("alexnet", (3, 16, 16), 3), (3, 16, 16), 3),
}


def _in_place_forgotten(*arguments: Any) -> Program:
    whole = PROGRAM(*arguments)
    first = {"wide", "flat"} & whole.places.keys()
    moved = {name: dataclasses.replace(p, layers=p.layers - (name in first)) for name, p in whole.places.items()}
    return dataclasses.replace(whole, places=moved)


AIMS = {"classes": task("classification", smoothing=0.1), "tags": task("multilabel", k=1)}


@law(
    model=st.sampled_from(tuple(MODELS)),
    reuse=st.booleans(),
    aim=st.sampled_from(tuple(AIMS)),
    cases=[
        *({"model": model, "reuse": True, "aim": "classes"} for model in ("functional", "moon-cnn")),
        *({"model": model, "reuse": False, "aim": "tags"} for model in ("functional", "moon-cnn")),
        *({"model": "in place", "reuse": reuse, "aim": ("classes", "tags")[reuse]} for reuse in (False, True)),
        {"model": "alexnet", "reuse": False, "aim": "classes"},
    ],
    broken_by={
        "a layer later": places(lambda place: dataclasses.replace(place, layers=place.layers + 1)),
        "in place forgotten": swap(native, "program_of", _in_place_forgotten),
        "traces of means": swap(Passes, "fisher", lambda *given: _TRACE(*given) / 110),
        "whoever comes first": swap(Passes, "over", lambda *given: _OVER(*given[:4])),
    },
)
def test_frozen_models_are_the_modules(model: str, reuse: bool, aim: str) -> None:
    needs_extension()
    build, shape, outputs = MODELS[model]
    generator = np.random.default_rng(1)
    inputs = torch.tensor(generator.normal(size=(110, *shape)), dtype=torch.float32)
    labels = generator.integers(0, outputs, 110) if aim == "classes" else generator.random((110, 3)) < 0.4
    targets = torch.tensor(labels.astype(np.int64 if aim == "classes" else np.float32))
    held = torch.arange(110).flip(0)[: EVALUATION_BATCH + 4]
    data = Holding(ArraySamples(inputs, targets), held)
    torch.manual_seed(1)
    module = build()
    try:
        ours, theirs = NativeEngine(module, AIMS[aim], shape), TorchEngine(module, AIMS[aim])
    except ValueError as refused:  # a mutant's places may not be there
        raise AssertionError(str(refused)) from refused
    start = theirs.initial()
    before = Model(weights=start.weights * 1.1, buffers=())
    opening = Opening(data=data, start=start, received=start, previous=before, reuse=reuse)
    positions = generator.permutation(len(held))[:37]
    some, _ = data.batch(positions, None)
    for engine in (ours, theirs):
        engine.open(opening)
    judged = (torch.tensor(list(e.evaluate(before, data, positions).values())) for e in (ours, theirs))
    assert near(*judged, 1e-5)
    for which in ("received", "previous"):
        for name in ours.program.places:
            try:
                mine = ours.frozen_features(which, name, some, positions)  # type: ignore[arg-type]
            except ValueError as refused:
                raise AssertionError(str(refused)) from refused
            assert near(mine, theirs.frozen_features(which, name, some, positions), 1e-5)  # type: ignore[arg-type]
        one, other = ours.lens(), theirs.lens()
        assert near(torch.tensor(one.losses(which)), torch.tensor(other.losses(which)), 1e-5)  # type: ignore[arg-type]
        assert np.array_equal(one.targets(), other.targets())
    assert ours.forward_samples == theirs.forward_samples
    for labels in (None, 3):
        drawn = (None if labels is None else np.random.default_rng(labels) for _ in range(2))
        mine, wanted = (e.fisher(before, data, labels=g) for e, g in zip((ours, theirs), drawn, strict=True))
        assert abs(mine - wanted) < 1e-4 * wanted
