"""Where visits begin elsewhere than at what was sent: a client mixes its last model into it, as its samples say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from polyrhythm.core import personal
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.visit_plan import visit_of
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.personal.guides import Guide
from polyrhythm.methods.personal.starts import WINDOW, AdaptiveStart

from .hand import loaded
from .law import law, swap
from .test_guided import _slope
from .test_personal import SEVERAL
from .trials import Trial, trials
from .world import Federation, alike, play, run

_START, _SAMPLED = AdaptiveStart.start, AdaptiveStart.sampled


@law(
    trial=trials(nets=SEVERAL, travels=False),
    broken_by={"it is learned all the same": swap(AdaptiveStart, "moves", True)},
    examples=12,
)
def test_without_a_rate_nothing_changes(trial: Trial) -> None:
    story, plain = run(trial.recipe(AdaptiveStart(rate=0)), trial.federation), run(trial.recipe(), trial.federation)
    assert alike(story, plain)
    assert [r.gradient_samples for r in story.reports.values()] == [0 for _ in plain.reports]
    assert not any(state.parts for state in story.clients.values())


@law(
    trial=trials(nets=SEVERAL, travels=False),
    broken_by={
        "what begins it is lost": swap(AdaptiveStart, "guide", lambda self, *rest: Guide()),
    },
)
def test_a_first_visit_is_that_of_the_method(trial: Trial) -> None:
    recipe = trial.recipe(AdaptiveStart(share=1.0, most=2))
    story, plain = (play(r, trial.federation, versions=1) for r in (recipe, trial.recipe()))
    assert alike(story, plain)
    tail = AdaptiveStart().tail(trial.federation.engine().layout)
    for number, report in story.reports.items():
        state, sent = story.ends[number].parts.get(AdaptiveStart.label(), {}), story.assignments[number]
        assert report.gradient_samples == 0
        assert report.update is not None
        assert torch.allclose(state.get("weights", tail.of(report.update)), tail.of(sent.weights + report.update))
        assert "weights" in state


def _unclipped(self: AdaptiveStart, state: Any, received: Model, layout: Any, passes: Any) -> Any:
    _, known = _START(self, state, received, layout, passes)
    return received, known


@law(
    trial=trials(nets=("perceptron", "batchnorm"), everybody=True, plain=True),
    rate=st.sampled_from((0.3, 20.0)),
    broken_by={
        "it begins at what was sent": swap(AdaptiveStart, "start", _unclipped),
        "at another rate": swap(AdaptiveStart, "start", lambda self, *rest: _START(replace(self, rate=0.01), *rest)),
        "on all samples": swap(
            AdaptiveStart, "sampled", lambda self, state, n: (n, _SAMPLED(self, state, n)[1]) if state else (0, 0)
        ),
    },
    examples=12,
)
def test_it_begins_where_its_samples_say(trial: Trial, rate: float) -> None:
    """By hand, with batches as they were drawn: the mixture, the steps from there, and an update from what was sent."""
    seen: list[tuple[Any, Any]] = []
    taken = TorchEngine.slope

    def noted(self: TorchEngine, at: Any, inputs: Any, targets: Any, positions: Any, buffers: Any) -> Any:
        seen.append((at.clone(), positions.tolist()))
        return taken(self, at, inputs, targets, positions, buffers)

    federation = replace(trial.federation, dtype=torch.float64)
    part = AdaptiveStart(rate=rate, share=0.5, most=3, tensors=3)
    recipe, layout = trial.recipe(part), federation.engine().layout
    TorchEngine.slope = noted  # type: ignore[method-assign]
    try:
        story = play(recipe, federation, versions=3)
    finally:
        TorchEngine.slope = taken  # type: ignore[method-assign]
    looked, shards, tail = iter(seen), federation.shards(), part.tail(layout)
    for number, report in story.reports.items():
        sent, shard = story.assignments[number], shards[story.assignments[number].client]
        before, after = (s[number].parts.get(part.label(), {}) for s in (story.starts, story.ends))
        module = loaded(federation, layout, Model(weights=sent.weights, buffers=sent.buffers))
        begun, left = sent.weights, report.gradient_samples
        if before:
            old, new = before["weights"], tail.of(sent.weights)
            mixing = before.get("mixing", torch.ones_like(old))
            assert left <= (1 if "mixing" in before else 3) * max(1, len(shard) // 2)
            begun = tail.put(sent.weights, old + (new - old) * mixing)
            while left:
                at, positions = next(looked)
                assert torch.allclose(at, begun, rtol=0, atol=1e-9)
                other = loaded(federation, layout, Model(weights=at, buffers=sent.buffers))
                g = tail.of(_slope(other, layout, at, shard, positions))
                mixing = (mixing - rate * g * (new - old)).clamp(0, 1)
                begun, left = tail.put(sent.weights, old + (new - old) * mixing), left - len(positions)
            if "mixing" in after:
                assert torch.allclose(after["mixing"], mixing, rtol=0, atol=1e-9)
        w = begun.clone()
        for positions in story.batches[number]:
            w = w - recipe.optimiser.lr * _slope(module, layout, w, shard, positions)
        assert report.update is not None
        assert torch.allclose(sent.weights + report.update, w, rtol=0, atol=1e-8)
        assert torch.allclose(after["weights"], tail.of(w), rtol=0, atol=1e-8)
    assert next(looked, None) is None


@law(
    broken_by={
        "one pass only": swap(AdaptiveStart, "sampled", lambda self, state, n: (_SAMPLED(self, state, n)[0], 1))
    },
    cases=({"most": 4}, {"most": 40}),
    most=st.just(40),
)
def test_the_first_time_it_goes_on_until_losses_settle(most: int) -> None:
    federation = Federation(dtype=torch.float64)
    part = AdaptiveStart(most=most, settled=1e9)
    recipe = Trial(federation=federation, common={"cohort": 4, "epochs": 1.0}).recipe(part)
    story = play(recipe, federation, versions=3)
    for number in range(4):
        first, second, third = (story.reports[d].gradient_samples for d in story.visits(number))
        assert first == 0
        assert second == min(most, WINDOW + 1) * third > 0


@law(
    trial=trials(nets=("perceptron",), everybody=True, plain=True),
    broken_by={"the global model is used": swap(AdaptiveStart, "start", _unclipped)},
)
def test_a_client_uses_where_it_would_begin(trial: Trial) -> None:
    part = AdaptiveStart(rate=50.0)
    federation = replace(trial.federation, dtype=torch.float64)
    recipe, data = trial.recipe(part), federation.shards()[1]
    story, engine = play(recipe, federation, versions=2), federation.engine()
    names: Any = {"seed": 0, "client": 1, "visit": 2, "version": 2, "total_rounds": None}
    visit, _ = visit_of(recipe, len(data), False, **names)
    sent = Model(weights=story.states[0].weights, buffers=())
    found = personal.used(recipe, visit, story.clients[1], sent, data, engine)
    again = personal.used(recipe, visit, story.clients[1], sent, data, engine)
    assert torch.equal(found.weights, again.weights)
    apart = part.tail(engine.layout)
    assert not torch.equal(apart.of(found.weights), apart.of(sent.weights))
    assert personal.used(recipe, visit, ClientState(), sent, data, engine) is sent


@law(
    trial=trials(nets=("perceptron",), everybody=True, plain=True),
    broken_by={"it begins at what was sent": swap(AdaptiveStart, "start", _unclipped)},
)
def test_a_pull_is_towards_what_was_sent(trial: Trial) -> None:
    """With lr * mu = 1 a step leads from anywhere to what was sent, less the gradient's step there."""
    federation = replace(trial.federation, dtype=torch.float64)
    trial = replace(trial, federation=federation).but(steps=1, lr=0.1)
    recipe = trial.recipe(AdaptiveStart(rate=50.0, most=1), Prox(mu=10.0))
    story, layout = play(recipe, federation, versions=3), federation.engine().layout
    moved = 0.0
    for number, report in story.reports.items():
        sent, state = story.assignments[number], story.ends[number].parts[AdaptiveStart.label()]
        before = story.starts[number].parts.get(AdaptiveStart.label(), {})
        tail = AdaptiveStart().tail(layout)
        begun = sent.weights
        if "mixing" in state:
            way = tail.of(sent.weights) - before["weights"]
            begun = tail.put(sent.weights, before["weights"] + way * state["mixing"])
        moved = max(moved, float((begun - sent.weights).abs().max()))
        module = loaded(federation, layout, Model(weights=begun, buffers=()))
        shard = federation.shards()[sent.client]
        gradient = _slope(module, layout, begun, shard, story.batches[number][0])
        assert report.update is not None
        assert torch.allclose(report.update, -0.1 * gradient, rtol=0, atol=1e-9)
    assert moved > 0
