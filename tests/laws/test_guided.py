"""Models of a client's own that are made along with its local steps: a mixture, a Moreau envelope, a step ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from polyrhythm.base.vectors import Layout
from polyrhythm.core import personal
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.visit_plan import visit_of
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.papers import local_only
from polyrhythm.methods.personal.guided import MetaStep, MoreauEnvelope, PersonalMixture
from polyrhythm.methods.personal.guides import Slope

from .hand import buffers_of, flat_gradient, loaded
from .law import law, swap
from .test_personal import SEVERAL, _used
from .trials import Trial, trials
from .world import Federation, Shard, alike, play, run, same

_MIXES, _SLOPE, _NEARS, _LOOKS = PersonalMixture.guide, TorchEngine.slope, MoreauEnvelope.guide, MetaStep.guide
_WHEN_USED = MetaStep.when_used


def _at_home(self: TorchEngine, at: Tensor, inputs: Tensor, targets: Tensor, positions: Any, buffers: Any) -> Slope:
    """A gradient that is taken with the visit's own module, whose draws and statistics it moves."""
    own = self.weights.clone()
    self.weights.copy_(at)
    found = self.compute(inputs, targets, positions)
    self.weights.copy_(own)
    return Slope(self.gradient.clone(), found.unused, self.buffers(), found.loss)


@law(
    trial=trials(nets=SEVERAL, travels=False),
    share=st.sampled_from((0.0, 0.3, 1.0)),
    adapt=st.booleans(),
    broken_by={"its gradients are taken by the visit's own module": swap(TorchEngine, "slope", _at_home)},
    examples=12,
)
def test_a_mixture_changes_nothing_for_the_server(trial: Trial, share: float, adapt: bool) -> None:
    mixed = run(trial.recipe(PersonalMixture(share=share, adapt=adapt)), trial.federation)
    plain = run(trial.recipe(), trial.federation)
    assert alike(mixed, plain)
    twice = 2 if share or adapt else 1
    assert [r.samples for r in mixed.reports.values()] == [twice * r.samples for r in plain.reports.values()]


@law(
    trial=trials(nets=("perceptron", "batchnorm"), travels=False),
    broken_by={"it is mixed all the same": swap(torch, "lerp", lambda one, other, share: (one + other) / 2)},
)
def test_a_mixture_without_a_share_is_the_global_model(trial: Trial) -> None:
    recipe, federation = trial.recipe(PersonalMixture(share=0)), trial.federation
    model = federation.engine().initial()
    assert _used(recipe, federation, 1, model) is model
    state = {"weights": torch.ones_like(model.weights), "buffers": list(model.buffers), "share": 0.0}
    assert torch.equal(PersonalMixture(share=0.5, adapt=True).begins(state, model).weights, model.weights)


def _with_share(share: float) -> Any:
    def guide(self: PersonalMixture, state: Any, *rest: Any) -> Any:
        return _MIXES(replace(self, share=share), {**state, "share": share} if state else {}, *rest)

    return guide


def _mixes_anew(self: PersonalMixture, state: Any, *rest: Any) -> Any:
    return _MIXES(self, {}, *rest)


@law(
    trial=trials(everybody=True, nets=("logistic", "perceptron", "batchnorm")),
    broken_by={
        "it begins anew": swap(PersonalMixture, "guide", _mixes_anew),
        "it is mixed": swap(PersonalMixture, "guide", _with_share(0.9)),
    },
    examples=12,
)
def test_a_mixture_of_nothing_else_is_training_alone(trial: Trial) -> None:
    """Where everybody is there from the beginning, so that all begin with version 0."""
    story = run(trial.recipe(PersonalMixture(share=1)), trial.federation)
    alone = run(local_only(**trial.common), trial.federation)
    for number, state in story.clients.items():
        kept, previous = state.parts[PersonalMixture.label()], alone.clients[number].previous
        assert previous is not None
        assert same((kept["weights"], tuple(kept["buffers"])), (previous.weights, previous.buffers))


def _slope(module: nn.Module, layout: Layout, at: Tensor, shard: Shard, positions: Any) -> Tensor:
    """The gradient at some weights, by autograd; a module's statistics move."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, part in layout.named(at).items():
            parameters[name].copy_(part)
    outputs = module(shard.inputs[list(positions)])
    return flat_gradient(module, layout, nn.functional.cross_entropy(outputs, shard.targets[list(positions)]))


@law(
    trial=trials(nets=("perceptron", "batchnorm"), plain=True),
    adapt=st.booleans(),
    broken_by={
        "another share": swap(PersonalMixture, "guide", _with_share(0.6)),
        "it begins anew": swap(PersonalMixture, "guide", _mixes_anew),
    },
    examples=12,
)
def test_both_are_stepped_from_where_they_were(trial: Trial, adapt: bool) -> None:
    """By hand: v along share * g(mixture), w along g(w), on the same batch; the share once, with the first batch."""
    federation = replace(trial.federation, dtype=torch.float64)
    recipe = trial.recipe(PersonalMixture(share=0.5, adapt=adapt))
    story, layout = play(recipe, federation, versions=3), federation.engine().layout
    key, shards, rate = PersonalMixture.label(), federation.shards(), recipe.optimiser.lr
    for number, report in story.reports.items():
        sent = story.assignments[number]
        first = {"weights": sent.weights, "buffers": sent.buffers, "share": 0.5}
        before, after = story.starts[number].parts.get(key, first), story.ends[number].parts[key]
        w, v, share = sent.weights.clone(), before["weights"].clone(), before["share"]
        mine, theirs = (
            loaded(federation, layout, Model(weights=v, buffers=tuple(buffers)))
            for buffers in (before["buffers"], sent.buffers)
        )
        now = share
        for place, positions in enumerate(story.batches[number]):
            shard = shards[sent.client]
            mixed = _slope(mine, layout, share * v + (1 - share) * w, shard, positions)
            if adapt and not place:
                now = min(1.0, max(0.0, share - rate * float((v - w) @ mixed)))
            g = _slope(theirs, layout, w, shard, positions)
            v, w, share = v - rate * share * mixed, w - rate * g, now
        assert report.update is not None
        assert torch.allclose(w, sent.weights + report.update, rtol=0, atol=1e-10)
        assert torch.allclose(v, after["weights"], rtol=0, atol=1e-10)
        assert abs(share - after["share"]) < 1e-10
        for one, other in zip(buffers_of(mine, layout), after["buffers"], strict=True):
            assert torch.allclose(one.double(), other.double(), atol=1e-10)


@law(
    trial=trials(nets=("logistic", "perceptron", "batchnorm"), plain=True),
    strength=st.sampled_from((0.0, 0.5, 4.0)),
    steps=st.sampled_from((1, 3)),
    broken_by={
        "no pull": swap(MoreauEnvelope, "guide", lambda self, *rest: _NEARS(replace(self, strength=1.0), *rest)),
        "another rate": swap(MoreauEnvelope, "guide", lambda self, *rest: _NEARS(replace(self, lr=0.06), *rest)),
        "a step more": swap(
            MoreauEnvelope, "guide", lambda self, *rest: _NEARS(replace(self, steps=self.steps + 1), *rest)
        ),
    },
    examples=12,
)
def test_each_step_is_towards_what_is_best_nearby(trial: Trial, strength: float, steps: int) -> None:
    """By hand; theta goes on from batch to batch. Without a pull the global model stays as it is, to the bit."""
    federation = replace(trial.federation, dtype=torch.float64)
    recipe = trial.recipe(MoreauEnvelope(strength=strength, steps=steps, lr=0.05))
    story, layout = play(recipe, federation, versions=3), federation.engine().layout
    shards, rate = federation.shards(), recipe.optimiser.lr
    for number, report in story.reports.items():
        sent, shard = story.assignments[number], shards[story.assignments[number].client]
        module = loaded(federation, layout, Model(weights=sent.weights, buffers=sent.buffers))
        w, theta = sent.weights.clone(), sent.weights.clone()
        for positions in story.batches[number]:
            for _ in range(steps):
                theta = theta - 0.05 * (_slope(module, layout, theta, shard, positions) + strength * (theta - w))
            w = w - rate * strength * (w - theta)
        assert report.update is not None
        assert torch.allclose(w, sent.weights + report.update, rtol=0, atol=1e-10)
        assert torch.allclose(theta, story.ends[number].parts[MoreauEnvelope.label()]["weights"], rtol=0, atol=1e-10)
        assert strength or not report.update.any()
        assert report.samples == steps * sum(map(len, story.batches[number]))


@law(
    trial=trials(nets=SEVERAL, travels=False),
    form=st.sampled_from(("first_order", "hessian_free")),
    broken_by={
        "a step all the same when it is used": swap(
            MetaStep, "when_used", lambda self, visit: _WHEN_USED(replace(self, lr=0.1), visit)
        ),
        "gradients are paid for that nobody takes": swap(MetaStep, "gradients", 2),
    },
)
def test_without_a_step_ahead_nothing_changes(trial: Trial, form: Any) -> None:
    recipe, plain = trial.recipe(MetaStep(lr=0, form=form)), run(trial.recipe(), trial.federation)
    story = run(recipe, trial.federation)
    assert alike(story, plain)
    assert [r.samples for r in story.reports.values()] == [r.samples for r in plain.reports.values()]
    model = trial.federation.engine().initial()
    assert _used(recipe, trial.federation, 1, model) is model


@dataclass(frozen=True, kw_only=True)
class Watched(Federation):
    """A federation whose engine notes every batch that a gradient elsewhere is taken of."""

    seen: list[tuple[Tensor, Tensor, list[int]]]

    def engine(self) -> TorchEngine:
        engine = super().engine()
        slope = engine.slope

        def noted(at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Any) -> Slope:
            self.seen.append((at.clone(), inputs, positions.tolist()))
            return slope(at, inputs, targets, positions, buffers)

        vars(engine).update(slope=noted)
        return engine


@law(
    trial=trials(nets=("logistic", "perceptron"), plain=True),
    form=st.sampled_from(("first_order", "hessian_free")),
    broken_by={
        "a shorter step": swap(MetaStep, "guide", lambda self, *rest: _LOOKS(replace(self, lr=0.1), *rest)),
        "always of the first order": swap(
            MetaStep, "guide", lambda self, *rest: _LOOKS(replace(self, form="first_order"), *rest)
        ),
    },
    examples=12,
)
def test_each_step_is_for_what_comes_of_a_step(trial: Trial, form: Any) -> None:
    """By hand, with the batches that were looked at: as large as the step's own, of the client's training samples."""
    watched = Watched(**{**vars(trial.federation), "dtype": torch.float64}, seen=[])
    recipe = trial.recipe(MetaStep(lr=0.2, form=form, delta=0.01))
    story, layout = play(recipe, watched, versions=2), watched.engine().layout
    shards, rate, looked = watched.shards(), recipe.optimiser.lr, iter(watched.seen)
    for number, report in story.reports.items():
        sent, shard = story.assignments[number], shards[story.assignments[number].client]
        module, w = loaded(watched, layout, Model(weights=sent.weights, buffers=())), sent.weights.clone()
        for positions in story.batches[number]:
            _, _, first = next(looked)
            ahead = w - 0.2 * _slope(module, layout, w, shard, first)
            g = direction = _slope(module, layout, ahead, shard, positions)
            assert len(first) == len(positions)
            if form == "hessian_free":
                (_, _, third), (_, _, again) = next(looked), next(looked)
                assert third == again
                up, down = (_slope(module, layout, w + d * g, shard, third) for d in (0.01, -0.01))
                direction = g - 0.2 / 0.02 * (up - down)
            w = w - rate * direction
        assert report.update is not None
        assert torch.allclose(w, sent.weights + report.update, rtol=0, atol=1e-9)
        assert report.samples == (2 if form == "first_order" else 4) * sum(map(len, story.batches[number]))
    assert next(looked, None) is None


@law(
    trial=trials(nets=("perceptron", "batchnorm"), plain=True),
    broken_by={
        "a longer step": swap(
            MetaStep, "when_used", lambda self, visit: replace(_WHEN_USED(self, visit), lr=2 * self.lr)
        )
    },
)
def test_what_is_used_is_a_step_away(trial: Trial) -> None:
    federation = replace(trial.federation, dtype=torch.float64)
    recipe = replace(trial, federation=federation).but(batch=None).recipe(MetaStep(lr=0.2))
    engine = federation.engine()
    model, layout = engine.initial(), engine.layout
    found = _used(recipe, federation, 2, model)
    module, shard = loaded(federation, layout, model), federation.shards()[2]
    gradient = _slope(module, layout, model.weights, shard, range(len(shard)))
    assert torch.allclose(found.weights, model.weights - 0.2 * gradient, rtol=0, atol=1e-10)


@law(
    broken_by={
        "the global model is used": swap(MoreauEnvelope, "begins", lambda self, state, received: received),
        "nothing is kept": swap(personal, "guided", lambda recipe, guide, ended, buffers: ended),
    },
    cases=({"kind": "mixture"}, {"kind": "envelope"}),
    kind=st.sampled_from(("envelope",)),
)
def test_a_client_uses_what_it_made(kind: str) -> None:
    part = PersonalMixture(share=0.25) if kind == "mixture" else MoreauEnvelope(steps=2)
    federation = Federation(dtype=torch.float64)
    recipe = Trial(federation=federation, common={"cohort": 4, "epochs": 1.0}).recipe(part)
    story, sent = play(recipe, federation, versions=2), federation.engine().initial()
    state: ClientState = story.clients[0]
    data, names = federation.shards()[0], {"client": 0, "visit": 2, "version": 2}
    visit, _ = visit_of(recipe, len(data), False, seed=0, total_rounds=None, **names)
    found = personal.used(recipe, visit, state, sent, data, federation.engine())
    assert part.label() in state.parts
    kept = state.parts[part.label()]["weights"]
    expected = kept if kind == "envelope" else 0.25 * kept + 0.75 * sent.weights
    assert torch.allclose(found.weights, expected, rtol=0, atol=1e-12)
    assert not torch.equal(found.weights, sent.weights)
