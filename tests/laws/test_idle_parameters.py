"""A parameter that a client's loss never depends on: what the client remembers of it stays as it was.

A client with some of the heads of a model shared by all is the usual case. Its update is zero there, which is no sign
of a gradient of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from polyrhythm.base.settings import Settings
from polyrhythm.base.sums import weighted_sum
from polyrhythm.base.vectors import Spans
from polyrhythm.core import training
from polyrhythm.core.path import Path
from polyrhythm.methods import correction
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.correction import ControlVariates, DynamicRegularisation, Prox, VarianceReduction
from polyrhythm.methods.papers import feddyn, scaffold, vrl_sgd
from polyrhythm.methods.recipe import Recipe

from .law import law, swap
from .trials import Misfortune, misfortunes
from .world import CLASSES, FEATURES, Federation, Run, Shard, near, play, run

# What mutants wrap.
_REPORT = training.report_on
_OUTCOME = training.Outcome
_PATH_ADD = Path.add


@final
class Heads(nn.Module):
    """A body and two heads; the first number of a batch says which head answers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(FEATURES, FEATURES)
        self.heads = nn.ModuleList(nn.Linear(FEATURES, CLASSES) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.heads[int(inputs[0, 0] < 0)](torch.tanh(self.body(inputs)))
        return outputs


@final
@dataclass(frozen=True, kw_only=True)
class Headed(Federation):
    """Clients whose samples go to one head each, or to both in turn.

    Args:
        heads: of each client: 0, 1 or None for both.
    """

    heads: tuple[int | None, ...] = (0, 1, None, 1)
    dtype: torch.dtype = torch.float64

    def module(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return Heads().to(self.dtype)

    def shards(self) -> tuple[Shard, ...]:
        shards = []
        for shard, head in zip(Federation.shards(self), self.heads, strict=True):
            inputs = shard.inputs.clone()
            signs = torch.arange(len(inputs)) % 2 if head is None else torch.full((len(inputs),), head)
            inputs[:, 0] = 1.0 - 2.0 * signs
            shards.append(Shard(inputs, shard.targets))
        return tuple(shards)

    def spans(self, head: int) -> Spans:
        """Where a head lies in the vector."""
        name = f"heads.{head}."
        return tuple((s.offset, s.size) for s in self.engine().layout.segments if s.name.startswith(name))


FEDERATIONS = st.sampled_from((Headed(), Headed(heads=(0, 0, 1, None)), Headed(heads=(1, None, 0, 0), seed=1)))
SETTINGS: dict[str, Any] = {"cohort": 3, "epochs": 1, "batch": 1, "lr": 0.1}


def idle_of(federation: Headed, number: int) -> Spans:
    """What a client never steps, by its data alone."""
    head = federation.heads[number]
    return () if head is None else federation.spans(1 - head)


def nothing_is_idle(patch: Any) -> None:
    patch.setattr(Path, "idle", property(lambda self: ()))


def _only_the_last_step(self: Any, rate: float, computed: Any, samples: int, cursor: Any) -> None:
    _PATH_ADD(self, rate, computed, samples, cursor)
    self._unused = {(s.offset, s.size) for s in computed.unused}


def _any_step(self: Any, rate: float, computed: Any, samples: int, cursor: Any) -> None:
    before = set(self._unused)
    _PATH_ADD(self, rate, computed, samples, cursor)
    self._unused = before | {(s.offset, s.size) for s in computed.unused}


@law(
    federation=FEDERATIONS,
    part=st.sampled_from(
        (Prox(mu=0.1), ClientMomentum(alpha=0.5), ControlVariates(), VarianceReduction(), DynamicRegularisation())
    ),
    weight_decay=st.sampled_from((0.0, 0.1)),
    broken_by={
        "nothing is idle": nothing_is_idle,
        "what the last step left out": swap(Path, "add", _only_the_last_step),
        "what any step left out": swap(Path, "add", _any_step),
    },
)
def test_idle_is_what_no_step_of_the_visit_touched(federation: Headed, part: Settings, weight_decay: float) -> None:
    recipe = scaffold(**SETTINGS | {"weight_decay": weight_decay, "momentum": 0.5})
    recipe = replace(recipe, corrections=(part,))
    story = run(recipe, federation)
    for report in story.reports.values():
        assert report.idle == idle_of(federation, report.client)
        assert report.update is not None
        assert not any(report.update[o : o + n].any() for o, n in report.idle)
        moved = sum(s.size for s in federation.engine().layout.segments) - sum(n for _, n in report.idle)
        assert int((report.update != 0).sum()) > moved / 2


def memories(recipe: Recipe, story: Run, number: int) -> Tensor | None:
    """c_i, d_i or lambda_i of one client after a run; None if there is none yet."""
    part = recipe.corrections[0]
    if isinstance(part, VarianceReduction):
        found: Tensor | None = story.states[-1].parts[part.label()]["drift"].get(number)
        return found
    if number not in story.clients:
        return None
    name = "control" if isinstance(part, ControlVariates) else "dual"
    vector: Tensor = story.clients[number].parts[part.label()][name]
    return vector


def _keeps(vector: Tensor, spans: Spans) -> Tensor:
    return vector


@law(
    federation=FEDERATIONS,
    recipe=st.sampled_from((scaffold(**SETTINGS), vrl_sgd(**SETTINGS), feddyn(**SETTINGS))),
    happening=misfortunes(),
    examples=12,
    broken_by={
        "a zero update is a zero gradient": swap(correction, "clear_", _keeps),
        "nothing is idle": nothing_is_idle,
    },
)
def test_a_client_remembers_nothing_of_what_it_never_stepped(
    federation: Headed, recipe: Recipe, happening: Misfortune
) -> None:
    story = play(recipe, federation, versions=4, happening=happening)
    for number in range(len(federation.sizes)):
        vector = memories(recipe, story, number)
        for offset, size in idle_of(federation, number):
            assert vector is None or not vector[offset : offset + size].any()
    if any(r.release is not None and len(r.release.reports) > 1 for r in story.released):
        assert any(m is not None and m.any() for m in (memories(recipe, story, n) for n in range(4)))


@law(
    federation=FEDERATIONS,
    happening=misfortunes(),
    broken_by={"a zero update is a zero gradient": swap(correction, "clear_", _keeps)},
)
def test_the_control_of_a_head_is_the_mean_over_all_of_those_who_stepped_it(
    federation: Headed, happening: Misfortune
) -> None:
    story = play(scaffold(**SETTINGS), federation, versions=4, happening=happening)
    control = story.states[-1].parts[ControlVariates.label()]["control"]
    for head in range(2):
        for offset, size in federation.spans(head):
            owners = [n for n, own in enumerate(federation.heads) if own in (None, head) and n in story.clients]
            controls = [story.clients[n].parts[ControlVariates.label()]["control"] for n in owners]
            total = torch.stack(controls).sum(0) if controls else torch.zeros_like(control)
            assert near(control[offset : offset + size], total[offset : offset + size] / 4, 1e-10)


def _over_all(updates: Sequence[Tensor], idle: Sequence[Spans]) -> Tensor:
    return weighted_sum(updates, [1 / len(updates)] * len(updates))


@law(
    federation=FEDERATIONS,
    broken_by={
        "the mean over everybody": swap(correction, "mean_of_moved", _over_all),
        "a zero update is a zero gradient": swap(correction, "clear_", _keeps),
    },
)
def test_drifts_of_a_head_sum_to_zero_over_those_who_step_it(federation: Headed) -> None:
    # As many steps for everybody, so that all travel equally far.
    story = run(vrl_sgd(cohort=4, steps=4, batch=1, lr=0.1), federation)
    drifts = story.states[-1].parts[VarianceReduction.label()]["drift"]
    assert len(drifts) == 4
    for head in range(2):
        for offset, size in federation.spans(head):
            theirs = torch.stack([drift[offset : offset + size] for drift in drifts.values()])
            assert near(theirs.sum(0), torch.zeros(size), 1e-10)
            assert theirs.any()


@law(
    values=st.lists(st.lists(st.integers(-4, 4), min_size=6, max_size=6), min_size=1, max_size=5),
    masks=st.lists(st.integers(0, 7), min_size=5, max_size=5),
    examples=40,
    broken_by={"the mean over everybody": swap(correction, "mean_of_moved", _over_all)},
)
def test_the_mean_of_each_part_is_over_those_that_moved_it(values: list[list[int]], masks: list[int]) -> None:
    parts = ((0, 2), (2, 3), (5, 1))
    idle = [tuple(p for i, p in enumerate(parts) if mask >> i & 1) for mask in masks[: len(values)]]
    updates = [torch.tensor(v, dtype=torch.float64) for v in values]
    for update, spans in zip(updates, idle, strict=True):
        for offset, size in spans:
            update[offset : offset + size] = 0
    mean = correction.mean_of_moved(updates, idle)
    for part in parts:
        moved = [u[part[0] : sum(part)] for u, spans in zip(updates, idle, strict=True) if part not in spans]
        right = torch.stack(moved).mean(0) if moved else torch.zeros(part[1], dtype=torch.float64)
        assert near(mean[part[0] : sum(part)], right, 1e-12)


def _one_head_each(federation: Headed) -> Headed:
    return replace(federation, sizes=(4, 4), heads=(0, 1))


@law(
    recipe=st.sampled_from(
        (scaffold(cohort=2, epochs=1, batch=1, lr=0.1), vrl_sgd(cohort=2, steps=4, batch=1, lr=0.1))
    ),
    broken_by={
        "a zero update is a zero gradient": swap(correction, "clear_", _keeps),
        "nothing is idle": nothing_is_idle,
    },
)
def test_a_head_of_one_client_alone_is_corrected_by_nobody_else(recipe: Recipe) -> None:
    """Its c_i, and in VRL-SGD its path against a mean of one, must not slow its head down from version to version."""
    federation = _one_head_each(Headed())
    story = run(recipe, federation, versions=3)
    for number in range(2):
        offset, size = federation.spans(number)[0]
        vector = memories(recipe, story, number)
        assert vector is not None
        if isinstance(recipe.corrections[0], VarianceReduction):
            # The mean of the local models is its own, so there is no drift.
            assert not vector[offset : offset + size].any()
        else:
            control = story.states[-1].parts[ControlVariates.label()]["control"]
            assert near(control[offset : offset + size], vector[offset : offset + size] / 2, 1e-12)
