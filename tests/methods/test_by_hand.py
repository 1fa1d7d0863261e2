"""Mechanisms by hand on three clients with f_i = (w - b_i)^2 / 2, b = (0, 4, 8): an update is (b_i - w) / 2."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laws.selecting import Present, call, setup, who
from laws.selecting import report as told
from laws.test_asynchrony import SIZES
from laws.world import Federation, Shard, run
from polyrhythm.base.adapters import Adapter
from polyrhythm.base.axes import Along, Axes, Axis
from polyrhythm.base.magnitudes import Magnitudes
from polyrhythm.base.messages import Report
from polyrhythm.base.vectors import Segment, laid_out
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.personal import used
from polyrhythm.core.portions import over_holders
from polyrhythm.core.versions import facts_of
from polyrhythm.core.visit_plan import visit_of
from polyrhythm.engines.sparse import masking
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.adapters.averages import (
    DecomposedAverage,
    LengthWeightedAverage,
    ResidualInBase,
    StackInBase,
    decomposed,
)
from polyrhythm.methods.adapters.base import Factors, Heard
from polyrhythm.methods.adapters.factors import AlternateFactors, FreezeFactor
from polyrhythm.methods.adapters.pruning import Tails, pruned
from polyrhythm.methods.capacity.base import Widths, with_fixed_parts
from polyrhythm.methods.capacity.depth_prefix import DepthPrefix
from polyrhythm.methods.capacity.largest_weights import largest
from polyrhythm.methods.capacity.random_width import RandomWidth
from polyrhythm.methods.capacity.rank_prefix import RankPrefix
from polyrhythm.methods.capacity.rolling_window import RollingWindow
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.correction import ControlVariates, DynamicRegularisation, VarianceReduction
from polyrhythm.methods.local.optimisers import LocalAMSGrad
from polyrhythm.methods.mechanism import Model, Release, Setup, Visit
from polyrhythm.methods.papers import ace, aced, area, ca2fl, fadas, fedavg, fedexp, fedit, fedvarp
from polyrhythm.methods.participation.availability_sampling import AvailabilitySampling
from polyrhythm.methods.participation.cluster_sampling import ClusterSampling, distances, poured
from polyrhythm.methods.participation.diverse_sampling import DiverseSampling
from polyrhythm.methods.participation.norm_sampling import chances
from polyrhythm.methods.participation.rate_sampling import RateSampling
from polyrhythm.methods.participation.ward import merged
from polyrhythm.methods.participation_intervals import ParticipationIntervals
from polyrhythm.methods.personal.guided import MetaStep, MoreauEnvelope, PersonalMixture
from polyrhythm.methods.personal.guides import Slope
from polyrhythm.methods.personal.models import FineTuning, PersonalCopy, PersonalModel
from polyrhythm.methods.personal.neighbours import NearestNeighbours, NearestPrototype
from polyrhythm.methods.personal.prototypes import Prototypes
from polyrhythm.methods.personal.scope import PersonalLayers
from polyrhythm.methods.personal.starts import AdaptiveStart
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.release.delay_adaptive_step import DelayAdaptiveStep
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.last_models import LastModels
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.release.robust import Median, TrimmedMean
from polyrhythm.methods.release.stale_updates import StaleUpdates
from polyrhythm.methods.release.unlike_updates import UnlikeUpdates
from polyrhythm.methods.server_step import Extrapolation
from polyrhythm.methods.shared_moments import SharedMoments
from polyrhythm.methods.weighing import Equal, PerStep, Staleness
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate
from polyrhythm.methods.work.stop_on_drift import Drift, StopOnDrift
from polyrhythm.models.distillation import sum_of_exits
from polyrhythm.models.tasks import task

SETUP = Setup(size=1, dtype=torch.float64, population=3, total_rounds=None, seed=0)
B = (0.0, 4.0, 8.0)


def report(client: int, sent: float, version: int, *, target: float | None = None) -> tuple[Report, Tensor]:
    """What a client answers that was sent a model, and that model."""
    update = torch.tensor([((B[client] if target is None else target) - sent) / 2], dtype=torch.float64)
    given: dict[str, Any] = {"dispatch": 0, "visit": 0, "kind": "train", "recipe": "", "num_samples": 1, "rate": 0.5}
    return Report(client=client, version=version, update=update, **given), torch.tensor([sent], dtype=torch.float64)


def by_hand(part: ReleaseModifier, releases: Sequence[Sequence[tuple[int, float, int]]]) -> tuple[list[float], Any]:
    """The server's model after each release of (client, what it was sent, of which version), and the part's state."""
    state, x, story = part.server_start(SETUP), torch.zeros(1, dtype=torch.float64), list[float]()
    for version, heard in enumerate(releases):
        reports, bases = zip(*(report(*one) for one in heard), strict=True)
        shares = (1 / len(reports),) * len(reports)
        release = Release(
            version=version,
            reports=reports,
            shares=shares,
            scales=(1.0,) * len(reports),
            weights=x,
            bases=bases,
            rate=0.5,
        )
        mean = sum((r.update for r in reports), torch.zeros(1, dtype=torch.float64)) / len(reports)
        state, mean = part.before_step(SETUP, state, release, mean)
        x = x if part.holds_back(SETUP, state) else x + mean
        story.append(float(x))
    return story, state


@pytest.mark.parametrize(("beta", "second"), [(0.0, 7 / 2), (0.5, 10 / 3), (1.0, 19 / 6)])
def test_stale_updates_by_hand(beta: float, second: float) -> None:
    story, state = by_hand(StaleUpdates(beta=beta), [[(0, 0, 0), (1, 0, 0)], [(1, 1, 1), (2, 1, 1)]])
    assert story == pytest.approx([1, second])
    if beta:
        assert [float(state["last"][c]) * 0.5 for c in range(3)] == pytest.approx([0, 3 / 2, 7 / 2])
        assert float(state["total"]) * 0.5 == pytest.approx(5)


def test_a_calibrated_buffer_by_hand() -> None:
    story, state = by_hand(StaleUpdates(), [[(0, 0, 0), (1, 0, 0)], [(0, 1, 1), (2, 0, 0)]])
    assert story == pytest.approx([1, 41 / 12])
    assert [float(state["last"][c]) * 0.5 for c in range(3)] == pytest.approx([-1 / 2, 2, 4])


def test_last_updates_on_every_arrival_by_hand() -> None:
    """ACE: x = 2/3, 8/3, 41/9 as clients 1, 2, 1 arrive, each sent the newest model at once."""
    story, state = by_hand(LastUpdates(), [[(1, 0, 0)], [(2, 0, 0)], [(1, 2 / 3, 1)]])
    assert story == pytest.approx([2 / 3, 8 / 3, 41 / 9])
    assert {c: float(h) * 0.5 for c, h in state["last"].items()} == pytest.approx({1: 5 / 3, 2: 4})


def test_only_recent_updates_by_hand() -> None:
    """ACED with tau = 1: 2, 5, 6; with tau beyond all delays, over those heard: 2, 5, 15/2."""
    arrivals = [[(1, 0.0, 0)], [(2, 0.0, 0)], [(1, 2.0, 1)]]
    assert by_hand(LastUpdates(within=1), arrivals)[0] == pytest.approx([2, 5, 6])
    assert by_hand(LastUpdates(within=99), arrivals)[0] == pytest.approx([2, 5, 15 / 2])


def test_where_nothing_is_recent_the_server_stays() -> None:
    story, state = by_hand(LastUpdates(within=0), [[(1, 0, 0)], [(2, 0, 0)]])
    assert story == pytest.approx([2, 2])
    assert "0 versions old" in LastUpdates(within=0).holds_back(SETUP, state)


def test_last_models_by_hand() -> None:
    """AREA: x = 2/3, 2, 19/9, the mean of y = (0, 7/3, 4)."""
    story, state = by_hand(LastModels(), [[(1, 0, 0)], [(2, 0, 0)], [(1, 2 / 3, 1)]])
    assert story == pytest.approx([2 / 3, 2, 19 / 9])
    assert {c: float(y) for c, y in state["last"].items()} == pytest.approx({1: 7 / 3, 2: 4})


@pytest.mark.parametrize(
    ("epsilon", "factor"), [(0.0, 2.5), (0.5, 5 / 3)], ids=["without epsilon", "the paper's epsilon"]
)
def test_extrapolation_by_hand(epsilon: float, factor: float) -> None:
    step = Extrapolation(epsilon=epsilon)
    reports = [report(c, 0.0, 0, target=t)[0] for c, t in enumerate((6.0, -2.0))]  # updates 3 and -1
    release = Release(
        version=0, reports=tuple(reports), shares=(0.5, 0.5), scales=(1.0, 1.0), weights=torch.zeros(1), rate=0.5
    )
    state, x = step.step(SETUP, step.seen(step.server_start(SETUP), release), torch.zeros(1), torch.ones(1))
    assert float(x) == pytest.approx(factor)
    assert step.measures(state) == {"extrapolation": pytest.approx(factor)}


@pytest.mark.parametrize(("cutoff", "expected"), [(None, [1, 1, 2]), (2, [1, 3 / 2, 4 / 3])])
def test_participation_intervals_by_hand(cutoff: int | None, expected: list[float]) -> None:
    """A client that is heard in versions 0, 3 and 4, one of three."""
    part, found = ParticipationIntervals(cutoff=cutoff), []
    state = part.server_start(SETUP)
    for version in (0, 3, 4):
        one, _ = report(0, 0.0, version)
        facts = [facts_of(version, one)]
        found += part.weigh(SETUP, state, version, facts, [1.0])
        release = Release(version=version, reports=(one,), shares=(1.0,), scales=(1.0,), weights=torch.zeros(1))
        state = part.after_step(SETUP, state, release)
    assert [3 * scale for scale in found] == pytest.approx(expected)


@pytest.mark.parametrize(("delays", "stride"), [((0, 0), 1.0), ((1, 0), 1.0), ((4, 2), 0.25), ((2,), 0.5)])
def test_a_late_version_goes_less_far_by_hand(delays: tuple[int, ...], stride: float) -> None:
    reports = tuple(report(0, 0.0, 10 - delay)[0] for delay in delays)
    release = Release(version=10, reports=reports, shares=(), scales=(), weights=torch.zeros(1))
    assert DelayAdaptiveStep(delay=1).stride(release) == stride
    assert DelayAdaptiveStep(delay=9).stride(release) == 1.0


def test_of_differing_clients_it_does_go_further() -> None:
    federation = Federation(sizes=SIZES, dtype=torch.float64)
    story = run(fedexp(cohort=6, epochs=3, batch=4, epsilon=0.0), federation, versions=6)
    assert max(state.parts["server_extrapolation"]["factor"] for state in story.states) > 1


@pytest.mark.parametrize(
    ("recipe", "parts"),
    [
        (ace(), {"rolling", "last_updates"}),
        (aced(), {"rolling", "last_updates"}),
        (ca2fl(), {"rolling", "stale_updates"}),
        (area(), {"rolling", "last_models"}),
        (fadas(), {"rolling", "delay_adaptive_step"}),
        (fedvarp(), {"stale_updates"}),
    ],
    ids=lambda given: getattr(given, "title", ""),
)
def test_the_papers_are_made_of_these_parts(recipe: Recipe, parts: set[str]) -> None:
    assert {modifier.label() for modifier in recipe.modifiers} == parts


def test_client_momentum_by_hand() -> None:
    """FedCM, b = 8, rate and alpha 1/2, one step: x = 2, then 9/2."""
    part, state, x = ClientMomentum(alpha=0.5), dict[str, Any](), torch.zeros(1, dtype=torch.float64)
    story = []
    for version in range(2):
        push = part.push(SETUP, {}, part.brief(SETUP, state, 0))
        assert push is not None
        direction = push.factor * (x - 8) + (0 if push.shift is None else push.shift)
        told = replace(report(0, 0.0, version)[0], update=-0.5 * direction, travel=0.5)
        release = Release(version=version, reports=(told,), shares=(1.0,), scales=(1.0,), weights=x)
        state, mean = part.before_step(SETUP, state, release, -0.5 * direction)
        x = x + mean
        story.append(float(x))
    assert story == [2, 9 / 2]


def test_bins_by_hand() -> None:
    """p = (1/2, 1/4, 1/4) in two bins: (1, 0, 0) and (0, 1/2, 1/2); with p = 1/4 and two alike pairs, one pair each."""
    assert poured([[0, 1, 2]], {0: 2, 1: 1, 2: 1}, 2) == [{0: 4}, {1: 2, 2: 2}]
    pairs = [torch.tensor(v) for v in ((1.0, 0.0), (0.0, 2.0), (3.0, 0.3), (0.1, 1.0))]
    for measure in ("angle", "l1", "l2"):
        groups = merged(distances(pairs if measure == "angle" else _scaled(pairs), measure), [2] * 4, 4, 2)
        assert groups == [[0, 2], [1, 3]]
        assert poured(groups, dict.fromkeys(range(4), 1), 2) == [{0: 2, 2: 2}, {1: 2, 3: 2}]


def _scaled(updates: Sequence[Tensor]) -> list[Tensor]:
    return [update / update.norm() for update in updates]


def test_distances_by_hand() -> None:
    one, other = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    for measure, away in (("angle", torch.pi / 2), ("l1", 7.0), ("l2", 5.0)):
        found = distances([one, None, other, torch.zeros(2)], measure)
        assert found[0, 2] == found[2, 0] == pytest.approx(away)
        assert found[[1, 3]].sum() == found.trace() == 0


def test_ward_by_hand() -> None:
    """Points 0, 1, 4, 9: first 0 and 1; then 4 joins them at 7^2 / 3 before 9 joins 4 at 25; by weight not at all."""
    points = torch.tensor([[0.0], [1.0], [4.0], [9.0]]).double()
    away = torch.cdist(points, points).numpy()
    assert merged(away, [1] * 4, 4, 3) == [[0, 1], [2], [3]]
    assert merged(away, [1] * 4, 4, 2) == [[0, 1, 2], [3]]
    assert merged(away, [1] * 4, 2, 2) == [[0, 1], [2], [3]]
    assert merged(away, [1] * 4, 1, 1) == [[0], [1], [2], [3]]


def test_clients_that_stand_for_others_by_hand() -> None:
    """DivFL: g = (0, 1, 10): client 1 stands for 0 as well, then client 2 for itself."""
    policy, fixed, roster = DiverseSampling(cohort=2), setup(3), Present([1, 1, 1])
    state, asked = policy.invite(fixed, policy.server_start(fixed), call(roster))
    assert sorted(who(asked)) == [0, 1, 2]
    for client, g in enumerate((0.0, 1.0, 10.0)):
        state = policy.accept(fixed, state, told(client, update=torch.tensor([g / 4]), steps=2, rate=0.125))
    state, asked = policy.invite(fixed, state, call(roster, 1))
    assert who(asked) == [1, 2]
    assert [policy.weight(fixed, state, client) for client in (1, 2)] == [2, 1]


def test_rates_by_hand() -> None:
    """F3AST, p = (1/2, 1/4, 1/4), beta 1/2, one of three: 0, 1, 2 are asked, and count 3/4, 3/7, 6/13."""
    policy, fixed, roster = RateSampling(cohort=1, beta=0.5), setup(3), Present([2, 1, 1])
    state, counted, rates = policy.server_start(fixed), list[float](), list[list[float]]()
    for version in range(3):
        state, asked = policy.invite(fixed, state, call(roster, version))
        assert who(asked) == [version]
        rates.append([state["rates"][client] for client in range(3)])
        whole = policy.whole(fixed, state)
        assert whole == 4
        counted.append(policy.weight(fixed, state, version) / whole)
    third = [[2 / 3, 1 / 6, 1 / 6], [1 / 3, 7 / 12, 1 / 12], [1 / 6, 7 / 24, 13 / 24]]
    assert [pytest.approx(row) for row in third] == rates
    assert counted == pytest.approx([3 / 4, 3 / 7, 6 / 13])


def test_a_large_client_is_drawn_for_every_bin_that_it_fills() -> None:
    policy, fixed = ClusterSampling(cohort=4), setup(3)
    for version in range(9):
        state, _ = policy.invite(fixed, policy.server_start(fixed), call(Present([6, 1, 1]), version))
        assert policy.weight(fixed, state, 0) == 3


def test_who_was_away_by_hand() -> None:
    """FedAWE, b = (-2, 4), clients {1}, {1}, {0, 1} there: x = 2, 3, 1/4."""
    x, story, scale = torch.zeros(1, dtype=torch.float64), list[float](), Staleness(rule="catch_up").scale
    heard: list[list[tuple[int, float, int]]] = [[(1, 0.0, 0)], [(1, 2.0, 1)], [(0, 0.0, 0), (1, 3.0, 2)]]
    for version, visits in enumerate(heard):
        reports, bases = zip(*(report(*one, target=(-2.0, 4.0)[one[0]]) for one in visits), strict=True)
        shares, scales = (1 / len(visits),) * len(visits), tuple(scale(version - r.version) for r in reports)
        release = Release(version=version, reports=reports, shares=shares, scales=scales, weights=x, bases=bases)
        mean = sum((s * c * r.update for s, c, r in zip(shares, scales, reports, strict=True)), torch.zeros(1))
        _, mean = FromCurrent(scaled=False).before_step(SETUP, {}, release, mean)
        x = x + mean
        story.append(float(x))
    assert story == [2, 3, 1 / 4]


@pytest.mark.parametrize(
    ("lengths", "uploads", "expected"),
    [
        ((1, 1, 8), 2, (1 / 2, 1 / 2, 1)),
        ((1, 2, 3, 4), 2, (0.2, 0.4, 0.6, 0.8)),
        ((4, 0, 0), 2, (1, 0, 0)),
        ((0, 0, 0), 2, (2 / 3, 2 / 3, 2 / 3)),
        ((5, 1), 3, (1, 1)),
    ],
)
def test_chances_by_hand(lengths: tuple[float, ...], uploads: int, expected: tuple[float, ...]) -> None:
    for rescalings in (None, 4):
        assert chances(lengths, uploads, rescalings) == pytest.approx(expected)
    assert chances((1, 1, 8), 2, 1) == pytest.approx((0.5, 0.5, 1))


def test_whoever_has_nothing_to_say_is_never_drawn_however_little_others_have() -> None:
    for lengths in ([0.0, 8.0, 2.2250738585072014e-308], [0.0, 1e-300, 3e-320]):
        assert chances(lengths, 2) == chances(lengths, 2, 100) == [0.0, 1.0, 1.0]


class Numbers(nn.Module):
    """Two weights, whatever the input: with targets b, and lr = 1/2, a step goes half of the way to b."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.first, self.second]).expand(len(inputs), 2)


@dataclass(frozen=True, kw_only=True)
class Halfway(Federation):
    """Clients with one sample each, of the same target in both numbers."""

    targets: tuple[float, ...] = (0.0, 4.0)
    sizes: tuple[int, ...] = (1, 1)

    def engine(self) -> TorchEngine:
        return TorchEngine(Numbers(), task("regression").fitted(2, torch.zeros(1, 2, dtype=torch.float64)))

    def shards(self) -> tuple[Shard, ...]:
        return tuple(Shard(torch.zeros(1, 1), torch.full((1, 2), b, dtype=torch.float64)) for b in self.targets)


def test_a_part_that_is_shared_and_one_that_is_not_by_hand() -> None:
    """The shared number is 1 after a version, half of the mean of 0 and 4; the personal ones are 0 and 2."""
    recipe = fedavg(cohort=2, steps=1, batch=None, lr=0.5) | Equal() | PersonalLayers(layers=("second",))
    story, layout = run(recipe, Halfway(), versions=2), Halfway().engine().layout
    first, second = (layout.named(story.states[version].weights) for version in (1, 2))
    assert (float(first["first"]), float(first["second"])) == (1, 0)
    assert (float(second["first"]), float(second["second"])) == (1.5, 0)
    assert [float(story.clients[c].parts["personal_layers"]["weights"]) for c in range(2)] == [0, 3]


@pytest.mark.parametrize(("strength", "found"), [(0.0, 3.0), (1.0, 2.0)])
def test_a_copy_with_a_pull_by_hand(strength: float, found: float) -> None:
    """Two steps from 0 towards 4, with a pull to x = 0: 2, 3 alone; 2, 2 with lambda = 1."""
    recipe = fedavg(cohort=1, steps=1, batch=None, lr=0.5) | PersonalCopy(strength=strength, epochs=2)
    story = run(recipe, Halfway(targets=(4.0,), sizes=(1,)), versions=1)
    kept = story.clients[0].parts["personal_copy"]["weights"]
    layout = Halfway().engine().layout
    assert {name: float(value) for name, value in layout.named(kept).items()} == {"first": found, "second": found}
    assert layout.named(story.weights)["first"] == 2  # one step of its own


def alone(part: PersonalModel, *, steps: int = 1, lr: float = 0.5) -> tuple[float, dict[str, Any]]:
    """Where one client with b = 4 has brought the global model from 0, and what it keeps for itself."""
    recipe = fedavg(cohort=1, steps=steps, batch=None, lr=lr) | part
    story = run(recipe, Halfway(targets=(4.0,), sizes=(1,)), versions=1)
    layout = Halfway().engine().layout
    kept = dict(story.clients[0].parts.get(part.label(), {}))
    if kept:
        kept["weights"] = float(layout.named(kept["weights"])["second"])
    return float(layout.named(story.weights)["first"]), kept


@pytest.mark.parametrize(("share", "own"), [(0.5, 1.0), (1.0, 2.0)])
def test_a_mixture_by_hand(share: float, own: float) -> None:
    """One step from 0 towards 4: w = 2, and v = share * 2, since the mixture was 0; w is stepped all the same."""
    world, kept = alone(PersonalMixture(share=share))
    assert (world, kept["weights"], kept["share"]) == (2, own, share)
    # Two steps: the mixture of (1, 2) is 3/2, so v = 1 + 5/8; the second step of w is from 2 to 3.
    if share == 0.5:
        world, kept = alone(PersonalMixture(share=share), steps=2)
        assert (world, kept["weights"]) == (3, 1.625)


def test_a_share_is_adapted_by_hand() -> None:
    """Then w = 2, v = 1, mixed 3/2, where the gradient is -5/2 in both numbers: 1/2 - 1/2 * 2 * (1 - 2) * -5/2 = -2."""
    recipe = fedavg(cohort=1, steps=1, batch=None, lr=0.5) | PersonalMixture(share=0.5, adapt=True)
    story = run(recipe, Halfway(targets=(4.0,), sizes=(1,)), versions=2)
    assert story.clients[0].parts["personal_mixture"]["share"] == 0  # -2, kept within 0 and 1


@pytest.mark.parametrize(("steps", "theta", "world"), [(1, 2.0, 0.5), (2, 9 / 4, 15 / 16)])
def test_a_moreau_envelope_by_hand(steps: int, theta: float, world: float) -> None:
    """lambda = 1, eta_p = 1/2, K = 2, eta = 1/4: (theta, w) = (2, 1/2), (9/4, 15/16)."""
    found, kept = alone(MoreauEnvelope(strength=1.0, steps=2, lr=0.5), steps=steps, lr=0.25)
    assert (kept["weights"], found) == (theta, world)


@pytest.mark.parametrize(("form", "gradient"), [("first_order", -2.0), ("hessian_free", -1.0)])
def test_a_step_for_what_comes_of_a_step_by_hand(form: Any, gradient: float) -> None:
    """alpha = 1/2: w' = 2, where the gradient is -2; less alpha times the second derivative, 1, of it: -1."""
    found, _ = alone(MetaStep(lr=0.5, form=form, delta=0.5))
    assert found == -0.5 * gradient


def test_a_start_that_is_learned_by_hand() -> None:
    """old = 0, x = 4, b = 1, rate = 1/16, W = 1 at first: W = 1 - 3 * 4 / 16 = 1/4, and theta = 1."""
    part = AdaptiveStart(rate=1 / 16, most=1, tensors=1)
    layout, target = Halfway().engine().layout, 1.0

    def slope(at: Tensor) -> Slope:
        return Slope(at - target, (), (), torch.zeros(()))

    sent = Model(weights=torch.full((layout.size,), 4.0, dtype=torch.float64), buffers=())
    state = {"weights": torch.zeros(1, dtype=torch.float64)}
    model, known = part.start(state, sent, layout, [[slope]])
    assert float(known["mixing"]) == 0.25
    assert {name: float(value) for name, value in layout.named(model.weights).items()} == {"first": 4, "second": 1}


@pytest.mark.parametrize(("epochs", "found"), [(0.0, (1, 1)), (1.0, (2.5, 1)), (2.0, (3.25, 1))])
def test_tuning_one_layer_by_hand(epochs: float, found: tuple[float, float]) -> None:
    recipe = fedavg(batch=None, lr=0.5) | FineTuning(epochs=epochs, layers=("first",))
    engine, data = Halfway().engine(), Halfway(targets=(4.0,)).shards()[0]
    names = {"seed": 0, "client": 0, "visit": 0, "version": 0, "total_rounds": None}
    visit, _ = visit_of(recipe, 1, False, **names)
    sent = torch.zeros(engine.layout.size, dtype=torch.float64)
    for segment in engine.layout.segments:
        segment.of(sent).fill_(1.0)
    model = used(recipe, visit, ClientState(), Model(weights=sent, buffers=()), data, engine)
    assert tuple(float(v) for v in engine.layout.named(model.weights).values()) == found


def test_amsgrad_and_shared_moments_by_hand() -> None:
    """FedLALR, rate 0.1, g = 2: w - 0.1, m = 0.2, h = 0.04; again: -0.234687, h = 0.0796; with g = -1: 0.05, 0.025."""
    rule, w = LocalAMSGrad(lr=0.1, beta1=0.9, beta2=0.99), torch.zeros(1, dtype=torch.float64)

    def stepped(w: Tensor, state: Any, g: float) -> Any:
        rule.step_(w, torch.full_like(w, g), 0.1, state)
        return state

    state = stepped(w, rule.start(w), 2.0)
    assert [float(w), float(state["first"]), float(state["largest"])] == pytest.approx([-0.1, 0.2, 0.04])
    other = stepped(torch.zeros_like(w), rule.start(w), -1.0)
    extras = [{"shared_moments": {k: one[k].clone() for k in ("first", "largest")}} for one in (state, other)]
    reports = tuple(replace(report(c, 0.0, 0)[0], extras=extra) for c, extra in enumerate(extras))
    release = Release(version=0, reports=reports, shares=(0.5, 0.5), scales=(1.0, 1.0), weights=w)
    mean = SharedMoments().after_step(SETUP, {}, release)
    assert [float(mean["first"]), float(mean["largest"])] == pytest.approx([0.05, 0.025])
    begun = SharedMoments().moments(SharedMoments().brief(SETUP, mean, 0))
    assert {k: float(v) for k, v in begun.items()} == pytest.approx({"first": 0.05, "second": 0.025, "largest": 0.025})
    stepped(w, state, 2.0)
    assert [float(w), float(state["largest"])] == pytest.approx([-0.2346874, 0.0796])


@pytest.mark.parametrize(("boost", "expected"), [("code", 0.66212), ("paper", 0.54624)])
def test_a_late_update_that_is_most_unlike_by_hand(boost: Any, expected: float) -> None:
    """REFL: one version late, the largest difference, beta 0.35; the mean of both is (1 * u + w * v) / (1 + w)."""
    told = tuple(report(c, 0.0, v, target=t)[0] for c, v, t in ((0, 1, 2.0), (1, 0, 6.0)))  # updates 1 and 3
    release = Release(version=1, reports=told, shares=(0.5, 0.5), scales=(1.0, 1.0), weights=torch.zeros(1))
    part = UnlikeUpdates(boost=boost)
    assert part.weights([0, 1], release.updates(), release) == pytest.approx([1, expected], abs=1e-5)
    _, mean = part.before_step(SETUP, {}, release, torch.zeros(1))
    assert float(mean) == pytest.approx((1 + 3 * expected) / (1 + expected), abs=1e-5)


def test_who_leaves_comes_first_by_hand() -> None:
    """Three clients: 1 was there twice and left once, 0 and 2 stayed, so 1 comes first, with p = 1/2 against 1."""
    policy, fixed = AvailabilitySampling(cohort=1, rest=0), setup(3)
    state = policy.server_start(fixed)
    for version, away in enumerate(((), (1,), ())):
        state, asked = policy.invite(fixed, state, call(Present([1, 1, 1], away), version))
    assert dict(state["stays"]) == {0: (2, 2), 1: (0, 1), 2: (2, 2)}
    assert who(asked) == [1]


AXES = Axes(
    axes=(Axis("weight", 2),),
    layout=laid_out([("weight", (2,), torch.float64)], [], torch.float64),
    parameters=(((Along(0),),),),
    buffers=(),
)


@pytest.mark.parametrize(("shares", "expected"), [((0.5, 0.5), [4.0, 4.0]), ((0.75, 0.25), [3.0, 4.0])])
def test_a_mean_over_holders_by_hand(shares: tuple[float, float], expected: list[float]) -> None:
    """A holds both coordinates and says (2, 4), B holds the first and says 6."""
    given: dict[str, Any] = {"visit": 0, "version": 0, "kind": "train", "recipe": "", "num_samples": 1}
    updates = [torch.zeros(AXES.layout.size, dtype=torch.float64) for _ in range(2)]
    updates[0][:2], updates[1][0] = torch.tensor([2.0, 4.0], dtype=torch.float64), 6.0
    reports = tuple(Report(dispatch=c, client=c, update=u, **given) for c, u in enumerate(updates))
    release = Release(
        version=0,
        reports=reports,
        shares=shares,
        scales=(1.0, 1.0),
        weights=torch.zeros(AXES.layout.size),
        portions=(None, AXES.portion([[0]])),
    )
    mean, nobody = over_holders(shares[0] * updates[0] + shares[1] * updates[1], release)
    assert mean[:2].tolist() == pytest.approx(expected)
    assert nobody is not None
    assert not nobody.any()  # A holds all, padding too


def two_widths(*, travels: tuple[float, float] = (1, 1)) -> tuple[Setup, Release]:
    """A holds both coordinates and says (2, 4), B holds the first and says 6; they were sent (1, 1) and (3, 9)."""
    part, size = WidthPrefix(ratio=(1.0, 0.5), dealt="in_order"), AXES.layout.size
    own = with_fixed_parts(part, replace(SETUP, population=2, size=size, cuts=AXES))

    def vector(*values: float) -> Tensor:
        return torch.cat([torch.tensor(values, dtype=torch.float64), torch.zeros(size - 2, dtype=torch.float64)])

    given: dict[str, Any] = {"visit": 0, "version": 0, "kind": "train", "recipe": "", "num_samples": 1, "rate": 1.0}
    reports = tuple(
        Report(dispatch=c, client=c, update=vector(*u), steps=1, travel=travel, **given)
        for c, (u, travel) in enumerate(zip(((2.0, 4.0), (6.0, 0.0)), travels, strict=True))
    )
    release = Release(
        version=1,
        reports=reports,
        shares=(0.5, 0.5),
        scales=(1.0, 1.0),
        weights=vector(0.0, 0.0),
        bases=(vector(1.0, 1.0), vector(3.0, 9.0)),
        portions=(None, AXES.portion([[0]])),
    )
    return own, release


OVER = (4.0, 4.0)  # the mean over holders


@pytest.mark.parametrize(
    ("part", "expected", "kept"),
    [
        (LastUpdates(), OVER, {"total": (8, 4)}),  # ((2 + 6) / 2, 4 / 1)
        (LastUpdates(within=5), OVER, {"total": (8, 4)}),
        (DynamicRegularisation(alpha=0.5), (8, 8), {"h": (-2, -2)}),  # h = -0.5 * ((2 + 6) / 2, 4 / 1)
        (FromCurrent(), (4 + 2, 4 + 1), {}),  # w0: ((1 + 3) / 2, 1)
        (LastModels(), (6, 5), {}),  # y = w0 + u: ((3 + 9) / 2, 5), where all were at x = 0
        (ClientMomentum(alpha=0.5), OVER, {"momentum": (-4 / 1.5, -4)}),  # travels 1 and 2
    ],
    ids=lambda value: value.text() if hasattr(value, "text") else "",
)
def test_memories_of_two_clients_of_two_widths_by_hand(
    part: Any, expected: tuple[float, float], kept: dict[str, tuple[float, float]]
) -> None:
    own, release = two_widths(travels=(1, 2))
    mean, _ = over_holders(torch.stack([r.update for r in release.reports if r.update is not None]).mean(0), release)
    state, mean = part.before_step(own, part.server_start(own), release, mean)
    assert mean[:2].tolist() == pytest.approx(expected)
    for name, values in kept.items():
        assert state[name][:2].tolist() == pytest.approx(values)


def test_stale_updates_of_two_widths_by_hand() -> None:
    """Then B alone says 8: 8 + (8 / 2 - 6) for the first; of the second A said 4, which is for nobody to step on."""
    own, release = two_widths()
    part = StaleUpdates()
    state, _ = part.before_step(own, part.server_start(own), release, torch.zeros(AXES.layout.size))
    last = release.reports[1]
    assert last.update is not None
    narrow = replace(release, reports=(replace(last, update=last.update * 8 / 6),), shares=(1.0,), scales=(1.0,))
    narrow = replace(narrow, portions=release.portions[1:], bases=release.bases[1:])
    mean, nobody = over_holders(narrow.reports[0].update, narrow)  # type: ignore[arg-type]
    _, mean = part.before_step(own, state, narrow, mean)
    assert mean[:2].tolist() == pytest.approx([6, 4])
    assert nobody is not None
    assert nobody[:2].tolist() == [False, True]


def test_drift_of_two_widths_by_hand() -> None:
    """SCAFFOLD: c = ((2 + 6) / 2, 4 / 1) of changes (2, 4) and 6. VRL-SGD: the means are 4 and 4."""
    own, release = two_widths()
    control = ControlVariates()
    told = tuple(replace(r, extras={control.label(): {"change": r.update}}) for r in release.reports)
    state = control.after_step(own, control.server_start(own), replace(release, reports=told))
    assert state["control"][:2].tolist() == pytest.approx([4, 4])
    drift = VarianceReduction().after_step(own, {"drift": {}}, release)["drift"]
    assert drift[0][:2].tolist() == pytest.approx([2, 0])
    assert drift[1][:2].tolist() == pytest.approx([-2, 0])


@pytest.mark.parametrize("part", [Median(), TrimmedMean(share=0.34)], ids=lambda part: part.label())
def test_middles_of_two_widths_by_hand(part: Any) -> None:
    """2, 6, 10 and 40 of four of the first coordinate; of the second 4 and 8, of which none is left out."""
    updates = [torch.tensor(u, dtype=torch.float64) for u in ((2, 4), (6, 0), (10, 8), (40, 0))]
    masks = [torch.tensor([True, both]) for both in (True, False, True, False)]
    middle = part.centre_of_held(updates, [0.25] * 4, [1.0] * 4, masks)
    assert middle.tolist() == pytest.approx([8, 6])
    alike = part.centre_of_held(updates, [0.25] * 4, [1.0] * 4, [torch.ones(2, dtype=torch.bool)] * 4)
    assert torch.equal(alike, part.centre(updates, [0.25] * 4, [1.0] * 4))


@pytest.mark.parametrize(
    ("part", "version", "kept"),
    [
        (WidthPrefix(ratio=0.5), 3, [0, 1]),
        (RollingWindow(ratio=0.5), 0, [0, 1]),
        (RollingWindow(ratio=0.5), 1, [1, 2]),
        (RollingWindow(ratio=0.5), 3, [0, 3]),
        (WidthPrefix(ratio=0.3), 0, [0, 1]),  # k = ⌈1.2⌉
        (WidthPrefix(ratio=0.01), 0, [0]),
    ],
)
def test_units_of_a_width_of_four_by_hand(part: Widths, version: int, kept: list[int]) -> None:
    axes = replace(
        AXES, axes=(Axis("weight", 4),), layout=laid_out([("weight", (4,), torch.float64)], [], torch.float64)
    )
    portion = part.portion(replace(SETUP, cuts=axes), 0, 0, version)
    assert portion is not None
    assert portion.kept[0].tolist() == kept
    assert portion.mask[:4].nonzero()[:, 0].tolist() == kept


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (WidthPrefix(ratio=(1.0, 0.5), dealt="in_order"), [1.0, 1.0, 0.5, 0.5]),
        (WidthPrefix(ratio=(1.0, 0.5), shares=(1.0, 3.0), dealt="in_order"), [1.0, 0.5, 0.5, 0.5]),
        (WidthPrefix(ratio=0.25), [0.25] * 4),
        (WidthPrefix(ratio=(1.0, 0.5, 0.25), by="memory"), [0.25, 1.0, 0.5, 0.5]),
    ],
)
def test_ratios_are_dealt_by_hand(part: Widths, expected: list[float]) -> None:
    setup = replace(SETUP, population=4, levels=(0.25, 1.0, 0.5, 0.5))
    assert [part.level_of(setup, client, 0) for client in range(4)] == expected


def test_ratios_that_are_dealt_at_random_are_as_many_of_each() -> None:
    setup = replace(SETUP, population=10)
    fixed, redrawn = (WidthPrefix(ratio=(1.0, 0.5), redrawn=again) for again in (False, True))
    dealt = [[part.level_of(setup, c, v) for c in range(10)] for part in (fixed, redrawn) for v in range(3)]
    assert all(sorted(ratios) == [0.5] * 5 + [1.0] * 5 for ratios in dealt)
    assert dealt[0] == dealt[1] == dealt[2]
    assert dealt[3] != dealt[4]


def test_the_largest_weights_by_hand() -> None:
    """w = (3, -1, 1/2, 2), half of them: 3 and 2 are held, theta = 2, 1 + 12 / 25 = 1.48, 1 + 8 / 16 = 1.5."""
    layout = laid_out([("weight", (4,), torch.float64)], [], torch.float64)
    weights = layout.zeros()
    weights[:4] = torch.tensor([3.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    portion = largest(Magnitudes(layout, ((0, 4),)), weights, 0.5)
    assert portion is not None
    assert portion.mask.nonzero()[:, 0].tolist() == [0, 3]
    assert portion.threshold == 2.0
    inside, factor = masking(weights[:4], torch.ones(4, dtype=torch.bool), portion.threshold)
    assert inside.tolist() == [True, False, False, True]
    assert factor.tolist() == pytest.approx([1.48, 0, 0, 1.5])


def test_what_a_pass_uses_of_other_weights_by_hand() -> None:
    """What is not ranked is used whatever it is, with its own gradient; and with theta = 0 everything is."""
    weights, ranked = torch.tensor([0.0, 0.5, -4.0]), torch.tensor([False, True, True])
    inside, factor = masking(weights, ranked, 1.0)
    assert inside.tolist() == [True, False, True]
    assert factor.tolist() == pytest.approx([1.0, 0.0, 1 + 8 / 25])
    assert masking(weights, ranked, 0.0)[1].tolist() == [1.0, 1.0, 1.0]


def test_averages_of_adapters_by_hand() -> None:
    """s = 1, p = (1/2, 1/2): (b, a) = (2, 3) and (4, 1), so the mean of b a is 5, and (3, 2) give 6."""

    def factors(b: float, a: float, residual: float | None = 7.0) -> Factors:
        rest = None if residual is None else torch.tensor([[residual]]).double()
        return Factors(b=torch.tensor([[b]]).double(), a=torch.tensor([[a]]).double(), residual=rest)

    segment = Segment("lora_A", (1, 1), 0, 1, torch.float32)
    adapter = Adapter(name="", a=segment, b=segment)
    clients = (factors(2, 3), factors(4, 1))
    named: dict[str, Any] = {"before": factors(1, 1), "mean": factors(3, 2), "clients": clients, "shares": (0.5, 0.5)}
    heard = Heard(adapter=adapter, **named, seed=0, version=0, number=0)
    rest = ResidualInBase().after(heard)
    assert (float(rest.b), float(rest.a), float(rest.residual)) == (3.0, 2.0, 7.0 + 5.0 - 6.0)  # type: ignore[arg-type]
    stacked = StackInBase().after(heard)
    assert (float(stacked.b), float(stacked.residual)) == (0.0, 12.0)  # type: ignore[arg-type]
    assert abs(float(stacked.a)) <= 1.0
    parted = DecomposedAverage().after(heard)
    assert (float(parted.b), float(parted.a)) == pytest.approx((5**0.5, 5**0.5))
    weighed = LengthWeightedAverage().after(heard)  # lengths 6 and 4
    assert (float(weighed.b), float(weighed.a)) == pytest.approx((0.6 * 2 + 0.4 * 4, 0.6 * 3 + 0.4 * 1))
    assert fedit().describe() == fedavg().describe()  # the means as they are, 3 and 2, which give 6
    plain = LengthWeightedAverage(by_length=False).after(heard)
    assert (float(plain.b), float(plain.a)) == (3.0, 2.0)


def test_the_best_of_a_rank_by_hand() -> None:
    """diag(4, 1) as a product: 4 remains at rank 1, in factors of length 2; with a rank of 3, nothing beside both."""
    b, a = decomposed(torch.diag(torch.tensor([1.0, 1.0])), torch.diag(torch.tensor([4.0, 1.0])), 1)
    assert (b @ a).tolist() == [[pytest.approx(4.0), 0.0], [0.0, 0.0]]
    assert float(b.norm()) == pytest.approx(2.0)
    b, a = decomposed(torch.eye(2), torch.diag(torch.tensor([4.0, 1.0])), 3)
    assert (tuple(b.shape), tuple(a.shape)) == ((2, 3), (3, 2))
    assert torch.allclose(b @ a, torch.diag(torch.tensor([4.0, 1.0])))
    assert not b[:, 2].any()


def test_which_factor_rests_by_hand() -> None:
    assert [AlternateFactors().rests(version) for version in range(4)] == ["A", "B", "A", "B"]
    assert [AlternateFactors(versions=2).rests(version) for version in range(5)] == ["A", "A", "B", "B", "A"]
    assert FreezeFactor().freezes == "A"


def test_ranks_are_dealt_by_hand() -> None:
    part = RankPrefix(rank=(8, 2), shares=(1.0, 3.0), dealt="in_order")
    setup = Setup(size=1, dtype=torch.float32, population=4, total_rounds=None, seed=0)
    assert [part.level_of(setup, client, 0) for client in range(4)] == [8, 2, 2, 2]


def test_the_last_ranks_by_hand() -> None:
    """B ends in (3, 4), A in (0, 5, 12): 5 · 13 = 65, of slopes (39, 52) / 5 and (0, 25, 60) / 13; 0.1 of it counts."""
    a = Segment("0.lora_A", (2, 3), 0, 6, torch.float32)
    b = Segment("0.lora_B", (2, 2), 6, 4, torch.float32)
    tails = Tails(adapters=(Adapter(name="0", a=a, b=b),), first=pruned(2, 0.5), decay=0.1)
    weights = torch.tensor([1.0, 1, 1, 0, 5, 12, 7, 3, 7, 4])
    assert tails.length(weights) == pytest.approx(65.0)
    gradient = torch.ones(10)
    tails.add_(gradient, weights)
    of_a, of_b = [1 + 0.5 * x / 13 for x in (0, 5, 12)], [1 + 1.3 * x / 5 for x in (3, 4)]
    assert gradient.tolist() == pytest.approx([1, 1, 1, *of_a, 1, of_b[0], 1, of_b[1]])
    tails.add_(gradient, torch.zeros(10))  # no direction
    assert gradient.isfinite().all()
    assert [pruned(rank, 0.75) for rank in (8, 6, 4, 3, 2, 1)] == [6, 4, 3, 2, 1, 1]


def test_what_exits_learn_by_hand() -> None:
    """p = (3/4, 1/4) and (1/2, 1/2), y = 0: ln 4/3 + ln 2, and w times KL(q || p) = (ln 4/3)/2 and KL(p || q)."""
    exits = [torch.tensor([[math.log(3), 0.0]]), torch.zeros(1, 2)]
    apart = math.log(4 / 3) / 2 + 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    for weight in (0.0, 1.0, 0.5):
        found = sum_of_exits(task("classification"), exits, torch.tensor([0]), weight)
        assert float(found) == pytest.approx(math.log(4 / 3) + math.log(2) + weight * apart, abs=1e-6)


def test_how_much_exits_learn_from_each_other_by_hand() -> None:
    weights = [DepthPrefix().exits(version) for version in (0, 150, 300, 900)]
    assert weights == pytest.approx([0.0067379, 0.286505, 1.0, 1.0], abs=1e-6)
    assert DepthPrefix(distillation=0.0).exits(300) == 0.0


@pytest.mark.parametrize(
    ("endpoints", "expected"), [("paper", [0.3, 0.5, 0.7, 0.9]), ("code", [0.1, 11 / 30, 19 / 30, 0.9])]
)
def test_a_threshold_that_rises_by_hand(endpoints: Any, expected: list[float]) -> None:
    """ALT, a = 0.1, b = 0.8, R = 4: a + b r / R for r = 1 ... 4; or for 0 ... 3 over 3."""
    part = StopOnDrift(endpoints=endpoints)
    first = Visit(seed=0, client=0, visit=0, version=0, total_rounds=4, num_samples=1, batch=1, epoch_steps=1)
    visits = [replace(first, version=version) for version in range(4)]
    assert [part.threshold(visit) for visit in visits] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("batch", "threshold", "reached"),
    [("mean", 0.66, True), ("mean", 0.64, False), ("min", 0.01, True), ("max", 0.99, False), ("sample", 0.9, False)],
)
def test_drift_of_a_batch_by_hand(batch: str, threshold: float, reached: bool) -> None:
    """(1, 0) and (3, 4) beside (1, 0), and (0, 2) beside (0, 2) and (1, 0): cosines 1, 3/5, 1, 0, mean 13/20."""
    current = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [0.0, 2.0]])
    received = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    rule = Drift(layer="", threshold=threshold, batch=batch, k=2)
    cosines = rule.similarity(current, received)
    assert cosines.tolist() == pytest.approx([1.0, 0.6, 1.0, 0.0])
    assert bool(rule.reached(cosines)) is reached


def test_units_that_are_drawn_by_hand() -> None:
    """Federated Dropout, two of four units: each of the six pairs as often, and two visits draw apart."""
    axes = replace(
        AXES, axes=(Axis("weight", 4),), layout=laid_out([("weight", (4,), torch.float64)], [], torch.float64)
    )
    setup = replace(SETUP, cuts=axes, population=600)
    for part, names in ((RandomWidth(ratio=0.5), 600), (RandomWidth(ratio=0.5, shared=True), 1)):
        kept = [part.portion(setup, client, 0, 0) for client in range(600)]
        pairs = Counter(tuple(one.kept[0].tolist()) for one in kept if one is not None)
        assert sum(pairs.values()) == 600
        if names == 1:
            assert len(pairs) == 1
        else:
            # 100 of each of (0, 1) ... (2, 3); the deviation of a count is sqrt(600 / 6 * 5 / 6) = 9.
            assert sorted(pairs) == [(a, b) for a in range(4) for b in range(a + 1, 4)]
            assert all(abs(count - 100) < 5 * 9.2 for count in pairs.values())


def test_a_movement_that_is_sent_again_by_hand() -> None:
    """CCFL, b = (0, 4), client 1 trains in every second version: x = 1, then with 2 again 7/4, then 15/8."""
    skip = SkipAndEstimate(budgets=Listed(shares=(1.0, 0.5)), schedule="round_robin")
    recipe = fedavg(cohort=2, steps=1, batch=None, lr=0.5) | Equal() | skip
    story, layout = run(recipe, Halfway(), versions=3), Halfway().engine().layout
    made = [float(layout.named(story.states[version].weights)["first"]) for version in (1, 2, 3)]
    assert made == [1, 7 / 4, 15 / 8]


@pytest.mark.parametrize(("divide", "expected"), [("steps", [1 / 2, 1 / 8]), ("travel", [4, 1]), ("none", [1, 1])])
def test_updates_per_step_by_hand(divide: Any, expected: list[float]) -> None:
    """Two and eight steps, which went 1/4 and 1 in all."""
    first = facts_of(0, report(1, 0.0, 0)[0])
    facts = [replace(first, steps=2, travel=0.25), replace(first, steps=8, travel=1.0)]
    assert PerStep(divide=divide).scales(facts, [0.5, 0.5]) == expected


def test_neighbours_by_hand() -> None:
    """At a distance of 0 one of class A, of 1 one of class B: p_A = 1 / (1 + e^-1); with half of 0.5, 0.6155."""
    part, own = NearestNeighbours(share=1.0, neighbours=2), (torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    outputs, features = torch.zeros(1, 2), torch.zeros(1, 1)
    assert float(part.predicts(outputs, features, own, {}).exp()[0, 0]) == pytest.approx(0.7311, abs=5e-5)
    half = replace(part, share=0.5).predicts(outputs, features, own, {})
    assert float(half.exp()[0, 0]) == pytest.approx(0.6155, abs=5e-5)
    # Far away from all, nothing underflows; a class without a neighbour has a loss.
    away = replace(part, neighbours=1).predicts(outputs, torch.full((1, 1), -1e4), own, {})
    assert [float(x) for x in away.exp()[0]] == [pytest.approx(1.0), pytest.approx(1e-30)]


def test_prototypes_by_hand() -> None:
    """z = (1, 3) towards (1, 1): 2. The mean of two clients' means; a class that nobody has keeps its last one."""
    part, both = Prototypes(strength=1.0), torch.tensor([True, True, False])
    brief: dict[str, Any] = {"means": torch.tensor([[1.0, 1.0], [5.0, 5.0]]), "classes": both}

    class One:
        targets = torch.tensor([0])
        has_previous = False

        def features(self, which: str, layer: str) -> Tensor:
            return torch.tensor([[1.0, 3.0]])

    term = part.term_of(brief)
    assert term is not None
    assert float(term.term(One()) or 0) == 2
    setup = replace(SETUP, dtype=torch.float32)
    sent: list[dict[str, Any]] = [
        {"means": torch.tensor([[2.0, 0.0]]), "classes": torch.tensor([True, False, False])},
        {"means": torch.tensor([[4.0, 2.0], [1.0, 7.0]]), "classes": torch.tensor([True, False, True])},
    ]
    reports = tuple(
        replace(report(client, 0.0, 0)[0], extras={"prototypes": extras}) for client, extras in enumerate(sent)
    )
    release = Release(
        version=0, reports=reports, shares=(0.5, 0.5), scales=(1.0, 1.0), weights=torch.zeros(1, dtype=torch.float64)
    )
    after = part.after_step(setup, brief, release)
    assert after["means"].tolist() == [[3.0, 1.0], [5.0, 5.0], [1.0, 7.0]]
    assert after["classes"].tolist() == [True, True, True]
    nearest = NearestPrototype().predicts(torch.zeros(1, 3), torch.tensor([[4.0, 4.0]]), None, brief)
    assert nearest.tolist() == [[-9.0, -1.0, -10.0]]
    for wrong in ({"means": torch.ones(1, 3)}, {"classes": torch.tensor([True])}, {"means": torch.ones(2, 2)}):
        told = replace(reports[0], extras={"prototypes": {**sent[0], **wrong}}, kind="train", steps=1)
        fault = part.refuses(setup, brief, told)
        assert fault is not None
        assert fault.kind == "shape"
    missing = part.refuses(setup, brief, replace(reports[0], extras={}, kind="train", steps=1))
    assert missing is not None
    assert missing.kind == "missing"
