"""What the five papers do, done to low-rank adapters: switched off nothing changes, switched on what it says does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import polyrhythm as pr
from polyrhythm.base.adapters import Adapter, Factor
from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.base.sums import weighted_sum
from polyrhythm.base.vectors import Segment
from polyrhythm.methods.capacity.rank_prefix import RankPrefix
from polyrhythm.methods.order.base import Curriculum, Pacing
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.critical_periods import (
    CriticalPeriods,
    FisherTrace,
    GradientNorm,
    ReleasedNorm,
    Signal,
)
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adagrad, Adam, AMSGrad
from polyrhythm.methods.weighing import PerStep
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import (
    BudgetSteps,
    SkipAndEstimate,
    SkipAndResendModel,
    Skipping,
    SkipSilently,
)
from polyrhythm.methods.work.stop_on_drift import Drift, StopOnDrift

from .law import law, swap
from .test_adapters import adapter_of, computed, mean_of_products, of, ranks_in
from .world import Federation, alike, near, play, run, same

RANKED = ("fedit", "fedex_lora", "flora", "flexlora", "hetlora")
CASES = (
    *((name, False) for name in ("fedit", "ffa_lora", "rolora", "fedsa_lora", *RANKED[1:])),
    *((name, True) for name in RANKED),
)
"""Recipes of adapters, and whether clients have unequal ranks."""
NETS = {"ffa_lora": "adapters, A frozen", "fedex_lora": "adapters, served", "flora": "adapters, served"}
MIXED = (3, 1)
ALWAYS, ODD_ONES = Listed(shares=(1.0,)), Listed(shares=(1.0, 0.3))
HALF = Pacing(a=0.8, b=0.5)


def recipe_of(name: str, mixed: bool, **changes: Any) -> Recipe:
    settings: dict[str, Any] = {"cohort": 4, "batch": 4, "epochs": 2, "lr": 0.2} | changes
    if name == "fedit":
        return fedavg(**settings) | RankPrefix(rank=MIXED) if mixed else fedavg(**settings)
    if name in RANKED:
        settings["rank"] = MIXED if mixed else 3
    made: Recipe = getattr(pr, name)(**settings)
    return made


def federation_of(name: str) -> Federation:
    net = NETS.get(name, "adapters")
    return Federation(net=net) if name == "ffa_lora" else of(Federation(), net)


def combined(whole: Recipe, *parts: Settings) -> Recipe | None:
    """With these parts; None where that is refused."""
    try:
        for part in parts:
            whole = whole | part
        return whole.whole()
    except UserError:
        return None


def pairs(*choices: tuple[Settings, ...]) -> Iterator[tuple[str, Recipe, Recipe]]:
    """Each recipe of adapters that goes with some of these parts: its name, as it is, and with them."""
    for name, mixed in CASES:
        for parts in choices:
            if (made := combined(recipe_of(name, mixed), *parts)) is not None:
                yield name, recipe_of(name, mixed), made


OFF: tuple[Settings, ...] = (
    StopOnDrift(a=-1, b=0, representation="features"),
    Curriculum(order="vanilla"),
    SkipAndEstimate(budgets=ALWAYS),
    SkipAndEstimate(budgets=ALWAYS, storage="server"),
    SkipAndResendModel(budgets=ALWAYS),
    SkipSilently(budgets=ALWAYS),
    BudgetSteps(budgets=ALWAYS),
    CriticalPeriods(act=False),
    CriticalPeriods(act=False, detector=FisherTrace(), watch=(GradientNorm(),)),
    PerStep(divide="none"),
)


@law(
    cases=[{"number": number} for number in range(len(OFF))],
    number=st.integers(0, len(OFF) - 1),
    broken_by={
        "stops after an epoch": swap(Drift, "reached", lambda self, similarities: torch.tensor(True)),
        "a coin of its own": swap(Skipping, "trains", lambda self, setup, visit: visit.version != 1),
        "half the steps": swap(BudgetSteps, "change", lambda self, *given: replace(given[-1], steps=1)),
    },
)
def test_switched_off_nothing_changes_of_any_recipe_of_adapters(number: int) -> None:
    """Every model and update, to the bit."""
    part, tried = OFF[number], 0
    for name, plain, made in pairs((part,)):
        federation, cohort = federation_of(name), 4 if isinstance(part, CriticalPeriods) else 3
        plain, made = (replace(r, participation=r.participation.resized(cohort)) for r in (plain, made))
        assert alike(run(made, federation), run(plain, federation)), name
        tried += 1
    assert tried >= 4


@law(
    cases=[{"layer": "features"}],
    layer=st.sampled_from(("features", "logits")),
    broken_by={"never": swap(Drift, "reached", lambda self, similarities: torch.tensor(False))},
)
def test_a_drifted_representation_ends_the_epochs_of_adapters(layer: str) -> None:
    """Above every cosine, exactly one epoch; below, all of them; between, as the representation has drifted."""
    above, tried = StopOnDrift(a=1.5, b=0, representation=layer), 0
    for name, _, made in pairs((above,)):
        federation = federation_of(name)
        mixed = not made.capacity.static or len(set(made.capacity.levels)) > 1
        one = recipe_of(name, mixed, epochs=1)
        assert alike(run(made, federation), run(one, federation)), name
        tried += 1
    assert tried == len(CASES)


@law(
    cases=[{"score": "global"}, {"score": "both"}],
    score=st.sampled_from(("global", "both")),
    broken_by={
        "hard ones first": swap(
            Curriculum,
            "rank",
            lambda self, visit, lens, rank=Curriculum.rank: rank(self, visit, lens)[::-1],
        ),
        "all at once": swap(Curriculum, "in_use", lambda self, visit, progress: visit.num_samples),
    },
)
def test_the_first_pass_is_of_what_the_adapted_model_finds_easy(score: Any) -> None:
    """In the first version no client has a last model, so easy is a low loss under the model that was sent."""
    part, tried = Curriculum(score=score, pacing=HALF, least=1), 0
    for name, _, made in pairs((part,)):
        federation = federation_of(name)
        story, shards = play(made, federation, versions=2), federation.shards()
        for dispatch, report in story.reports.items():
            if report.version:
                continue
            shard = shards[report.client]
            module = federation.module()
            with torch.no_grad():  # B is zero: at every rank the model is the pretrained one
                losses = torch.nn.functional.cross_entropy(module(shard.inputs), shard.targets, reduction="none")
            count = max(1, int(0.5 * len(shard)))
            first = [i for batch in story.batches[dispatch] for i in batch][:count]
            assert losses[first].max() <= losses.sort().values[count - 1] + 1e-6, name
        tried += 1
    assert tried == len(CASES)


def _fresh(story: Any, client: int, before: int) -> Any:
    trained = [d for d in story.visits(client) if d < before and story.reports[d].fresh]
    return story.reports[trained[-1]]


@law(
    cases=[{"storage": "client"}, {"storage": "server"}],
    storage=st.sampled_from(("client", "server")),
    broken_by={
        "half of it": swap(
            SkipAndEstimate,
            "finish",
            lambda self, setup, state, brief, outcome, finish=SkipAndEstimate.finish: finish(
                self, setup, state, brief, replace(outcome, sent=outcome.sent / 2)
            ),
        ),
    },
)
def test_who_skips_moves_its_adapters_as_it_did_last(storage: Any) -> None:
    """The movement of the factors, to the bit; and under an exact rule the version is the mean of what that makes."""
    part, names = SkipAndEstimate(budgets=ODD_ONES, schedule="exhaust", storage=storage), set[str]()
    for name, _, made in pairs((part,)):
        federation = federation_of(name)
        story, skipped = play(made, federation), 0
        for released in story.released:
            assert released.release is not None
            for report in released.release.reports:
                if report.substitute:
                    last = _fresh(story, report.client, report.dispatch)
                    sent = last.update if storage == "client" else _heard(story, last)
                    assert same(report.update, sent), name
                    assert report.update is not None
                    assert bool(report.update.any())
                    skipped += 1
        assert skipped == 4
        if name == "fedex_lora" and made.capacity.whole:
            _is_exact(story, federation)
        names.add(name)
    assert names == {"fedit", "ffa_lora", "fedsa_lora", "fedex_lora", "hetlora"}


def _heard(story: Any, report: Any) -> Any:
    release = story.released[report.version].release
    return next(r.update for r in release.reports if r.dispatch == report.dispatch)


def _is_exact(story: Any, federation: Federation) -> None:
    adapter = adapter_of(federation)
    for version, after in enumerate(story.states[1:]):
        assert near(computed(adapter, after.weights), mean_of_products(story, version, federation, None), 1e-6)


@law(
    cases=[{"epochs": 1}],
    epochs=st.integers(1, 2),
    broken_by={
        "the model that was sent": swap(
            SkipAndResendModel,
            "change",
            lambda self, setup, visit, state, brief, plan, change=SkipAndResendModel.change: (
                plan
                if (found := change(self, setup, visit, state, brief, plan)).substitute is None
                else replace(found, substitute=replace(found.substitute, kind="movement", update=setup.zeros()))
            ),
        ),
    },
)
def test_a_model_that_is_sent_again_computes_what_it_did(epochs: int) -> None:
    """R + s B A of who skips is that of its last local model, also where the server has turned the coordinates."""
    part, names = SkipAndResendModel(budgets=ODD_ONES, schedule="exhaust"), set[str]()
    for name, _, made in pairs((part,)):
        if name in ("ffa_lora", "fedsa_lora"):
            continue  # whose products no server knows
        federation = federation_of(name)
        story, adapter = play(replace(made, work=pr.parts.epochs(epochs=epochs)), federation), adapter_of(federation)
        for released in story.released:
            assert released.release is not None
            for report in (r for r in released.release.reports if r.substitute):
                last = _fresh(story, report.client, report.dispatch)
                then, now = (story.states[r.version].weights.double() + r.update for r in (last, report))
                held = None if made.capacity.whole else ranks_in(story, federation, report.dispatch, made.capacity)
                assert near(computed(adapter, now, held), computed(adapter, then, held), 1e-5), name
        names.add(name)
    assert names == {"fedit", "flexlora", "hetlora"}


STEPS: dict[str, Any] = {
    "adam": Adam(lr=0.1),
    "adagrad": Adagrad(lr=0.1, beta1=0.9),
    "amsgrad": AMSGrad(lr=0.1),
}


def _other(adapter: Adapter, which: Factor) -> Segment:
    return adapter.b if which == "A" else adapter.a


@law(
    cases=[{"kind": kind} for kind in STEPS],
    kind=st.sampled_from(tuple(STEPS)),
    broken_by={
        "whatever the steps": swap(
            PerStep, "weigh", lambda self, setup, state, version, facts, shares: [1.0] * len(facts)
        ),
        "the other factor rests": swap(Adapter, "factor", _other),
    },
)
def test_client_centric_steps_are_taken_on_the_vector_of_adapters(kind: str) -> None:
    """x + lr m / (sqrt(v) + e) of the mean of updates by their steps; what rests keeps its weights and moments."""
    step, names = STEPS[kind], set[str]()
    for name, _, made in pairs((PerStep(), step)):
        if not made.capacity.whole:
            continue
        federation = federation_of(name)
        story = play(made, federation, versions=4)
        m = v = top = torch.zeros(len(story.weights), dtype=torch.float64)
        for version, after in enumerate(story.states[1:]):
            release, before = story.released[version].release, story.states[version].weights
            assert release is not None
            scales = [p / r.steps for p, r in zip(release.shares, release.reports, strict=True)]
            mean = weighted_sum(release.updates(), scales).double()
            stepped = _stepped(federation, made, version, len(mean))
            first = step.beta1 * m + (1 - step.beta1) * mean
            second = v + mean**2 if isinstance(step, Adagrad) else step.beta2 * v + (1 - step.beta2) * mean**2
            m, v = torch.where(stepped, first, m), torch.where(stepped, second, v)
            top = torch.maximum(top, v)
            below = (top.clamp(min=step.epsilon)).sqrt() if isinstance(step, AMSGrad) else v.sqrt() + step.epsilon
            moved = torch.where(stepped, step.lr * m / below, 0.0)
            assert near(after.weights, before.double() + moved, 1e-5), name
            assert same(after.weights[~stepped], before[~stepped])
        names.add(name)
    assert names == {"fedit", "ffa_lora", "rolora", "fedsa_lora"}


def _stepped(federation: Federation, made: Recipe, version: int, size: int) -> Tensor:
    """Which coordinates a version steps: all, without the factor that rests."""
    found = torch.ones(size, dtype=torch.bool)
    if any(part.label() == "alternate_factors" for part in made.parts()):
        adapter = adapter_of(federation)
        (adapter.b if version % 2 else adapter.a).of(found).fill_(False)
    return found


DETECTORS: dict[str, Signal] = {
    "gradient_norm": GradientNorm(),
    "fisher": FisherTrace(),
    "released_norm": ReleasedNorm(),
}


@law(
    cases=[{"kind": kind} for kind in DETECTORS],
    kind=st.sampled_from(tuple(DETECTORS)),
    broken_by={
        "never critical": swap(CriticalPeriods, "asked", lambda self, setup, state, context: context),
        "nothing is measured": swap(GradientNorm, "value", lambda self, report: 0.0),
    },
)
def test_cohorts_grow_while_the_gradients_of_adapters_do(kind: str) -> None:
    """Always critical: the cohort doubles. What is compared is the mean of what clients measured on what they train."""
    detector, names = DETECTORS[kind], set[str]()
    for name, mixed in CASES:
        plain = recipe_of(name, mixed, cohort=1)
        made = combined(plain, CriticalPeriods(delta=-1e9, detector=detector))
        if made is None:
            continue
        story, key = play(made, federation_of(name)), "critical_periods"
        assert [len(r.release.reports) for r in story.released if r.release is not None] == [1, 2, 4], name
        for released, state in zip(story.released, story.states[1:], strict=True):
            (found,) = state.parts[key]["history"][-1:]
            release = released.release
            assert release is not None
            if isinstance(detector, ReleasedNorm):
                assert found > 0
                continue
            measure = "gradient_square" if isinstance(detector, GradientNorm) else "fisher"
            of_each = [r.measures[measure] * (r.rate if measure == "gradient_square" else 1) for r in release.reports]
            weights = [r.num_samples for r in release.reports]
            mean = sum(w * x for w, x in zip(weights, of_each, strict=True)) / sum(weights)
            assert abs(found - mean) <= 1e-9 * mean, name
            assert found > 0
        names.add(name)
    everybody = {name for name, _ in CASES}
    without = {GradientNorm: {"rolora"}, FisherTrace: set[str](), ReleasedNorm: {"rolora", *RANKED[1:]}}
    assert names == everybody - without[type(detector)]
