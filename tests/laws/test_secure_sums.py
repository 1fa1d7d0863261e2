"""Sums that hide single updates: the same models, to the rounding of fixed point, and nothing of one client."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report
from polyrhythm.base.settings import Settings
from polyrhythm.core import client as core_client
from polyrhythm.core import sealing, sums, validation, versions
from polyrhythm.fleet import Faults, Fleet
from polyrhythm.fleet.state import FleetState
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Deadline, MinReports, OverSelect, ReleaseModifier
from polyrhythm.methods.release.robust import ClipUpdates
from polyrhythm.methods.secure_sum import fixed_point, protocol, summands
from polyrhythm.methods.secure_sum.effects import BLIND, NEEDS_SINGLE, UNSAID
from polyrhythm.methods.secure_sum.secagg import Secagg
from polyrhythm.methods.server_step import Adam
from polyrhythm.methods.weighing import BySamples, Equal, NormalisedAveraging, PerStep
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate, SkipSilently
from polyrhythm.simulation.sums import SimulatedSums

from .law import law, swap
from .trials import Trial, trials
from .world import Federation, near, run, same

# What mutants wrap.
_MASK, _OPENED, _ROUNDED, _COUNTED = protocol.mask, protocol.opened, fixed_point.rounded, summands.counted
_SEALED = sealing.sealed

SIX = Federation(sizes=(5, 12, 7, 9, 3, 8))
NETS = ("logistic", "perceptron")
LOSSES = Faults(secagg_dropout=(0.05, 0.05, 0.1, 0.1), dropout=0.1)
LIMIT = 4.0
RESTS = ((), (Equal(),), (PerStep(),), (NormalisedAveraging(),), (Adam(lr=0.01),), (ClipUpdates(norm=0.1),))
SPOILT = Faults(nan=0.2, corrupt=0.2, malformed=0.2)
ALL_FAULTS = (Faults(), LOSSES, Faults(secagg_dropout=(0, 0, 0.3, 0)), SPOILT)


def hidden(*more: Settings, cohort: int = 5, **secagg: Any) -> Recipe:
    """FedAvg whose single updates are hidden."""
    recipe = fedavg(cohort=cohort, epochs=1, batch=4) | Secagg(limit=LIMIT, **secagg)
    for part in more:
        recipe = recipe | part
    return recipe


def _twice(whole: Any) -> Any:
    return lambda vector, scale, bound: None if (found := _ROUNDED(vector, scale, bound)) is None else found * whole


@law(
    trial=trials(nets=NETS, everybody=True),
    rest=st.sampled_from(RESTS),
    examples=20,
    broken_by={
        "rounds to even numbers twice as large": swap(fixed_point, "rounded", _twice(2)),
        "counts one client more": swap(
            versions,
            "counted",
            lambda recipe, setup, facts, shares: 1 + _COUNTED(recipe, facts, shares, 12),
        ),
        "everybody counts alike": swap(BySamples, "alone", lambda self, facts, most: 1.0),
        "nobody shortens its own update": swap(ClipUpdates, "shortens", lambda self, update: 1.0),
        "nobody divides by its own way": swap(NormalisedAveraging, "alone", lambda self, facts: 1.0),
    },
)
def test_it_is_the_plain_mean_to_the_rounding_of_fixed_point(trial: Trial, rest: tuple[Settings, ...]) -> None:
    """The mean is off by at most K / (2 s) over the sum of weights, times what scales have in common."""
    federation, plain = trial.federation, trial.recipe(*rest)
    if any(p.in_sums is not None and p.in_sums.refused for p in plain.parts()):
        return
    limit = 500.0
    one, other = run(plain, federation, versions=1), run(plain | Secagg(limit=limit), federation, versions=1)
    assert other.released[0].release is not None
    assert same(
        [(r.client, r.steps, r.num_samples) for r in other.released[0].release.reports],
        [(r.client, r.steps, r.num_samples) for r in one.released[0].release.reports],
    )
    if any(isinstance(p, Adam) for p in rest):
        assert near(other.weights, one.weights, 1e-3)
        return
    count, release = len(federation.sizes), other.released[0].release
    scale = summands.steps_of(plain | Secagg(limit=limit), federation.setup(1))
    bound = count / (2 * scale) / release.counted + 1e-6
    assert float((other.weights - one.weights).abs().max()) <= bound


def _as_it_is(own: Any, sharing: Any, vector: np.ndarray, context: bytes) -> np.ndarray:
    return vector


@law(
    faults=st.sampled_from(
        (Faults(), LOSSES, Faults(secagg_dropout=(0, 0, 0.3, 0)), Faults(nan=0.2, corrupt=0.2, malformed=0.2))
    ),
    real=st.booleans(),
    examples=8,
    broken_by={
        "no masks are put on": swap(protocol, "mask", _as_it_is),
        "no masks are taken off": swap(protocol, "opened", lambda masked, *rest: masked),
        "a key gives other numbers each time": swap(protocol, "numbers_of", lambda key, length: _anew(length)),
    },
)
def test_other_keys_or_none_give_the_same_bits(faults: Faults, real: bool) -> None:
    federation = replace(SIX, fleet=Fleet(faults=faults))
    one, other = run(hidden(), federation), run(hidden(real=real), replace(federation))
    with pytest.MonkeyPatch.context() as patch:
        if real:
            patch.setattr(SimulatedSums, "__init__", _other_keys)
        other = run(hidden(real=real), federation)
    assert same([s.weights for s in one.states], [s.weights for s in other.states])
    assert [r.note for r in one.released] == [r.note for r in other.released]
    if not any((faults.nan, faults.corrupt, faults.malformed)):
        said = [m.event for m in one.moments if isinstance(m.event, Report)]
        again = [m.event for m in other.moments if isinstance(m.event, Report)]
        assert all(not same(a.update, b.update) for a, b in zip(said, again, strict=True)), "under other masks"


_COUNT = itertools.count(1)
_INIT = SimulatedSums.__init__


def _anew(length: int) -> np.ndarray:
    return np.full(length, next(_COUNT) * 2**20, dtype=np.uint32)


def _other_keys(self: SimulatedSums, recipe: Recipe, setup: Any, leaves: Any) -> None:
    _INIT(self, recipe, setup, leaves, "other keys")


def _leaks(**left: Any) -> Any:
    def wrapped(recipe: Any, setup: Any, layout: Any, assignment: Any, report: Report) -> Report:
        found = _SEALED(recipe, setup, layout, assignment, report)
        return replace(found, **{name: getattr(report, name) for name in left})

    return wrapped


@law(
    more=st.sampled_from(((), (SkipSilently(),), (SkipAndEstimate(),), (Deadline(seconds=1.0),))),
    examples=8,
    broken_by={
        "no masks": swap(protocol, "mask", _as_it_is),
        "the loss leaves": swap(core_client, "sealed", _leaks(loss=1)),
        "the server keeps what it was sent": swap(sums, "without", lambda report: report),
    },
)
def test_the_server_hears_nothing_of_a_single_update(more: tuple[Settings, ...]) -> None:
    """Masked numbers that are not those of the client, no loss, no length; none of them in a release."""
    story = run(hidden(*more), SIX)
    heard = [m.event for m in story.moments if isinstance(m.event, Report) and m.event.update is not None]
    assert heard
    for event in heard:
        assert event.update is not None
        assert event.update.dtype == torch.int32
        assert event.norm is None
        mine = story.reports[event.dispatch].update
        assert mine is not None
        assert mine.dtype == torch.int32, "whole numbers, when they leave the client"
        assert int((mine == event.update).sum()) <= 2
    for event in (m.event for m in story.moments if isinstance(m.event, Report)):
        assert event.loss is None
        assert not event.measures
        assert not event.idle
        assert not event.extras
    for released in story.released:
        assert released.release is None or not released.release.updates()


@law(
    seed=st.integers(0, 30),
    examples=12,
    broken_by={
        "half of the masks are taken off": swap(protocol, "opened", lambda masked, *rest: _OPENED(masked, *rest) // 2),
        "nobody is ever too few": swap(SimulatedSums, "unmask", lambda self, version, clients, masked: ((1,), masked)),
    },
)
def test_whoever_is_lost_at_any_stage_is_left_out_or_the_version_is(seed: int) -> None:
    """The mean of those heard, as of a release of just these; or no step, and a note why."""
    federation = replace(SIX, seed=seed, fleet=Fleet(faults=LOSSES))
    story = run(hidden(), federation, versions=4)
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        if released.release is None:
            assert same(before.weights, after.weights)
            assert "too few" in released.note or "nobody reported" in released.note
            continue
        ids = {r.dispatch for r in released.release.reports}
        there = [story.reports[d] for d in sorted(ids)]
        assert len(there) >= 3
        scale = summands.steps_of(hidden(), federation.setup(4))
        wholes = [r.update.double() / scale for r in there if r.update is not None]
        weights = sum(r.num_samples / 12 for r in there)
        moved = (after.weights - before.weights).double()
        layout = federation.engine().layout
        kept = torch.cat([moved.narrow(0, s.offset, s.size) for s in layout.segments])
        assert near(kept, torch.stack(wholes).sum(0) / weights, 1e-6)


@law(
    limit=st.sampled_from((1e-4, 0.01)),
    broken_by={
        "cut to the limit": swap(
            fixed_point, "rounded", lambda vector, scale, bound: _ROUNDED(vector.clamp(-bound, bound), scale, bound)
        )
    },
)
def test_a_client_refuses_what_is_beyond_the_limit(limit: float) -> None:
    """It is not cut: the report says so, and the version goes on without it."""
    story = run(fedavg(cohort=6, epochs=1, batch=4, lr=0.5) | Secagg(limit=limit, threshold=3), SIX, versions=1)
    refused = [m.turn.verdict for m in story.moments if m.turn.verdict is not None and not m.turn.verdict.accepted]
    assert refused
    assert {verdict.fault for verdict in refused} == {"too_far"}
    assert all("limit" in verdict.reason for verdict in refused)


@law(
    case=st.sampled_from(range(3)),
    broken_by={
        "whoever looks is taken in": swap(
            Mechanism, "under_secagg", lambda self: BLIND if self.in_sums is None else self.in_sums
        )
    },
)
def test_a_part_of_ones_own_that_looks_and_says_nothing_is_refused(case: int) -> None:
    class Accepts(ReleaseModifier):
        def accept(self, setup: Any, state: Any, report: Any) -> Any:
            return state

    class Limits(ReleaseModifier):
        def limits(self, state: Any, release: Any) -> Sequence[float] | None:
            return None

    class Steps(Adam):
        def seen(self, state: Any, release: Any) -> Any:
            return state

    looks = (Accepts, Limits, Steps)[case]
    assert looks().under_secagg() is UNSAID
    with pytest.raises(UserError, match=NEEDS_SINGLE):
        (hidden() | looks()).whole()
    assert ReleaseModifier().under_secagg() is BLIND


@law(
    faults=st.sampled_from((Faults(nan=0.5), Faults(inflate=0.5), Faults(corrupt=0.5), Faults(malformed=0.5))),
    broken_by={"nobody hears why there is no update": swap(validation, "refused", lambda report: None)},
)
def test_spoiled_reports_are_refused_and_the_others_summed(faults: Faults) -> None:
    """Nothing that is no number comes into a model, and every refusal has its kind."""
    story = run(hidden(cohort=6, threshold=3), replace(SIX, fleet=Fleet(faults=faults)), versions=4)
    kinds = {m.turn.verdict.fault for m in story.moments if m.turn.verdict is not None and not m.turn.verdict.accepted}
    if faults.malformed:
        assert kinds <= {"shape", "dtype", "recipe", "samples"}
    else:
        assert kinds == {"not_finite" if faults.nan else "too_far" if faults.inflate else "damaged"}
    assert bool(torch.isfinite(story.weights).all())


@law(
    cohort=st.sampled_from((4, 6)),
    broken_by={"nobody helps": swap(FleetState, "leaves", lambda self, stage, dispatch: stage == 3)},
)
def test_rounds_with_surplus_and_a_least_number_work(cohort: int) -> None:
    """Over-selection gives up the slowest, whose masks are taken off by their keys."""
    federation = replace(SIX, fleet=Fleet())
    story = run(hidden(OverSelect(factor=1.2), MinReports(count=3), cohort=cohort - 1), federation, versions=3)
    assert all(r.release is not None for r in story.released)
    assert len(story.released) == 3
