"""A finite update that would leave no finite model is refused by name, whatever the release, and the run goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.laws.world import Federation, play, run

import polyrhythm as pr
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import Scaling

ENDLESS = 3e38
RECIPES = {
    "fedavg": pr.fedavg(cohort=4, epochs=1),
    "fednova": pr.fednova(cohort=4, epochs=1),
    "scaffold": pr.scaffold(cohort=4, epochs=1),
    "fedadam": pr.fedadam(cohort=4, epochs=1),
    "mifa": pr.mifa(cohort=4, epochs=1),
    "cc_fedavg": pr.cc_fedavg(cohort=4, epochs=1),
    "buffer": pr.fedavg(cohort=4, epochs=1) | pr.parts.buffer(size=4),
    "clip": pr.fedavg(cohort=4, epochs=1) | pr.parts.clip_updates(norm=1.0),
    "median": pr.fedavg(cohort=4, epochs=1) | pr.parts.median(),
    "geometric": pr.fedavg(cohort=4, epochs=1) | pr.parts.geometric_median(),
}


def finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(torch.isfinite(value).all())
    if isinstance(value, (tuple, list)):
        return all(map(finite, value))
    return all(map(finite, value.values())) if hasattr(value, "values") else True


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_endless_updates_are_refused_by_name_and_the_run_goes_on(recipe: Recipe) -> None:
    many = 2

    def spoiled(assignment: Assignment, report: Report) -> Report:
        spoilt = assignment.client < many and assignment.visit == 1 and report.update is not None
        return replace(report, update=torch.full_like(report.update, ENDLESS)) if spoilt else report  # type: ignore[arg-type]

    story = play(recipe, Federation(net="logistic"), versions=2, happening=spoiled)
    assert len(story.states) == 3
    refused = [(client, reason) for released in story.released for client, reason in released.refused]
    assert {client for client, _ in refused} == set(range(many))
    assert all(reason == "an update whose length is no number in torch.float32" for _, reason in refused)
    assert all(finite((state.weights, state.parts)) for state in story.states)
    assert float(story.weights.abs().max()) < 1e3


@pytest.mark.parametrize("worst", [-ENDLESS, float("nan")])
def test_a_version_of_endless_updates_alone_ends_the_run(worst: float) -> None:
    """Also where some have no length and others are no numbers: until so many updates count, none ever would."""

    def spoiled(assignment: Assignment, report: Report) -> Report:
        assert report.update is not None
        value = worst if assignment.client == 0 else -ENDLESS
        return replace(report, update=torch.full_like(report.update, value)) if assignment.version == 1 else report

    with pytest.raises(pr.RunFailed, match=r"version 2: every update had to be dropped .*Training diverges"):
        play(pr.fedavg(cohort=4, epochs=1), Federation(net="logistic"), versions=3, happening=spoiled)


@pytest.mark.parametrize("what", ["buffer", "extra"])
def test_endless_numbers_beside_an_update_are_refused_too(what: str) -> None:
    def spoiled(assignment: Assignment, report: Report) -> Report:
        if assignment.client != 2 or assignment.visit != 1:
            return report
        if what == "buffer":
            return replace(report, buffers=(torch.full_like(report.buffers[0], ENDLESS), *report.buffers[1:]))
        (key, extra), *_ = report.extras.items()
        return replace(report, extras={key: {name: torch.full_like(t, ENDLESS) for name, t in extra.items()}})

    story = play(pr.scaffold(cohort=4, epochs=1), Federation(net="batchnorm"), versions=2, happening=spoiled)
    ((client, reason),) = [found for released in story.released for found in released.refused]
    assert client == 2
    assert reason.endswith("whose length is no number in torch.float32")
    assert all(finite((state.weights, state.buffers, state.parts)) for state in story.states)


def test_a_buffer_of_the_largest_number_stays_what_it_was() -> None:
    """As a mask of attention has it."""
    federation = Federation(net="batchnorm")
    largest = torch.finfo(torch.float32).max

    from polyrhythm.core.validation import before_use

    engine, recipe = federation.engine(), pr.fedavg(cohort=4, epochs=1)
    report = next(iter(run(recipe, federation, versions=1).reports.values()))
    mask = (torch.full_like(report.buffers[0], -largest), *report.buffers[1:])
    report, setup = replace(report, buffers=mask), federation.setup(1)
    assert before_use(recipe, setup, engine.layout, {}, report, mask) is None
    fault = before_use(recipe, setup, engine.layout, {}, report, engine.initial().buffers)
    assert fault is not None
    assert fault.kind == "too_far"


def test_what_its_scale_makes_endless_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update within bounds, which weighing takes beyond them."""
    recipe = pr.fednova(cohort=4, epochs=1)
    (scaling,) = recipe.scalings
    monkeypatch.setattr(
        type(scaling), "scales", lambda self, facts, shares: [1e39 if f.client == 1 else 1.0 for f in facts]
    )
    assert isinstance(scaling, Scaling)
    assert isinstance(scaling, Mechanism)
    story = play(recipe, Federation(), versions=2)
    assert [released.refused for released in story.released] == [
        ((1, "its update would leave no finite number in 0.weight"),)
    ] * 2
    assert [len(released.release.reports) for released in story.released if released.release] == [3, 3]
    assert finite(story.weights)
    assert not torch.equal(story.states[0].weights, story.weights)
