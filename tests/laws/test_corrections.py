"""What each correction does when it is not neutral, and the sums it keeps whatever is lost on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.settings import Settings
from polyrhythm.core import training
from polyrhythm.core.client_state import Memory
from polyrhythm.methods import correction
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    Push,
    VarianceReduction,
)
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.mechanism import Model, Release
from polyrhythm.methods.papers import Common
from polyrhythm.methods.server_step import Adagrad, Adam, AMSGrad, Momentum, Yogi
from polyrhythm.methods.weighing import Equal, NormalisedAveraging

from .hand import flat_gradient, loaded
from .law import Mutation, law, swap
from .trials import Misfortune, Trial, misfortunes, trials
from .world import Federation, near, play, run, same

# What mutants wrap.
_AFTER_STEP = ControlVariates.after_step
_VRL_AFTER = VarianceReduction.after_step
_BEFORE_STEP = DynamicRegularisation.before_step
_TERM = ModelContrast.term
_TRAVEL = LocalSgd.travel

VERSIONS = st.integers(1, 5)

provisional_states_count: Mutation = swap(
    Memory, "at", lambda self, accepted: self.accepted if self.provisional is None else self.provisional
)


@law(
    trial=trials(plain=True),
    mu=st.sampled_from((1.0, 2.0, 3.0)),
    bound=st.sampled_from((0.1, 1.0)),
    broken_by={
        "not pulled": swap(Prox, "push", lambda self, setup, state, brief: None),
        "pulled once a visit": swap(Prox, "push", lambda self, setup, state, brief: Push(pull=self.mu / 12)),
    },
)
def test_prox_bounds_the_distance(trial: Trial, mu: float, bound: float) -> None:
    # |w_k+1 - w_0| <= (1 - lr * mu) * |w_k - w_0| + lr * |g|, so the distance stays within max |g| / mu.
    trial = trial.but(steps=12, clip=bound, lr=0.3)
    story = run(trial.recipe(Prox(mu=mu)), trial.federation, versions=2)
    for report in story.reports.values():
        assert report.update is not None
        assert float(torch.linalg.vector_norm(report.update)) <= 1.001 * bound / mu


def _over_the_cohort(self: Any, setup: Any, state: Any, release: Release) -> Any:
    return _AFTER_STEP(self, replace(setup, population=len(release.reports)), state, release)


@law(
    trial=trials(),
    happening=misfortunes(),
    versions=VERSIONS,
    examples=20,
    broken_by={
        "divided by the cohort": swap(ControlVariates, "after_step", _over_the_cohort),
        "states of refused visits kept": provisional_states_count,
    },
)
def test_the_control_is_the_mean_of_all_clients_controls(trial: Trial, happening: Misfortune, versions: int) -> None:
    recipe, federation = trial.recipe(ControlVariates()), trial.federation
    story = play(recipe, federation, versions=versions, happening=happening)
    key = ControlVariates.label()
    controls = [state.parts[key]["control"] for state in story.clients.values()]
    total = torch.stack(controls).double().sum(0)  # c_i = 0 for all others
    assert near(story.states[-1].parts[key]["control"], total / len(federation.sizes), 1e-5)


def drop_mean(self: VarianceReduction, setup: Any, state: Any, release: Release) -> Any:
    """VRL-SGD's drift without the mean path."""
    drift = dict(state["drift"])
    for report in release.reports:
        assert report.update is not None
        drift[report.client] = drift.get(report.client, setup.zeros()) - report.update / report.travel
    return {"drift": drift}


def forget_the_absent(self: VarianceReduction, setup: Any, state: Any, release: Release) -> Any:
    """VRL-SGD's drift of this release's clients only."""
    after = _VRL_AFTER(self, setup, state, release)
    present = {report.client for report in release.reports}
    return {"drift": {c: d for c, d in after["drift"].items() if c in present}}


@law(
    trial=trials(everybody=True, equal_steps=True),
    broken_by={
        "the mean path left out": swap(VarianceReduction, "after_step", drop_mean),
        "the mean weighed unequally": swap(
            correction, "mean_of_moved", lambda updates, idle: sum(updates[1:]) / max(1, len(updates) - 1)
        ),
    },
)
def test_drifts_sum_to_zero_when_everybody_is_there(trial: Trial) -> None:
    story = run(trial.recipe(Equal(), VarianceReduction()), trial.federation)
    for state in story.states[1:]:
        drift = torch.stack(list(state.parts[VarianceReduction.label()]["drift"].values())).double()
        assert len(drift) == len(trial.federation.sizes)
        assert near(drift.sum(0), torch.zeros(len(drift[0])), 1e-5)


@law(
    net=st.sampled_from(("logistic", "perceptron")),
    broken_by={
        "the mean path left out": swap(VarianceReduction, "after_step", drop_mean),
        "sign": swap(
            VarianceReduction,
            "after_step",
            lambda self, setup, state, release: {
                "drift": {c: -d for c, d in _VRL_AFTER(self, setup, state, release)["drift"].items()}
            },
        ),
    },
)
def test_the_first_drift_is_a_gradient_less_the_mean_gradient(net: str) -> None:
    federation = Federation(net=net)
    trial = Trial(federation=federation, common=Common(cohort=4, steps=1, batch=None, lr=0.1))
    story = run(trial.recipe(Equal(), VarianceReduction()), federation, versions=1)
    layout, first = federation.engine().layout, story.states[0]
    gradients = {}
    for number, shard in enumerate(federation.shards()):
        module = loaded(federation, layout, Model(weights=first.weights, buffers=()))
        loss = functional.cross_entropy(module(shard.inputs), shard.targets)
        gradients[number] = flat_gradient(module, layout, loss)
    mean = torch.stack(list(gradients.values())).mean(0)
    for number, drift in story.states[1].parts[VarianceReduction.label()]["drift"].items():
        assert near(drift, gradients[number] - mean)


@law(
    trial=trials(),
    happening=misfortunes(),
    broken_by={"the absent are forgotten": swap(VarianceReduction, "after_step", forget_the_absent)},
)
def test_the_drift_of_who_is_not_in_a_release_stays(trial: Trial, happening: Misfortune) -> None:
    story = play(trial.recipe(VarianceReduction()), trial.federation, versions=5, happening=happening)
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        assert released.release is not None
        present = {report.client for report in released.release.reports}
        old, new = (state.parts[VarianceReduction.label()]["drift"] for state in (before, after))
        assert new.keys() == old.keys() | present
        assert all(same(new[c], old[c]) for c in old.keys() - present)


@law(
    trial=trials(travels=False),
    happening=misfortunes(),
    versions=VERSIONS,
    examples=20,
    broken_by={
        "states of refused visits kept": provisional_states_count,
        "h over the cohort": swap(
            DynamicRegularisation,
            "before_step",
            lambda self, setup, state, release, mean: _BEFORE_STEP(
                self, replace(setup, population=len(release.reports)), state, release, mean
            ),
        ),
    },
)
def test_feddyns_h_is_the_mean_of_all_clients_duals(trial: Trial, happening: Misfortune, versions: int) -> None:
    alpha, key, federation = 0.3, DynamicRegularisation.label(), trial.federation
    recipe = trial.recipe(Equal(), DynamicRegularisation(alpha=alpha))
    story = play(recipe, federation, versions=versions, happening=happening)
    total = federation.engine().layout.zeros().double()
    for number, state in story.clients.items():
        accepted = [story.reports[d].update for d in story.visits(number) if story.accepted[d]]
        dual = -alpha * torch.stack([u for u in accepted if u is not None]).double().sum(0)
        assert near(state.parts[key]["dual"], dual, 1e-5)
        total += dual
    assert near(story.states[-1].parts[key]["h"], total / len(federation.sizes), 1e-5)
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        assert released.release is not None
        mean = torch.stack([before.weights + u for u in released.release.updates()]).mean(0)
        assert near(after.weights, mean - after.parts[key]["h"] / alpha, 1e-5)


@dataclass
class Views:
    """Representations that a law made up."""

    current: Tensor
    received: Tensor
    previous: Tensor
    has_previous: bool = True

    def features(self, which: str, layer: str) -> Tensor:
        chosen: Tensor = getattr(self, which)
        return chosen


def _summed(self: ModelContrast, view: Any) -> Tensor | None:
    term = _TERM(self, view)
    return None if term is None else term * len(view.current)


_NUMBERS = st.lists(st.floats(-3, 3).filter(lambda x: abs(x) > 0.1), min_size=12, max_size=12)


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


@law(
    current=_NUMBERS,
    received=_NUMBERS,
    previous=_NUMBERS,
    mu=st.sampled_from((0.5, 5.0)),
    temperature=st.sampled_from((0.1, 0.5, 2.0)),
    broken_by={
        "near and far exchanged": swap(
            ModelContrast,
            "term",
            lambda self, view: _TERM(self, replace(view, received=view.previous, previous=view.received)),
        ),
        "a sum over the batch": swap(ModelContrast, "term", _summed),
    },
)
def test_the_contrast_is_equation_3(
    current: list[float], received: list[float], previous: list[float], mu: float, temperature: float
) -> None:
    rows = [[numbers[i : i + 4] for i in (0, 4, 8)] for numbers in (current, received, previous)]
    terms = []
    for row, *others in zip(*rows, strict=True):
        closeness, distance = (math.exp(_cosine(row, other) / temperature) for other in others)
        terms.append(-math.log(closeness / (closeness + distance)))
    z, z_g, z_p = (torch.tensor(r, dtype=torch.float64) for r in rows)
    term = ModelContrast(mu=mu, temperature=temperature).term(Views(current=z, received=z_g, previous=z_p))
    assert term is not None
    assert math.isclose(float(term), mu * sum(terms) / 3, rel_tol=1e-9)


@law(
    momentum=st.sampled_from((0.0, 0.5, 0.9)),
    nesterov=st.booleans(),
    weight_decay=st.sampled_from((0.0, 0.1)),
    pull=st.sampled_from((0.0, 0.5)),
    rates=st.lists(st.sampled_from((0.1, 0.05, 0.2)), min_size=1, max_size=8),
    examples=30,
    broken_by={
        "momentum, pull and decay forgotten": swap(LocalSgd, "travel", lambda self, rates, pull: sum(rates)),
        "the first rate throughout": swap(
            LocalSgd, "travel", lambda self, rates, pull: _TRAVEL(self, [rates[0]] * len(rates), pull)
        ),
    },
)
def test_travel_is_the_way_under_a_constant_gradient(
    momentum: float, nesterov: bool, weight_decay: float, pull: float, rates: list[float]
) -> None:
    optimiser = LocalSgd(momentum=momentum, nesterov=nesterov and momentum > 0, weight_decay=weight_decay)
    weight = torch.zeros(1, dtype=torch.float64)
    state = optimiser.start(weight)
    for rate in rates:
        optimiser.step_(weight, 1 + pull * weight, rate, state)
    assert math.isclose(optimiser.travel(rates, pull), -float(weight), rel_tol=1e-12)
    if not (momentum or weight_decay or pull):
        assert math.isclose(optimiser.travel(rates, pull), sum(rates), rel_tol=1e-12)


ACTIVE: tuple[Settings, ...] = (
    Prox(mu=0.5),
    ControlVariates(),
    VarianceReduction(),
    DynamicRegularisation(),
    ModelContrast(layer="logits"),
    NormalisedAveraging(),
    Momentum(),
    Adagrad(),
    Adam(),
    Yogi(),
    AMSGrad(),
)


@law(
    part=st.sampled_from(ACTIVE),
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    examples=20,
    broken_by={
        "no correction is applied": lambda patch: (
            patch.setattr(training, "chain", lambda pushes: None),
            patch.setattr(ModelContrast, "term", lambda self, view: None),
            patch.setattr(
                DynamicRegularisation, "before_step", lambda self, setup, state, release, mean: (state, mean)
            ),
        ),
    },
)
def test_every_part_changes_the_result(part: Settings, net: str) -> None:
    federation = Federation(net=net)
    trial = Trial(federation=federation, common=Common(cohort=4, epochs=2, batch=4, lr=0.1))
    with_part, without = run(trial.recipe(part), federation), run(trial.recipe(), federation)
    assert not near(with_part.weights, without.weights, 1e-4)
