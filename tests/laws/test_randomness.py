"""Where chance comes from: the seed alone. No global generator is touched, and nothing that ran before matters."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.settings import Settings
from polyrhythm.base.streams import seeded_torch
from polyrhythm.core import client, local_run
from polyrhythm.core.protocols import Opening
from polyrhythm.engines import torch as torch_engine
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.correction import ControlVariates, ModelContrast
from polyrhythm.methods.order.base import Curriculum, Shuffled
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.participation.base import Sweep
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace, GradientNorm
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adam
from polyrhythm.methods.work.stop_on_drift import StopOnDrift

from .law import Mutation, law, swap
from .trials import Trial, arrivals, shuffled, trials
from .world import Federation, Shard, alike, invitations, play, run, same

# What mutants wrap.
_OPEN = TorchEngine.open
_SEEDED = seeded_torch

PARTS = st.sampled_from(((), (Sweep(), ControlVariates()), (ModelContrast(layer="logits"), Adam())))


def _numpy_order(self: Shuffled, visit: Any, *given: Any) -> np.ndarray:
    return np.random.permutation(visit.num_samples)


def _python_order(self: Shuffled, visit: Any, *given: Any) -> np.ndarray:
    return np.array(random.sample(range(visit.num_samples), visit.num_samples))


class _Unseeded:
    def __init__(self, *names: object) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


unseeded: Mutation = swap(local_run, "seeded_torch", _Unseeded)


@law(
    trial=trials(travels=False),
    parts=PARTS,
    broken_by={
        "NumPy's generator": swap(Shuffled, "one_pass", _numpy_order),
        "Python's generator": swap(Shuffled, "one_pass", _python_order),
        "dropout from torch's generator": unseeded,
    },
)
def test_no_global_generator_is_touched(trial: Trial, parts: tuple[Settings, ...]) -> None:
    if "optimiser" in trial.common or trial.common["keep_state"]:
        parts = parts[2:]
    before = torch.get_rng_state().clone(), random.getstate(), np.random.get_state()
    run(trial.recipe(*parts), trial.federation)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]
    assert all(np.array_equal(a, b) for a, b in zip(before[2], after[2], strict=True))


@law(
    trial=trials(),
    parts=PARTS,
    other=trials(),
    broken_by={
        "dropout from torch's generator": unseeded,
    },
)
def test_a_run_does_not_depend_on_what_ran_before(trial: Trial, parts: tuple[Settings, ...], other: Trial) -> None:
    recipe = trial.recipe(*parts)
    first = run(recipe, trial.federation)
    run(other.recipe(), other.federation)
    torch.rand(3)
    np.random.random()
    random.random()
    second = run(recipe, trial.federation)
    assert alike(first, second)
    assert same(first.states, second.states)
    assert same(first.clients, second.clients)


def _not_loaded(self: FlatModel, weights: Any, buffers: Any) -> None:
    self.weights.copy_(weights)
    self.refresh()


def _keeps_its_models(self: TorchEngine, visit: Opening) -> None:
    loaded = set(self._loaded)
    _OPEN(self, visit)
    self._loaded |= loaded


def _keeps_its_features(self: TorchEngine, visit: Opening) -> None:
    features = dict(self._frozen_features)
    _OPEN(self, visit)
    self._frozen_features |= {k: f for k, f in features.items() if len(f) == len(visit.data)}


@law(
    trial=trials(nets=("batchnorm", "dropout")),
    odd=st.sampled_from((False, False, True)),
    parts=PARTS,
    order=arrivals(),
    broken_by={
        "buffers leak into the next visit": swap(FlatModel, "load", _not_loaded),
        "frozen models outlive their visit": swap(TorchEngine, "open", _keeps_its_models),
        "their features outlive their visit": swap(TorchEngine, "open", _keeps_its_features),
        "dropout from torch's generator": unseeded,
    },
)
def test_a_shared_engine_is_as_good_as_one_for_every_visit(
    trial: Trial, odd: bool, parts: tuple[Settings, ...], order: int
) -> None:
    federation = replace(trial.federation, net="odd") if odd else trial.federation
    shared = run(trial.recipe(*parts), federation)
    apart = play(trial.recipe(*parts), federation, apart=True, arrival=lambda invited: shuffled(order, invited))
    assert alike(shared, apart)
    assert same(shared.clients, apart.clients)


def _in_eval_mode(self: TorchEngine, visit: Opening) -> None:
    _OPEN(self, visit)
    self.module.eval()


def _one_stream(seed: int, purpose: Any, *names: Any) -> Any:
    return _SEEDED(seed, purpose)


@dataclass(frozen=True, kw_only=True)
class Clones(Federation):
    """A federation in which all samples of all clients are one and the same."""

    def shards(self) -> tuple[Shard, ...]:
        first = Federation.shards(self)[0]
        return tuple(Shard(first.inputs[:1].expand(n, -1), first.targets[:1].expand(n)) for n in self.sizes)


@law(
    epochs=st.sampled_from((1.0, 2.0)),
    seeds=st.permutations((0, 1, 2)),
    broken_by={
        "no dropout in training": swap(TorchEngine, "open", _in_eval_mode),
        "one mask for all": swap(local_run, "seeded_torch", _one_stream),
    },
)
def test_dropout_repeats_by_run_and_differs_by_client_and_visit(epochs: float, seeds: list[int]) -> None:
    # One sample, over and over: visits of one version that start from one model differ in nothing but their masks.
    recipe = fedavg(**Common(cohort=2, epochs=epochs, batch=None, lr=1e-6))
    story, again, other = (
        run(recipe, Clones(net="dropout", sizes=(60, 60), seed=s)) for s in (*seeds[:1] * 2, seeds[1])
    )
    assert alike(story, again)
    losses = [report.loss for one in (story, other) for report in one.reports.values()]
    assert len(set(losses)) == len(losses)


@law(
    trial=trials(nets=("perceptron",)),
    broken_by={
        "the seed goes nowhere": lambda patch: (
            patch.setattr(Shuffled, "one_pass", lambda self, visit, *given: np.arange(visit.num_samples)),
            patch.setattr(
                Sweep, "invite", lambda self, s, state, call: (state, invitations(call.roster.all()[: self.size]))
            ),
        ),
    },
)
def test_another_seed_is_another_run_on_the_same_data(trial: Trial) -> None:
    recipe = trial.but(batch=2, drop_last=False).recipe(Sweep())
    one, other = (run(recipe, replace(trial.federation, seed=seed)) for seed in (10, 11))
    assert one.batches != other.batches
    assert same(one.states[0].weights, other.states[0].weights)
    assert not same(one.weights, other.weights)


# Models that draw whenever they are looked at, in eval mode, too.

LOOKS: dict[str, Settings] = {
    "measured by itself": LossSampling(cohort=2, d=3),
    "Fisher traces": CriticalPeriods(detector=FisherTrace(), watch=(FisherTrace(labels="model"),)),
    "ranked samples": Curriculum(score="both", least=1),
    "a representation": StopOnDrift(a=0.5, b=0, representation="logits"),
    "frozen models": ModelContrast(layer="logits"),
}


def _hazy(look: str) -> tuple[Recipe, Federation]:
    return fedavg(cohort=2, epochs=1, batch=4, lr=0.1) | LOOKS[look], Federation(net="hazy", sizes=(5, 12, 7))


def _unnamed(*names: object) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def unnamed(patch: pytest.MonkeyPatch) -> None:
    for module in (client, local_run):
        patch.setattr(module, "measuring", _unnamed)


@law(
    look=st.sampled_from(sorted(LOOKS)),
    broken_by={
        "looks from torch's generator": unnamed,
        "fisher from torch's generator": lambda patch: patch.setattr(
            local_run.LocalRun, "looking", lambda self, what: contextlib.nullcontext()
        ),
    },
)
def test_whoever_looks_at_a_model_touches_no_global_generator(look: str) -> None:
    recipe, federation = _hazy(look)
    before = torch.get_rng_state().clone()
    run(recipe, federation)
    assert torch.equal(torch.get_rng_state(), before)


@law(
    look=st.sampled_from(sorted(LOOKS)),
    order=arrivals(),
    broken_by={"looks from torch's generator": unnamed},
)
def test_what_is_seen_of_a_model_does_not_depend_on_who_looks_and_when(look: str, order: int) -> None:
    recipe, federation = _hazy(look)
    shared = run(recipe, federation)
    torch.rand(3)
    apart = play(recipe, federation, apart=True, arrival=lambda invited: shuffled(order, invited))
    assert alike(shared, apart)
    seen = [{d: r.measures for d, r in story.reports.items()} for story in (shared, apart)]
    assert same(*seen)


@law(
    batch=st.sampled_from((2, 4, None)),
    epochs=st.sampled_from((0.5, 1.0, 2.0)),
    broken_by={"looks in the training's stream": swap(torch_engine, "seeded_torch", _unnamed)},
)
def test_training_draws_the_same_whether_anybody_looks_or_not(batch: int | None, epochs: float) -> None:
    federation = Federation(net="hazy", sizes=(5, 12, 7))
    plain = fedavg(cohort=2, epochs=epochs, batch=batch, lr=0.1)
    never = plain | StopOnDrift(a=-1.0, b=0, representation="logits")  # a cosine is never less
    only_watched = plain | CriticalPeriods(act=False, detector=GradientNorm(), watch=(FisherTrace(),))
    stories = [run(method, federation) for method in (plain, never, only_watched)]
    assert alike(stories[0], stories[1])
    assert alike(stories[0], stories[2])


@law(
    seed=st.integers(0, 3),
    broken_by={
        "one stream for all": swap(client, "measuring", lambda engine, data, seed, *names: _SEEDED(seed, "measure")),
    },
)
def test_looks_differ_by_client(seed: int) -> None:
    # Clients that hold the same sample, over and over, and are measured by the same model.
    clones = Clones(net="hazy", sizes=(9, 9, 9), seed=seed)
    recipe = fedavg(cohort=2, epochs=1, batch=4, lr=0.1) | LossSampling(d=3)
    story = run(recipe, clones, versions=1)
    losses = [r.measures["loss"] for r in story.reports.values() if r.kind == "measure"]
    assert len(losses) == 3
    assert len(set(losses)) == 3
