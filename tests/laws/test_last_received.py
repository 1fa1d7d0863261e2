"""Clients that go on from the model that they had, and updates that count for what was missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from polyrhythm.methods.papers import fedavg, fedawe
from polyrhythm.methods.participation.last_received import LastReceived
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.weighing import Equal, Staleness

from .law import law, swap
from .test_asynchrony import SIZES, releases
from .trials import Trial, trials
from .world import Federation, alike, near, run, same

_INVITED, _AFTER, _BEFORE = LastReceived.invited, LastReceived.after_step, FromCurrent.before_step


def _of_now(self: LastReceived, setup: Any, state: Any, context: Any, invitations: Any) -> Any:
    after, _ = _INVITED(self, setup, state, context, invitations)
    return after, invitations


def _before_the_step(self: LastReceived, setup: Any, state: Any, release: Any) -> Any:
    return _AFTER(self, setup, state, replace(release, version=max(0, release.version - 1)))


@law(
    cohort=st.integers(1, 6),
    seed=st.integers(0, 9),
    net=st.sampled_from(("perceptron", "batchnorm")),
    buffered=st.booleans(),
    examples=20,
    broken_by={
        "everybody has the newest": swap(LastReceived, "invited", _of_now),
        "what it was sent, not what came of it": swap(LastReceived, "after_step", _before_the_step),
        "and by its scale": swap(
            FromCurrent,
            "before_step",
            lambda self, setup, state, release, mean: _BEFORE(FromCurrent(), setup, state, release, mean),
        ),
        "missed is missed": swap(Staleness, "scale", lambda self, staleness: 1.0),
    },
)
def test_models_mix_as_they_are_and_updates_count_for_what_was_missed(
    cohort: int, seed: int, net: str, buffered: bool
) -> None:
    """By brute force: mean over those heard of x_i + gap_i * update_i, where x_i came of the version they were in."""
    federation = Federation(sizes=SIZES, dtype=torch.float64, seed=seed, net=net)
    recipe = fedawe(cohort=cohort, epochs=1, batch=4)
    story = run(recipe | Buffer(size=cohort) if buffered else recipe, federation, versions=8)
    had = dict.fromkeys(range(len(SIZES)), 0)
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        mean = torch.zeros_like(before.weights)
        for report, share in zip(release.reports, release.shares, strict=True):
            own, sent = story.states[had[report.client]], story.assignments[report.dispatch]
            assert sent.version == had[report.client]
            assert same(sent.weights, own.weights)
            assert same(sent.buffers, own.buffers)
            assert report.update is not None
            mean += share * (own.weights + (release.version - had[report.client] + 1) * report.update)
            had[report.client] = release.version + 1
        assert near(after.weights, mean, 1e-10)
        known = after.parts["last_received"]["models"] if release.version < 7 else {}
        assert set(known) <= {*had.values(), 0, release.version + 1}  # no model is kept for nobody


@law(
    trial=trials(everybody=True),
    broken_by={"one version behind": swap(LastReceived, "after_step", _before_the_step)},
)
def test_where_everybody_is_there_it_is_plain_averaging(trial: Trial) -> None:
    plain = run(trial.recipe(Equal()), trial.federation)
    assert alike(run(fedawe(**trial.common), trial.federation), plain)


@law(
    lr=st.sampled_from((0.3, 1.0)),
    broken_by={
        "by their scale all the same": swap(
            FromCurrent,
            "before_step",
            lambda self, setup, state, release, mean: _BEFORE(
                self, setup, state, replace(release, scales=(0.5,) * len(release.scales)), mean
            ),
        )
    },
)
def test_without_scales_both_ways_back_are_the_same(lr: float) -> None:
    plain = fedavg(cohort=2, epochs=1, batch=4, lr=lr) | LastReceived()
    one, other = (run(plain | FromCurrent(scaled=scaled), Federation(), versions=5) for scaled in (True, False))
    assert alike(one, other)
