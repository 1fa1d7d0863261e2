"""What is a client's own: layers that stay with it, phases of its training, a copy with a pull, fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from polyrhythm.base.settings import Settings
from polyrhythm.base.vectors import Layout
from polyrhythm.core import client, local_step, personal, training
from polyrhythm.core.client_state import ClientState, Memory
from polyrhythm.core.personal import model_at, used
from polyrhythm.core.visit_plan import visit_of
from polyrhythm.methods.compression import Int8, TopK
from polyrhythm.methods.correction import ControlVariates, DynamicRegularisation, Prox, VarianceReduction
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.local.schedules import Constant
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.papers import local_only, power_of_choice
from polyrhythm.methods.personal import scope
from polyrhythm.methods.personal.models import FineTuning, PersonalCopy, PersonalModel
from polyrhythm.methods.personal.phases import PersonalFirst
from polyrhythm.methods.personal.scope import Everything, Part, PersonalLayers, Scope
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adam, AMSGrad, Momentum, Sgd
from polyrhythm.methods.weighing import Equal, NormalisedAveraging
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate

from .hand import buffers_of, flat, loaded, train
from .law import law, swap
from .trials import Misfortune, Trial, misfortunes, trials
from .world import Federation, Run, alike, play, run, same

_MATCHING, _KEPT, _OF_CLIENT = scope.matching, Scope.kept, Scope.of_client
_BESIDE, _CHANGE, _KEPT_PARTS = personal.beside, PersonalFirst.change, local_step.kept_parts
SEVERAL = ("perceptron", "batchnorm", "dropout")


def _states(story: Run, recipe: Recipe, layout: Layout) -> dict[int, Model]:
    """The model that each client works with in the end."""
    last = story.states[-1]
    sent = Model(weights=last.weights, buffers=last.buffers)
    return {c: model_at(recipe, layout, state, sent) for c, state in story.clients.items()}


@law(
    trial=trials(nets=("logistic", "perceptron", "dropout"), travels=False),
    broken_by={
        "some of it is personal all the same": swap(
            scope, "matching", lambda layers, layout: Part(segments=layout.segments[-1:])
        )
    },
)
def test_everything_shared_is_exactly_the_method(trial: Trial) -> None:
    plain = run(trial.recipe(), trial.federation)
    assert alike(run(trial.recipe(PersonalLayers(layers=("norms",))), trial.federation), plain)
    assert alike(run(trial.recipe(PersonalLayers(), Everything()), trial.federation), plain)


def _received(self: Scope, layout: Layout, state: Any, received: Model) -> Model:
    return received


@law(
    trial=trials(nets=SEVERAL, travels=False),
    broken_by={
        "each visit begins with what was sent": swap(Scope, "of_client", _received),
        "statistics are averaged": swap(Part, "put_buffers", lambda self, buffers, values: buffers),
    },
    examples=12,
)
def test_nothing_shared_is_training_alone(trial: Trial) -> None:
    recipe = trial.recipe(PersonalLayers(layers=("*",)))
    apart, alone = run(recipe, trial.federation), run(local_only(**trial.common), trial.federation)
    layout = trial.federation.engine().layout
    models = _states(apart, recipe, layout)
    assert models.keys() == alone.clients.keys()
    for number, model in models.items():
        previous = alone.clients[number].previous
        assert previous is not None
        assert same((model.weights, model.buffers), (previous.weights, previous.buffers))
    assert all(torch.equal(state.weights, apart.states[0].weights) for state in apart.states)


PARTS: tuple[tuple[Settings, ...], ...] = (
    (),
    (ControlVariates(),),
    (VarianceReduction(), Momentum()),
    (DynamicRegularisation(), Sgd(lr=0.5)),
    (Prox(mu=0.5), Adam(lr=0.1)),
    (NormalisedAveraging(), AMSGrad(lr=0.1)),
    (Equal(), TopK(share=0.3)),
    (Int8(), SkipAndEstimate()),
)


@law(
    layers=st.sampled_from((("head",), ("body",), ("norms",), ("0.weight", "*.bias"))),
    parts=st.sampled_from(PARTS),
    phases=st.booleans(),
    trial=trials(nets=("batchnorm",)),
    broken_by={
        "it is sent": swap(training, "clear_", lambda vector, spans: vector),
        "statistics are averaged": swap(Part, "put_buffers", lambda self, buffers, values: buffers),
        "nothing is kept": swap(Scope, "kept", lambda self, layout, model: {}),
    },
    examples=24,
)
def test_what_is_personal_moves_at_its_client_alone(
    layers: tuple[str, ...], parts: tuple[Settings, ...], phases: bool, trial: Trial
) -> None:
    """At the server it stays as it was to the bit, whatever steps there; at a client it goes on from visit to visit."""
    more = (PersonalFirst(epochs=1),) if phases else ()
    recipe = trial.recipe(PersonalLayers(layers=layers), *parts, *more)
    story = play(recipe, trial.federation, versions=4)
    layout = trial.federation.engine().layout
    own = scope.matching(layers, layout)
    first = story.states[0]
    for state in story.states:
        assert torch.equal(own.of(state.weights), own.of(first.weights))
        assert all(same(state.buffers[place], first.buffers[place]) for place in own.buffers)
    for report in story.reports.values():
        assert report.update is None or not own.of(report.update).any()
        assert not report.fresh or all(same(report.buffers[place], first.buffers[place]) for place in own.buffers)
    key = PersonalLayers.label()
    trained = [d for d, report in story.reports.items() if report.fresh]
    for number in trained:
        before, after = story.starts[number].parts.get(key), story.ends[number].parts.get(key)
        begun = own.of(first.weights) if before is None else before["weights"]
        assert after is not None
        assert not torch.equal(after["weights"], begun)
    shared = Part(segments=recipe.scope.shared(layout).segments)
    assert not torch.equal(shared.of(story.weights), shared.of(first.weights))


@law(
    happening=misfortunes(),
    trial=trials(nets=("batchnorm",)),
    broken_by={
        "visits that were lost count": swap(Memory, "at", lambda self, accepted: self.provisional or self.accepted)
    },
)
def test_a_visit_that_was_not_accepted_leaves_what_is_personal(happening: Misfortune, trial: Trial) -> None:
    recipe = trial.recipe(PersonalLayers(), PersonalCopy(epochs=1))
    story = play(recipe, trial.federation, versions=5, happening=happening)
    for number in range(len(trial.federation.sizes)):
        last: Any = {}
        for dispatch in story.visits(number):
            assert same(dict(story.starts[dispatch].parts), last)
            if story.accepted[dispatch]:
                last = dict(story.ends[dispatch].parts)
                assert set(last) == {PersonalLayers.label(), PersonalCopy.label()}


def _only(module: nn.Module, names: Sequence[str], optimiser: LocalSgd) -> torch.optim.Optimizer:
    """torch.optim.SGD over some parameters; the others are frozen."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)
    some = [p for p in module.parameters() if p.requires_grad]
    return torch.optim.SGD(
        some, optimiser.lr, optimiser.momentum, weight_decay=optimiser.weight_decay, nesterov=optimiser.nesterov
    )


def _all_at_once(self: PersonalFirst, *rest: Any) -> Any:
    return replace(_CHANGE(self, *rest), apart=False)


def _body_first(self: PersonalFirst, *rest: Any) -> Any:
    plan = _CHANGE(self, *rest)
    return replace(plan, first=plan.steps, steps=plan.first or 1)


@law(
    epochs=st.sampled_from((0.0, 1.0, 2.0)),
    trial=trials(nets=("perceptron", "batchnorm")),
    broken_by={
        "both parts at once": swap(PersonalFirst, "change", _all_at_once),
        "as long as the other phase": swap(PersonalFirst, "change", _body_first),
        "what is held decays": swap(local_step, "kept_parts", lambda *_: []),
        "what is held is clipped with": swap(local_step, "clear_", lambda vector, spans: vector),
    },
    examples=24,
)
def test_phases_are_two_optimisers_one_after_the_other(epochs: float, trial: Trial) -> None:
    """By hand: the head with an optimiser of its own, then the body with another; the other part has no gradient."""
    trial = trial.but(schedule=Constant())
    federation = replace(trial.federation, dtype=torch.float64)
    recipe = trial.recipe(PersonalLayers(), PersonalFirst(epochs=epochs))
    story, layout = play(recipe, federation, versions=3), federation.engine().layout
    optimiser, shards = recipe.optimiser, federation.shards()
    assert isinstance(optimiser, LocalSgd)
    for number, report in story.reports.items():
        sent, asked = story.assignments[number], story.starts[number]
        received = model_at(recipe, layout, asked, Model(weights=sent.weights, buffers=sent.buffers))
        module, batches = loaded(federation, layout, received), story.batches[number]
        first = len(batches) - report.steps
        head = [name for name, _ in module.named_parameters() if name in layout.head]
        body = [name for name, _ in module.named_parameters() if name not in layout.head]
        shard = shards[sent.client]
        for names, some in ((head, batches[:first]), (body, batches[first:])):
            _train(module, shard, some, _only(module, names, optimiser), optimiser.clip)
        after = model_at(recipe, layout, story.ends[number], Model(weights=sent.weights, buffers=sent.buffers))
        assert report.update is not None
        whole = scope.matching(("head",), layout).put(sent.weights + report.update, _own(after.weights, layout))
        assert torch.allclose(flat(module, layout), whole, rtol=0, atol=1e-10)
        if epochs == 0:
            assert torch.equal(_own(after.weights, layout), _own(story.states[0].weights, layout))


def _own(weights: Tensor, layout: Layout) -> Tensor:
    return scope.matching(("head",), layout).of(weights)


def _train(module: nn.Module, shard: Any, batches: Sequence[Sequence[int]], optimiser: Any, clip: float | None) -> None:
    for positions in batches:
        inputs, targets = shard.batch(positions, None)
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        if clip is not None:
            some = [p for p in module.parameters() if p.requires_grad]
            nn.utils.clip_grad_norm_(some, clip)
        optimiser.step()


def _sends_more(*given: Any) -> Any:
    state, report = yield from _BESIDE(*given)
    return state, replace(report, update=report.update + 1e-6)


@law(
    trial=trials(travels=False),
    strength=st.sampled_from((0.0, 1.0)),
    broken_by={"the copy is sent, too": swap(personal, "beside", _sends_more)},
)
def test_a_copy_changes_nothing_for_the_server(trial: Trial, strength: float) -> None:
    copied = trial.recipe(PersonalCopy(strength=strength, epochs=1))
    assert alike(run(copied, trial.federation), run(trial.recipe(), trial.federation))


def _anew(self: PersonalModel, state: Any, received: Model) -> Model:
    return received


@law(
    trial=trials(everybody=True, nets=SEVERAL),
    epochs=st.sampled_from((0.5, 1.0, 2.0)),
    broken_by={
        "it begins anew": swap(PersonalCopy, "begins", _anew),
        "it is pulled": swap(PersonalCopy, "beside", lambda self, visit: replace(_ASKED(self, visit), pull=0.1)),
    },
    examples=12,
)
def test_a_copy_without_a_pull_is_training_alone(trial: Trial, epochs: float) -> None:
    """Where everybody is there from the beginning, so that all begin with version 0."""
    trial = trial.but(epochs=epochs) if "steps" not in trial.common else trial
    if "steps" in trial.common:
        return
    story = run(trial.recipe(PersonalCopy(strength=0, epochs=epochs)), trial.federation)
    alone = run(local_only(**trial.common), trial.federation)
    for number, state in story.clients.items():
        kept, previous = state.parts[PersonalCopy.label()], alone.clients[number].previous
        assert previous is not None
        assert same((kept["weights"], tuple(kept["buffers"])), (previous.weights, previous.buffers))


_ASKED = PersonalCopy.beside


@law(
    trial=trials(nets=("logistic", "perceptron"), plain=True),
    strength=st.sampled_from((0.1, 2.0)),
    broken_by={
        "no pull": swap(PersonalCopy, "beside", lambda self, visit: replace(_ASKED(self, visit), pull=0.0)),
        "it begins anew": swap(PersonalCopy, "begins", _anew),
    },
)
def test_a_copy_is_pulled_towards_what_was_sent(trial: Trial, strength: float) -> None:
    """By hand, with the term strength / 2 * |v - w|^2 in the loss."""
    federation = replace(trial.federation, dtype=torch.float64)
    recipe = trial.recipe(PersonalCopy(strength=strength, epochs=1))
    story, layout = play(recipe, federation, versions=3), federation.engine().layout
    key, shards = PersonalCopy.label(), federation.shards()
    for number, report in story.reports.items():
        sent = story.assignments[number]
        before = story.starts[number].parts.get(key, {"weights": sent.weights})["weights"]
        module = loaded(federation, layout, Model(weights=before, buffers=sent.buffers))
        received = {n: p.clone() for n, p in layout.named(sent.weights).items()}

        def term(module: nn.Module, inputs: Tensor, outputs: Tensor, received: Any = received) -> Tensor:
            return strength / 2 * sum((p - received[n]).square().sum() for n, p in module.named_parameters())

        optimiser = torch.optim.SGD(module.parameters(), recipe.optimiser.lr)
        train(module, layout, shards[sent.client], story.batches[number][report.steps :], optimiser, term=term)
        found = story.ends[number].parts[key]["weights"]
        assert torch.allclose(flat(module, layout), found, rtol=0, atol=1e-10)


def _used(recipe: Recipe, federation: Federation, number: int, sent: Model) -> Model:
    """The model that a client uses with version 3, if it has never trained."""
    engine, data = federation.engine(), federation.shards()[number]
    visit, _ = visit_of(
        recipe,
        len(data),
        engine.single_sample_fails,
        seed=federation.seed,
        client=number,
        visit=0,
        version=3,
        total_rounds=5,
    )
    return used(recipe, visit, ClientState(), sent, data, engine)


_WHEN_USED = FineTuning.when_used


@law(
    trial=trials(nets=SEVERAL, travels=False),
    broken_by={
        "at least one step": swap(
            FineTuning, "when_used", lambda self, visit: replace(_WHEN_USED(replace(self, epochs=1.0), visit), steps=1)
        )
    },
)
def test_without_tuning_a_client_uses_the_global_model(trial: Trial) -> None:
    recipe = trial.recipe(FineTuning(epochs=0))
    model = trial.federation.engine().initial()
    assert _used(recipe, trial.federation, 1, model) is model
    assert alike(run(trial.recipe(FineTuning(epochs=2)), trial.federation), run(trial.recipe(), trial.federation))


@law(
    layers=st.sampled_from(((), ("head",))),
    trial=trials(nets=("perceptron", "batchnorm"), plain=True),
    broken_by={
        "all layers": swap(FineTuning, "when_used", lambda self, visit: replace(_WHEN_USED(self, visit), layers=())),
        "one step": swap(FineTuning, "when_used", lambda self, visit: replace(_WHEN_USED(self, visit), steps=1)),
    },
    examples=12,
)
def test_tuning_is_training_on_the_clients_own_samples(layers: tuple[str, ...], trial: Trial) -> None:
    """In full batches, of which the order does not matter; the same however often it is made."""
    federation = replace(trial.federation, dtype=torch.float64)
    trial = replace(trial, federation=federation).but(batch=None)
    recipe = trial.recipe(FineTuning(epochs=3, layers=layers, lr=0.2))
    engine = federation.engine()
    model, layout = engine.initial(), engine.layout
    found = _used(recipe, federation, 2, model)
    assert same((found.weights, found.buffers), _parts(_used(recipe, federation, 2, model)))
    module, shard = loaded(federation, layout, model), federation.shards()[2]
    names = [name for name, _ in module.named_parameters() if not layers or name in layout.head]
    optimiser = _only(module, names, LocalSgd(lr=0.2))
    _train(module, shard, [range(len(shard))] * 3, optimiser, None)
    assert torch.allclose(flat(module, layout), found.weights, rtol=0, atol=1e-10)
    for one, other in zip(buffers_of(module, layout), found.buffers, strict=True):
        assert torch.allclose(one.double(), other.double(), atol=1e-10)


def _parts(model: Model) -> Any:
    return model.weights, model.buffers


def _as_sent(recipe: Recipe, layout: Layout, state: ClientState, sent: Model) -> Model:
    return sent


@law(
    trial=trials(nets=("perceptron",), everybody=True),
    broken_by={"the global model is measured": swap(client, "model_at", _as_sent)},
)
def test_a_client_measures_the_model_that_it_works_with(trial: Trial) -> None:
    federation = trial.federation
    settings = {name: value for name, value in trial.common.items() if name != "cohort"}
    recipe = power_of_choice(cohort=2, d=len(federation.sizes), **settings) | PersonalLayers()  # type: ignore[arg-type]
    story, layout = play(recipe, federation, versions=4), federation.engine().layout
    measured = [d for d, a in story.assignments.items() if a.kind == "measure"]
    assert measured
    for number in measured:
        sent = story.assignments[number]
        model = model_at(recipe, layout, story.starts[number], Model(weights=sent.weights, buffers=sent.buffers))
        engine, shard = federation.engine(), federation.shards()[sent.client]
        assert story.reports[number].measures == engine.evaluate(model, shard)
