"""What a run computes is what each method's algorithm, written out by hand, computes on the same batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.core import local_step, training
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    Push,
    VarianceReduction,
)
from polyrhythm.methods.local.optimisers import LocalOptimiser, LocalSgd
from polyrhythm.methods.local.schedules import Constant
from polyrhythm.methods.mechanism import Model, Outcome
from polyrhythm.methods.papers import Common, centralised, local_only
from polyrhythm.methods.weighing import Equal, NormalisedAveraging

from .hand import buffers_of, flat, loaded, optimiser_of, train
from .law import law, swap
from .methods import FedCM, FedDyn, FedNova, FedProx, Moon, Scaffold, VrlSgd, follow
from .trials import Trial, trials
from .world import Federation, near, run, same

# What mutants wrap.
_FINISH = ControlVariates.finish
_AFTER = ControlVariates.after_step
_FOLLOWED = ClientMomentum.before_step
_TERM = ModelContrast.term
_FROZEN = TorchEngine.frozen
_OPEN = TorchEngine.open
_BUFFERS = FlatModel.buffers

DETERMINISTIC = ("logistic", "perceptron", "batchnorm")  # dropout draws from a stream that a loop by hand has not
EXACT = 1e-10  # double precision, so that only a difference in meaning shows


def in_double(trial: Trial, **common: Unpack[Common]) -> Trial:
    """The trial in double precision, at a constant rate, with some settings changed."""
    double = replace(trial.federation, dtype=torch.float64)
    return replace(trial.but(**Common(schedule=Constant()) | common), federation=double)


def _damped(self: LocalSgd, weights: Tensor, gradient: Tensor, rate: float, state: Any) -> None:
    if self.momentum:
        gradient = state["momentum"].mul_(self.momentum).add_(gradient, alpha=1 - self.momentum)
    weights.add_(gradient, alpha=-rate)


def _forgets(state: Any, like: Tensor, optimiser: LocalOptimiser) -> Any:
    return optimiser.start(like)


@law(
    trial=trials(nets=DETERMINISTIC, travels=False),
    size=st.sampled_from((6, 13)),
    examples=20,
    broken_by={
        "weight decay forgotten, momentum damped": swap(LocalSgd, "step_", _damped),
        "clip that only scales by the bound": swap(
            local_step, "clip_", lambda gradient, largest: gradient.mul_(largest)
        ),
        "optimiser state lost between versions": swap(training, "carry", _forgets),
        "buffers lost": swap(FlatModel, "buffers", lambda self: tuple(torch.zeros_like(b) for b in _BUFFERS(self))),
    },
)
def test_one_client_is_centralised_training(trial: Trial, size: int) -> None:
    # A bias before BatchNorm has a gradient of rounding errors, which Adam would blow up to full steps.
    assume(trial.federation.net != "batchnorm" or "optimiser" not in trial.common)
    federation = Federation(sizes=(size,), net=trial.federation.net, dtype=torch.float64)
    settings = in_double(trial, keep_state=True).common
    del settings["cohort"]
    recipe = centralised(**settings)
    story = run(recipe, federation)
    layout, first = federation.engine().layout, story.states[0]
    module = loaded(federation, layout, Model(weights=first.weights, buffers=first.buffers))
    optimiser, shard = optimiser_of(recipe.optimiser, module), federation.shards()[0]
    for dispatch, state in enumerate(story.states[1:]):
        train(module, layout, shard, story.batches[dispatch], optimiser, clip=recipe.optimiser.clip)
        assert near(state.weights, flat(module, layout), EXACT)
        assert all(near(a, b, EXACT) for a, b in zip(state.buffers, buffers_of(module, layout), strict=True))


def _pull_elsewhere(self: Prox, setup: Any, state: Any, brief: Any) -> Push:
    return Push(shift=setup.zeros() + self.mu)


METHODS = trials(nets=DETERMINISTIC)


@law(
    trial=METHODS,
    broken_by={
        "twice mu": swap(Prox, "push", lambda self, setup, state, brief: Push(pull=2 * self.mu)),
        "an added constant": swap(Prox, "push", _pull_elsewhere),
    },
)
def test_prox_is_half_mu_times_the_squared_distance_in_the_loss(trial: Trial) -> None:
    trial = in_double(trial, clip=None)
    follow(trial, FedProx(0.7), Prox(mu=0.7))


def _in_epochs(self: ControlVariates, setup: Any, state: Any, brief: Any, outcome: Outcome) -> Any:
    return _FINISH(self, setup, state, brief, replace(outcome, travel=outcome.travel / outcome.steps))


def _over_the_cohort(self: ControlVariates, setup: Any, state: Any, release: Any) -> Any:
    return _AFTER(self, replace(setup, population=len(release.reports)), state, release)


@law(
    trial=METHODS,
    broken_by={
        "K counts epochs": swap(ControlVariates, "finish", _in_epochs),
        "c over the cohort": swap(ControlVariates, "after_step", _over_the_cohort),
        "c_i keeps c": swap(
            ControlVariates,
            "finish",
            lambda self, s, state, brief, outcome: _FINISH(self, s, state, {"control": s.zeros()}, outcome),
        ),
    },
)
def test_scaffold_is_its_algorithm(trial: Trial) -> None:
    trial = in_double(trial, weight_decay=0, nesterov=False)
    follow(trial, Scaffold(trial), Equal(), ControlVariates())


def _of_one_step(self: ClientMomentum, setup: Any, state: Any, release: Any, mean: Tensor) -> Any:
    reports = tuple(replace(r, travel=r.rate) for r in release.reports)
    return _FOLLOWED(self, setup, state, replace(release, reports=reports), mean)


@law(
    trial=METHODS,
    broken_by={
        "a whole gradient beside it": swap(
            ClientMomentum,
            "push",
            lambda self, setup, state, brief: Push(shift=brief.get("momentum", setup.zeros()) * (1 - self.alpha)),
        ),
        "no momentum": swap(ClientMomentum, "push", lambda self, setup, state, brief: Push(factor=self.alpha)),
        "K is one": swap(ClientMomentum, "before_step", _of_one_step),
    },
)
def test_fedcm_is_its_algorithm(trial: Trial) -> None:
    """Also where clients clip, or have momentum of their own."""
    trial = in_double(trial, weight_decay=0, nesterov=False)
    follow(trial, FedCM(trial, 0.3), Equal(), ClientMomentum(alpha=0.3))


@law(
    trial=METHODS,
    broken_by={
        "the damping of the relatives": swap(
            VarianceReduction,
            "push",
            lambda self, setup, state, brief: Push(shift=-0.5 * brief.get("drift", setup.zeros())),
        ),
        "sign": swap(
            VarianceReduction,
            "push",
            lambda self, setup, state, brief: Push(shift=brief.get("drift", setup.zeros())),
        ),
    },
)
def test_vrl_sgd_is_its_algorithm(trial: Trial) -> None:
    trial = in_double(trial, weight_decay=0, nesterov=False)
    follow(trial, VrlSgd(trial), Equal(), VarianceReduction())


@law(
    trial=METHODS,
    broken_by={
        "h does not enter the step": swap(
            DynamicRegularisation, "before_step", lambda self, setup, state, release, mean: (state, mean)
        ),
        "sign of the dual": swap(
            DynamicRegularisation,
            "push",
            lambda self, setup, state, brief: Push(pull=self.alpha, shift=state["dual"]),
        ),
        "no pull": swap(DynamicRegularisation, "push", lambda self, setup, state, brief: Push(shift=-state["dual"])),
    },
)
def test_feddyn_is_its_algorithm(trial: Trial) -> None:
    trial = in_double(trial, clip=None)
    follow(trial, FedDyn(trial, 0.4), Equal(), DynamicRegularisation(alpha=0.4))


def _unheated(self: ModelContrast, view: Any) -> Tensor | None:
    return _TERM(replace(self, temperature=1.0), view)


@law(
    trial=METHODS,
    broken_by={
        "temperature ignored": swap(ModelContrast, "term", _unheated),
        "pushed to the last model": swap(ModelContrast, "term", lambda self, view: _negated(_TERM(self, view))),
        "the received model is the last one too": swap(
            TorchEngine, "frozen", lambda self, which: _FROZEN(self, "received")
        ),
    },
)
def test_moon_is_its_loss(trial: Trial) -> None:
    trial = in_double(trial, clip=None, batch=4)
    follow(trial, Moon(2.0, 0.4), ModelContrast(mu=2.0, temperature=0.4, layer="logits"))


def _negated(term: Tensor | None) -> Tensor | None:
    return None if term is None else -term


@law(
    trial=METHODS,
    broken_by={
        "a_i forgets momentum": swap(LocalSgd, "travel", lambda self, rates, pull: sum(rates)),
        "no scaling at all": swap(NormalisedAveraging, "scales", lambda self, facts, shares: [1.0] * len(facts)),
    },
    examples=12,
)
def test_fednova_is_its_algorithm(trial: Trial) -> None:
    trial = in_double(trial, weight_decay=0, nesterov=False)
    follow(trial, FedNova(trial), NormalisedAveraging())


@law(
    trial=trials(nets=DETERMINISTIC, travels=False),
    broken_by={
        "everybody starts from the global model": swap(
            TorchEngine, "open", lambda self, visit: _OPEN(self, replace(visit, start=visit.received))
        )
    },
)
def test_local_only_clients_train_as_if_each_were_alone(trial: Trial) -> None:
    assume(trial.federation.net != "batchnorm" or "optimiser" not in trial.common)
    trial = in_double(trial, cohort=len(trial.federation.sizes))
    together = run(local_only(**trial.common), trial.federation)
    assert all(same(state.weights, together.states[0].weights) for state in together.states)
    for number, state in together.clients.items():
        alone = run(trial.recipe(), replace(trial.federation, eligible=(number,)))
        assert state.previous is not None
        assert near(state.previous.weights, alone.weights, EXACT)
