"""A part at its neutral value, or in its neutral situation, changes nothing: bit for bit, and really present."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn import functional

from polyrhythm.base.sums import weighted_sum
from polyrhythm.core import local_step, training
from polyrhythm.engines import torch as torch_engine
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods import together
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    Push,
    VarianceReduction,
)
from polyrhythm.methods.local.schedules import Constant, Cosine, Exponential, Power, Schedule, StepDecay
from polyrhythm.methods.papers import fedavg, fedavgm, fedprox, moon, scaffold, vrl_sgd
from polyrhythm.methods.participation.base import Sweep
from polyrhythm.methods.server_step import Momentum, Sgd
from polyrhythm.methods.weighing import Equal, NormalisedAveraging

from .law import law, swap
from .trials import Trial, trials
from .world import NETS, Federation, alike, near, run, same

SHARINGS = st.sampled_from((None, Equal()))


def frozen_models_train(patch: Any) -> None:
    original = TorchEngine.frozen
    patch.setattr(TorchEngine, "frozen", lambda self, which: original(self, which).train())
    patch.setattr(torch_engine, "seeded_torch", lambda *names: contextlib.nullcontext())


def _near_only(self: ModelContrast, view: Any) -> torch.Tensor:
    current, received = view.features("current", self.layer), view.features("received", self.layer)
    return -self.mu * functional.cosine_similarity(current, received, dim=-1).mean()


@law(
    trial=trials(travels=False),
    broken_by={
        "pull above mu": swap(Prox, "push", lambda self, setup, state, brief: Push(pull=self.mu + 1e-3)),
        "pull to zero": swap(Prox, "push", lambda self, setup, state, brief: Push(shift=setup.zeros() + 1e-3)),
    },
)
def test_prox_of_zero_is_fedavg(trial: Trial) -> None:
    assert alike(run(trial.recipe(Prox(mu=0)), trial.federation), run(trial.recipe(), trial.federation))


PAPERS = {
    "fedprox": (fedprox(mu=0, cohort=3), fedavg(cohort=3)),
    "moon": (moon(mu=0, cohort=3), fedavg(cohort=3)),
    "fedavgm": (fedavgm(beta=0, cohort=3), fedavg(cohort=3)),
    "scaffold": (scaffold(cohort=3), fedavg(cohort=3) | Equal()),
    "vrl_sgd": (vrl_sgd(cohort=3), fedavg(cohort=3) | Equal()),
}


@law(
    paper=st.sampled_from(list(PAPERS)),
    net=st.sampled_from(list(NETS)),
    broken_by={"pull above mu": swap(Prox, "push", lambda self, setup, state, brief: Push(pull=self.mu + 1e-3))},
)
def test_papers_share_their_defaults_with_fedavg(paper: str, net: str) -> None:
    method, plain = PAPERS[paper]
    versions = 1 if paper in ("scaffold", "vrl_sgd") else 3
    assert alike(*(run(r, Federation(net=net), versions=versions) for r in (method, plain)))


@law(
    trial=trials(travels=False),
    layer=st.sampled_from(("features", "logits", "projection")),
    broken_by={
        "a little more than mu": swap(
            ModelContrast, "term", lambda self, view: _near_only(replace(self, mu=1e-3), view)
        ),
        "frozen models learn and draw with the training": frozen_models_train,
    },
)
def test_moon_of_zero_is_fedavg(trial: Trial, layer: str) -> None:
    contrast = ModelContrast(mu=0, layer=layer)
    assert alike(run(trial.recipe(contrast), trial.federation), run(trial.recipe(), trial.federation))


@law(
    trial=trials(travels=False),
    broken_by={"no need of a last model": swap(ModelContrast, "term", _near_only)},
)
def test_moon_is_fedavg_until_a_client_comes_back(trial: Trial) -> None:
    sweep = Sweep(cohort=trial.common["cohort"])
    versions = -(-len(trial.federation.sizes) // trial.common["cohort"])
    moon = run(trial.recipe(sweep, ModelContrast(mu=2, layer="features")), trial.federation, versions=versions)
    assert alike(moon, run(trial.recipe(sweep), trial.federation, versions=versions))


@law(
    trial=trials(),
    sharing=SHARINGS,
    broken_by={
        "alpha of 1 is a little less": swap(
            ClientMomentum, "push", lambda self, setup, state, brief: Push(factor=self.alpha * (1 - 1e-6))
        ),
    },
)
def test_a_whole_gradient_leaves_no_room_for_momentum(trial: Trial, sharing: Equal | None) -> None:
    parts = [] if sharing is None else [sharing]
    story = run(trial.recipe(*parts, ClientMomentum(alpha=1)), trial.federation)
    assert alike(story, run(trial.recipe(*parts), trial.federation))
    assert not any(assignment.briefs for assignment in story.assignments.values())


@law(
    trial=trials(),
    sharing=SHARINGS,
    broken_by={
        "controls start at random": swap(
            ControlVariates, "client_start", lambda self, setup: {"control": setup.zeros() + 1e-3}
        ),
        "the received control twice": swap(
            ControlVariates, "server_start", lambda self, setup: {"control": setup.zeros() - 1e-3}
        ),
    },
)
def test_scaffold_starts_as_fedavg(trial: Trial, sharing: Equal | None) -> None:
    parts = [] if sharing is None else [sharing]
    scaffold = run(trial.recipe(*parts, ControlVariates()), trial.federation, versions=1)
    assert alike(scaffold, run(trial.recipe(*parts), trial.federation, versions=1))


@law(
    trial=trials(),
    broken_by={
        "somebody else's drift": swap(
            VarianceReduction,
            "brief",
            lambda self, setup, state, client: {"drift": next(iter(state["drift"].values()), setup.zeros() + 1e-3)},
        )
    },
)
def test_vrl_is_fedavg_until_a_client_comes_back(trial: Trial) -> None:
    trial = trial.but(cohort=2)
    versions = -(-len(trial.federation.sizes) // 2)
    vrl = run(trial.recipe(Sweep(), VarianceReduction()), trial.federation, versions=versions)
    assert alike(vrl, run(trial.recipe(Sweep()), trial.federation, versions=versions))


@law(
    trial=trials(travels=False),
    broken_by={
        "a dual that does not start at zero": swap(
            DynamicRegularisation, "client_start", lambda self, setup: {"dual": setup.zeros() + 1e-3}
        )
    },
)
def test_feddyn_takes_fedavgs_first_step(trial: Trial) -> None:
    trial = trial.but(steps=1)
    feddyn = run(trial.recipe(DynamicRegularisation()), trial.federation, versions=1)
    plain = run(trial.recipe(), trial.federation, versions=1)
    assert all(same(feddyn.reports[d].update, plain.reports[d].update) for d in plain.reports)


def _plain_mean(vectors: Any, weights: Any) -> torch.Tensor:
    return torch.stack(list(vectors)).mean(0)


@law(
    trial=trials(travels=False),
    sharing=SHARINGS,
    broken_by={
        "a timid server": swap(
            Sgd, "step", lambda self, setup, state, weights, mean: (state, weights.add(mean, alpha=0.999 * self.lr))
        ),
        "shares forgotten": swap(together, "weighted_sum", _plain_mean),
    },
)
def test_server_sgd_of_one_is_plain_averaging(trial: Trial, sharing: Equal | None) -> None:
    parts = [] if sharing is None else [sharing]
    story = run(trial.recipe(*parts, Sgd(lr=1)), trial.federation)
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        release = released.release
        assert release is not None
        exact = before.weights + weighted_sum(release.updates(), release.shares)
        models = [before.weights + update for update in release.updates()]
        mean = torch.stack([share * model.double() for share, model in zip(release.shares, models, strict=True)]).sum(0)
        assert same(after.weights, exact)
        assert near(after.weights, mean)


def _with_some_momentum(self: Momentum, setup: Any, state: Any, weights: torch.Tensor, mean: torch.Tensor) -> Any:
    m = state["m"] * 0.01 + mean
    return {"m": m}, weights.add(m, alpha=self.lr)


@law(
    trial=trials(travels=False),
    lr=st.sampled_from((0.3, 1.0, 2.0)),
    dampened=st.booleans(),
    broken_by={"some momentum": swap(Momentum, "step", _with_some_momentum)},
)
def test_server_momentum_of_zero_is_server_sgd(trial: Trial, lr: float, dampened: bool) -> None:
    momentum = trial.recipe(Momentum(lr=lr, beta=0, dampened=dampened))
    assert alike(run(momentum, trial.federation), run(trial.recipe(Sgd(lr=lr)), trial.federation))


@law(
    trial=trials(equal_steps=True),
    pull=st.sampled_from((0.0, 0.5)),
    broken_by={
        "by client, not by travel": swap(
            NormalisedAveraging, "scales", lambda self, facts, shares: [1 + 1e-3 * f.client for f in facts]
        ),
        "the mean of the rest": swap(
            NormalisedAveraging, "scales", lambda self, facts, shares: [sum(f.travel for f in facts) for _ in facts]
        ),
    },
)
def test_fednova_with_equal_steps_is_fedavg(trial: Trial, pull: float) -> None:
    fednova = run(trial.recipe(Prox(mu=pull), NormalisedAveraging(effective="travel")), trial.federation)
    plain = run(trial.recipe(Prox(mu=pull)), trial.federation)
    assert all(near(a.weights, b.weights) for a, b in zip(fednova.states, plain.states, strict=True))


ALWAYS_ONE: tuple[Schedule, ...] = (
    Exponential(gamma=1),
    Exponential(gamma=1, unit="step"),
    StepDecay(every=1, gamma=1),
    Cosine(floor=1),
    Power(alpha=0),
    Power(power=0, unit="version"),
)


def _decays(self: Schedule, at: int, end: int | None) -> float:
    return float(0.999 ** (at + 1))


@law(
    trial=trials(travels=False),
    schedule=st.sampled_from(ALWAYS_ONE),
    broken_by={
        "all decay": lambda patch: [patch.setattr(type(s), "factor", _decays) for s in ALWAYS_ONE],
    },
)
def test_a_schedule_that_stays_at_one_is_no_schedule(trial: Trial, schedule: Schedule) -> None:
    assert alike(run(trial.recipe(schedule), trial.federation), run(trial.recipe(Constant()), trial.federation))


def _normalise(gradient: torch.Tensor, largest: float) -> None:
    gradient.mul_(1 / torch.linalg.vector_norm(gradient))


@law(
    trial=trials(travels=False),
    broken_by={"always to one length": swap(local_step, "clip_", _normalise)},
)
def test_a_clip_out_of_reach_is_no_clip(trial: Trial) -> None:
    none, far = (run(trial.but(clip=clip).recipe(), trial.federation) for clip in (None, 1e6))
    assert alike(none, far)


def _last_of(pushes: Any) -> Push | None:
    return pushes[-1] if pushes else None


@law(
    trial=trials(),
    first=st.permutations((Prox(mu=0.3), ControlVariates(), ModelContrast(mu=1, layer="features"))),
    second=st.permutations((Prox(mu=0.3), ControlVariates(), ModelContrast(mu=1, layer="features"))),
    broken_by={"the last correction overwrites the others": swap(training, "chain", _last_of)},
)
def test_corrections_chain_in_any_order(trial: Trial, first: Any, second: Any) -> None:
    assert alike(run(trial.recipe(*first), trial.federation), run(trial.recipe(*second), trial.federation))


@law(
    trial=trials(travels=False),
    broken_by={"the last correction overwrites the others": swap(training, "chain", _last_of)},
)
def test_pulls_add_up(trial: Trial) -> None:
    one = run(trial.recipe(Prox(mu=0.75)), trial.federation)
    two = run(trial.recipe(Prox(mu=0.5), Prox(mu=0.25)), trial.federation)
    assert alike(one, two)
