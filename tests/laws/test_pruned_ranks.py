"""Ranks that clients give up: when they do, what counts of them then, and that nothing else changes."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Settings
from polyrhythm.methods.adapters.averages import LengthWeightedAverage
from polyrhythm.methods.adapters.pruning import Tails
from polyrhythm.methods.capacity.rank_prefix import RankPrefix
from polyrhythm.methods.local.schedules import Constant
from polyrhythm.methods.mechanism import Setup

from .hand import optimiser_of
from .law import law, swap
from .test_adapters import adapter_of, computed, of, ranks_in
from .trials import Trial, trials
from .world import Federation, alike, near, play, run, same, with_adapters

MIXED = (3, 2)


def _everybody(trial: Trial, **changes: Any) -> Trial:
    return trial.but(keep_state=False, cohort=len(trial.federation.sizes), **changes)


@law(
    trial=trials(nets=("perceptron",), travels=False),
    broken_by={"it is said all the same": swap(RankPrefix, "describe", Settings.describe)},
)
def test_without_pruning_it_is_what_it_was(trial: Trial) -> None:
    """The same digest, and so the same draws; nothing is told of ranks, and nothing kept."""
    trial, federation = trial.but(keep_state=False), of(trial.federation, "adapters")
    part = RankPrefix(rank=MIXED, prune_to=1.0)
    assert not part.describe().keys() & {"prune_to", "tail_decay"}
    story = run(trial.recipe(LengthWeightedAverage(), part), federation)
    assert not any(assignment.briefs for assignment in story.assignments.values())
    assert story.states[-1].parts["rank_prefix"] == {}
    assert alike(story, run(trial.recipe(LengthWeightedAverage(), RankPrefix(rank=MIXED)), federation))


def _always(self: Tails, weights: Tensor) -> float:
    return -float(weights.abs().sum())  # which training lengthens as a rule, so that less is left of it


@law(
    trial=trials(nets=("perceptron",)),
    broken_by={"whoever has trained": swap(Tails, "length", _always)},
)
def test_until_somebody_prunes_nothing_changes(trial: Trial) -> None:
    """In the first version B is zero, and no tail can become shorter: every model and update as without, to the bit."""
    trial = trial.but(keep_state=False)
    federation = of(trial.federation, "adapters")
    pruning, plain = (RankPrefix(rank=MIXED, **more) for more in ({"prune_to": 0.5}, {}))
    stories = [run(trial.recipe(LengthWeightedAverage(), part), federation, versions=1) for part in (pruning, plain)]
    assert alike(*stories)
    assert stories[0].states[-1].parts["rank_prefix"] == {"ranks": {}}


def _tail(vector: Tensor, adapter: Any, rank: int, kept: float) -> float:
    """||B_tail|| ||A_tail|| of a client of a rank."""
    first = max(1, int(kept * rank + 1e-9))
    b, a = adapter.b.of(vector).double()[:, first:rank], adapter.a.of(vector).double()[first:rank]
    return float(b.norm() * a.norm())


@law(
    trial=trials(nets=("perceptron",), travels=False),
    decay=st.sampled_from((0.0, 1.0, 5.0)),
    kept=st.sampled_from((0.5, 0.7)),
    examples=8,
    broken_by={
        "all of the ranks": swap(Tails, "length", _always),
        "nobody is told": swap(RankPrefix, "as_told", lambda self, told: self),
        "it is forgotten": swap(RankPrefix, "accept", lambda self, setup, state, report: state),
    },
)
def test_who_has_shortened_its_last_ranks_does_without_them(trial: Trial, decay: float, kept: float) -> None:
    """Ranks fall to floor(g r) when the tail is shorter than in the model that was sent, and count as zero then."""
    trial = _everybody(trial, clip=None)
    federation = of(trial.federation, "adapters")
    part = RankPrefix(rank=MIXED, prune_to=kept, tail_decay=decay)
    story, adapter = play(trial.recipe(LengthWeightedAverage(), part), federation, versions=4), adapter_of(federation)
    ranks = {c: int(part.level_of(federation.setup(None), c, 0)) for c in range(len(federation.sizes))}
    for version, after in enumerate(story.states[1:]):
        release, before = story.released[version].release, story.states[version].weights
        assert release is not None
        own, held = [], []
        for report in release.reports:
            rank = ranks[report.client]
            assert story.assignments[report.dispatch].briefs == {"rank_prefix": {"rank": rank}}
            assert report.update is not None
            a, b = (factor.of(report.update) for factor in (adapter.a, adapter.b))
            assert not a[rank:].any()
            assert not b[:, rank:].any()
            ended = before + report.update
            lengths = _tail(before, adapter, rank, kept), _tail(ended, adapter, rank, kept)
            left = max(1, int(kept * rank + 1e-9)) if lengths[1] < lengths[0] else rank
            assert report.extras["rank_prefix"] == {"rank": left}
            ranks[report.client] = left
            own.append(ended.double())
            held.append(left)
        claims = [p * float(computed(adapter, w, r).norm()) for p, w, r in zip(release.shares, own, held, strict=True)]
        weights = [claim / sum(claims) for claim in claims] if any(claims) else list(release.shares)
        for factor, along in ((adapter.a, 0), (adapter.b, 1)):
            mean = torch.zeros(factor.shape, dtype=torch.float64)
            for w, one, r in zip(weights, own, held, strict=True):
                mean += w * factor.of(one) * (torch.arange(adapter.rank) < r).unsqueeze(1 - along)
            assert near(factor.of(after.weights), mean, 1e-6)
        told = after.parts["rank_prefix"]["ranks"]
        assert all(told.get(client, ranks[client]) == rank for client, rank in ranks.items())


def _half(self: Tails, gradient: Tensor, weights: Tensor, add_: Any = Tails.add_) -> None:
    more = torch.zeros_like(gradient)
    add_(self, more, weights)
    gradient.add_(more, alpha=0.5)


@law(
    trial=trials(nets=("perceptron",), travels=False),
    decay=st.sampled_from((0.1, 2.0)),
    broken_by={
        "half of it": swap(Tails, "add_", _half),
        "none": swap(RankPrefix, "penalty", lambda self, setup, brief: None),
    },
)
def test_a_visit_minimises_the_loss_and_the_length_of_its_last_ranks(trial: Trial, decay: float) -> None:
    """By torch.optim and autograd, of a module with adapters of the client's rank."""
    trial = _everybody(trial, clip=None, schedule=Constant())
    federation = Federation(sizes=trial.federation.sizes, net="adapters", dtype=torch.float64, along="ranks")
    part, adapter = RankPrefix(rank=MIXED, prune_to=0.5, tail_decay=decay), adapter_of(federation)
    recipe = trial.recipe(LengthWeightedAverage(), part)
    story, shards, layout = play(recipe, federation, versions=2), federation.shards(), federation.engine().layout
    for dispatch, report in story.reports.items():
        assignment = story.assignments[dispatch]
        if report.update is None or not assignment.version:
            continue
        rank = assignment.briefs["rank_prefix"]["rank"]
        module = with_adapters(rank).double().train()
        module[0].base, module[0].scale = federation.module()[0].base, adapter.scale
        own = dict(module.named_parameters())
        with torch.no_grad():
            for name, values in layout.named(assignment.weights).items():
                own[name].copy_(_cut(name, values, rank))
        first, optimiser = max(1, rank // 2), optimiser_of(recipe.optimiser, module)
        before = {name: p.detach().clone() for name, p in own.items()}
        for batch in story.batches[dispatch]:
            inputs, targets = shards[assignment.client].inputs[batch], shards[assignment.client].targets[batch]
            loss = nn.functional.cross_entropy(module(inputs), targets)
            tail = own["0.lora_B"][:, first:].norm() * own["0.lora_A"][first:].norm()
            optimiser.zero_grad()
            (loss + decay * tail).backward()
            optimiser.step()
        for name, values in layout.named(report.update).items():
            assert near(_cut(name, values, rank), own[name].detach() - before[name], 1e-9)


def _cut(name: str, values: Tensor, rank: int) -> Tensor:
    return values[:rank] if name.endswith("_A") else values[:, :rank] if name.endswith("_B") else values


def _one_more(self: RankPrefix, setup: Setup, state: State, report: Report) -> State:
    ranks = state["ranks"]
    return {**state, "ranks": {**ranks, report.client: ranks.get(report.client, 0) + 1}}


@law(
    trial=trials(nets=("perceptron",)),
    broken_by={"a rank more each time": swap(RankPrefix, "accept", _one_more)},
)
def test_ranks_never_come_back(trial: Trial) -> None:
    trial = _everybody(trial, lr=0.3)
    federation = of(trial.federation, "adapters")
    part = RankPrefix(rank=3, prune_to=0.7, tail_decay=5.0)
    story = play(trial.recipe(LengthWeightedAverage(), part), federation, versions=5)
    told = [state.parts["rank_prefix"]["ranks"] for state in story.states]
    for one, later in itertools.pairwise(told):
        assert all(later[client] <= rank for client, rank in one.items())
    assert same(ranks_in(story, federation, 0, part), 3)
