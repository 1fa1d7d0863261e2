"""Clients that are hidden in sums, of which nobody sees a part: the same model, and no client longer than a clip."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from polyrhythm.base.messages import Facts, Report
from polyrhythm.core import server, sums, versions
from polyrhythm.fleet import Faults, Fleet
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.poisson import Poisson
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.privacy.laws import law_of
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.differential_privacy import Dp
from polyrhythm.methods.secure_sum import fixed_point, protocol, summands
from polyrhythm.methods.secure_sum.secagg import Secagg
from polyrhythm.methods.weighing import BySamples, Equal, PerStep

from .law import law, swap
from .world import Federation, near, run, same

# What mutants wrap.
_CLIP = sums.with_clip
_ALONE, _OPENED, _LONGEST, _OPENED_SUM = Dp.clipped_alone, protocol.opened, summands.longest_of, sums.opened


def _twice(recipe: Any, parts: Any) -> Any:
    found = {**_CLIP(recipe, parts)}
    return {**found, "secagg": {**found["secagg"], "clip": 2 * found["secagg"]["clip"]}}


SIX = Federation(sizes=(5, 12, 7, 9, 3, 8), net="logistic")
ADAPTIVE = Adaptive(start=0.05, count_noise=2.0)


def hidden(*more: Any, clip: Any = 0.05, noise: float = 0.5, cap: int | None = None) -> Recipe:
    """FedAvg of clients that are hidden, without secagg."""
    recipe = fedavg(cohort=5, epochs=1, batch=4) | (Equal() if cap is None else BySamples())
    recipe = recipe | Dp(noise=noise, clip=clip, cap=cap)
    for part in more:
        recipe = recipe | part
    return recipe


@law(
    clip=st.sampled_from((0.02, 0.05, 10.0, ADAPTIVE)),
    more=st.sampled_from(((), (PerStep(),))),
    cap=st.sampled_from((None, 6)),
    examples=8,
    broken_by={
        "nobody clips": swap(
            Dp,
            "clipped_alone",
            lambda self, *given: _ALONE(self, *given)._replace(factor=min(1.0, 1 / given[3])),
        ),
        "nobody is counted": swap(Dp, "clipped_alone", lambda self, *given: _ALONE(self, *given)._replace(tally=0.5)),
        "clients are told another clip": swap(server, "with_clip", _twice),
    },
)
def test_it_is_dp_to_the_rounding_of_fixed_point(clip: Any, more: tuple[Any, ...], cap: int | None) -> None:
    """Weights, clips and books of three versions: of the same noise, which is the server's in both."""
    one = run(hidden(*more, clip=clip, cap=cap), SIX, versions=3)
    other = run(hidden(*more, clip=clip, cap=cap) | Secagg(), SIX, versions=3)
    assert near(other.weights, one.weights, 1e-5)
    for a, b in zip(one.states, other.states, strict=True):
        assert math.isclose(a.parts["dp"]["clip"], b.parts["dp"]["clip"], rel_tol=1e-12)
        assert same(a.parts["dp"]["versions"], b.parts["dp"]["versions"])
    assert law_of(hidden() | Secagg()) == law_of(hidden()) == "fixed_size"


def facts(samples: int) -> Facts:
    return Facts(dispatch=0, client=0, num_samples=samples, steps=1, travel=1.0, pull=0.0, rate=1.0, staleness=0)


@law(
    length=st.sampled_from((0.0, 0.9999999, 1.0, 1.0000001, 30.0, 1e30, math.inf, math.nan)),
    clip=st.floats(1e-4, 1e4),
    seed=st.integers(0, 1000),
    examples=40,
    broken_by={
        "rounding comes on top": swap(summands, "longest_of", lambda *given: 1.0),
        "whatever is no number is refused": swap(
            Dp, "clipped_alone", lambda self, *given: _ALONE(self, *given)._replace(factor=1.0)
        ),
    },
)
def test_no_client_is_longer_than_a_clip_when_it_is_rounded(length: float, clip: float, seed: int) -> None:
    """Of 40,000 clients a version sums so coarsely that rounding would show."""
    recipe, layout = hidden(clip=1.0) | Secagg(), SIX.engine().layout
    recipe = recipe | Poisson(rate=0.5)
    setup = replace(SIX.setup(1), population=400_000)
    steps = summands.steps_of(recipe, setup)
    update = torch.zeros(layout.size)
    # Of entries that all round away from zero.
    for segment in layout.segments:
        draws = torch.Generator().manual_seed(seed)
        part = torch.randn(segment.size, generator=draws, dtype=torch.float64)
        update.narrow(0, segment.offset, segment.size).copy_(part.float())
    if length == 1.0 and layout.parameters:
        ones = (torch.arange(layout.parameters) % 2 * 2 - 1).double() / math.sqrt(layout.parameters)
        place = 0
        for segment in layout.segments:
            update.narrow(0, segment.offset, segment.size).copy_(ones[place : place + segment.size])
            place += segment.size
    update = update / float(update.double().norm()) * length * clip
    sent = summands.summand(recipe, setup, layout, facts(1), 1, update, clip)
    assert isinstance(sent, torch.Tensor)
    assert sent.dtype == torch.int32
    said = sent.double() / steps
    assert float(said.norm()) <= 1.0
    if not math.isfinite(length) or length > 1e29:
        assert not sent.any() or length == 1e30
    elif length > 0.5:
        assert float(said.norm()) > 0.95


@law(
    seed=st.integers(0, 30),
    clip=st.sampled_from((0.05, ADAPTIVE)),
    examples=6,
    broken_by={
        "nothing is made of nobody": swap(
            versions,
            "opened",
            lambda *given: replace(found, total=None) if (found := _OPENED_SUM(*given)).why else found,
        ),
        "half of the masks": swap(protocol, "opened", lambda masked, *rest: _OPENED(masked, *rest) // 2),
    },
)
def test_a_sum_that_cannot_be_read_makes_a_version_of_noise_alone(seed: int, clip: Any) -> None:
    """Every version is made and charged, whoever was lost at which stage; and the same bits with masks and without."""
    losses = Faults(secagg_dropout=(0.1, 0.1, 0.2, 0.4))
    federation = replace(SIX, seed=seed, fleet=Fleet(faults=losses))
    assert law_of(hidden() | Secagg(), steady=False) == "bounded"
    story = run(hidden(clip=clip) | Secagg(), federation, versions=4)
    assert len(story.released) == 4
    assert [state.parts["dp"]["versions"] for state in story.states] == [0, 1, 2, 3, 4]
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        assert released.release is not None
        assert not same(before.weights, after.weights), "there is noise in every version"
        assert released.release.reports or not released.note or "noise alone" in released.note
    blind = run(hidden(clip=clip) | Secagg(real=False), federation, versions=4)
    assert same([s.weights for s in story.states], [s.weights for s in blind.states])


@law(
    rate=st.sampled_from((0.3, 1.0)),
    broken_by={"coins count": swap(Secagg, "privacy", Equal.privacy)},
)
def test_coins_hide_nobody_where_the_number_of_clients_decides_what_can_be_read(rate: float) -> None:
    assert law_of(hidden(Poisson(rate=rate))) == "poisson"
    assert law_of(hidden(Poisson(rate=rate)) | Secagg()) == "bounded"


@law(
    clip=st.sampled_from((0.05, ADAPTIVE)),
    broken_by={"no masks": swap(protocol, "mask", lambda own, sharing, vector, context: vector)},
)
def test_the_server_hears_no_single_update_and_no_single_count(clip: Any) -> None:
    story = run(hidden(clip=clip) | Secagg(), SIX, versions=2)
    heard = [m.event for m in story.moments if isinstance(m.event, Report) and m.event.update is not None]
    assert heard
    for event in heard:
        mine = story.reports[event.dispatch].update
        assert mine is not None
        assert event.update is not None
        assert len(mine) == len(event.update) == SIX.engine().layout.parameters + isinstance(clip, Adaptive)
        assert int((mine == event.update).sum()) <= 2
        assert not event.measures
    assert fixed_point.scale_for(5, 1.0) == summands.steps_of(hidden() | Secagg(), SIX.setup(2))
