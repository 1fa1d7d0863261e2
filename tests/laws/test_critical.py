"""Critical learning periods: how large a cohort becomes, what is measured for it, and that measuring is free."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.messages import Report, State, SubstituteKind
from polyrhythm.base.streams import stream
from polyrhythm.core import local_step, training
from polyrhythm.core.path import Path
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.mechanism import Model, Release, Setup
from polyrhythm.methods.papers import fedadam, fedavg, fedcl, fednova, fedprox, scaffold, vrl_sgd
from polyrhythm.methods.participation.base import (
    InvitationContext,
    Participation,
    ParticipationModifier,
    Sweep,
    Uniform,
)
from polyrhythm.methods.participation.critical_periods import (
    CriticalPeriods,
    Detector,
    FisherTrace,
    GradientNorm,
    RandomResize,
    ReleasedNorm,
    Signal,
)
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.differential_privacy import Dp
from polyrhythm.methods.weighing import Equal
from polyrhythm.models.tasks import Classification
from polyrhythm.simulation.roster import OpenRoster

from .hand import loaded, optimiser_of
from .law import law, swap
from .trials import Trial, trials
from .world import Federation, alike, invitations, near, run, same

# What mutants wrap.
_AFTER = CriticalPeriods.after_step
_RESIZED, _OVER, _LOOK, _FISHER = RandomResize.after_step, Detector.over, local_step.squared_norm, TorchEngine.fisher
_DRAW = Classification.draw

RATE = 0.5


def setup(population: int, cohort: int = 4) -> Setup:
    return Setup(size=1, dtype=torch.float32, population=population, total_rounds=None, seed=0, cohort=cohort)


def report(who: int, square: float, *, num_samples: int = 4, steps: int = 4, substitute: SubstituteKind = "") -> Report:
    """One epoch of `steps` batches, with this mean squared norm."""
    return Report(
        dispatch=who,
        client=who,
        visit=0,
        version=0,
        kind="train",
        recipe="",
        num_samples=num_samples,
        update=None,
        steps=steps,
        samples=num_samples,
        rate=RATE,
        substitute=substitute,
        measures={} if substitute else {"gradient_square": square, "fisher": 3 * square, "fisher_model": 5 * square},
    )


def release(version: int, reports: Sequence[Report]) -> Release:
    equal = (1 / len(reports),) * len(reports)
    return Release(
        version=version, reports=tuple(reports), shares=equal, scales=(1.0,) * len(reports), weights=torch.zeros(1)
    )


def cohorts(policy: ParticipationModifier, m: int, population: int, squares: Sequence[float]) -> list[int]:
    """The size of each version's cohort, if all clients of version v find squares[v]; one more than squares."""
    fixed, roster = setup(population, m), OpenRoster(population, range(population))
    recipe, sizes = fedavg(cohort=m) | policy, []
    parts, key = recipe.server_start(fixed), policy.label()
    for version, square in enumerate([*squares, 0.0]):
        call = InvitationContext(version=version, weights=torch.zeros(1), buffers=(), roster=roster)
        parts, invited = recipe.inviting.invite(fixed, parts, call)
        assert len({i.client for i in invited}) == len(invited)
        sizes.append(len(invited))
        answers = release(version, [report(i.client, square) for i in invited])
        parts = {**parts, key: policy.after_step(fixed, parts[key], answers)}
    return sizes


def detectors() -> st.SearchStrategy[Detector]:
    weigh: Any = st.sampled_from(("samples", "equal"))
    norms = st.builds(GradientNorm, weigh=weigh, reduce=st.sampled_from(("mean", "sum")), with_rate=st.booleans())
    return st.one_of(norms, st.builds(FisherTrace, weigh=weigh, labels=st.sampled_from(("data", "model"))))


def signals() -> st.SearchStrategy[Signal]:
    return st.one_of(detectors(), st.just(ReleasedNorm()))


def _acts_all_the_same(
    self: CriticalPeriods, fixed: Setup, state: State, context: InvitationContext
) -> InvitationContext:
    return replace(context, count=state["size"])


def _touches_the_gradient(gradient: Tensor) -> Tensor:
    square = _LOOK(gradient)
    gradient.mul_(1.001)
    return square


def _in_the_model_in_training(self: TorchEngine, model: Model, data: Any, **rest: Any) -> float:
    self.weights.mul_(1.001)
    return _FISHER(self, model, data, **rest)


def _after_some_draws(self: TorchEngine, model: Model, data: Any, **rest: Any) -> float:
    vars(self)["_flat"].module.eval()
    return _FISHER(self, model, data, **rest)


@law(
    trial=trials(travels=False),
    detector=signals(),
    watch=st.lists(signals(), max_size=2).map(tuple),
    examples=10,
    broken_by={
        "acts all the same": swap(CriticalPeriods, "asked", _acts_all_the_same),
        "the norm touches the gradient": swap(local_step, "squared_norm", _touches_the_gradient),
        "fisher in the model in training": swap(TorchEngine, "fisher", _in_the_model_in_training),
        "fisher leaves eval mode behind": swap(TorchEngine, "fisher", _after_some_draws),
    },
)
def test_watching_is_exactly_the_inner_policy(trial: Trial, detector: Signal, watch: tuple[Signal, ...]) -> None:
    policy = CriticalPeriods(act=False, detector=detector, watch=watch)
    story = run(trial.recipe(policy), trial.federation)
    assert alike(story, run(trial.recipe(), trial.federation))
    (state,) = (s for key, s in story.states[-1].parts.items() if key == "critical_periods")
    found = policy.measures(state)
    kinds = Counter(d.label() for d in (detector, *watch))
    names = {k if n == 0 else f"{k}_{n + 1}" for k, count in kinds.items() for n in range(count)}
    assert found.keys() == names | {"critical", "next_cohort"}


def literal(squares: Sequence[int], m: int, largest: int, delta: Fraction, least: int) -> list[int]:
    """Algorithm 2 by hand, with what METHODS says of its gaps: the first version is critical, halves round up."""
    sizes = [m]
    for old, new in zip([None, *squares], squares, strict=False):
        size = sizes[-1]
        if old is None or Fraction(new - old, old) >= delta:
            sizes.append(max(size, min(2 * size, largest)))
        else:
            sizes.append(min(size, max((size + 1) // 2, least)))
    return sizes


SQUARES = st.lists(st.integers(1, 8), min_size=1, max_size=12)
DELTAS = st.sampled_from((-0.5, 0.0, 0.25, 0.5, 1.0))


def _with(**settings: Any) -> Callable[..., State]:
    """The rule of a version, with other settings."""
    return lambda self, *given: _AFTER(replace(self, **settings), *given)


def _strictly(self: CriticalPeriods, *given: Any) -> State:
    return _AFTER(replace(self, delta=math.nextafter(self.delta, math.inf)), *given)


def _rounded_down(self: CriticalPeriods, fixed: Setup, state: State, what: Release) -> State:
    after = _AFTER(self, fixed, state, what)
    return {**after, "size": state["size"] // 2 or 1} if after["size"] < state["size"] else after


def _quiet_at_first(self: CriticalPeriods, fixed: Setup, state: State, what: Release) -> State:
    return _AFTER(self, fixed, {**state, "history": state["history"] or [1e12]}, what)


def _of_many(self: CriticalPeriods, fixed: Setup, state: State, what: Release) -> State:
    return _AFTER(self, replace(fixed, population=10**6), state, what)


@law(
    squares=SQUARES,
    delta=DELTAS,
    m=st.integers(1, 12),
    more=st.integers(0, 40),
    cap=st.sampled_from((0.25, 0.5, 1.0)),
    floor=st.sampled_from((0.25, 0.5, 1.0)),
    examples=60,
    broken_by={
        "more than delta": swap(CriticalPeriods, "after_step", _strictly),
        "halves rounded down": swap(CriticalPeriods, "after_step", _rounded_down),
        "quiet at first": swap(CriticalPeriods, "after_step", _quiet_at_first),
        "no floor": swap(CriticalPeriods, "after_step", _with(floor=1e-6)),
        "no cap": swap(CriticalPeriods, "after_step", _of_many),
    },
)
def test_the_literal_rule_by_hand(
    squares: list[int], delta: float, m: int, more: int, cap: float, floor: float
) -> None:
    population = m + more
    policy = CriticalPeriods(delta=delta, cap=cap, floor=floor)
    least = max(1, math.ceil(Fraction(str(floor)) * m))
    expected = literal(squares, m, max(1, math.floor(Fraction(str(cap)) * population)), Fraction(delta), least)
    assert cohorts(policy, m, population, squares) == expected


@law(
    m=st.integers(1, 20),
    more=st.integers(0, 50),
    squares=st.lists(st.floats(1e-2, 1e2), min_size=8, max_size=8),
    broken_by={
        "a delta of its own": swap(CriticalPeriods, "after_step", _with(delta=0.0)),
        "no floor": swap(CriticalPeriods, "after_step", _with(floor=1e-6)),
    },
)
def test_the_extremes_of_delta(m: int, more: int, squares: list[float]) -> None:
    population = m + more
    never = cohorts(CriticalPeriods(delta=1e12), m, population, squares)
    down = [min(2 * m, population)]
    while len(down) < 8:
        down.append(max((down[-1] + 1) // 2, (m + 1) // 2))
    assert never == [m, *down]
    assert never[-1] == (m + 1) // 2
    always = cohorts(CriticalPeriods(delta=-1e12), m, population, squares)
    assert always == [min(m * 2**version, population) for version in range(9)]


def windowed(squares: Sequence[int], m: int, largest: int, delta: Fraction, least: int, window: int) -> list[int]:
    """METHODS 1.3, by the equivalence it gives: x_c - x_{c - w} > delta * (x_{c - w} + ... + x_{c - 1}), or c <= 5."""
    padded, sizes, latched = [Fraction(0)] * (window + 1), [m], False
    for version, square in enumerate(squares):
        size = sizes[-1]
        if version % 2 == 0:  # the first, third, fifth round have a check before the next one
            padded.append(Fraction(square))
            check, before = version // 2 + 1, padded[-1 - window : -1]
            before_sum = max(sum(before, Fraction(0)), window * Fraction(1e-7))
            is_critical = check <= 5 or padded[-1] - before[0] > delta * before_sum
            latched = latched or size >= largest
            if not is_critical:
                size = min(size, max(size - size // 2, least))
            elif not latched:
                size = max(size, min(2 * size, largest))
        sizes.append(size)
    return sizes


def _every_version(self: CriticalPeriods, fixed: Setup, state: State, what: Release) -> State:
    return _AFTER(self, fixed, state, replace(what, version=0))


def _seems_old(self: CriticalPeriods, fixed: Setup, state: State, what: Release) -> State:
    """The history is taken to be long: none of the first checks is critical of itself."""
    return _AFTER(self, fixed, {**state, "history": [*[0.0] * 5, *state["history"]]}, what)


def _forgets_the_latch(self: CriticalPeriods, fixed: Setup, state: State, what: Release) -> State:
    return {**_AFTER(self, fixed, state, what), "latched": False}


@law(
    squares=st.lists(st.sampled_from((1, 1, 2, 4, 16, 64)), min_size=10, max_size=40),
    delta=st.sampled_from((-0.25, 0.0, 0.25)),
    window=st.sampled_from((1, 2, 4, 8)),
    m=st.integers(1, 6),
    examples=60,
    broken_by={
        "a check in every version": swap(CriticalPeriods, "after_step", _every_version),
        "no latch": swap(CriticalPeriods, "after_step", _forgets_the_latch),
        "no window": swap(CriticalPeriods, "after_step", _with(window=1)),
        "quiet at first": swap(CriticalPeriods, "after_step", _seems_old),
    },
)
def test_the_windowed_rule_by_hand(squares: list[int], delta: float, window: int, m: int) -> None:
    policy = CriticalPeriods(delta=delta, rule="windowed", window=window, cap=0.75, floor=1.0)
    expected = windowed(squares, m, 12, Fraction(delta), m, window)
    assert cohorts(policy, m, 16, squares) == expected


@law(
    decline=st.floats(0.89, 0.99),
    scale=st.sampled_from((1e-2, 1.0, 1e3)),
    broken_by={
        "a check in every version": swap(CriticalPeriods, "after_step", _every_version),
        "checks a version later": swap(
            CriticalPeriods,
            "after_step",
            lambda self, fixed, state, what: _AFTER(self, fixed, state, replace(what, version=what.version + 1)),
        ),
        "the cap is everybody": swap(CriticalPeriods, "after_step", _with(cap=1.0)),
        "half of m is enough": swap(CriticalPeriods, "after_step", _with(floor=0.5)),
    },
)
def test_the_trace_of_the_authors_program(decline: float, scale: float) -> None:
    """128 clients, 16 of them at first, and a norm that only declines: METHODS 1.3.6."""
    expected = [16] + [32] * 2 + [64] * 2 + [96] * 16 + [48] * 2 + [24] * 2 + [16] * 15
    squares = [scale * decline**version for version in range(len(expected) - 1)]
    ((_, policy),) = fedcl(kdd23=True).of(CriticalPeriods)
    assert cohorts(policy, 16, 128, squares) == expected


def _absolutely(self: CriticalPeriods, fixed: Setup, state: State, what: Release) -> State:
    old = state["history"][-1] if state["history"] else 1.0
    return _AFTER(replace(self, delta=self.delta / old), fixed, state, what)


@law(
    squares=SQUARES,
    scale=st.sampled_from((2.0**-10, 0.25, 8.0, 2.0**20)),
    rule=st.sampled_from(("literal", "windowed")),
    examples=20,
    broken_by={
        "an absolute difference": swap(CriticalPeriods, "after_step", _absolutely),
    },
)
def test_the_scale_of_the_norm_changes_nothing(squares: list[int], scale: float, rule: Any) -> None:
    policy = CriticalPeriods(rule=rule, window=4)
    assert cohorts(policy, 4, 30, squares) == cohorts(policy, 4, 30, [scale * s for s in squares])


def _silence_counts_as_zero(self: Detector, reports: Sequence[Report]) -> float | None:
    return math.fsum(r.measures.get("gradient_square", 0.0) for r in reports) / len(reports)


@law(
    squares=st.lists(st.integers(1, 8), min_size=2, max_size=6),
    rule=st.sampled_from(("literal", "windowed")),
    broken_by={"who skips counts as zero": swap(Detector, "over", _silence_counts_as_zero)},
)
def test_where_nobody_trained_value_and_size_stay(squares: list[int], rule: Any) -> None:
    policy, fixed = CriticalPeriods(rule=rule), setup(20)
    state = policy.server_start(fixed)
    for version, square in enumerate(squares):
        state = policy.after_step(fixed, state, release(version, [report(0, square)]))
        substitutes = [report(0, 1, substitute="movement"), report(1, 1, steps=0)]
        for later in (1, 2):
            after = policy.after_step(fixed, state, release(version + later, substitutes))
            assert (after["history"], after["size"], after["critical"]) == (
                state["history"],
                state["size"],
                state["critical"],
            )
            assert policy.measures(after) == policy.measures(state)


@law(
    squares=st.lists(st.floats(0.1, 10), min_size=1, max_size=5),
    held=st.lists(st.integers(1, 9), min_size=5, max_size=5),
    epochs=st.integers(1, 3),
    detector=detectors(),
    examples=30,
    broken_by={
        "always by samples": swap(
            Detector,
            "over",
            lambda self, reports: _OVER(replace(self, weigh="samples"), reports),
        ),
        "the rate forgotten": swap(
            GradientNorm,
            "value",
            lambda self, r: (
                r.measures["gradient_square"] * (r.steps * r.num_samples / r.samples if self.reduce == "sum" else 1)
            ),
        ),
        "the labels' measures mixed up": swap(
            FisherTrace,
            "value",
            lambda self, r: r.measures["fisher_model" if self.labels == "data" else "fisher"],
        ),
        "summed over the whole visit": swap(
            GradientNorm,
            "value",
            lambda self, r: (
                r.measures["gradient_square"]
                * (r.steps if self.reduce == "sum" else 1)
                * (r.rate if self.with_rate else 1)
            ),
        ),
    },
)
def test_what_the_detectors_add_up(squares: list[float], held: list[int], epochs: int, detector: Detector) -> None:
    """Samples one by one, so an epoch has as many batches as the client has samples."""
    reports = [
        replace(report(who, square, num_samples=n, steps=n * epochs), samples=n * epochs)
        for who, (square, n) in enumerate(zip(squares, held, strict=False))
    ]
    values = []
    for one in reports:
        if isinstance(detector, GradientNorm):
            an_epoch = one.measures["gradient_square"] * (one.num_samples if detector.reduce == "sum" else 1)
            values.append(an_epoch * (RATE if detector.with_rate else 1))
        else:
            values.append(one.measures["fisher" if detector.labels == "data" else "fisher_model"])
    claims = [one.num_samples if detector.weigh == "samples" else 1 for one in reports]
    expected = sum(c * v for c, v in zip(claims, values, strict=True)) / sum(claims)
    found = detector.over([*reports, report(9, 1, substitute="movement")])
    assert found is not None
    assert math.isclose(found, expected, rel_tol=1e-12)


def _of_the_model(self: CriticalPeriods, fixed: Setup, state: State, given: Release, mean: Tensor) -> Any:
    return _LENGTH(self, fixed, state, given, given.weights)[0], mean


_LENGTH = CriticalPeriods.before_step


@law(
    trial=trials(travels=False),
    noise=st.sampled_from((0.0, 0.3)),
    examples=8,
    broken_by={
        "the length of the model": swap(CriticalPeriods, "before_step", _of_the_model),
        "what noise adds is left in": swap(Dp, "spread", lambda self, state, given: 0.0),
    },
)
def test_the_length_of_what_the_server_steps_on_and_less_what_noise_adds(trial: Trial, noise: float) -> None:
    """|w_(t+1) - w_t|^2 with a server that takes the mean whole, less P (z C / m)^2."""
    policy, clip = CriticalPeriods(act=False, detector=ReleasedNorm()), 0.5
    hidden = (Equal(), Dp(noise=noise, clip=clip), policy) if noise else (policy,)
    recipe = trial.recipe(*hidden)
    story = run(recipe, trial.federation, versions=3)
    real = sum(segment.size for segment in trial.federation.engine().layout.segments)
    expected = real * (noise * clip / min(recipe.cohort, len(trial.federation.sizes))) ** 2
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        if released.release is None:
            continue
        square = float((after.weights - before.weights).double().square().sum())
        found = policy.measures(after.parts["critical_periods"])["released_norm"]
        assert math.isclose(found, square - expected, rel_tol=1e-3, abs_tol=1e-4 * square + 1e-9)


def squares_by_hand(trial: Trial, story: Any, dispatch: int, mu: float) -> list[float]:
    """The squared norms of a visit's clipped gradients, before the pull and weight decay, from a visit by hand."""
    recipe, federation = trial.recipe(), trial.federation
    assignment, shard = story.assignments[dispatch], federation.shards()[story.assignments[dispatch].client]
    layout = federation.engine().layout
    module = loaded(federation, layout, Model(weights=assignment.weights, buffers=assignment.buffers))
    start = [p.detach().clone() for p in module.parameters()]
    optimiser, squares = optimiser_of(recipe.optimiser, module), []
    for positions in story.batches[dispatch]:
        optimiser.zero_grad()
        functional.cross_entropy(module(shard.inputs[positions]), shard.targets[positions]).backward()  # type: ignore[no-untyped-call]
        if recipe.optimiser.clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), recipe.optimiser.clip)
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        squares.append(sum(float(g.double().square().sum()) for g in gradients))
        with torch.no_grad():
            for gradient, parameter, first in zip(gradients, module.parameters(), start, strict=True):
                gradient.add_(parameter - first, alpha=mu)
        optimiser.step()
    return squares


def _norms(gradient: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradient, dtype=torch.float64)


def _the_last_one(self: Path, *given: Any) -> None:
    self._gradient_squares = 0.0
    _ADD(self, *given)


def _with_decay(gradient: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradient + 0.01, dtype=torch.float64).square()


_ADD = Path.add


@law(
    trial=trials(nets=("logistic", "perceptron", "batchnorm")),
    mu=st.sampled_from((0.0, 0.5)),
    examples=12,
    broken_by={
        "norms, not their squares": swap(local_step, "squared_norm", _norms),
        "only the last batch": swap(Path, "add", _the_last_one),
        "with something added": swap(local_step, "squared_norm", _with_decay),
        "clipping forgotten": swap(local_step, "clip_", lambda gradient, largest: None),
    },
)
def test_the_norm_is_that_of_the_clipped_gradients(trial: Trial, mu: float) -> None:
    trial = trial.but(schedule=fedavg().schedule)
    detector = GradientNorm()
    story = run(trial.recipe(Prox(mu=mu), CriticalPeriods(act=False, detector=detector)), trial.federation, versions=2)
    for dispatch, answer in story.reports.items():
        squares = squares_by_hand(trial, story, dispatch, mu)
        if squares:
            assert near(
                torch.tensor(answer.measures["gradient_square"]), torch.tensor(sum(squares) / len(squares)), 1e-4
            )
            assert math.isclose(detector.value(answer), answer.measures["gradient_square"] * trial.common["lr"])


# The Fisher trace for the labels of the model.

BOTH = CriticalPeriods(act=False, detector=FisherTrace(), watch=(FisherTrace(labels="model"),))


def _from_torchs_generator(self: Any, outputs: Tensor, generator: Any) -> Tensor:
    return torch.multinomial(outputs.softmax(dim=1), 1).squeeze(1)


def _from_numpys_generator(self: Any, outputs: Tensor, generator: Any) -> Tensor:
    return _DRAW(self, outputs, np.random.mtrand._rand)


def _by(choose: Callable[..., tuple[int | str, ...]]) -> Callable[..., Any]:
    """Streams with other names."""
    return lambda seed, purpose, *names: stream(seed, purpose, *choose(*names))


def _one_after_another() -> Callable[..., Any]:
    count = itertools.count()
    return lambda seed, purpose, *names: stream(seed, purpose, next(count))


@law(
    trial=trials(),
    broken_by={
        "from torch's generator": swap(Classification, "draw", _from_torchs_generator),
        "from NumPy's generator": swap(Classification, "draw", _from_numpys_generator),
        "alike at every client": swap(training, "stream", _by(lambda who, visit: (0, visit))),
        "alike at every visit": swap(training, "stream", _by(lambda who, visit: (who, 0))),
        "named by what was drawn before": swap(training, "stream", _one_after_another()),
    },
)
def test_the_models_labels_are_named_by_client_and_visit_alone(trial: Trial) -> None:
    """The measure is that of a fresh engine with the named stream, and no other generator is touched."""
    before = torch.get_rng_state(), np.random.get_state()
    story = run(trial.recipe(BOTH), trial.federation)
    after = torch.get_rng_state(), np.random.get_state()
    assert same(before[0], after[0])
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))
    shards = trial.federation.shards()
    for dispatch, answer in story.reports.items():
        if not answer.steps:
            continue
        asked = story.assignments[dispatch]
        model = Model(weights=asked.weights, buffers=asked.buffers)
        labels = stream(trial.federation.seed, "labels", answer.client, answer.visit)
        fresh = trial.federation.engine()
        assert answer.measures["fisher_model"] == fresh.fisher(model, shards[answer.client], labels=labels)
        assert answer.measures["fisher"] == fresh.fisher(model, shards[answer.client])


def _most_likely(self: Any, outputs: Tensor, generator: Any) -> Tensor:
    return outputs.argmax(dim=1)


def _any_class(self: Any, outputs: Tensor, generator: Any) -> Tensor:
    return torch.from_numpy(generator.integers(outputs.shape[1], size=len(outputs)))


@law(
    scale=st.sampled_from((0.5, 2.0, 4.0)),
    seed=st.integers(0, 3),
    examples=4,
    broken_by={
        "the most likely class": swap(Classification, "draw", _most_likely),
        "any class": swap(Classification, "draw", _any_class),
        "the labels in the data": swap(
            TorchEngine, "fisher", lambda self, model, data, **_: _FISHER(self, model, data)
        ),
        "one draw for all samples": swap(
            Classification, "draw", lambda self, outputs, g: _DRAW(self, outputs, g)[:1].expand(len(outputs))
        ),
    },
)
def test_over_visits_the_trace_is_the_expectation_over_labels(scale: float, seed: int) -> None:
    """Logistic regression: a sample's part is (|x|^2 + 1) |p - e_y|^2, of mean (|x|^2 + 1) (1 - |p|^2)."""
    federation = Federation(net="logistic", seed=seed)
    engine = federation.engine()
    first = engine.initial()
    model = Model(weights=scale * first.weights, buffers=first.buffers)
    for who, shard in enumerate(federation.shards()[:2]):
        p = loaded(federation, engine.layout, model)(shard.inputs).detach().double().softmax(dim=1)
        length = shard.inputs.double().square().sum(dim=1) + 1
        parts = length[:, None] * (p.square().sum(dim=1, keepdim=True) - 2 * p + 1)  # [n, C], one for each label
        mean = (p * parts).sum(dim=1)
        variance = float((p * (parts - mean[:, None]).square()).sum()) / len(shard) ** 2
        visits = 400
        found = [engine.fisher(model, shard, labels=stream(seed, "labels", who, v)) for v in range(visits)]
        assert abs(sum(found) / visits - float(mean.mean())) <= 4 * math.sqrt(variance / visits)
        spread = sum((f - float(mean.mean())) ** 2 for f in found) / visits
        assert math.isclose(spread, variance, rel_tol=0.5)


METHODS: dict[str, Callable[..., Recipe]] = {
    "fedprox": fedprox,
    "vrl_sgd": vrl_sgd,
    "fednova": fednova,
    "scaffold": scaffold,
    "fedadam": fedadam,
    "fedavg": fedavg,
}


def _seeded_by_size(self: Uniform, fixed: Setup, state: State, context: InvitationContext) -> Any:
    drawn = context.roster.draw(
        context.places(self.size), stream(fixed.seed, "cohort", context.version, context.count or 0), context.busy
    )
    return state, invitations(drawn)


@law(
    method=st.sampled_from(list(METHODS)),
    m=st.integers(1, 3),
    delta=st.sampled_from((-0.2, 0.01, 10.0)),
    broken_by={
        "another draw for every size": swap(Uniform, "invite", _seeded_by_size),
        "the size is not used": swap(CriticalPeriods, "asked", ParticipationModifier.asked),
        "weighed equally": swap(
            Detector,
            "over",
            lambda self, reports: sum(map(self.value, reports)) / len(reports),
        ),
    },
)
def test_cohorts_follow_the_norms_over_every_method(method: str, m: int, delta: float) -> None:
    """From the norms in the reports: the right number of clients, the first ones of one draw."""
    federation = Federation(sizes=(5, 12, 7, 9, 3, 20))
    policy = CriticalPeriods(delta=delta)
    story = run(METHODS[method](cohort=m, epochs=1, batch=4, lr=0.05) | policy, federation, versions=6)
    everybody = run(fedavg(cohort=6, steps=1), federation, versions=6)
    norms: list[float] = []
    size = m
    for version, state in enumerate(story.states[:-1]):
        invited = [a.client for a in story.assignments.values() if a.version == version]
        assert invited == [a.client for a in everybody.assignments.values() if a.version == version][:size]
        answers = [r for r in story.reports.values() if r.version == version]
        held = sum(r.num_samples for r in answers)
        norms.append(sum(r.num_samples / held * r.measures["gradient_square"] * 0.05 for r in answers))
        is_critical = version == 0 or (norms[-1] - norms[-2]) / norms[-2] >= delta
        size = min(2 * size, 6) if is_critical else min(size, max((size + 1) // 2, (m + 1) // 2))
        after = story.states[version + 1].parts["critical_periods"]
        found = policy.measures(after)
        assert math.isclose(found["gradient_norm"], norms[-1], rel_tol=1e-9)
        assert (found["critical"], found["next_cohort"]) == (float(is_critical), float(size))
        assert state.version == version


@law(
    part=st.sampled_from((Uniform(cohort=3), Sweep(cohort=3))),
    net=st.sampled_from(("logistic", "batchnorm", "dropout")),
    broken_by={
        "one more": swap(
            RandomResize,
            "server_start",
            lambda self, fixed: {"size": fixed.cohort + 1},
        )
    },
)
def test_no_chance_of_a_resize_is_the_inner_policy(part: Participation, net: str) -> None:
    plain = fedavg(epochs=1) | part
    federation = Federation(sizes=(5, 12, 7, 9, 3), net=net)
    assert alike(*(run(r, federation, versions=4) for r in (plain | RandomResize(up=0, down=0), plain)))


def _twice_a_version(self: RandomResize, fixed: Setup, state: State, what: Release) -> State:
    return _RESIZED(self, fixed, _RESIZED(self, fixed, state, what), replace(what, version=what.version + 100))


@law(
    up=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
    down=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
    m=st.integers(1, 10),
    more=st.integers(0, 60),
    cap=st.sampled_from((0.29, 0.5, 1.0)),
    floor=st.integers(1, 4),
    examples=40,
    broken_by={
        "two moves": swap(RandomResize, "after_step", _twice_a_version),
        "no cap": swap(
            RandomResize,
            "after_step",
            lambda self, fixed, state, what: _RESIZED(self, replace(fixed, population=10**6), state, what),
        ),
        "no floor": swap(
            RandomResize,
            "after_step",
            lambda self, fixed, state, what: _RESIZED(replace(self, floor=1), fixed, state, what),
        ),
    },
)
def test_a_resize_is_one_move_within_bounds(up: float, down: float, m: int, more: int, cap: float, floor: int) -> None:
    if up + down > 1:
        up, down = up / 2, down / 2
    population = m + more
    policy = RandomResize(up=up, down=down, cap=cap, floor=floor)
    largest, sizes = math.floor(Fraction(str(cap)) * population), cohorts(policy, m, population, [1.0] * 20)
    assert sizes[0] == m
    for before, after in itertools.pairwise(sizes):
        doubled, halved = max(before, min(2 * before, largest)), min(before, max((before + 1) // 2, floor))
        assert after in {before, doubled, halved}
        assert after in ({doubled} if up == 1 else {halved} if down == 1 else {before, doubled, halved})
        assert after >= before or down
        assert after <= before or up
