"""Predictions by representations: prototypes that clients exchange, and a client's own samples that look alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.core.client_state import ClientState
from polyrhythm.core.personal import used
from polyrhythm.core.predicting import predicting
from polyrhythm.core.visit_plan import visit_of
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.personal.neighbours import NearestNeighbours, NearestPrototype
from polyrhythm.methods.personal.prototypes import Prototypes
from polyrhythm.methods.personal.scope import PersonalLayers
from polyrhythm.models.representation import locate

from .hand import flat, loaded, optimiser_of, train
from .law import law, swap
from .trials import Trial, trials
from .world import alike, play, run

_TERM, _PREDICTS, _AFTER = Prototypes.term_of, NearestNeighbours.predicts, Prototypes.after_step
NETS = ("logistic", "perceptron", "batchnorm")


def _pulled(self: Prototypes, brief: Any) -> Any:
    return _TERM(replace(self, strength=0.5), brief)


@law(
    trial=trials(nets=NETS, travels=False),
    broken_by={"it is drawn all the same": swap(Prototypes, "term_of", _pulled)},
    examples=12,
)
def test_without_strength_training_is_that_of_the_method(trial: Trial) -> None:
    story, plain = run(trial.recipe(Prototypes(strength=0)), trial.federation), run(trial.recipe(), trial.federation)
    assert alike(story, plain)
    assert all("means" in report.extras["prototypes"] for report in story.reports.values() if report.steps)


@law(
    trial=trials(nets=("perceptron", "batchnorm"), travels=False),
    broken_by={
        "there are some before anybody trained": swap(
            Prototypes,
            "brief",
            lambda self, setup, state, client: {"means": torch.zeros(3, 5), "classes": torch.ones(3, dtype=torch.bool)},
        )
    },
    examples=12,
)
def test_the_first_version_is_that_of_the_method(trial: Trial) -> None:
    recipe = trial.recipe(Prototypes(strength=3.0))
    assert alike(*(play(r, trial.federation, versions=1) for r in (recipe, trial.recipe())))


def _features(module: nn.Module, inputs: Tensor) -> Tensor:
    return locate(module, "features")(inputs)[1]


@law(
    strength=st.sampled_from((0.5, 4.0)),
    trial=trials(nets=("perceptron",), everybody=True, plain=True),
    broken_by={
        "it is not drawn": swap(Prototypes, "term_of", lambda self, brief: None),
        "half as strongly": swap(
            Prototypes, "term_of", lambda self, brief: _TERM(replace(self, strength=self.strength / 2), brief)
        ),
        "the first means stay": swap(
            Prototypes,
            "after_step",
            lambda self, setup, state, release: state or _AFTER(self, setup, state, release),
        ),
    },
    examples=8,
)
def test_clients_learn_towards_the_mean_of_their_means(strength: float, trial: Trial) -> None:
    """By hand: what they send, its mean, and the steps under the pull."""
    federation = replace(trial.federation, dtype=torch.float64)
    recipe, layout = trial.recipe(Prototypes(strength=strength)), federation.engine().layout
    story, shards, known = play(recipe, federation, versions=3), federation.shards(), dict[int, Tensor]()
    of_version: dict[int, dict[int, list[Tensor]]] = {}
    for number, report in story.reports.items():
        sent = story.assignments[number]
        for before in (found for version, found in of_version.items() if version == sent.version - 1):
            known.update({c: torch.stack(means).mean(dim=0) for c, means in before.items()})
        shard, local = shards[sent.client], recipe.optimiser
        module = loaded(federation, layout, Model(weights=sent.weights, buffers=sent.buffers))
        for positions in story.batches[number]:
            targets = shard.targets[list(positions)]

            def pull(module: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor = targets) -> Tensor:
                module_features = _features(module, inputs)
                there = torch.tensor([int(c) in known for c in targets])
                if not there.any():
                    return module_features.sum() * 0
                means = torch.stack([known[int(c)] for c in targets if int(c) in known])
                distance = functional.mse_loss(module_features[there], means, reduction="sum")
                return strength * distance / module_features.numel()

            train(module, layout, shard, [positions], optimiser_of(local, module), term=pull)
        assert report.update is not None
        assert torch.allclose(sent.weights + report.update, flat(module, layout), rtol=0, atol=1e-8)
        module.eval()
        features, told = _features(module, shard.inputs).detach(), report.extras["prototypes"]
        classes = sorted({int(c) for c in shard.targets})
        assert told["classes"].nonzero()[:, 0].tolist() == classes
        for place, c in enumerate(classes):
            mean = features[shard.targets == c].mean(dim=0)
            assert torch.allclose(told["means"][place], mean, rtol=0, atol=1e-8)
            of_version.setdefault(sent.version, {}).setdefault(c, []).append(mean)
        assert report.forward_samples == len(shard)


def _predicted(trial: Trial, part: Any, number: int = 1) -> tuple[Any, Model]:
    federation, recipe = trial.federation, trial.recipe(part)
    engine, data = federation.engine(), federation.shards()[number]
    model, seed = engine.initial(), federation.seed
    visit, _ = visit_of(
        *(recipe, len(data), engine.single_sample_fails),
        **{"seed": seed, "client": number, "visit": 0, "version": 3, "total_rounds": 5},
    )
    found = predicting(recipe, visit, used(recipe, visit, ClientState(), model, data, engine), data, engine, {})
    return found, model


@law(
    trial=trials(nets=NETS, travels=False),
    broken_by={
        "it looks all the same": swap(NearestNeighbours, "reads", "features"),
        "it takes its steps twice": swap(NearestNeighbours, "gradients", 2),
    },
    examples=12,
)
def test_without_a_share_a_client_uses_the_global_model(trial: Trial) -> None:
    found, model = _predicted(trial, NearestNeighbours(share=0))
    assert found.predicts is None
    assert torch.equal(found.model.weights, model.weights)
    looked, plain = run(trial.recipe(NearestNeighbours()), trial.federation), run(trial.recipe(), trial.federation)
    assert alike(looked, plain)
    assert [r.samples for r in looked.reports.values()] == [r.samples for r in plain.reports.values()]


def _far(self: NearestNeighbours, outputs: Tensor, features: Tensor, own: Any, brief: Any) -> Tensor:
    assert own is not None
    return _PREDICTS(self, outputs, -features, own, brief)


@law(
    trial=trials(nets=("perceptron", "batchnorm"), travels=False),
    share=st.sampled_from((0.3, 1.0)),
    neighbours=st.integers(1, 20),
    broken_by={
        "the nearest alone": swap(
            NearestNeighbours,
            "predicts",
            lambda self, *rest: _PREDICTS(replace(self, neighbours=1), *rest),
        ),
        "of other representations": swap(NearestNeighbours, "predicts", _far),
    },
    examples=12,
)
def test_neighbours_have_their_share_of_what_is_predicted(trial: Trial, share: float, neighbours: int) -> None:
    """By hand, sample by sample, of the other clients' samples."""
    part = NearestNeighbours(share=share, neighbours=neighbours, scale=0.5)
    found, model = _predicted(trial, part)
    federation, shards = trial.federation, trial.federation.shards()
    module = loaded(federation, federation.engine().layout, model).eval()
    with torch.no_grad():
        own, z = _features(module, shards[1].inputs), _features(module, shards[0].inputs)
        outputs = module(shards[0].inputs)
    predicted = found.predicts(outputs, z).exp()
    for row, (features, given) in enumerate(zip(z, outputs, strict=True)):
        far = (own - features).double().square().sum(dim=1)
        nearest = sorted(range(len(far)), key=lambda i: float(far[i]))[:neighbours]
        weights = {i: float(torch.exp(-far[i] / (len(features) * 0.5))) for i in nearest}
        for c in range(len(given)):
            near = sum(w for i, w in weights.items() if int(shards[1].targets[i]) == c) / sum(weights.values())
            expected = share * near + (1 - share) * float(torch.softmax(given, dim=0)[c])
            assert abs(float(predicted[row, c]) - expected) < 1e-5


@law(
    trial=trials(nets=("perceptron",), everybody=True, travels=False),
    broken_by={
        "of the outputs": swap(NearestPrototype, "predicts", lambda self, outputs, *rest: outputs),
        "the furthest": swap(
            NearestPrototype,
            "predicts",
            lambda self, outputs, features, own, brief: (
                torch.cdist(features, brief["means"])
                if brief["classes"].all()
                else torch.zeros_like(outputs).masked_fill(~brief["classes"], 1.0)
            ),
        ),
    },
    examples=12,
)
def test_the_nearest_prototype_is_what_is_predicted(trial: Trial) -> None:
    """Also of a class without one: never that."""
    recipe = trial.recipe(Prototypes(), PersonalLayers(layers=("*",)), NearestPrototype())
    story = run(recipe, trial.federation)
    brief = story.states[-1].parts["prototypes"]
    features = torch.randn(30, brief["means"].shape[1], generator=torch.Generator().manual_seed(trial.federation.seed))
    outputs = torch.full((30, len(brief["classes"])), 0.5)
    outputs[:, 0] = 9.0
    found = NearestPrototype().predicts(outputs, features, None, brief)
    nearest = brief["classes"].nonzero()[:, 0][torch.cdist(features, brief["means"]).argmin(dim=1)]
    assert torch.equal(found.argmax(dim=1), nearest)
    assert torch.equal(NearestPrototype().predicts(outputs, features, None, {}), outputs)
    updates = [report.update for report in story.reports.values() if report.update is not None]
    assert not any(bool(update.any()) for update in updates)
