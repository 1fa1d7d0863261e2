"""Local AMSGrad, and the moments that clients share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from polyrhythm.methods.local.optimisers import LocalAMSGrad
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.papers import fedlalr
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.shared_moments import SharedMoments
from polyrhythm.methods.weighing import BySamples, Equal

from .fleets import fleets
from .hand import flat_gradient, loaded
from .law import law, swap
from .test_asynchrony import SIZES, releases
from .trials import Trial, trials
from .world import Federation, alike, near, run, same

_STEP, _AFTER, _MOMENTS = LocalAMSGrad.step_, SharedMoments.after_step, SharedMoments.moments


def _falls(self: LocalAMSGrad, weights: Tensor, gradient: Tensor, rate: Any, state: Any) -> None:
    """Adam: what divides may fall again."""
    state["largest"].zero_()
    _STEP(self, weights, gradient, rate, state)


def _summed(self: SharedMoments, setup: Any, state: Any, release: Any) -> Any:
    return {name: 2 * vector for name, vector in _AFTER(self, setup, state, release).items()}


@law(
    cohort=st.integers(1, 6),
    by=st.sampled_from((Equal(), BySamples())),
    decay=st.sampled_from((0.0, 0.1)),
    buffered=st.booleans(),
    fleet=fleets(),
    broken_by={
        "each begins anew": swap(SharedMoments, "moments", lambda self, brief: {}),
        "v begins with nothing": swap(
            SharedMoments,
            "moments",
            lambda self, brief: {k: m if k != "second" else m * 0 for k, m in _MOMENTS(self, brief).items()},
        ),
        "a sum of moments": swap(SharedMoments, "after_step", _summed),
        "what divides may fall": swap(LocalAMSGrad, "step_", _falls),
    },
)
def test_fedlalr_is_its_algorithm(cohort: int, by: Any, decay: float, buffered: bool, fleet: Any) -> None:
    """By hand, in double precision: gradients by autograd, moments in plain tensors."""
    federation = Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet)
    recipe = fedlalr(cohort=cohort, epochs=2, batch=4, lr=0.02, epsilon=1e-3, weight_decay=decay) | by
    story = run(recipe | Buffer(size=max(1, cohort - 1)) if buffered else recipe, federation, versions=5)
    layout, shards = federation.engine().layout, federation.shards()
    shared = {0: (layout.zeros(), torch.full_like(layout.zeros(), 1e-6))}
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        updates, ended = list[Tensor](), list[tuple[Tensor, Tensor]]()
        for r in release.reports:
            sent = story.assignments[r.dispatch]
            m, h = shared[sent.version]
            v, w = h, sent.weights
            for positions in story.batches[r.dispatch]:
                module = loaded(federation, layout, Model(weights=w, buffers=sent.buffers))
                shard = shards[r.client]
                loss = functional.cross_entropy(module(shard.inputs[positions]), shard.targets[positions])
                g = flat_gradient(module, layout, loss) + decay * w
                m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
                h = torch.maximum(h, v)
                w = w - 0.02 * m / h.sqrt()
            updates.append(w - sent.weights)
            ended.append((m, h))
        mean = sum((s * u for s, u in zip(release.shares, updates, strict=True)), layout.zeros())
        assert near(after.weights, before.weights + mean, 1e-10)
        m, h = (sum((s * e[i] for s, e in zip(release.shares, ended, strict=True)), layout.zeros()) for i in (0, 1))
        shared[release.version + 1] = m, h
        held = after.parts["shared_moments"]
        assert near(held["first"], m, 1e-10)
        assert near(held["largest"], h, 1e-10)


@law(
    trial=trials(plain=True),
    broken_by={
        "begins with something": swap(
            SharedMoments,
            "brief",
            lambda self, setup, state, client: dict.fromkeys(("first", "largest"), setup.zeros() + 1),
        )
    },
)
def test_the_first_version_is_local_amsgrad(trial: Trial) -> None:
    plain = trial.recipe(Equal(), LocalAMSGrad(lr=0.1))
    story = run(plain | SharedMoments(), trial.federation, versions=1)
    assert alike(story, run(plain, trial.federation, versions=1))


@law(
    seed=st.integers(0, 5),
    broken_by={"whatever is sent": swap(SharedMoments, "refuses", lambda self, setup, state, report: None)},
)
def test_moments_that_cannot_be_are_refused(seed: int) -> None:
    federation = Federation(seed=seed)
    recipe = fedlalr(cohort=2, epochs=1, batch=4)
    story = run(recipe, federation, versions=1)
    setup, part, report = federation.setup(1), SharedMoments(), next(iter(story.reports.values()))
    assert part.refuses(setup, {}, report) is None
    sent = report.extras["shared_moments"]
    for spoiled in (
        {},
        {"first": sent["first"]},
        {**sent, "largest": sent["largest"][1:]},
        {**sent, "first": sent["first"].double()},
        {**sent, "largest": -sent["largest"]},
    ):
        assert part.refuses(setup, {}, replace(report, extras={"shared_moments": spoiled})) is not None
    assert same(sent, story.reports[report.dispatch].extras["shared_moments"])
