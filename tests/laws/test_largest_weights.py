"""Clients that hold the largest weights: each pass uses those that are still large, and nobody else's are touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from polyrhythm.base.magnitudes import Magnitudes, Sparser
from polyrhythm.base.portions import Portion
from polyrhythm.base.settings import Settings
from polyrhythm.core import client, portions, versions
from polyrhythm.engines import sparse
from polyrhythm.methods.capacity import largest_weights
from polyrhythm.methods.capacity.base import Levels
from polyrhythm.methods.capacity.largest_weights import LargestWeights
from polyrhythm.methods.compression import Int8
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.server_step import Adam, Momentum
from polyrhythm.methods.weighing import Equal, NormalisedAveraging, Staleness

from .fleets import fleets
from .hand import optimiser_of
from .law import law, swap
from .test_capacity import _at_rate, _by_heads, _over_all
from .trials import Trial, trials
from .world import Federation, Run, alike, near, play, run, same

NETS = ("perceptron", "batchnorm", "logistic", "dropout")
LEVELS = ((0.5,), (1.0, 0.3), (1.0, 0.6, 0.1))
_MASKING, _LARGEST, _PORTION = sparse.masking, largest_weights.largest, versions.portion_of


def of(federation: Federation, **changes: Any) -> Federation:
    return replace(federation, along="magnitude", **changes)


def held(story: Run, federation: Federation, dispatch: int, part: LargestWeights) -> Portion | None:
    what = story.assignments[dispatch]
    return part.portion(federation.setup(None), what.client, what.visit, what.version, what.weights)


@law(
    trial=trials(nets=NETS),
    others=st.sampled_from(((), (Momentum(),), (NormalisedAveraging(), Int8()))),
    broken_by={"half of it": swap(Levels, "level_of", lambda self, setup, client, version: 0.5)},
)
def test_whoever_holds_all_weights_is_as_in_fedavg(trial: Trial, others: tuple[Settings, ...]) -> None:
    """r = 1 for all: every model, update and loss, to the bit."""
    parts: tuple[tuple[Settings, ...], ...] = ((), (LargestWeights(ratio=1.0),))
    assert alike(*(run(trial.recipe(*others, *part), of(trial.federation)) for part in parts))


def _smallest(magnitudes: Magnitudes, weights: Tensor, ratio: float) -> Sparser | None:
    return _LARGEST(magnitudes, -1 / weights, ratio)


@law(
    trial=trials(nets=("perceptron", "batchnorm")),
    levels=st.sampled_from(LEVELS),
    broken_by={
        "the smallest": swap(largest_weights, "largest", _smallest),
        "one more": swap(Magnitudes, "count", lambda self, share: int(share * len(self.places)) + 2),
    },
)
def test_what_is_held_are_the_largest_weights_of_the_model_that_was_sent(
    trial: Trial, levels: tuple[float, ...]
) -> None:
    """As many as a ratio has, of linear layers; everything else is held as well, and nothing else is moved."""
    part, federation = LargestWeights(ratio=levels), of(trial.federation)
    story = run(trial.recipe(part), federation, versions=2)
    layout, setup = federation.engine().layout, federation.setup(None)
    linear = {
        f"{n}.{w}"
        for n, m in federation.module().named_modules()
        if isinstance(m, nn.Linear)
        for w in ("weight", "bias")
    }
    for dispatch, report in story.reports.items():
        portion, sent = held(story, federation, dispatch, part), story.assignments[dispatch].weights
        ratio = LargestWeights(ratio=levels).level_of(setup, report.client, report.version)
        if portion is None:
            assert levels != (0.5,)
            continue
        named, mask = layout.named(sent), layout.named(portion.mask.to(torch.float64))
        sizes = torch.cat([named[n].flatten().abs() for n in named if n in linear])
        chosen = torch.cat([mask[n].flatten() for n in named if n in linear]).bool()
        assert int(chosen.sum()) == max(1, int(ratio * len(sizes) + 1e-9))
        assert not chosen.all()
        assert sizes[chosen].min() >= sizes[~chosen].max()
        assert all(bool(mask[n].all()) for n in named if n not in linear)
        assert report.update is not None
        assert not report.update[~portion.mask].any()


class Kept(torch.autograd.Function):
    """1 where a size reaches a threshold, else 0; its slope is taken to be 2θ / (size + θ)² where it is 1."""

    @staticmethod
    def forward(ctx: Any, sizes: Tensor, threshold: Tensor) -> Tensor:
        ctx.save_for_backward(sizes, threshold)
        return (sizes >= threshold).to(sizes.dtype)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        sizes, threshold = ctx.saved_tensors
        return slope * (sizes >= threshold) * 2 * threshold / (sizes + threshold) ** 2, None


def _without_rise(weights: Tensor, ranked: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    inside, _ = _MASKING(weights, ranked, threshold)
    return inside, inside.to(weights.dtype)


def _as_sent(weights: Tensor, ranked: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    _, factor = _MASKING(weights, ranked, threshold)
    return torch.ones_like(ranked), factor


@law(
    trial=trials(nets=("perceptron",), travels=False),
    levels=st.sampled_from(LEVELS),
    examples=12,
    broken_by={
        "plain gradients": swap(sparse, "masking", _without_rise),
        "whatever was large at first": swap(sparse, "masking", _as_sent),
        "a threshold of its own in each pass": swap(
            sparse, "masking", lambda weights, ranked, threshold: _MASKING(weights, ranked, float(weights.abs().min()))
        ),
    },
)
def test_a_visit_is_one_of_masked_weights(trial: Trial, levels: tuple[float, ...]) -> None:
    """Weights times a mask with a slope, under autograd, stepped by torch.optim on the same batches: as far."""
    trial = trial.but(keep_state=False, lr=0.3, steps=5)
    given = trial.federation
    federation = Federation(sizes=given.sizes, dtype=torch.float64, along="magnitude")
    part = LargestWeights(ratio=levels)
    recipe = trial.recipe(part)
    story, shards, layout = play(recipe, federation), federation.shards(), federation.engine().layout
    for dispatch, report in story.reports.items():
        portion, sent = held(story, federation, dispatch, part), story.assignments[dispatch]
        if portion is None or report.update is None:
            continue
        threshold = sent.weights[portion.mask].abs().min()
        masks = layout.named(portion.mask.to(torch.float64))
        own = {name: nn.Parameter(w[masks[name].bool()].clone()) for name, w in layout.named(sent.weights).items()}
        module = nn.ParameterDict({name.replace(".", "_"): w for name, w in own.items()})
        optimiser, batches = optimiser_of(recipe.optimiser, module), story.batches[dispatch]
        for step, batch in enumerate(batches):
            _at_rate(optimiser, trial, recipe, sent.version, step, len(batches))
            shown = {}
            for name, values in own.items():
                masked = values * Kept.apply(values.abs(), threshold)
                shown[name] = torch.zeros_like(masks[name]).masked_scatter(masks[name].bool(), masked)
            inputs, targets = shards[sent.client].inputs[batch], shards[sent.client].targets[batch]
            loss = functional.cross_entropy(functional_call(federation.module(), shown, (inputs,)), targets)
            optimiser.zero_grad()
            loss.backward()
            if recipe.optimiser.clip is not None:
                nn.utils.clip_grad_norm_(list(own.values()), recipe.optimiser.clip)
            optimiser.step()
        ended = layout.named(sent.weights + report.update)
        for name, values in own.items():
            assert near(ended[name][masks[name].bool()], values.detach(), 1e-9), name


def _of_now(recipe: Any, setup: Any, report: Any, weights: Tensor) -> Portion | None:
    return _PORTION(recipe, setup, report, weights.flip(0))


@law(
    trial=trials(nets=("perceptron", "batchnorm")),
    levels=st.sampled_from(LEVELS),
    scalings=st.sampled_from(((), (Equal(),), (NormalisedAveraging(),), (Buffer(size=2), Staleness()))),
    fleet=fleets(),
    examples=12,
    broken_by={
        "over all, as if the others had not moved": swap(versions, "over_holders", _over_all),
        "over the holders, whatever their shares": swap(versions, "over_holders", _by_heads),
        "by other weights than those that were sent": swap(versions, "portion_of", _of_now),
    },
)
def test_the_mean_of_a_weight_is_over_its_holders(
    trial: Trial, levels: tuple[float, ...], scalings: tuple[Settings, ...], fleet: Any
) -> None:
    """sum_i s_i c_i u_ij / sum_i s_i over who was sent j, by brute force; what nobody holds is bitwise as it was."""
    part, federation = LargestWeights(ratio=levels), of(trial.federation, fleet=fleet)
    story = run(trial.recipe(part, *scalings), federation, versions=4)
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        release = released.release
        if release is None:
            continue
        top, below = (torch.zeros(len(before.weights), dtype=torch.float64) for _ in range(2))
        for report, share, scale in zip(release.reports, release.shares, release.scales, strict=True):
            portion = held(story, federation, report.dispatch, part)
            mask = torch.ones(len(top), dtype=torch.bool) if portion is None else portion.mask
            assert report.update is not None
            top += share * scale * report.update.double() * mask
            below += share * mask
        mean = torch.where(below > 0, top / below.clamp(min=1e-12), 0.0)
        assert near(after.weights, before.weights.double() + mean, 1e-5)
        assert same(after.weights[below == 0], before.weights[below == 0])


_OVER = portions.over_holders


@law(
    trial=trials(nets=("perceptron",), plain=True),
    step=st.sampled_from((Adam(lr=0.1), Momentum(beta=0.9))),
    broken_by={
        "everybody has all of it": swap(client, "narrowed", lambda *of: None),
        "momentum goes on where nobody is": swap(
            versions, "over_holders", lambda mean, release: (_OVER(mean, release)[0], None)
        ),
    },
)
def test_small_weights_are_left_alone(trial: Trial, step: Settings) -> None:
    """The active law: others move, and those that nobody was sent are bitwise as they were, under any server step."""
    part, federation = LargestWeights(ratio=0.3), of(trial.federation)
    story = run(trial.recipe(part, step), federation, versions=4)
    setup = federation.setup(None)
    for version, (before, after) in enumerate(zip(story.states, story.states[1:], strict=False)):
        portion = part.portion(setup, 0, 0, version, before.weights)
        assert portion is not None
        assert same(after.weights[~portion.mask], before.weights[~portion.mask])
        assert not same(after.weights, before.weights)
    for dispatch, report in story.reports.items():
        portion = held(story, federation, dispatch, part)
        assert portion is not None
        assert report.update is not None
        assert not report.update[~portion.mask].any()
    assert not alike(story, run(trial.recipe(step), federation, versions=4))


@law(
    trial=trials(nets=NETS, travels=False),
    levels=st.sampled_from(LEVELS),
    others=st.sampled_from(((), (Prox(mu=0.1),), (Int8(),))),
    broken_by={
        "engines of parts remember": swap(sparse.SparseEngine, "open", lambda self, visit: _leaking(self, visit)),
    },
)
def test_the_largest_weights_may_be_trained_anywhere(
    trial: Trial, levels: tuple[float, ...], others: tuple[Settings, ...]
) -> None:
    """In any order, and each visit by an engine of its own: the same bits."""
    recipe, federation = trial.but(keep_state=False).recipe(LargestWeights(ratio=levels), *others), of(trial.federation)
    here = play(recipe, federation)
    there = play(recipe, federation, arrival=lambda invited: invited[::-1], apart=True)
    assert same([s.weights for s in here.states], [s.weights for s in there.states])


_OPEN = sparse.SparseEngine.open
_VISITS: dict[int, int] = {}


def _leaking(engine: sparse.SparseEngine, visit: Any) -> None:
    """Opens a visit a little further from where it should begin, each time."""
    _OPEN(engine, visit)
    visits = _VISITS[id(engine._engine)] = _VISITS.get(id(engine._engine), 0) + 1
    engine.weights.add_(1e-3 * visits)
