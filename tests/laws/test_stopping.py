"""Clients that stop when they have drifted: who stops when, what that costs, and that watching changes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.frozen import new_unchecked
from polyrhythm.base.settings import Settings
from polyrhythm.core import training, visit_plan
from polyrhythm.core.batches import batch_sizes
from polyrhythm.core.path import Watch
from polyrhythm.core.protocols import Opening
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.correction import ControlVariates, ModelContrast, Prox
from polyrhythm.methods.mechanism import Visit
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.weighing import NormalisedAveraging, PerStep
from polyrhythm.methods.work.stop_on_drift import Drift, StopOnDrift
from polyrhythm.models.representation import locate

from .law import law, swap
from .trials import Trial, trials
from .world import NETS, Federation, Shard, alike, near, run, same

# What mutants wrap.
_REPORT = training.report_on

MIXES: tuple[tuple[Settings, ...], ...] = (
    (),
    (ModelContrast(layer="features"), Prox(mu=0.1)),
    (ModelContrast(layer="logits"),),
    (ControlVariates(),),
)
LAYERS = st.sampled_from(("projection", "features", "logits"))


def _judged_in_training(self: TorchEngine, layer: str, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return locate(self._flat.module, layer)(inputs)[1]


JUDGED_IN_TRAINING = swap(TorchEngine, "features_now", _judged_in_training)
NEVER_STOPS = swap(Watch, "says_stop", lambda self: False)


@law(
    trial=trials(),
    parts=st.sampled_from(MIXES),
    layer=LAYERS,
    examples=15,
    broken_by={
        "a threshold above all": swap(StopOnDrift, "threshold", lambda self, visit: self.a + 3),
        "judged in training mode": JUDGED_IN_TRAINING,
    },
)
def test_a_threshold_below_all_cosines_is_the_inner_work(trial: Trial, parts: tuple[Settings, ...], layer: str) -> None:
    watched = run(trial.recipe(*parts, StopOnDrift(a=-1, b=0, representation=layer)), trial.federation)
    assert alike(watched, run(trial.recipe(*parts), trial.federation))
    assert all("similarity" in r.measures for r in watched.reports.values() if r.steps)


def _epochs_of_one_step(patch: Any) -> None:
    patch.setattr(visit_plan, "new_unchecked", lambda of, /, **given: new_unchecked(of, **given | _short_epochs(of)))


def _short_epochs(kind: Any) -> dict[str, Any]:
    return {"epoch_steps": 1} if kind is Visit else {}


@law(
    net=st.sampled_from(list(NETS)),
    batch=st.sampled_from((2, 3, 5, None)),
    epochs=st.sampled_from((0.5, 1.0, 1.5, 3.0)),
    broken_by={"never stops": NEVER_STOPS, "an epoch is a step": _epochs_of_one_step},
)
def test_a_threshold_above_all_cosines_leaves_one_epoch(net: str, batch: int | None, epochs: float) -> None:
    federation = Federation(net=net)
    recipe = fedavg(cohort=4, epochs=epochs, batch=batch) | StopOnDrift(a=1.5, b=0)
    for report in run(recipe, federation, versions=2).reports.values():
        held = federation.sizes[report.client]
        size = min(batch or held, held)
        per_epoch = len(batch_sizes(held, size, False, federation.engine().single_sample_fails))
        assert report.steps == min(per_epoch, max(1, math.floor(epochs * per_epoch + 0.5)))


@law(
    threshold=st.floats(-0.5, 1.0),
    layer=LAYERS,
    rule=st.sampled_from(("mean", "min", "max", "min_k", "max_k", "sample")),
    dtype=st.sampled_from((torch.bfloat16, torch.float32)),
    broken_by={"an epoch is a step": _epochs_of_one_step},
)
def test_every_epoch_that_begins_is_finished(threshold: float, layer: str, rule: Any, dtype: torch.dtype) -> None:
    stop = StopOnDrift(a=threshold, b=0, representation=layer, batch=rule)
    federation = Federation(dtype=dtype)
    for report in run(fedavg(cohort=4, epochs=4, batch=3, lr=0.5) | stop, federation).reports.values():
        per_epoch = math.ceil(federation.sizes[report.client] / 3)
        assert report.steps in [n * per_epoch for n in range(1, 5)]


@law(
    low=st.floats(-1.0, 1.0),
    more=st.floats(0.0, 1.0),
    net=st.sampled_from(list(NETS)),
    rule=st.sampled_from(("mean", "min", "max", "sample")),
    examples=15,
    broken_by={
        "stops where they agree": swap(Drift, "reached", lambda self, found: self._describe(found) > self.threshold)
    },
)
def test_a_higher_threshold_never_runs_more_epochs(low: float, more: float, net: str, rule: Any) -> None:
    base, federation = fedavg(cohort=4, epochs=5, batch=3, lr=0.5), Federation(net=net)
    patient, strict = (
        run(base | StopOnDrift(a=a, b=0, batch=rule, representation="logits"), federation, versions=1)
        for a in (low, low + more)
    )
    for dispatch, report in strict.reports.items():
        assert report.steps <= patient.reports[dispatch].steps
        assert strict.batches[dispatch] == patient.batches[dispatch][: report.steps]


@law(
    net=st.sampled_from(list(NETS)),
    layer=LAYERS,
    broken_by={"judged in training mode": JUDGED_IN_TRAINING},
)
def test_before_the_first_step_a_client_agrees_with_what_it_received(net: str, layer: str) -> None:
    recipe = fedavg(cohort=4, steps=1, batch=4) | StopOnDrift(representation=layer)
    for report in run(recipe, Federation(net=net)).reports.values():
        assert math.isclose(report.measures["similarity"], 1.0, abs_tol=1e-6)


def _from_zero(self: StopOnDrift, visit: Visit) -> float:
    return self.a + self.b * visit.version / (visit.total_rounds or 1)


@law(
    a=st.floats(-1, 1),
    b=st.floats(0.1, 1),
    versions=st.integers(1, 4),
    endpoints=st.sampled_from(("paper", "code")),
    broken_by={"counts from zero over R": swap(StopOnDrift, "threshold", _from_zero)},
)
def test_the_threshold_rises_over_the_run(a: float, b: float, versions: int, endpoints: Any) -> None:
    recipe = fedavg(cohort=2, steps=1) | StopOnDrift(a=a, b=b, endpoints=endpoints)
    for report in run(recipe, Federation(net="logistic"), versions=versions).reports.values():
        if endpoints == "paper":
            way = (report.version + 1) / versions
        else:
            way = report.version / (versions - 1) if versions > 1 else 0.0
        assert math.isclose(report.measures["threshold"], a + b * way, abs_tol=1e-12)


def _plain_cosine(self: Drift, current: Tensor, received: Tensor) -> Tensor:
    cosine: Tensor = functional.cosine_similarity(current, received, dim=1)
    return cosine


def _naive_cosine(self: Drift, current: Tensor, received: Tensor) -> Tensor:
    cosine: Tensor = (current * received).sum(1) / (current.norm(dim=1) * received.norm(dim=1))
    return cosine


VECTORS = st.lists(st.integers(-2, 2), min_size=3, max_size=3)
RULE = Drift(layer="logits", threshold=0.5, batch="mean", k=1)


@law(
    pairs=st.lists(st.tuples(VECTORS, VECTORS), min_size=1, max_size=5),
    scale=st.sampled_from((1e-30, 1.0, 1e30)),
    dtype=st.sampled_from((torch.bfloat16, torch.float32, torch.float64)),
    examples=60,
    broken_by={
        "torch's own cosine": swap(Drift, "similarity", _plain_cosine),
        "no guard": swap(Drift, "similarity", _naive_cosine),
    },
)
def test_cosines_are_numbers_whatever_is_zero(
    pairs: list[tuple[list[int], list[int]]], scale: float, dtype: torch.dtype
) -> None:
    current, received = (scale * torch.tensor([p[side] for p in pairs], dtype=dtype) for side in range(2))
    found = RULE.similarity(current, received)
    for (one, other), cosine in zip(pairs, found.tolist(), strict=True):
        lengths = math.hypot(*one) * math.hypot(*other)
        right = math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
        assert -1 <= cosine <= 1
        assert math.isclose(cosine, 1.0 if not any(one) and not any(other) else right, abs_tol=1e-6)


_REACHED = Drift.reached


def _off_by_one(self: Drift, similarities: Tensor) -> Tensor:
    return _REACHED(replace(self, k=self.k + 1), similarities)


NUMBERS = st.lists(st.floats(width=32), min_size=3, max_size=3)


@law(
    one=NUMBERS,
    other=NUMBERS,
    dtype=st.sampled_from((torch.float16, torch.float32)),
    broken_by={
        "torch's own cosine": swap(Drift, "similarity", _plain_cosine),
        "no guard": swap(Drift, "similarity", _naive_cosine),
    },
    examples=60,
)
def test_equal_representations_agree_exactly_and_broken_ones_not_at_all(
    one: list[float], other: list[float], dtype: torch.dtype
) -> None:
    pair = torch.tensor([one, other]).to(dtype)
    finite = torch.isfinite(pair).all(dim=1)
    assert RULE.similarity(pair, pair).tolist() == [float(f) for f in finite]
    (between,) = RULE.similarity(pair[:1], pair[1:]).tolist()
    assert -1 <= between <= 1
    assert bool(finite.all()) or between == 0


@law(
    values=st.lists(st.integers(-8, 8), min_size=1, max_size=9),
    threshold=st.integers(-8, 8),
    rule=st.sampled_from(("mean", "min", "max", "min_k", "max_k", "sample")),
    k=st.integers(1, 10),
    dtype=st.sampled_from((torch.float32, torch.float64)),
    examples=100,
    broken_by={"the k+1-th smallest": swap(Drift, "reached", _off_by_one)},
)
def test_a_batch_says_stop_by_its_rule(
    values: list[int], threshold: int, rule: str, k: int, dtype: torch.dtype
) -> None:
    limit, cosines = threshold / 8, sorted(v / 8 for v in values)
    stops = bool(Drift(layer="logits", threshold=limit, batch=rule, k=k).reached(torch.tensor(values, dtype=dtype) / 8))
    place = min(k, len(cosines))
    if rule == "mean":
        mean = math.fsum(cosines) / len(cosines)
        assert stops == (mean < limit) or math.isclose(mean, limit, abs_tol=1e-6)
    elif rule == "sample":
        assert stops == (sum(c >= limit for c in cosines) < len(cosines) / 2)
    else:
        chosen = {"min": cosines[0], "max": cosines[-1], "min_k": cosines[place - 1], "max_k": cosines[-place]}
        assert stops == (chosen[rule] < limit)


@final
class Jittered(Shard):
    """A client's samples, augmented with noise."""

    augmented = True

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        inputs, targets = super().batch(positions, generator)
        if generator is not None:
            inputs = inputs + 0.1 * torch.randn(inputs.shape, generator=generator)
        return inputs, targets


@final
@dataclass(frozen=True, kw_only=True)
class Augmented(Federation):
    """A federation of `Jittered` clients."""

    def shards(self) -> tuple[Shard, ...]:
        return tuple(Jittered(s.inputs, s.targets) for s in Federation.shards(self))


def _reuses(reuse: bool) -> Any:
    changes = {"reuse": reuse}
    return swap(
        training,
        "new_unchecked",
        lambda of, /, **given: new_unchecked(of, **given | (changes if of is Opening else {})),
    )


@law(
    net=st.sampled_from(list(NETS)),
    augmented=st.booleans(),
    epochs=st.sampled_from((0.5, 1.0, 2.0)),
    contrast=st.booleans(),
    broken_by={"frozen models run batch by batch": _reuses(False), "always once a visit": _reuses(True)},
    examples=20,
)
def test_watching_costs_one_pass_of_the_received_model(
    net: str, augmented: bool, epochs: float, contrast: bool
) -> None:
    federation: Federation = Augmented(net=net) if augmented else Federation(net=net)
    recipe = fedavg(cohort=4, epochs=epochs, batch=3) | StopOnDrift(a=-1, b=0, representation="features")
    if contrast:
        recipe = recipe | ModelContrast(layer="features")
    by_mode = net in ("batchnorm", "dropout")
    for report in run(recipe, federation, versions=2).reports.values():
        frozen = report.num_samples if not augmented and epochs >= 1 else report.samples
        models = 2 if contrast and report.visit else 1
        assert report.forward_samples == models * frozen + (report.samples if by_mode else 0)


def _planned_steps(assignment: Any, num_samples: int, **rest: Any) -> Any:
    if "threshold" in rest.get("measures", {}):
        rest["steps"] *= 3
    return _REPORT(assignment, num_samples, **rest)


@law(
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    parts=st.sampled_from(((ControlVariates(),), (NormalisedAveraging(),), (PerStep(),), (PerStep(divide="travel"),))),
    momentum=st.sampled_from((0.0, 0.9)),
    broken_by={"never stops": NEVER_STOPS, "the steps that were planned": swap(training, "report_on", _planned_steps)},
)
def test_what_counts_steps_counts_those_taken(net: str, parts: tuple[Settings, ...], momentum: float) -> None:
    federation = Federation(net=net)
    stopped, planned = (fedavg(cohort=3, epochs=e, batch=3, momentum=momentum) for e in (3, 1))
    stopped = stopped | StopOnDrift(a=1.5, b=0)
    for part in parts:
        stopped, planned = stopped | part, planned | part
    one, other = run(stopped, federation), run(planned, federation)
    assert alike(one, other)
    assert [r.travel for r in one.reports.values()] == [r.travel for r in other.reports.values()]
    assert all(same(a.extras, b.extras) for a, b in zip(one.reports.values(), other.reports.values(), strict=True))


def _sum_of_similarities(self: Any, steps: int) -> dict[str, float]:
    return {"threshold": 0.0, "similarity": float(self._similarity)} if steps else {}


@law(
    net=st.sampled_from(("perceptron", "logistic")),
    steps=st.integers(2, 5),
    broken_by={"a sum in place of a mean": swap(Watch, "measures", _sum_of_similarities)},
)
def test_the_similarity_in_the_record_is_the_mean_over_steps(net: str, steps: int) -> None:
    federation = Federation(net=net, dtype=torch.float64, sizes=(9,))
    recipe = fedavg(cohort=1, steps=steps, batch=None, lr=0.5) | StopOnDrift(a=-1, b=0, representation="logits")
    short = [fedavg(cohort=1, steps=k, batch=None, lr=0.5) for k in range(1, steps)]
    engine, shard = federation.engine(), federation.shards()[0]
    first = engine.initial().weights
    path = [first, *(run(r, federation, versions=1).weights for r in short)]
    engine.weights.copy_(first)
    received = engine.features_now("logits", shard.inputs)
    cosines = []
    for weights in path:
        engine.weights.copy_(weights)
        cosines.append(functional.cosine_similarity(engine.features_now("logits", shard.inputs), received).mean())
    report = run(recipe, federation, versions=1).reports[0]
    assert near(torch.tensor(report.measures["similarity"]), torch.stack(cosines).mean(), 1e-6)
