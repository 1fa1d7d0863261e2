"""Frozen, tied and unused parameters, half precision and buffers of every kind go through whole runs unharmed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from polyrhythm.base import sums
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.settings import Settings
from polyrhythm.core import client, local_step, training, versions
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    VarianceReduction,
)
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adam, Momentum, Yogi
from polyrhythm.methods.weighing import NormalisedAveraging

from .law import law, swap
from .world import Federation, near, run, same

# What mutants wrap.
_COMBINE = sums.combine_buffers
_REPORT = training.report_on

PARTS: tuple[tuple[Settings, ...], ...] = (
    (),
    (Prox(mu=0.1), ControlVariates(), Momentum()),
    (VarianceReduction(), NormalisedAveraging()),
    (DynamicRegularisation(),),
    (ModelContrast(layer="logits"), Yogi()),
    (Adam(),),
)
ODD = Federation(net="odd")
SETTINGS = Common(cohort=3, epochs=1.5, batch=4, lr=0.1, momentum=0.9, weight_decay=0.1, clip=1.0)
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def recipe_with(parts: tuple[Settings, ...]) -> Recipe:
    recipe = fedavg(**SETTINGS)
    for part in parts:
        recipe = recipe | part
    return recipe


def _everything_decays(unused: Any, weights: Any, moments: Any) -> Any:
    return []


@law(
    parts=st.sampled_from(PARTS[:2] + PARTS[4:5]),
    broken_by={"weight decay on what has no gradient": swap(local_step, "kept_parts", _everything_decays)},
)
def test_what_gets_no_gradient_stays_as_it_is(parts: tuple[Settings, ...]) -> None:
    story = run(recipe_with(parts), ODD)
    engine = ODD.engine()
    first, last = (
        engine.state_of(Model(weights=s.weights, buffers=s.buffers)) for s in (story.states[0], story.states[-1])
    )
    assert all(same(last[n], first[n]) for n in ("frozen.weight", "frozen.bias", "unused.weight", "unused.bias"))
    assert not any(same(last[n], first[n]) for n in ("first.weight", "first.bias", "second.bias", "head.weight"))
    assert same(last["second.weight"], last["first.weight"])
    names = [segment.name for segment in engine.layout.segments]
    assert "second.weight" not in names
    assert not any(name.startswith("frozen") for name in names)
    for report in story.reports.values():
        assert report.update is not None
        named = engine.layout.named(report.update)
        assert not named["unused.weight"].any()


def _least(layout: Any, many: Any, shares: Any) -> Any:
    others = [torch.stack(tensors).amin(0) for tensors in zip(*many, strict=True)]
    mean = _COMBINE(layout, many, shares)
    return tuple(m if m.is_floating_point() else o for m, o in zip(mean, others, strict=True))


def _all_float(layout: Any, many: Any, shares: Any) -> Any:
    return tuple(b.float() for b in _COMBINE(layout, many, shares))


def _load_what_travels(self: Any, weights: Any, buffers: Any) -> None:
    self.weights.copy_(weights)
    for place, value in zip(self._travelling, buffers, strict=True):
        place.put(value)


@law(
    parts=st.sampled_from(PARTS),
    broken_by={
        "the least count": swap(versions, "combine_buffers", _least),
        "all buffers become float": swap(versions, "combine_buffers", _all_float),
        "what is not persistent stays": swap(FlatModel, "load", _load_what_travels),
    },
)
def test_buffers_of_every_kind_keep_shape_dtype_and_meaning(parts: tuple[Settings, ...]) -> None:
    story = run(recipe_with(parts), ODD)
    layout = ODD.engine().layout
    assert [s.name for s in layout.buffers] == ["passes", "mean", "mask", "table", "empty"]
    longest = 0
    for state, released in zip(story.states[1:], story.released, strict=True):
        kinds = [(slot.shape, slot.dtype) for slot in layout.buffers]
        assert [(tuple(b.shape), b.dtype) for b in state.buffers] == kinds
        passes, _, mask, table, _ = state.buffers
        assert released.release is not None
        longest += max(report.steps for report in released.release.reports)
        assert int(passes) <= longest
        assert int(passes) == max(int(report.buffers[0]) for report in released.release.reports)
        assert same((mask, table), (story.states[0].buffers[2], story.states[0].buffers[3]))
    # The buffer that does not travel begins every visit at zero, so the same visit gives the same loss on its own.
    for dispatch, assignment in list(story.assignments.items())[:3]:
        shard, setup = ODD.shards()[assignment.client], ODD.setup(3)
        _, report = client.work(recipe_with(parts), setup, client.ClientState(), assignment, shard, ODD.engine())
        assert same(report.update, story.reports[dispatch].update)


@law(
    parts=st.sampled_from(PARTS),
    dtype=st.sampled_from(DTYPES),
    examples=20,
    broken_by={
        "updates in single precision": swap(
            training, "report_on", lambda assignment, held, **rest: _wide(assignment, held, **rest)
        ),
    },
)
def test_the_precision_of_a_model_is_kept(parts: tuple[Settings, ...], dtype: torch.dtype) -> None:
    federation = Federation(net="perceptron", dtype=dtype)
    story = run(recipe_with(parts), federation)
    assert len(story.states) == 4
    assert not any(released.refused for released in story.released)
    for state in story.states:
        assert state.weights.dtype == dtype
        assert bool(torch.isfinite(state.weights).all())
    for report in story.reports.values():
        assert report.update is not None
        assert report.update.dtype == dtype
    double = replace(federation, dtype=torch.float64)
    reference = double.engine().layout.named(run(recipe_with(parts), double).weights)
    coarse = {torch.bfloat16: 0.1, torch.float16: 0.01, torch.float32: 1e-4, torch.float64: 0}
    if not parts:
        named = federation.engine().layout.named(story.weights)
        assert all(near(part, reference[name], coarse[dtype]) for name, part in named.items())


def _wide(assignment: Any, num_samples: int, **rest: Any) -> Any:
    return _REPORT(assignment, num_samples, **rest | {"update": rest["update"].float()})


@law(
    count=st.sampled_from((2, 100)),
    dtype=st.sampled_from((torch.float16, torch.bfloat16)),
    broken_by={
        "summed in half precision": swap(
            sums, "weighted_sum", lambda many, shares: sum((v * s for v, s in zip(many, shares, strict=True)))
        ),
    },
)
def test_small_shares_of_half_precision_are_not_lost(count: int, dtype: torch.dtype) -> None:
    many = [torch.full((4,), 1.0 + i % 2 * 0.25, dtype=dtype) for i in range(count)]
    mean = sums.weighted_sum(many, [1 / count] * count)
    assert mean.dtype == torch.float32
    assert near(mean, torch.full((4,), 1.125))
