"""Low-rank adapters: what layers compute with after a version, which factor has moved, and what ranks clients have."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.adapters import Adapter, of_factor
from polyrhythm.methods.adapters import averages
from polyrhythm.methods.adapters.averages import (
    DecomposedAverage,
    LengthWeightedAverage,
    ResidualInBase,
    StackInBase,
)
from polyrhythm.methods.adapters.base import AdapterAverage, Factors, Heard
from polyrhythm.methods.adapters.factors import AlternateFactors, FreezeFactor
from polyrhythm.methods.capacity.base import Levels
from polyrhythm.methods.capacity.rank_prefix import RankPrefix
from polyrhythm.methods.compression import Int8, TopK
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.papers import fedit
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.weighing import Equal

from .hand import optimiser_of, train
from .law import law, swap
from .test_capacity import _at_rate
from .trials import Trial, trials
from .world import Federation, Run, alike, near, play, run, same, with_adapters

SERVED, MIXED = "adapters, served", (3, 2, 1)
_PRODUCT, _DECOMPOSED = Heard.product, averages.decomposed


def of(federation: Federation, net: str = SERVED, **changes: Any) -> Federation:
    return replace(federation, net=net, along="ranks", **changes)


def adapter_of(federation: Federation) -> Adapter:
    (found,) = federation.setup(None).adapters
    return found


def computed(adapter: Adapter, vector: Tensor, ranks: int | None = None) -> Tensor:
    """R + s B A, float64 [d, k], with so many ranks."""
    a, b = adapter.a.of(vector).double()[:ranks], adapter.b.of(vector).double()[:, :ranks]
    residual = 0.0 if adapter.residual is None else adapter.residual.of(vector).double()
    return residual + adapter.scale * (b @ a)


def ranks_in(story: Run, federation: Federation, dispatch: int, part: Any) -> int:
    if part is None:
        return adapter_of(federation).rank
    return int(part.level_of(federation.setup(None), story.assignments[dispatch].client, 0))


def mean_of_products(story: Run, version: int, federation: Federation, part: RankPrefix | None) -> Tensor:
    """The mean by shares of what clients computed with at the end of their visits, [d, k]."""
    release, before, adapter = story.released[version].release, story.states[version].weights, adapter_of(federation)
    assert release is not None
    found = torch.zeros(adapter.b.shape[0], adapter.a.shape[1], dtype=torch.float64)
    for share, report in zip(release.shares, release.reports, strict=True):
        assert report.update is not None
        own = before.double() + report.update.double()
        found += share * computed(adapter, own, ranks_in(story, federation, report.dispatch, part))
    return found


def _without_rest(self: Any, heard: Heard) -> Factors:
    return Factors(b=heard.mean.b, a=heard.mean.a, residual=heard.before.residual)


def _shares_twice(self: Heard) -> Tensor:
    return _PRODUCT(
        replace(self, clients=tuple(replace(c, a=c.a * p) for c, p in zip(self.clients, self.shares, strict=True)))
    )


@law(
    trial=trials(nets=("perceptron",)),
    kind=st.sampled_from((ResidualInBase, StackInBase)),
    ranks=st.sampled_from((None, MIXED)),
    others=st.sampled_from(((), (Prox(mu=0.1), Equal()), (Int8(error_feedback=False),))),
    examples=8,
    broken_by={
        "factors are averaged": swap(ResidualInBase, "after", _without_rest),
        "shares on both sides": swap(Heard, "product", _shares_twice),
        "the scale is forgotten": swap(Heard, "product", lambda self: _PRODUCT(self) / self.adapter.scale),
    },
)
def test_under_exact_rules_a_version_computes_with_the_mean_of_its_clients(
    trial: Trial, kind: type[AdapterAverage], ranks: tuple[int, ...] | None, others: tuple[Any, ...]
) -> None:
    """R + s B A of the next version is sum_i p_i (R + s B_i A_i), to 1e-6."""
    trial = trial.but(keep_state=False)
    part = None if ranks is None else RankPrefix(rank=ranks)
    recipe = trial.recipe(*others, kind(), *(() if part is None else (part,)))
    federation = of(trial.federation)
    story, adapter = play(recipe, federation), adapter_of(federation)
    for version, after in enumerate(story.states[1:]):
        assert near(computed(adapter, after.weights), mean_of_products(story, version, federation, part), 1e-6)
        if kind is StackInBase:
            assert not adapter.b.of(after.weights).any()
            assert not near(adapter.a.of(after.weights), adapter.a.of(story.states[version].weights), 1e-3)


@law(
    trial=trials(nets=("perceptron",), everybody=True),
    broken_by={"it is exact anyway": swap(AdapterAverage, "before_step", ReleaseModifier.before_step)},
)
def test_plain_averaging_misses_what_residual_in_base_adds(trial: Trial) -> None:
    """The same means of A and B, and all that they miss is in R; of other clients too, which are sent it."""
    trial = trial.but(lr=0.3, keep_state=False, optimiser="sgd")
    federation = of(trial.federation)
    recipes = fedit(**trial.common), trial.recipe(ResidualInBase())
    plain, exact = (play(recipe, federation, versions=2) for recipe in recipes)
    adapter = adapter_of(federation)
    for factor in (adapter.a, adapter.b):
        assert near(factor.of(plain.states[1].weights), factor.of(exact.states[1].weights))
    assert adapter.residual is not None
    assert not adapter.residual.of(plain.weights).any()
    assert adapter.residual.of(exact.states[1].weights).any()
    sent = [a.weights for a in exact.assignments.values() if a.version == 1]
    assert all(same(weights, exact.states[1].weights) for weights in sent)
    for report in exact.reports.values():
        assert report.update is not None
        assert not adapter.residual.of(report.update).any()


def _smallest_first(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    b, a = _DECOMPOSED(left, right, rank)
    return b.flip(1), a.flip(0)


def _lopsided(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    b, a = _DECOMPOSED(left, right, rank)
    return 2 * b, a / 2


@law(
    trial=trials(nets=("perceptron",)),
    ranks=st.sampled_from((None, MIXED)),
    broken_by={
        "the smallest first": swap(averages, "decomposed", _smallest_first),
        "one factor longer than the other": swap(averages, "decomposed", _lopsided),
        "what nobody holds stays": swap(DecomposedAverage, "sets_all", False),
    },
)
def test_decomposed_the_mean_is_best_approximated_at_every_rank(trial: Trial, ranks: tuple[int, ...] | None) -> None:
    """What a client of rank r holds is off by no more than the singular values of the mean beyond r."""
    trial = trial.but(keep_state=False)
    part = None if ranks is None else RankPrefix(rank=ranks)
    federation = of(trial.federation, "adapters")
    recipe = trial.recipe(DecomposedAverage(), *(() if part is None else (part,)))
    story, adapter = play(recipe, federation), adapter_of(federation)
    for version, after in enumerate(story.states[1:]):
        mean = mean_of_products(story, version, federation, part)
        sizes = torch.linalg.svdvals(mean)
        for rank in range(1, adapter.rank + 1):
            off = mean - computed(adapter, after.weights, rank)
            assert math.isclose(float(off.norm()), float(sizes[rank:].norm()), abs_tol=1e-5 * float(sizes[0] + 1))
        a, b = (factor.of(after.weights).double() for factor in (adapter.a, adapter.b))
        assert near(a.norm(dim=1), b.norm(dim=0), 1e-5)


@law(
    trial=trials(nets=("perceptron",), everybody=True),
    client=st.integers(0, 2),
    broken_by={"one factor alone": swap(averages, "decomposed", lambda left, right, rank: (left, 2 * right))},
)
def test_decomposed_one_client_computes_on_with_what_it_had(trial: Trial, client: int) -> None:
    trial = trial.but(keep_state=False, cohort=1)
    federation = of(trial.federation, "adapters", eligible=(client,))
    story, adapter = play(trial.recipe(DecomposedAverage()), federation), adapter_of(federation)
    for version, after in enumerate(story.states[1:]):
        assert near(computed(adapter, after.weights), mean_of_products(story, version, federation, None), 1e-6)


@law(
    trial=trials(nets=("perceptron",)),
    ranks=st.sampled_from((None, MIXED)),
    by_length=st.booleans(),
    broken_by={
        "lengths never count": swap(torch.linalg, "matrix_norm", lambda matrix: torch.tensor(1.0)),
        "lengths of A": swap(torch.linalg, "matrix_norm", lambda matrix: matrix.abs().max()),
    },
)
def test_clients_count_by_the_length_of_what_their_adapters_add(
    trial: Trial, ranks: tuple[int, ...] | None, by_length: bool
) -> None:
    """sum_i w_i A_i of zero-padded factors, w_i as p_i ||B_i A_i||; without lengths and ranks, plain averaging."""
    trial = trial.but(keep_state=False)
    part = None if ranks is None else RankPrefix(rank=ranks)
    federation, extra = of(trial.federation, "adapters"), () if part is None else (part,)
    story = play(trial.recipe(LengthWeightedAverage(by_length=by_length), *extra), federation)
    adapter = adapter_of(federation)
    for version, after in enumerate(story.states[1:]):
        release, before = story.released[version].release, story.states[version].weights.double()
        assert release is not None
        own = [before + r.update.double() for r in release.reports if r.update is not None]
        held = [ranks_in(story, federation, r.dispatch, part) for r in release.reports]
        lengths = [float(computed(adapter, w, r).norm()) if by_length else 1.0 for w, r in zip(own, held, strict=True)]
        claims = [p * length for p, length in zip(release.shares, lengths, strict=True)]
        weights = [claim / sum(claims) for claim in claims] if any(claims) else list(release.shares)
        for factor, along in ((adapter.a, 0), (adapter.b, 1)):
            padded = [
                factor.of(w) * (torch.arange(adapter.rank) < r).unsqueeze(1 - along)
                for w, r in zip(own, held, strict=True)
            ]
            mean = sum(w * one for w, one in zip(weights, padded, strict=True))
            assert isinstance(mean, Tensor)
            assert near(factor.of(after.weights), mean, 1e-6)
    if not by_length and ranks is None:
        assert near(story.weights, play(trial.recipe(), federation).weights, 1e-4)


@law(
    trial=trials(nets=("perceptron",), travels=False),
    versions=st.sampled_from((1, 2)),
    others=st.sampled_from(((), (Prox(mu=0.1),), (TopK(share=0.5),))),
    broken_by={
        "nothing rests": swap(AlternateFactors, "rests", lambda self, version: None),
        "A first": swap(AlternateFactors, "rests", lambda self, version: "AB"[(version // self.versions + 1) % 2]),
        "always A": swap(AlternateFactors, "rests", lambda self, version: "A"),
    },
)
def test_one_factor_moves_in_each_version(trial: Trial, versions: int, others: tuple[Any, ...]) -> None:
    """B in even turns, A in odd ones, with momentum, decay and all; and so the mean of B A is exact."""
    trial = trial.but(keep_state=False)
    federation = of(trial.federation, "adapters")
    story = play(trial.recipe(*others, AlternateFactors(versions=versions)), federation, versions=4)
    adapter = adapter_of(federation)
    for version, after in enumerate(story.states[1:]):
        before = story.states[version].weights
        rests, moves = (adapter.a, adapter.b) if version // versions % 2 == 0 else (adapter.b, adapter.a)
        assert same(rests.of(after.weights), rests.of(before))
        reports = [r for r in story.reports.values() if r.version == version and r.update is not None]
        assert all(r.update is not None and not rests.of(r.update).any() for r in reports)
        if not isinstance(others[-1] if others else None, TopK):
            assert any(r.update is not None and moves.of(r.update).any() for r in reports)
        assert near(computed(adapter, after.weights), mean_of_products(story, version, federation, None), 1e-6)


@law(
    trial=trials(nets=("perceptron",), travels=False),
    broken_by={
        "B rests": swap(AlternateFactors, "rests", lambda self, version: "B"),
        "all learns": swap(AlternateFactors, "rests", lambda self, version: None),
    },
)
def test_while_b_is_trained_it_is_as_with_a_frozen(trial: Trial) -> None:
    """Every number of B and of the head, to rounding: what is summed lies elsewhere."""
    one, other = (replace(trial.federation, net=net) for net in ("adapters", "adapters, A frozen"))
    resting = play(trial.recipe(AlternateFactors(versions=99)), one)
    frozen = play(trial.recipe(FreezeFactor()), other)
    (whole, few) = (f.engine().layout for f in (one, other))
    assert [s.name for s in few.segments] == [s.name for s in whole.segments if s not in of_factor(whole, "A")]
    for name, values in few.named(frozen.weights).items():
        assert near(whole.named(resting.weights)[name], values, 1e-5)


@law(
    trial=trials(nets=("perceptron",), travels=False),
    average=st.sampled_from((None, ResidualInBase, StackInBase, DecomposedAverage, LengthWeightedAverage)),
    broken_by={"half of it": swap(RankPrefix, "level_of", lambda self, setup, client, version: 1)},
)
def test_with_all_ranks_for_all_it_is_as_without(trial: Trial, average: type[AdapterAverage] | None) -> None:
    """Every model, update and loss, to the bit."""
    trial, federation = trial.but(keep_state=False), of(trial.federation)
    parts = () if average is None else (average(),)
    runs = (run(trial.recipe(*parts, *part), federation) for part in ((), (RankPrefix(rank=3),)))
    assert alike(*runs)


@law(
    trial=trials(nets=("perceptron",), travels=False),
    ranks=st.sampled_from((MIXED, (1, 3), (2, 3))),
    examples=4,
    broken_by={
        "one rank for all": swap(Levels, "level_of", lambda self, setup, client, version: 1.0),
        "the last ranks": swap(
            RankPrefix,
            "of_level",
            lambda self, cuts, level: cuts.portion([range(a.units - int(level), a.units) for a in cuts.axes]),
        ),
    },
)
def test_a_visit_is_one_with_adapters_of_its_rank(trial: Trial, ranks: tuple[int, ...]) -> None:
    """A module made with that rank, with the first rows and columns, moves as far under torch.optim."""
    trial = trial.but(keep_state=False)
    federation = Federation(sizes=trial.federation.sizes, net="adapters", dtype=torch.float64, along="ranks")
    part = RankPrefix(rank=ranks, dealt="in_order")
    recipe, adapter = trial.recipe(part), adapter_of(federation)
    story, shards, clients = play(recipe, federation), federation.shards(), len(federation.sizes)
    layout = federation.engine().layout
    for dispatch, report in story.reports.items():
        assignment = story.assignments[dispatch]
        if report.update is None:
            continue
        rank = ranks[math.floor(assignment.client * len(ranks) / clients + 1e-9)]
        module = with_adapters(rank).double().train()
        module[0].base, module[0].scale = copy.deepcopy(federation.module()[0].base), adapter.scale
        own = dict(module.named_parameters())
        with torch.no_grad():
            for name, values in layout.named(assignment.weights).items():
                cut = values[:rank] if name.endswith("_A") else values[:, :rank] if name.endswith("_B") else values
                own[name].copy_(cut)
        optimiser, batches = optimiser_of(recipe.optimiser, module), story.batches
        before = {name: p.detach().clone() for name, p in own.items()}
        for step, batch in enumerate(batches[dispatch]):
            _at_rate(optimiser, trial, recipe, assignment.version, step, len(batches[dispatch]))
            train(module, layout, shards[assignment.client], [batch], optimiser, clip=recipe.optimiser.clip)
        for name, values in layout.named(report.update).items():
            moved = own[name].detach() - before[name]
            there = values[:rank] if name.endswith("_A") else values[:, :rank] if name.endswith("_B") else values
            assert near(there, moved, 1e-9)
            assert int(values.count_nonzero()) == int(there.count_nonzero())
