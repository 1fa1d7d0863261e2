"""Choices that say what an update counts: bins, rates of invitation, clients that stand for others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import Facts, Report
from polyrhythm.fleet import Fleet
from polyrhythm.methods.papers import clustered_sampling, divfl, f3ast
from polyrhythm.methods.participation import cluster_sampling, diverse_sampling
from polyrhythm.methods.participation.base import InvitationContext
from polyrhythm.methods.participation.cluster_sampling import ClusterSampling
from polyrhythm.methods.participation.diverse_sampling import DiverseSampling
from polyrhythm.methods.participation.rate_sampling import RateSampling
from polyrhythm.methods.weighing import AsInvited, BySamples, Equal

from .fleets import fleets
from .law import law, swap
from .selecting import Present, call, report, setup, told, who
from .test_asynchrony import SIZES, releases
from .trials import Trial, trials
from .world import Federation, Run, near, run

_POURED, _GREEDY, _ACCEPT = cluster_sampling.poured, diverse_sampling.greedy, DiverseSampling.accept
_STREAM, _RATES = InvitationContext.stream, RateSampling.invite
AWAY = st.frozensets(st.integers(0, 7), max_size=4)
HELD = st.lists(st.integers(1, 30), min_size=1, max_size=8)


def _in_one_bin(groups: Sequence[Sequence[int]], held: Mapping[int, int], places: int) -> list[dict[int, int]]:
    """The draw by samples, with replacement: every bin has everybody."""
    return [dict(held) for _ in range(places)]


def _whole_clients(groups: Sequence[Sequence[int]], held: Mapping[int, int], places: int) -> list[dict[int, int]]:
    """Every client in one bin only."""
    bins, seen = _POURED(groups, held, places), set[int]()
    for one in bins:
        for client in [c for c in one if c in seen and len(one) > 1]:
            del one[client]
        seen |= set(one)
    return bins


@law(
    held=HELD,
    by=st.sampled_from(("samples", "updates")),
    measure=st.sampled_from(("angle", "l1", "l2")),
    cohort=st.integers(1, 8),
    away=AWAY,
    version=st.integers(0, 30),
    seed=st.integers(0, 9),
    examples=80,
    broken_by={
        "every bin has everybody": swap(cluster_sampling, "poured", _in_one_bin),
        "the same draw in every bin": swap(
            InvitationContext, "stream", lambda self, fixed, *names: _STREAM(replace(self, version=0), fixed, *names)
        ),
    },
)
def test_a_client_is_drawn_as_often_as_its_samples_allow(
    held: list[int], by: Any, measure: Any, cohort: int, away: frozenset[int], version: int, seed: int
) -> None:
    """m draws in all; of each client at least one for every bin that it fills, at most one for each that it is in."""
    policy, fixed = ClusterSampling(cohort=cohort, by=by, measure=measure), setup(len(held), seed)
    random = torch.Generator().manual_seed(seed)
    heard = [report(c, update=torch.randn(3, generator=random)) for c in range(0, len(held), 2)]
    state = told(policy, policy.server_start(fixed), 0, heard)
    roster = Present(held, away)
    state, invited = policy.invite(fixed, state, call(roster, version))
    there = {c: n for c, n in enumerate(held) if c not in away}
    assert len(set(who(invited))) == len(invited)
    assert set(who(invited)) <= set(there)
    drawn = {client: int(policy.weight(fixed, state, client)) for client in who(invited)}
    draws = cohort if there else 0
    assert sum(drawn.values()) == draws
    if by == "samples":
        for client, samples in there.items():
            wanted = draws * samples / sum(there.values())
            assert abs(drawn.get(client, 0) - wanted) < 2
    one, alike, first = replace(policy, cohort=1), Present([3, 3]), policy.server_start(fixed)
    drawn_in = {who(one.invite(fixed, first, call(alike, version + v))[1])[0] for v in range(40)}
    assert drawn_in == {0, 1}  # another version draws anew


@law(
    held=HELD,
    grouped=st.booleans(),
    places=st.integers(1, 8),
    examples=60,
    broken_by={
        "every bin has everybody": swap(cluster_sampling, "poured", _whole_clients),
    },
)
def test_bins_are_of_one_mass_and_hold_everybody_by_samples(held: list[int], grouped: bool, places: int) -> None:
    """Rows sum to the same, and over all bins a client has m * p_i of it: so the draw has no bias."""
    clients = range(len(held))
    groups = [list(clients[i::3]) for i in range(min(3, len(held)))] if grouped else [list(clients)]
    bins = cluster_sampling.poured(groups, dict(enumerate(held)), places)
    assert [sum(one.values()) for one in bins] == [sum(held)] * places
    for client in clients:
        assert sum(one.get(client, 0) for one in bins) == places * held[client]


@law(
    cohort=st.integers(1, 6),
    by=st.sampled_from(("samples", "updates")),
    fleet=fleets(),
    broken_by={
        "each counts once": swap(ClusterSampling, "weight", lambda self, fixed, state, client: 1.0),
        "and by samples": swap(AsInvited, "claims", BySamples.claims),
    },
)
def test_a_version_is_the_mean_of_all_its_draws(cohort: int, by: Any, fleet: Fleet) -> None:
    # Long shots apart: one holds as much as all others, so it is drawn more than once.
    federation = Federation(sizes=(26, 5, 4, 9, 3, 5), dtype=torch.float64, fleet=fleet)
    story = run(clustered_sampling(cohort=cohort, by=by, epochs=1, batch=4), federation, versions=8)
    counts = Counter[int]()
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        drawn = before.parts["cluster_sampling"]["drawn"]
        total = sum(drawn[r.client] for r in release.reports)
        mean = sum((drawn[r.client] / total * _sent(r) for r in release.reports), torch.zeros_like(before.weights))
        assert near(after.weights, before.weights + mean, 1e-10)
        counts.update(drawn)
    assert cohort < 4 or max(counts.values()) > 8  # in half of all draws


def _sent(heard: Report) -> Tensor:
    assert heard.update is not None
    return heard.update


def _of_before(self: RateSampling, fixed: Any, state: Any, asked: Any) -> Any:
    after, invited = _RATES(self, fixed, state, asked)
    return {**after, "rates": state["rates"] or after["rates"]}, invited


def _divided(self: RateSampling, fixed: Any, state: Any) -> float:
    """By K as well, as the authors' program does."""
    return float(sum(state["held"].values())) * self.size


@law(
    cohort=st.integers(1, 6),
    beta=st.sampled_from((0.1, 0.5, 1.0)),
    fleet=fleets(),
    broken_by={
        "rates that nobody learns": swap(RateSampling, "invite", _of_before),
        "and divided by K": swap(RateSampling, "whole", _divided),
        "those heard are all there is": swap(RateSampling, "whole", lambda self, fixed, state: None),
        "whoever holds most": swap(RateSampling, "weight", lambda self, fixed, state, client: state["held"][client]),
    },
)
def test_who_was_asked_least_for_what_it_holds_comes_and_counts_accordingly(
    cohort: int, beta: float, fleet: Fleet
) -> None:
    """By brute force: rates in plain numbers, ranks by squares, and the step with p_i / r_i."""
    federation = Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet)
    story = run(f3ast(cohort=cohort, beta=beta, epochs=1, batch=4), federation, versions=8)
    rates, total = [cohort / len(SIZES)] * len(SIZES), sum(SIZES)
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        asked = {a.client for a in story.assignments.values() if a.version == release.version}
        scores = [(n / total) ** 2 / r**2 if r else math.inf for n, r in zip(SIZES, rates, strict=True)]
        worst = min(scores[c] for c in asked)
        assert all(c in asked or scores[c] <= worst * (1 + 1e-9) for c in range(len(SIZES)))
        rates = [(1 - beta) * r + beta * (c in asked) for c, r in enumerate(rates)]
        step = torch.zeros_like(before.weights)
        for r in release.reports:
            step += SIZES[r.client] / total / rates[r.client] * _sent(r)
        assert near(after.weights, before.weights + step, 1e-10)


def _by_length(self: DiverseSampling, fixed: Any, state: Any, heard: Report) -> Any:
    return _ACCEPT(self, fixed, state, replace(heard, steps=1))


@law(
    cohort=st.integers(1, 5),
    fleet=fleets(),
    broken_by={
        "the nearest to most first, and then the next": swap(
            diverse_sampling, "greedy", lambda away, count: away.sum(dim=0).argsort()[:count].tolist()
        ),
        "who works longer is further away": swap(DiverseSampling, "accept", _by_length),
        "each counts once": swap(DiverseSampling, "weight", lambda self, fixed, state, client: 1.0),
    },
)
def test_those_invited_stand_for_all(cohort: int, fleet: Fleet) -> None:
    """By brute force: each next one makes the sum of distances smallest, and counts for those nearest to it."""
    federation = Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet)
    story = run(divfl(cohort=cohort, epochs=2, batch=4), federation, versions=6)
    last = dict[int, Tensor]()
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        invited = [a.client for a in story.assignments.values() if a.version == release.version]
        new = [client for client in invited if client not in last]
        chosen = [client for client in invited if client in last]
        for place, client in enumerate(chosen):
            cost = {j: _spread(last, (*chosen[:place], j)) for j in last if j not in chosen[:place]}
            assert math.isclose(cost[client], min(cost.values()), rel_tol=1e-9)
        counts = Counter(min(chosen, key=lambda j: (_away(last, i, j), chosen.index(j))) for i in last if chosen)
        counts.update(dict.fromkeys(new, 1))
        total = sum(counts[r.client] for r in release.reports)
        step = sum((counts[r.client] / total * _sent(r) for r in release.reports), torch.zeros_like(before.weights))
        assert near(after.weights, before.weights + step, 1e-10)
        for r in release.reports:
            last[r.client] = _sent(r) / (r.steps * r.rate)


def _away(last: Mapping[int, Tensor], i: int, j: int) -> float:
    return float(torch.linalg.vector_norm(last[i] - last[j]))


def _spread(last: Mapping[int, Tensor], chosen: Sequence[int]) -> float:
    return sum(min(_away(last, i, j) for j in chosen) for i in last)


def _close(one: Run, other: Run) -> bool:
    return all(near(a.weights, b.weights, 1e-5) for a, b in zip(one.states, other.states, strict=True))


@law(
    trial=trials(everybody=True),
    made=st.sampled_from((f3ast, divfl)),
    examples=10,
    broken_by={
        "half of each": swap(RateSampling, "weight", lambda self, fixed, state, client: state["held"][client] / 2),
        "one stands for two": swap(DiverseSampling, "weight", lambda self, fixed, state, client: 1.0 + client % 2),
    },
)
def test_where_all_are_asked_it_is_the_plain_mean(trial: Trial, made: Any) -> None:
    plain = trial.recipe() if made is f3ast else trial.recipe(Equal())
    assert _close(run(made(**trial.common), trial.federation), run(plain, trial.federation))


@law(
    trial=trials(),
    broken_by={
        "by samples all the same": swap(AsInvited, "claims", BySamples.claims),
        "a whole of more": swap(AsInvited, "total", lambda self, facts, whole: 0.5),
    },
)
def test_invited_by_chance_all_count_equally(trial: Trial) -> None:
    story, plain = (run(trial.recipe(part), trial.federation) for part in (AsInvited(), Equal()))
    assert all(torch.equal(a.weights, b.weights) for a, b in zip(story.states, plain.states, strict=True))


@law(
    weights=st.lists(st.floats(0.1, 9), min_size=1, max_size=5),
    whole=st.sampled_from((None, 10.0)),
    broken_by={"equally": swap(AsInvited, "claims", lambda self, facts: [1.0 for _ in facts])},
)
def test_shares_are_parts_of_what_was_heard_or_of_a_whole(weights: list[float], whole: float | None) -> None:
    given = {"num_samples": 1, "steps": 1, "travel": 1.0, "pull": 0.0, "rate": 0.1, "staleness": 0}
    facts = [Facts(dispatch=i, client=i, weight=w, **given) for i, w in enumerate(weights)]  # type: ignore[arg-type]
    claims, total = AsInvited().claims(facts), AsInvited().total(facts, whole)
    counted = [c / sum(claims) * total for c in claims]
    assert all(math.isclose(c, w / (whole or sum(weights))) for c, w in zip(counted, weights, strict=True))
