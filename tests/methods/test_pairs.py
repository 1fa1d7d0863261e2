"""Pairs that need a decision: one test for each row of the table in docs/concepts.md that laws do not cover already."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laws import selecting
from laws.fleets import Paces
from laws.trials import spoiled
from laws.world import Federation, Run, alike, near, play, run, same
from polyrhythm import fleet as fleets
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Assignment, Event, Facts, Lost, Report
from polyrhythm.base.settings import Settings
from polyrhythm.base.sums import combine_buffers
from polyrhythm.core.batches import cut
from polyrhythm.data import ArraySamples
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.compression import Int8, TopK
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    VarianceReduction,
)
from polyrhythm.methods.local.optimisers import LocalAMSGrad
from polyrhythm.methods.mechanism import Visit
from polyrhythm.methods.order.base import Curriculum, Progress
from polyrhythm.methods.papers import fedavg, local_only
from polyrhythm.methods.participation.availability_sampling import AvailabilitySampling
from polyrhythm.methods.participation.base import Participation, Uniform
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum
from polyrhythm.methods.participation.cluster_sampling import ClusterSampling
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace, RandomResize
from polyrhythm.methods.participation.diverse_sampling import DiverseSampling
from polyrhythm.methods.participation.last_received import LastReceived
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.methods.participation.norm_sampling import NormSampling
from polyrhythm.methods.participation.rate_sampling import RateSampling
from polyrhythm.methods.participation.rolling import OnArrival, Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.participation.tier_sampling import TierSampling
from polyrhythm.methods.participation.utility_sampling import UtilitySampling
from polyrhythm.methods.participation_intervals import ParticipationIntervals
from polyrhythm.methods.personal.guided import MetaStep, MoreauEnvelope, PersonalMixture
from polyrhythm.methods.personal.models import FineTuning, PersonalCopy
from polyrhythm.methods.personal.neighbours import NearestNeighbours, NearestPrototype
from polyrhythm.methods.personal.phases import PersonalFirst
from polyrhythm.methods.personal.prototypes import Prototypes
from polyrhythm.methods.personal.scope import PersonalLayers
from polyrhythm.methods.personal.starts import AdaptiveStart
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, MinReports, OverSelect, ReleaseContext, WhenAll
from polyrhythm.methods.release.delay_adaptive_step import DelayAdaptiveStep
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.last_models import LastModels
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.release.robust import ClipUpdates, GeometricMedian, Median, TrimmedMean
from polyrhythm.methods.release.stale_updates import StaleUpdates
from polyrhythm.methods.release.unlike_updates import UnlikeUpdates
from polyrhythm.methods.server_step import Adam, Extrapolation, Momentum, Sgd
from polyrhythm.methods.shared_moments import SharedMoments
from polyrhythm.methods.weighing import AsInvited, Equal, NormalisedAveraging, PerStep, Staleness
from polyrhythm.methods.work.base import RandomEpochs, Steps
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.partial_work import PartialWork
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndEstimate, SkipAndResendModel, SkipSilently
from polyrhythm.methods.work.stop_on_drift import StopOnDrift
from polyrhythm.models.tasks import task
from small import collection, dealt, experiment, logged, prepared

BATCH = 4
EVERYBODY = fedavg(cohort=4, batch=BATCH, epochs=2, lr=0.1)
# In three versions, clients 0 and 2 always train; 1 and 3 train in the first and skip the others.
ODD_ONES_SKIP = SkipAndEstimate(budgets=Listed(shares=(1.0, 0.3)), schedule="exhaust")
ALL_SKIP = SkipAndEstimate(budgets=Listed(shares=(0.3,)), schedule="exhaust")
AFTER_ONE_EPOCH = StopOnDrift(a=1.5, b=0, representation="logits")
NEVER_STOPS = StopOnDrift(a=-1, b=0, representation="logits")
UNEQUAL = fleets.Fleet(devices=Paces(seconds=(0.01, 0.03, 0.1, 0.3)))
TABLE = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")


def row(*pairs: str) -> Callable[[Any], Any]:
    """Marks the test of one or more rows of the table, which must be there."""
    for pair in pairs:
        assert f"| {pair} |" in TABLE, pair
    return lambda test: test


def skipped(story: Run) -> list[int]:
    """The dispatch numbers of visits that did not train."""
    return [d for d, report in story.reports.items() if not report.fresh]


def steps_of_an_epoch(num_samples: int) -> int:
    return math.ceil(num_samples / BATCH)


@row("a skipped visit × control variates, VRL-SGD, FedDyn")
@pytest.mark.parametrize(
    "memory", [ControlVariates(), VarianceReduction(), DynamicRegularisation()], ids=lambda part: part.label()
)
def test_who_skips_keeps_what_it_knows_of_its_drift(memory: Settings) -> None:
    story = play(EVERYBODY | memory | ODD_ONES_SKIP, Federation())
    assert len(skipped(story)) == 4
    for dispatch in skipped(story):
        assert story.reports[dispatch].extras == {}
        assert same(story.ends[dispatch], story.starts[dispatch])
    if isinstance(memory, VarianceReduction):
        first, last = (story.states[version].parts["variance_reduction"]["drift"] for version in (1, 3))
        assert all(same(first[client], last[client]) for client in (1, 3))
        assert not any(same(first[client], last[client]) for client in (0, 2))
    if isinstance(memory, ControlVariates):
        own = [state.parts["control_variates"]["control"] for state in story.clients.values()]
        assert near(story.states[-1].parts["control_variates"]["control"], torch.stack(own).mean(0))


@row("early stop × everything that divides by steps")
@pytest.mark.parametrize(
    "part", [ControlVariates(), VarianceReduction(), NormalisedAveraging(), PerStep()], ids=lambda part: part.label()
)
def test_an_early_stop_counts_the_steps_truly_taken(part: Settings) -> None:
    """Three epochs that are ended after the first are one epoch, whatever divides by them."""
    three, one = (fedavg(cohort=4, batch=BATCH, epochs=epochs, lr=0.1) | part for epochs in (3, 1))
    assert alike(run(three | AFTER_ONE_EPOCH, Federation()), run(one, Federation()))


@row("a substitute × FedNova, per-step weighing")
@pytest.mark.parametrize(
    "scaling", [PerStep(), PerStep(divide="travel"), NormalisedAveraging()], ids=lambda part: part.label()
)
@pytest.mark.parametrize("storage", ["client", "server"])
def test_a_movement_remembers_its_steps(scaling: Settings, storage: Any) -> None:
    skip = SkipAndEstimate(budgets=ODD_ONES_SKIP.budgets, schedule="exhaust", storage=storage)
    story = play(EVERYBODY | RandomEpochs(epochs=3, spread=2) | scaling | skip, Federation())
    first = {report.client: report for report in story.reports.values() if report.version == 0}
    for released in story.released[1:]:
        assert released.release is not None
        for report, scale in zip(released.release.reports, released.release.scales, strict=True):
            if not report.fresh:
                assert (report.steps, report.travel) == (first[report.client].steps, first[report.client].travel)
                assert same(report.update, first[report.client].update)
            if scaling == PerStep():
                assert scale == 1 / report.steps


@row("control variates, VRL-SGD, FedNova × local momentum, Nesterov, prox, weight decay, schedules")
def test_travel_is_the_path_of_a_constant_gradient() -> None:
    recipe = fedavg(cohort=4, batch=BATCH, epochs=2, lr=0.1, momentum=0.9) | Prox(mu=0.5) | ControlVariates()
    for report in run(recipe, Federation(), versions=1).reports.values():
        way = speed = 0.0
        for _ in range(report.steps):
            speed = 0.9 * speed + 1 - 0.5 * way
            way += 0.1 * speed
        assert report.travel == pytest.approx(way, rel=1e-12)
        assert report.update is not None
        assert near(report.extras["control_variates"]["change"], -report.update / way)


@row("prox × local momentum")
def test_the_pull_is_part_of_the_gradient_that_momentum_gathers() -> None:
    federation = Federation(sizes=(7,), net="logistic", dtype=torch.float64)
    story = run(fedavg(cohort=1, batch=None, epochs=4, momentum=0.9) | Prox(mu=0.5), federation, versions=1)
    shard, module = federation.shards()[0], nn.Linear(4, 3, dtype=torch.float64)
    module.load_state_dict(federation.module().state_dict())
    received = [p.detach().clone() for p in module.parameters()]
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        optimiser.zero_grad()
        away = torch.stack([(p - w).square().sum() for p, w in zip(module.parameters(), received, strict=True)]).sum()
        loss = nn.functional.cross_entropy(module(shard.inputs), shard.targets) + 0.25 * away
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    own = federation.engine().layout.named(story.weights)
    assert all(near(own[name], p.detach(), 1e-12) for name, p in module.named_parameters())


@row("curriculum × early stop")
def test_similarity_is_judged_on_every_batch_and_scoring_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyrhythm.methods.work.stop_on_drift import Drift

    judged: list[int] = []
    reached = Drift.reached

    def noted(self: Drift, similarities: torch.Tensor) -> torch.Tensor:
        judged.append(len(similarities))
        return reached(self, similarities)

    monkeypatch.setattr(Drift, "reached", noted)
    story = run(EVERYBODY | Curriculum(least=1) | NEVER_STOPS, Federation())
    assert sum(judged) == sum(report.steps for report in story.reports.values())
    for report in story.reports.values():
        assert report.forward_samples == 2 * report.num_samples  # scored once, and the received model's outputs once


@row("curriculum × a skipped visit")
def test_who_skips_scores_nothing() -> None:
    story = play(EVERYBODY | Curriculum() | ODD_ONES_SKIP, Federation())
    assert {bool(r.forward_samples) for r in story.reports.values() if r.fresh} == {True}
    assert all(story.reports[dispatch].forward_samples == 0 for dispatch in skipped(story))


@row("curriculum × work", "an epoch of `steps`, or of a curriculum")
def test_an_epoch_has_as_many_steps_with_a_curriculum() -> None:
    story = run(EVERYBODY | Curriculum(least=1), Federation())
    assert all(report.steps == 2 * steps_of_an_epoch(report.num_samples) for report in story.reports.values())
    story = run(EVERYBODY | Steps(steps=20) | AFTER_ONE_EPOCH, Federation())
    assert all(report.steps == steps_of_an_epoch(report.num_samples) for report in story.reports.values())


@row("curriculum × BatchNorm")
@pytest.mark.parametrize("refresh", ["pass", "step"])
def test_a_curriculum_leaves_batchnorm_two_samples(refresh: Any) -> None:
    story = run(EVERYBODY | Curriculum(least=1, refresh=refresh), Federation(net="batchnorm"))
    assert all(r.steps == 2 * len(cut(r.num_samples, BATCH, False, True)) for r in story.reports.values())
    assert min(len(batch) for batches in story.batches.values() for batch in batches) == 2


@row("BatchNorm × a last batch of one sample", "BatchNorm × a client with one sample")
def test_batchnorm_is_never_trained_on_one_sample() -> None:
    story = run(fedavg(cohort=3, batch=4, epochs=1), Federation(sizes=(5, 9, 1), net="batchnorm"), versions=1)
    assert sorted(sorted(map(len, batches)) for batches in story.batches.values()) == [[], [4, 5], [5]]
    assert story.released[0].refused == ((2, "no step was possible with the samples it holds"),)


@row("a client curriculum by reported losses × a skipped visit")
def test_a_skipped_visit_brings_no_fresh_loss() -> None:
    story = play(EVERYBODY | ClientCurriculum(scores="reported") | ODD_ONES_SKIP, Federation())
    scores = story.states[-1].parts["client_curriculum"]["scores"]
    last = {r.client: r.loss for _, r in sorted(story.reports.items()) if r.fresh}
    assert skipped(story)
    assert scores == last


@row("BatchNorm × any weighing or server step")
@pytest.mark.parametrize("step", [Momentum(lr=0.5), Adam(), PerStep()], ids=lambda part: part.label())
def test_statistics_are_averaged_and_never_stepped(step: Settings) -> None:
    stepped, plain = (run(r, Federation(net="batchnorm"), versions=1) for r in (EVERYBODY | step, EVERYBODY))
    assert not same(stepped.weights, plain.weights)
    assert same(stepped.states[-1].buffers, plain.states[-1].buffers)


@row("a substitute × BatchNorm")
def test_a_substitute_has_no_statistics() -> None:
    federation = Federation(net="batchnorm")
    story = play(EVERYBODY | ODD_ONES_SKIP, federation)
    trained = [r for r in story.reports.values() if r.version == 2 and r.fresh]
    assert {r.client for r in trained} == {0, 2}
    assert all(story.reports[dispatch].buffers == () for dispatch in skipped(story))
    held = [r.num_samples / sum(r.num_samples for r in trained) for r in trained]
    mean = combine_buffers(federation.engine().layout, [r.buffers for r in trained], held)
    assert same(story.states[-1].buffers, mean)


@row("buffer × a skipped visit", "one client × two visits")
def test_nobody_is_invited_twice_for_one_version() -> None:
    story = run(fedavg(cohort=3, batch=BATCH) | ALL_SKIP | Buffer(size=2), Federation(), versions=6)
    asked = [(assignment.version, assignment.client) for assignment in story.assignments.values()]
    assert len(asked) == len(set(asked))
    for turn in story.turns:
        out = [flight.client for flight in turn.state.flights.values()]
        assert len(out) == len(set(out))


@row("buffer × critical periods")
def test_the_cohort_of_a_buffer_is_how_many_are_under_way() -> None:
    always = CriticalPeriods(delta=-1e9)
    story = run(fedavg(cohort=3, batch=BATCH) | always | Buffer(size=2), Federation(sizes=(5,) * 9), versions=4)
    for version, state in enumerate(story.states[:-1]):
        kept = state.parts["critical_periods"]
        assert len(state.flights) == kept["size"] == min(3 * 2**version, 9)
        assert len(kept["history"]) == version


@row("a substitute × the federated gradient norm")
def test_the_gradient_norm_hears_only_who_trained() -> None:
    story = run(EVERYBODY | CriticalPeriods(delta=1e9, floor=0.1) | ALL_SKIP, Federation(), versions=3)
    first, *others = (state.parts["critical_periods"] for state in story.states[1:])
    assert len(first["history"]) == 1
    assert all(same(other, first) for other in others)
    some = play(EVERYBODY | CriticalPeriods(act=False) | ODD_ONES_SKIP, Federation())
    fresh = [r for r in some.reports.values() if r.version == 2 and r.fresh]
    norm = sum(r.num_samples * r.measures["gradient_square"] * r.rate for r in fresh) / sum(
        r.num_samples for r in fresh
    )
    assert some.states[-1].parts["critical_periods"]["history"][-1] == pytest.approx(norm)


@row("sampled staleness × a substitute")
def test_staleness_and_age_are_two_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: list[Facts] = []
    scales = PerStep.scales

    def noted(self: PerStep, heard: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        facts.extend(heard)
        return scales(self, heard, shares)

    monkeypatch.setattr(PerStep, "scales", noted)
    story = run(EVERYBODY | SampledStaleness(max_delay=3) | SkipAndEstimate() | PerStep(), Federation(), versions=8)
    assert len(skipped(story)) > 4
    trained: dict[int, int] = {}
    for fact in facts:
        report = story.reports[fact.dispatch]
        assert fact.staleness == fact.dispatch // 4 - report.version  # four are dispatched for each version
        if report.fresh:
            trained[report.client] = report.version
        else:
            assert report.age == max(0, report.version - trained[report.client])
    assert {fact.staleness for fact in facts} == {0, 1, 2}


@row("buffer × nobody under way any more")
def test_losses_cannot_stop_a_buffer() -> None:
    assert (fedavg() | Buffer(size=5)).releasing.ready(ReleaseContext(waiting=1, in_flight=0))
    assert len(run(fedavg(cohort=2, batch=BATCH) | Buffer(size=5), Federation()).states) == 4


@row("power of choice by reported losses, Oort, TiFL × a skipped visit")
def test_only_visits_that_trained_tell_of_a_client() -> None:
    def heard(policy: Settings) -> tuple[dict[int, Any], dict[int, Report]]:
        story = play(EVERYBODY | policy | ODD_ONES_SKIP, Federation())
        assert {story.reports[dispatch].client for dispatch in skipped(story)} == {1, 3}
        last = {r.client: r for _, r in sorted(story.reports.items()) if r.fresh}
        return story.states[-1].parts[policy.label()], last

    state, last = heard(LossSampling(d=4, variant="rpow"))
    assert dict(state["losses"]) == {client: report.loss for client, report in last.items()}
    state, last = heard(UtilitySampling())
    assert {c: (e[0], e[2]) for c, e in state["heard"].items()} == {
        c: (r.num_samples * math.sqrt(r.measures["squared_loss"]), r.version + 1) for c, r in last.items()
    }
    state, _ = heard(TierSampling(profile=9))
    assert {c: entry[1] for c, entry in state["profiles"].items()} == {0: 3, 1: 1, 2: 3, 3: 1}


@row(
    "power of choice, Oort, TiFL, `cluster_sampling`, `rate_sampling`, `diverse_sampling`, `norm_sampling`, "
    "`availability_sampling` × clients that are away"
)
@pytest.mark.parametrize(
    "policy",
    [
        LossSampling(cohort=2, d=3),
        UtilitySampling(cohort=2),
        TierSampling(cohort=2, tiers=2),
        ClusterSampling(cohort=2),
        ClusterSampling(cohort=2, by="updates"),
        RateSampling(cohort=2),
        DiverseSampling(cohort=2),
        NormSampling(cohort=2),
        AvailabilitySampling(cohort=2),
    ],
    ids=lambda part: part.label(),
)
def test_who_is_chosen_is_there(policy: Participation) -> None:
    state, everybody, some = (
        policy.server_start(selecting.setup(6)),
        selecting.Present([5] * 6),
        selecting.Present([5] * 6, away=(0, 1, 5)),
    )
    state, asked = policy.invite(selecting.setup(6), state, selecting.call(everybody, count=6))
    state = selecting.told(policy, state, 0, [selecting.report(c) for c in selecting.who(asked)])
    state, asked = policy.invite(selecting.setup(6), state, selecting.call(everybody, 1))
    for client in selecting.who(asked, "measure"):
        measures = {"loss": 1.0}
        state = policy.measured(
            selecting.setup(6), state, selecting.report(client, 1, kind="measure", measures=measures)
        )
    chosen = selecting.who(
        policy.invite(selecting.setup(6), state, selecting.call(some, 1 + (not selecting.who(asked, "measure"))))[1]
    )
    assert chosen
    assert set(chosen) <= {2, 3, 4}


@row("client momentum × FedNova, per-step weighing, staleness", "client momentum × clipping, weight decay, prox")
@pytest.mark.parametrize("scaling", [None, NormalisedAveraging(), PerStep(), Staleness()], ids=str)
def test_momentum_is_a_mean_direction_however_updates_are_scaled(scaling: Any) -> None:
    recipe = fedavg(batch=BATCH, clip=0.5, weight_decay=0.1) | Equal() | Prox(mu=0.3) | ClientMomentum(alpha=0.4)
    recipe = recipe if scaling is None else recipe | scaling
    federation = Federation(dtype=torch.float64, fleet=UNEQUAL)
    story = run(recipe | Rolling(concurrency=4) | Buffer(size=2), federation, versions=5)
    for released, after in zip(story.released, story.states[1:], strict=True):
        assert released.release is not None
        counted = [s * c for s, c in zip(released.release.shares, released.release.scales, strict=True)]
        travel = sum(c * r.travel for c, r in zip(counted, released.release.reports, strict=True))
        way = sum((c * u for c, u in zip(counted, released.release.updates(), strict=True)), torch.zeros(1))
        assert near(after.parts["client_momentum"]["momentum"], -way / travel, 1e-10)
        if isinstance(scaling, PerStep):
            steps = [r.update / r.steps for r in released.release.reports if r.update is not None]
            mean = sum(r.travel / r.steps for r in released.release.reports)
            assert near(after.parts["client_momentum"]["momentum"], -sum(steps) / mean, 1e-10)


@row("`as_invited` × a client that is lost", "`as_invited` × any other participation")
@pytest.mark.parametrize("policy", [ClusterSampling(), DiverseSampling(), RateSampling(beta=0.5), Uniform()], ids=str)
def test_who_is_lost_is_made_up_for_or_missed(policy: Participation) -> None:
    def happening(assignment: Assignment, report: Report) -> Event:
        first = assignment.dispatch % 2 == 0
        return report if first else Lost(dispatch=report.dispatch, reason="the line is dead")

    story = play(fedavg(cohort=4, batch=BATCH) | policy | AsInvited(), Federation(), happening=happening)
    for released in story.released:
        release = released.release
        assert release is not None
        assert sum(release.shares) == pytest.approx(1)
        total = 1.0 if not isinstance(policy, RateSampling) else sum(s.num_samples for s in release.reports) / 33
        assert release.scales == pytest.approx((total,) * len(release.reports))
        if isinstance(policy, Uniform):
            assert set(release.shares) == {1 / len(release.reports)}


@row("`cluster_sampling`, `diverse_sampling` × a skipped visit")
@pytest.mark.parametrize("policy", [ClusterSampling(by="updates"), DiverseSampling()], ids=lambda part: part.label())
def test_what_is_sent_again_says_nothing_new_of_a_client(policy: Participation) -> None:
    story = play(fedavg(cohort=4, batch=BATCH) | policy | ODD_ONES_SKIP, Federation(sizes=(8, 8, 8, 8)))
    assert skipped(story)
    for report in story.reports.values():
        if not report.fresh:
            then, after = (story.states[report.version + i].parts[policy.label()]["last"] for i in (0, 1))
            assert same(then[report.client], after[report.client])


@row("`last_received` × a client that is lost, or refused", "`last_received` × a client that skips")
def test_who_was_not_heard_has_no_new_model() -> None:
    def happening(assignment: Assignment, report: Report) -> Event:
        lost = report.client == 2 and assignment.dispatch < 8
        return Lost(dispatch=report.dispatch, reason="the line is dead") if lost else report

    story = play(EVERYBODY | LastReceived() | ODD_ONES_SKIP, Federation(), happening=happening, versions=4)
    assert skipped(story)
    for client, expected in ((0, [0, 1, 2, 3]), (1, [0, 1, 2, 3]), (2, [0, 0, 0, 3])):
        assert [story.assignments[d].version for d in story.visits(client)] == expected


@row("`norm_sampling` × a client that would skip", "`norm_sampling` × a rehearsal that is lost")
@pytest.mark.parametrize("lost", [False, True])
def test_who_says_no_length_is_not_drawn(lost: bool) -> None:
    def happening(assignment: Assignment, report: Report) -> Event:
        dead = lost and assignment.kind == "rehearse" and assignment.client == 2
        return Lost(dispatch=report.dispatch, reason="the line is dead") if dead else report

    recipe = fedavg(batch=BATCH) | NormSampling(cohort=4, uploads=2) | AsInvited()
    story = play(recipe if lost else recipe | ALL_SKIP, Federation(), happening=happening)
    rehearsed = [d for d, a in story.assignments.items() if a.kind == "rehearse"]
    assert len(rehearsed) == 12
    told = {d: story.reports[d].measures for d in rehearsed}
    if lost:
        assert not any(a.client == 2 and a.kind == "train" for a in story.assignments.values())
        return
    for dispatch in rehearsed:
        assignment = story.assignments[dispatch]
        assert ("norm" in told[dispatch]) == (assignment.visit == 0)  # later it would send its movement again


@row("`norm_sampling` × compression")
def test_a_length_is_that_of_what_would_be_sent() -> None:
    story = play(fedavg(batch=BATCH) | NormSampling(cohort=4, uploads=2) | TopK(share=0.2), Federation())
    pairs = 0
    for dispatch, assignment in story.assignments.items():
        if assignment.kind == "train":
            before = [d for d in story.visits(assignment.client) if d < dispatch]
            told, update = story.reports[before[-1]].measures["norm"], story.reports[dispatch].update
            assert update is not None
            assert told == pytest.approx(float(update.norm()))
            pairs += 1
    assert pairs > 3


@row("costs × a rehearsal")
def test_a_rehearsal_costs_its_work_and_one_number() -> None:
    _, log = logged(recipe=fedavg(cohort=4, epochs=1, batch=5) | NormSampling(uploads=2), rounds=3)
    by = {status: [v for v in log.visits if v.status == status] for status in ("measured", "trained")}
    assert len(by["measured"]) == 12
    for visit in by["measured"]:
        assert visit.bytes_up == 8
        for again in by["trained"]:
            if (again.client, again.version) == (visit.client, visit.version):
                work = (again.steps, again.samples, again.flops, again.bytes_down)
                assert work == (visit.steps, visit.samples, visit.flops, visit.bytes_down)
        assert visit.steps > 0


@row("`shared_moments` × a skipped visit, a version without steps", "`shared_moments` × scales, the server's step")
@pytest.mark.parametrize("also", [(), (PerStep(), Adam())], ids=["plain", "scaled"])
def test_shared_moments_are_means_of_those_who_stepped(also: tuple[Settings, ...]) -> None:
    recipe = EVERYBODY | LocalAMSGrad() | SharedMoments() | ODD_ONES_SKIP
    for part in also:
        recipe = recipe | part
    story = play(recipe, Federation(dtype=torch.float64))
    assert skipped(story)
    for released, after in zip(story.released, story.states[1:], strict=True):
        assert released.release is not None
        told = [
            (share, report.extras["shared_moments"]["largest"])
            for share, report in zip(released.release.shares, released.release.reports, strict=True)
            if report.fresh
        ]
        total = sum(share for share, _ in told)
        mean = torch.stack([share / total * h for share, h in told]).sum(0)
        assert near(after.parts["shared_moments"]["largest"], mean, 1e-10)


@row("`availability_sampling` × nobody left who has rested")
def test_who_has_rested_longest_comes_where_nobody_else_is_left() -> None:
    policy, fixed, roster = AvailabilitySampling(cohort=1, rest=9), selecting.setup(3), selecting.Present([5] * 3)
    state, order = policy.server_start(fixed), list[int]()
    for version in range(7):
        state, asked = policy.invite(fixed, state, selecting.call(roster, version))
        order += selecting.who(asked)
    assert sorted(order[:3]) == [0, 1, 2]
    assert order == [*order[:3], *order[:3], order[0]]


@row("`unlike_updates` × FedNova, per-step weighing, staleness")
@pytest.mark.parametrize("scaling", [PerStep(), Staleness()], ids=lambda part: part.label())
def test_late_updates_are_compared_as_they_are_scaled(scaling: Any) -> None:
    part = UnlikeUpdates(beta=0.5)
    recipe = fedavg(batch=BATCH) | Equal() | Rolling(concurrency=4) | Buffer(size=3) | part | scaling
    story, late = run(recipe, Federation(dtype=torch.float64, fleet=UNEQUAL), versions=6), 0
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        release = released.release
        assert release is not None
        updates = [c * u for c, u in zip(release.scales, release.updates(), strict=True)]
        delays = [release.version - r.version for r in release.reports]
        weights = part.weights(delays, updates, release)
        step = torch.stack([w / sum(weights) * u for w, u in zip(weights, updates, strict=True)]).sum(0)
        assert near(after.weights, before.weights + step, 1e-9)
        late += any(delays)
    assert late


@row("power of choice × a candidate that does not answer")
def test_a_candidate_without_an_answer_comes_last() -> None:
    policy, fixed, roster = LossSampling(cohort=3, d=5), selecting.setup(9), selecting.Present([5] * 9)
    state, asked = policy.invite(fixed, policy.server_start(fixed), selecting.call(roster))
    one, two, three, four, _ = selecting.who(asked, "measure")
    assert selecting.who(policy.invite(fixed, state, selecting.call(roster))[1]) == [one, two, three]
    state = policy.measured(fixed, state, selecting.report(four, kind="measure", measures={"loss": 0.1}))
    assert selecting.who(policy.invite(fixed, state, selecting.call(roster))[1]) == [four, one, two]


@row("power of choice × fewer or more places (rolling, critical periods, over-selection)")
def test_candidates_shrink_and_grow_with_the_places() -> None:
    choice = fedavg(cohort=2, batch=BATCH, epochs=1) | LossSampling(d=4)

    def asked(recipe: Recipe, versions: int = 3) -> list[tuple[int, int]]:
        """Of each time that clients are measured: how many are at work, and how many are measured."""
        turns = run(recipe, Federation(sizes=(5,) * 12), versions=versions).turns
        measured = [(t.state.training, sum(a.kind == "measure" for a in t.assignments)) for t in turns]
        return [(training, count) for training, count in measured if count]

    rolling = asked(choice | Rolling() | Buffer(size=1), versions=9)
    assert len(rolling) > 3
    assert all(count == 2 * (2 - training) for training, count in rolling)
    assert asked(choice | CriticalPeriods(delta=-1e9)) == [(0, 4), (0, 8), (0, 12)]  # of 16, there are 12
    assert asked(choice | OverSelect(factor=1.5)) == [(0, 6)] * 3


@row("Oort × rolling")
def test_single_places_explore_as_often_as_many() -> None:
    """Rounded down, four in five of them would never go to an unheard client."""
    policy = UtilitySampling(exploration=0.2)
    found = [policy._explorers(1, version, (version % 10) / 10) for version in range(100)]
    assert sum(found) == 20
    assert policy._explorers(10, 0, 0.5) == 2


@row("Oort × a client that is lost")
def test_a_lost_visit_says_nothing_of_a_client() -> None:
    def happening(assignment: Assignment, report: Report) -> Event:
        lost = assignment.client == 1 or (assignment.client == 2 and assignment.version)
        return Lost(dispatch=assignment.dispatch, reason="gone") if lost else replace(report, duration=3.0)

    story = play(EVERYBODY | UtilitySampling(), Federation(), versions=3, happening=happening)
    heard = story.states[-1].parts["utility_sampling"]["heard"]
    assert {c: list(entry[1:]) for c, entry in heard.items()} == {0: [3.0, 3, 3], 2: [3.0, 1, 1], 3: [3.0, 3, 3]}
    assert [a.client for a in story.assignments.values()].count(1) == 3  # unheard, so it is invited again


@row("TiFL × a client that never answers")
def test_who_never_answers_is_in_the_last_tier() -> None:
    def happening(assignment: Assignment, report: Report) -> Event:
        if assignment.client == 0:
            return Lost(dispatch=assignment.dispatch, reason="gone")
        return replace(report, duration=9.0)

    story = play(fedavg(cohort=2, batch=BATCH) | TierSampling(tiers=2), Federation(), versions=6, happening=happening)
    assert story.states[-1].parts["tier_sampling"]["tier_of"][0] == 1
    # Not even if nobody ever answers, and no version has a release, does it run out of clients.
    silent = play(
        fedavg(cohort=4) | TierSampling(tiers=2),
        Federation(),
        versions=6,
        happening=lambda assignment, _: Lost(dispatch=assignment.dispatch, reason="gone"),
    )
    assert len(silent.states) == 7


@row("TiFL × a cohort larger than a tier, critical periods", "TiFL × rolling")
def test_a_tier_is_not_filled_up_and_is_drawn_for_every_place() -> None:
    federation = Federation(sizes=(5,) * 6)
    tiered = fedavg(cohort=3, batch=BATCH, epochs=1) | TierSampling(tiers=3)
    story = run(tiered | CriticalPeriods(delta=-1e9), federation, versions=4)
    for turn in story.turns[:-1]:
        tier_of = turn.state.parts["tier_sampling"]["tier_of"]
        chosen = [a.client for a in turn.assignments]
        if turn.state.version >= 2 and chosen:  # everybody has been timed
            assert len(chosen) == 2
            assert len({tier_of[c] for c in chosen}) == 1
    story = run(tiered | Rolling() | Buffer(size=2), federation, versions=20)
    drawn = {turn.state.parts["tier_sampling"]["drawn"] for turn in story.turns if turn.assignments}
    assert {0, 1, 2} <= drawn
    assert any(
        len({t.state.parts["tier_sampling"]["drawn"] for t in story.turns if t.state.version == v}) > 1
        for v in range(20)
    )


MOVED = SkipAndEstimate(budgets=Listed(shares=(1.0, 0.5)), schedule="round_robin", turns="visits")


@row("staleness × a substitute", "`from_current` × a movement sent again")
def test_a_movement_sent_again_is_as_stale_as_the_model_it_answers() -> None:
    recipe = fedavg(batch=BATCH) | Equal() | Rolling(concurrency=3) | Buffer(size=2) | MOVED
    recipe = recipe | Staleness(rule="hinge", a=1.0, b=0.0) | FromCurrent()
    story = run(recipe, Federation(dtype=torch.float64, fleet=UNEQUAL), versions=12)
    again = 0
    for state, released, after in zip(story.states, story.released, story.states[1:], strict=False):
        assert released.release is not None
        moved = torch.zeros_like(state.weights)
        for report, scale in zip(released.release.reports, released.release.scales, strict=True):
            assert report.update is not None
            assert scale == 1 / (1 + released.release.version - report.version)
            again += not report.fresh and report.age > 0
            moved += scale / 2 * (story.assignments[report.dispatch].weights + report.update - state.weights)
        assert near(after.weights, state.weights + moved, 1e-10)
    assert again > 2


@row("`rolling` × one client twice in a buffer", "`last_updates` × a client twice in a version")
def test_a_client_twice_in_a_buffer_counts_twice_and_is_remembered_once() -> None:
    plain = fedavg(batch=BATCH) | Equal() | Rolling(concurrency=2) | Buffer(size=6)
    federation = Federation(dtype=torch.float64, fleet=UNEQUAL)
    for recipe, of_all in ((plain, False), (plain | LastUpdates(), True)):
        story = run(recipe, federation, versions=1)
        release = story.released[0].release
        assert release is not None
        last = {r.client: r.update for r in release.reports if r.update is not None}
        assert len(last) < len(release.reports) == 6
        mean = torch.stack([*last.values()]).sum(0) / 4 if of_all else torch.stack(release.updates()).mean(0)
        assert near(story.weights, story.states[0].weights + mean, 1e-10)


@row("`last_updates` × BatchNorm", "`last_updates` × clients without data")
def test_memory_keeps_updates_of_those_who_hold_data_and_no_statistics() -> None:
    federation = Federation(net="batchnorm", eligible=(0, 1, 3))
    plain = fedavg(cohort=2, batch=BATCH) | Equal()
    story, without = (run(r, federation, versions=2) for r in (plain | LastUpdates(), plain))
    release = story.released[0].release
    assert release is not None
    mean = torch.stack(release.updates()).sum(0) / 3
    assert near(story.states[1].weights, story.states[0].weights + mean)
    assert same(story.states[1].buffers, without.states[1].buffers)


@row("`stale_updates`, `last_models` × a client twice in a version", "`stale_updates`, `last_models` × BatchNorm")
@pytest.mark.parametrize("part", [StaleUpdates(), LastModels()], ids=lambda part: part.label())
def test_what_is_remembered_is_the_later_dispatch_and_no_statistics(part: Any) -> None:
    plain = fedavg(batch=BATCH) | Equal() | Rolling(concurrency=2) | Buffer(size=6)
    federation = Federation(dtype=torch.float64, fleet=UNEQUAL)
    story = run(plain | part, federation, versions=1)
    release = story.released[0].release
    assert release is not None
    assert len({r.client for r in release.reports}) < len(release.reports)
    last = {r.client: r for r in release.reports}
    for client, kept in story.states[1].parts[part.label()]["last"].items():
        update = last[client].update
        assert update is not None
        sent = story.assignments[last[client].dispatch].weights
        assert near(kept, sent + update if part == LastModels() else update / last[client].rate, 1e-10)
    shared = fedavg(cohort=2, batch=BATCH) | Equal()
    of_all, without = (run(r, Federation(net="batchnorm"), versions=2) for r in (shared | part, shared))
    assert same(of_all.states[1].buffers, without.states[1].buffers)


@row("`stale_updates`, `last_models` × clients without data", "`participation_intervals` × clients without data")
@pytest.mark.parametrize("part", [StaleUpdates(), LastModels(), ParticipationIntervals()], ids=lambda p: p.label())
def test_who_holds_no_data_is_none_of_all_clients(part: Any) -> None:
    """With everybody who holds data in every version, each is the plain mean."""
    federation, plain = Federation(eligible=(0, 1, 3)), fedavg(cohort=3, batch=BATCH) | Equal()
    story, without = (run(r, federation) for r in (plain | part, plain))
    assert near(story.weights, without.weights)


@row("`last_models` × a server rate")
def test_with_another_server_rate_the_mean_of_models_is_not_kept() -> None:
    plain = fedavg(cohort=2, batch=BATCH) | Equal() | LastModels()
    federation = Federation(dtype=torch.float64)
    for lr, kept in ((1.0, True), (0.5, False)):
        story = run(plain | Sgd(lr=lr), federation)
        known = story.states[-1].parts["last_models"]["last"]
        every = torch.stack([known.get(c, story.states[0].weights) for c in range(4)]).mean(0)
        assert near(story.weights, every, 1e-10) == kept


@row("`delay_adaptive_step` × moments of the server")
def test_a_short_step_leaves_moments_as_they_are() -> None:
    recipe = fedavg(batch=BATCH) | Equal() | Rolling(concurrency=4) | Buffer(size=1) | Momentum()
    federation = Federation(dtype=torch.float64, fleet=UNEQUAL)
    late = run(recipe | DelayAdaptiveStep(), federation, versions=24)
    assert max(r.release.version - q.version for r in late.released if r.release for q in r.release.reports) > 1
    m = torch.zeros_like(late.weights)
    for released, after in zip(late.released, late.states[1:], strict=False):
        assert released.release is not None
        m = 0.9 * m + sum(released.release.updates(), torch.zeros_like(m))
        assert near(after.parts["server_momentum"]["m"], m, 1e-10)


HEAD = PersonalLayers()
HEADED = EVERYBODY | HEAD


@row(
    "`personal_layers` × control variates, VRL-SGD, FedDyn, what the server adds up",
    "`personal_layers` × a movement that is sent again",
    "what is personal × a skipped visit",
)
@pytest.mark.parametrize(
    "part",
    [ControlVariates(), VarianceReduction(), DynamicRegularisation(), Adam(), Momentum()],
    ids=lambda p: p.label(),
)
def test_nothing_moves_at_the_server_where_clients_have_their_own(part: Settings) -> None:
    story = play(HEADED | part | ODD_ONES_SKIP, Federation())
    own = HEAD.own(Federation().engine().layout)
    vectors = [v for state in story.states for v in state.parts[part.label()].values() if isinstance(v, Tensor)]
    vectors += [v for state in story.clients.values() for v in state.parts.get(part.label(), {}).values()]
    drifts = [v for state in story.states for v in state.parts[part.label()].get("drift", {}).values()]
    assert len([*vectors, *drifts]) > 2
    assert not any(own.of(vector).any() for vector in (*vectors, *drifts) if vector.dim())
    assert len(skipped(story)) == 4
    for dispatch in skipped(story):
        update = story.reports[dispatch].update
        assert update is not None
        assert not own.of(update).any()
        assert same(story.ends[dispatch].parts["personal_layers"], story.starts[dispatch].parts["personal_layers"])


@row("`personal_layers` × prox, clipping")
def test_a_pull_is_towards_the_clients_own_last_value() -> None:
    """With lr * mu = 1 every step but the gradient's goes back to where the visit began, also of what is personal."""
    recipe = fedavg(cohort=4, batch=None, epochs=2, lr=0.5, clip=1e-3) | Prox(mu=2.0) | HEAD
    federation, moved = Federation(dtype=torch.float64), []
    story, layout = play(recipe, federation), federation.engine().layout

    for dispatch in story.assignments:
        before, after = (s.parts.get("personal_layers", {}) for s in (story.starts[dispatch], story.ends[dispatch]))
        begun = before.get("weights", HEAD.own(layout).of(story.states[0].weights))
        moved.append(float(torch.linalg.vector_norm(after["weights"] - begun)))
    assert 0 < max(moved) <= 0.5e-3 + 1e-12  # as far as one step with the clipped gradient of the whole model


@row("`personal_layers` × compression")
def test_what_travels_compressed_is_the_shared_part() -> None:
    layout = Federation().engine().layout
    shared = HEAD.shared(layout)
    for part in (TopK(share=0.5), Int8()):
        story = play(HEADED | part, Federation())
        assert all(report.packed == part.size(shared) for report in story.reports.values())
        assert part.size(shared) < part.size(layout)  # type: ignore[operator]
        assert all("left" in state.parts[part.label()] for state in story.clients.values())
        assert not any(HEAD.own(layout).of(s.parts[part.label()]["left"]).any() for s in story.clients.values())


@row("`personal_layers` × BatchNorm")
def test_statistics_of_a_personal_layer_stay() -> None:
    federation = Federation(net="batchnorm")
    story = play(EVERYBODY | PersonalLayers(layers=("norms",)), federation)
    assert same(story.states[-1].buffers, story.states[0].buffers)
    kept = [state.parts["personal_layers"]["buffers"] for state in story.clients.values()]
    assert len(kept) == 4
    assert not any(same(a, b) for a, b in itertools.combinations(kept, 2))


@row("`personal_layers` × visits that measure, scores, frozen models")
def test_a_curriculum_scores_under_the_clients_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    received = list[Tensor]()
    opened = TorchEngine.open

    def noted(self: TorchEngine, visit: Any) -> None:
        received.append(visit.received.weights.clone())
        opened(self, visit)

    monkeypatch.setattr(TorchEngine, "open", noted)
    story, layout = play(HEADED | Curriculum(), Federation()), Federation().engine().layout
    for dispatch, weights in enumerate(received):
        kept = story.starts[dispatch].parts.get("personal_layers")
        sent = story.assignments[dispatch].weights
        assert torch.equal(weights, sent if kept is None else HEAD.own(layout).put(sent, kept["weights"]))


@row("`personal_first` × everything that divides by steps")
@pytest.mark.parametrize(
    "part", [ControlVariates(), VarianceReduction(), NormalisedAveraging(), PerStep()], ids=lambda part: part.label()
)
def test_only_steps_of_the_shared_part_are_divided_by(part: Settings) -> None:
    """Its first phase changes nothing of what is computed from the second, if that begins where it would without."""
    plain, first = HEADED | PersonalFirst(epochs=0) | part, HEADED | PersonalFirst(epochs=2) | part
    one, other = (run(recipe, Federation(sizes=(4, 8, 6, 8)), versions=1) for recipe in (plain, first))
    steps, travels = ([getattr(r, name) for r in one.reports.values()] for name in ("steps", "travel"))
    assert steps == [r.steps for r in other.reports.values()]
    assert travels == [r.travel for r in other.reports.values()]
    assert [r.samples for r in other.reports.values()] == [2 * r.samples for r in one.reports.values()]
    if isinstance(part, ControlVariates):
        for report in other.reports.values():
            assert report.update is not None
            change = report.extras["control_variates"]["change"]
            assert near(change, report.update / -report.travel)


@row("`personal_first`, `personal_copy` × partial work")
@pytest.mark.parametrize("part", [PersonalFirst(epochs=1), PersonalCopy(epochs=1)], ids=lambda part: part.label())
def test_what_is_trained_beside_takes_time(part: Settings) -> None:
    fleet = fleets.Fleet(devices=fleets.Uniform(seconds_per_sample=0.01))
    base = fedavg(cohort=4, batch=BATCH, epochs=3) | HEAD | PartialWork(seconds=0.3)
    plain, beside = (run(recipe, Federation(sizes=(8, 8, 8, 8), fleet=fleet)) for recipe in (base, base | part))
    assert {r.steps for r in plain.reports.values()} == {6}
    assert {r.steps for r in beside.reports.values()} == {5}  # 8 samples beside, and 22 that there is time for
    assert all(r.duration <= 0.3 + 1e-9 for r in beside.reports.values())


@row("`personal_copy`, `fine_tuning` × corrections, curriculum, kept moments")
def test_a_copy_is_trained_in_plain_passes() -> None:
    copy = PersonalCopy(strength=0, epochs=1)
    plain = fedavg(cohort=4, batch=BATCH, epochs=1, lr=0.1, momentum=0.9) | copy
    for parts in ((Prox(mu=1.0), ControlVariates()), (Curriculum(),)):
        odd = plain
        for part in parts:
            odd = odd | part
        one, other = (play(recipe, Federation(), versions=1) for recipe in (plain, odd))
        for client, state in one.clients.items():
            assert same(state.parts["personal_copy"], other.clients[client].parts["personal_copy"])
    kept = fedavg(cohort=4, batch=BATCH, epochs=1, lr=0.1, momentum=0.9, keep_state=True) | copy
    fresh, again = (play(recipe, Federation(), versions=1) for recipe in (plain, kept))
    assert same(fresh.clients[0].parts["personal_copy"], again.clients[0].parts["personal_copy"])


@row("`personal_mixture` × corrections, server steps, `personal_layers`")
@pytest.mark.parametrize("part", [ControlVariates(), Prox(mu=0.5), Adam(), HEAD, Curriculum()], ids=lambda p: p.label())
def test_a_mixture_leaves_the_rest_as_it_is(part: Settings) -> None:
    plain, mixed = (run(recipe, Federation()) for recipe in (EVERYBODY | part, EVERYBODY | part | PersonalMixture()))
    assert alike(mixed, plain)
    assert all("personal_mixture" in state.parts for state in mixed.clients.values())


@row("`prototypes` × `personal_layers`, other corrections, weighing")
@pytest.mark.parametrize("part", [HEAD, Prox(mu=0.5), ControlVariates(), Equal()], ids=lambda part: part.label())
def test_a_pull_to_prototypes_chains_with_the_rest(part: Settings) -> None:
    plain, pulled = (run(recipe, Federation()) for recipe in (EVERYBODY | part, EVERYBODY | part | Prototypes()))
    first = min(len(plain.states), 2)
    assert same(plain.states[first - 1].weights, pulled.states[first - 1].weights)
    assert not alike(plain, pulled)
    for report in pulled.reports.values():
        assert len(report.extras["prototypes"]["means"]) == int(report.extras["prototypes"]["classes"].sum())


@row("`prototypes` × a skipped visit")
def test_who_does_not_train_sends_no_means() -> None:
    story = run(EVERYBODY | ODD_ONES_SKIP | Prototypes(), Federation(), versions=4)
    skipped = [report for report in story.reports.values() if report.substitute]
    assert skipped
    assert not any("prototypes" in report.extras for report in skipped)


@row("`nearest_prototype` × no `prototypes`")
def test_without_prototypes_there_is_nothing_to_compare_with() -> None:
    alone = EVERYBODY | NearestPrototype()
    with pytest.raises(UserError, match="nearest_prototype without prototypes"):
        alone.whole()
    (alone | Prototypes()).whole()


@row("`prototypes`, `nearest_prototype`, `nearest_neighbours` × tasks without classes")
@pytest.mark.parametrize("part", [Prototypes(), NearestNeighbours()], ids=lambda part: part.label())
def test_what_compares_classes_needs_them(part: Settings) -> None:
    numbers = replace(collection(), task="regression", classes=(), train=regression(60), test=regression(15))
    with pytest.raises(UserError, match=f"{part.label()} for the task regression"):
        prepared(federation=dealt(numbers, [20, 20]), recipe=EVERYBODY | part)


@row("`adaptive_start` × partial work")
def test_learning_where_to_begin_takes_time() -> None:
    fleet = fleets.Fleet(devices=fleets.Uniform(seconds_per_sample=0.01))
    base = fedavg(cohort=4, batch=4, epochs=5) | PartialWork(seconds=0.3)
    story = run(base | AdaptiveStart(share=1.0, most=2), Federation(sizes=(8, 8, 8, 8), fleet=fleet), versions=3)
    assert [r.steps for r in story.reports.values()] == [7] * 4 + [3] * 4 + [5] * 4  # 16 samples, then 8
    assert [r.gradient_samples for r in story.reports.values()] == [0] * 4 + [16] * 4 + [8] * 4


@row("`adaptive_start` × `personal_layers`, loss terms, server steps")
@pytest.mark.parametrize("part", [HEAD, ModelContrast(layer="logits"), Adam()], ids=lambda part: part.label())
def test_what_begins_elsewhere_goes_on_as_usual(part: Settings) -> None:
    recipe = EVERYBODY | part | AdaptiveStart(rate=20.0, most=1)
    story, layout = play(recipe, Federation(), versions=4), Federation().engine().layout
    mixed = [bool(state.parts["adaptive_start"]["mixing"].lt(1).any()) for state in story.clients.values()]
    assert any(mixed) == (part != HEAD)
    if part == HEAD:
        updates = [report.update for report in story.reports.values() if report.update is not None]
        assert updates
        assert not any(HEAD.own(layout).of(update).any() for update in updates)


@row("`moreau_envelope`, `meta_step` × prox, clipping, momentum")
@pytest.mark.parametrize("part", [MoreauEnvelope(strength=2.0), MetaStep(lr=0.1)], ids=lambda part: part.label())
def test_what_steps_go_along_is_clipped_and_pulled(part: Settings) -> None:
    """With lr * mu = 1 every step goes back to where the visit began, but for the direction itself."""
    federation = Federation(dtype=torch.float64)
    recipe = fedavg(cohort=4, batch=None, epochs=3, lr=0.5, clip=1e-3) | Prox(mu=2.0) | part
    moved = [float(torch.linalg.vector_norm(r.update)) for r in run(recipe, federation, versions=1).reports.values()]  # type: ignore[arg-type]
    assert 0 < max(moved) <= 0.5e-3 + 1e-12


@row("`personal_mixture`, `moreau_envelope`, `meta_step` × partial work, budgets")
@pytest.mark.parametrize(
    ("part", "steps"), [(PersonalMixture(), 3), (MoreauEnvelope(steps=3), 2), (MetaStep(form="hessian_free"), 1)]
)
def test_all_gradients_of_a_step_take_time(part: Settings, steps: int) -> None:
    """There is time for 30 gradients of samples in batches of 4, so for 7 of batches."""
    fleet = fleets.Fleet(devices=fleets.Uniform(seconds_per_sample=0.01))
    base = fedavg(cohort=4, batch=4, epochs=5) | PartialWork(seconds=0.3)
    story = run(base | part, Federation(sizes=(8, 8, 8, 8), fleet=fleet))
    assert {r.steps for r in story.reports.values()} == {steps}
    assert all(r.duration <= 0.3 + 1e-9 for r in story.reports.values())


@row("what is personal × a report that is refused, lost or late")
def test_a_visit_that_did_not_count_leaves_what_is_personal() -> None:
    def happening(assignment: Assignment, report: Report) -> Any:
        return spoiled(report) if assignment.client == 1 and assignment.version == 1 else report

    story = play(HEADED | PersonalCopy(), Federation(), happening=happening, versions=3)
    first, second, third = story.visits(1)
    assert not story.accepted[second]
    assert same(story.starts[third], story.ends[first])


WHOLE: dict[str, tuple[Callable[[], Recipe], str]] = {
    "rolling and rounds": (lambda: EVERYBODY | Rolling(), "always at work"),
    "on arrival and rounds": (lambda: EVERYBODY | OnArrival(), "always at work"),
    "rolling and over-selection": (lambda: EVERYBODY | Buffer() | Rolling() | OverSelect(), "no rounds"),
    "a buffer and over-selection": (lambda: EVERYBODY | OverSelect(factor=1) | Buffer(), "no rounds"),
    "memory by samples": (lambda: EVERYBODY | LastUpdates(), "not heard yet"),
    "a correction by samples": (lambda: EVERYBODY | StaleUpdates(), "not heard yet"),
    "last models by samples": (lambda: EVERYBODY | LastModels(), "not heard yet"),
    "intervals by samples": (lambda: EVERYBODY | ParticipationIntervals(), "not heard yet"),
    "bins and rolling": (lambda: EVERYBODY | ClusterSampling() | Rolling() | Buffer(), "one by one"),
    "rehearsals and rolling": (lambda: EVERYBODY | NormSampling() | Rolling() | Buffer(), "one by one"),
    "who leaves first and rolling": (lambda: EVERYBODY | AvailabilitySampling() | Rolling() | Buffer(), "one by one"),
    "rates and rolling": (lambda: EVERYBODY | RateSampling() | Rolling() | Buffer(), "one by one"),
    "clients that stand for others and rolling": (
        lambda: EVERYBODY | Rolling() | Buffer() | DiverseSampling(),
        "one by one",
    ),
    "shared moments of plain SGD": (lambda: EVERYBODY | SharedMoments(), "what clients share"),
    "shared moments of personal layers": (
        lambda: EVERYBODY | LocalAMSGrad() | SharedMoments() | PersonalLayers(),
        "a client's own",
    ),
    "shared moments that are kept": (
        lambda: EVERYBODY | LocalAMSGrad(keep_state=True) | SharedMoments(),
        "thrown away",
    ),
    "too many reports": (lambda: EVERYBODY | MinReports(count=5), "every version would be skipped"),
    "phases of one part": (lambda: EVERYBODY | PersonalFirst(), "nothing to train in the first phase"),
}


@row(
    "`rolling` × a release that waits for everybody",
    "`over_select` × `buffer`, `rolling`",
    "`cluster_sampling`, `rate_sampling`, `diverse_sampling`, `norm_sampling`, `availability_sampling` × `rolling`",
    "`last_updates`, `last_models`, `stale_updates`, `participation_intervals` × shares by samples",
    "`min_reports` × a smaller cohort",
    "`personal_first` × all of the model shared",
    "`shared_moments` × another local optimiser than `local_amsgrad`, moments kept over visits",
    "`personal_layers` × `shared_moments`",
)
@pytest.mark.parametrize("pair", WHOLE)
def test_it_is_refused_of_the_whole(pair: str) -> None:
    build, why = WHOLE[pair]
    with pytest.raises(UserError) as refused:
        build().whole()
    assert why in refused.value.why
    assert refused.value.fix


@pytest.mark.parametrize(
    "recipe",
    [
        EVERYBODY | Rolling() | Buffer(),
        EVERYBODY | LastUpdates() | Equal(),
        EVERYBODY | MinReports(count=4),
        EVERYBODY | MinReports(count=5) | OverSelect(factor=1.3),
        EVERYBODY | Buffer() | OverSelect() | WhenAll(),
        EVERYBODY | MinReports(count=9) | Rolling() | Buffer(),
    ],
    ids=lambda recipe: recipe.title,
)
def test_a_later_part_may_put_it_right(recipe: Recipe) -> None:
    assert recipe.whole() is recipe


@row("`rolling` × `on_arrival`")
def test_on_arrival_takes_the_place_of_rolling() -> None:
    arriving = OnArrival(most=3)
    after = EVERYBODY | SampledStaleness() | Rolling(concurrency=7) | arriving
    assert (EVERYBODY | arriving | SampledStaleness()).digest == after.digest
    assert "on_arrival takes the place of uniform (participation)" in after.notices


REFUSED: dict[str, tuple[Callable[[], Recipe], str]] = {
    "control variates and VRL-SGD": (lambda: EVERYBODY | ControlVariates() | VarianceReduction(), "other's correction"),
    "VRL-SGD and FedDyn": (lambda: EVERYBODY | VarianceReduction() | DynamicRegularisation(), "other's correction"),
    "client momentum and control variates": (
        lambda: EVERYBODY | ClientMomentum() | ControlVariates(),
        "other's correction",
    ),
    "client momentum and local Adam": (lambda: fedavg(optimiser="adam") | ClientMomentum(), "Adam's path"),
    "local Adam": (lambda: fedavg(optimiser="adam") | ControlVariates(), "Adam's path"),
    "kept momentum": (lambda: fedavg(momentum=0.9, keep_state=True) | NormalisedAveraging(), "earlier"),
    "FedNova twice": (lambda: EVERYBODY | NormalisedAveraging() | NormalisedAveraging(), "squared"),
    "per-step and last models": (lambda: EVERYBODY | PerStep() | SkipAndResendModel(), "not made in"),
    "two skips": (lambda: EVERYBODY | SkipSilently() | SkipAndEstimate(), "contradict"),
    "two stops": (lambda: EVERYBODY | NEVER_STOPS | AFTER_ONE_EPOCH, "contradict"),
    "compression and last models": (lambda: EVERYBODY | TopK() | SkipAndResendModel(), "would not lead there"),
    "last models and compression": (lambda: EVERYBODY | SkipAndResendModel() | Int8(), "would not lead there"),
    "two times": (lambda: EVERYBODY | PartialWork() | PartialWork(seconds=1.0), "contradict"),
    "two cuts": (lambda: EVERYBODY | BudgetSteps() | BudgetSteps(), "contradict"),
    "two sizes": (lambda: EVERYBODY | CriticalPeriods() | RandomResize(), "contradict"),
    "old models by chance and by absence": (lambda: EVERYBODY | SampledStaleness() | LastReceived(), "contradict"),
    "two stalenesses": (lambda: EVERYBODY | SampledStaleness() | SampledStaleness(), "contradict"),
    "turns by versions and old versions": (
        lambda: EVERYBODY | SampledStaleness() | SkipSilently(schedule="round_robin"),
        "that version's turn again",
    ),
    "local and shared": (lambda: local_only() | ControlVariates(), "no release"),
    "local and compressed": (lambda: local_only() | Int8(), "no release"),
    "local and remembered": (lambda: local_only() | LastUpdates(), "no release"),
    "local and current": (lambda: local_only() | FromCurrent(), "no release"),
    "two concurrencies": (lambda: EVERYBODY | Rolling() | Rolling(), "contradict"),
    "on arrival and rolling": (lambda: EVERYBODY | OnArrival() | Rolling(), "contradict"),
    "on arrival and critical periods": (lambda: EVERYBODY | OnArrival() | CriticalPeriods(), "nobody is"),
    "random resizing and on arrival": (lambda: EVERYBODY | RandomResize() | OnArrival(), "nobody is"),
    "memory and FedDyn": (lambda: EVERYBODY | LastUpdates() | DynamicRegularisation(), "changes the mean"),
    "memory and the current model": (lambda: EVERYBODY | FromCurrent() | LastUpdates(), "changes the mean"),
    "a correction and FedDyn": (lambda: EVERYBODY | StaleUpdates() | DynamicRegularisation(), "changes the mean"),
    "last models and the current": (lambda: EVERYBODY | LastModels() | FromCurrent(), "changes the mean"),
    "memory and a correction": (lambda: EVERYBODY | LastUpdates() | StaleUpdates(), "contradict"),
    "memory and last models": (lambda: EVERYBODY | LastModels() | LastUpdates(), "contradict"),
    "intervals twice": (lambda: EVERYBODY | ParticipationIntervals() | ParticipationIntervals(cutoff=2), "squared"),
    "two strides": (lambda: EVERYBODY | DelayAdaptiveStep() | DelayAdaptiveStep(delay=2), "contradict"),
    "two memories": (lambda: EVERYBODY | LastUpdates() | LastUpdates(), "contradict"),
    "phases and an early stop": (lambda: HEADED | PersonalFirst() | AFTER_ONE_EPOCH, "does not while the head"),
    "phases twice": (lambda: HEADED | PersonalFirst() | PersonalFirst(epochs=2), "contradict"),
    "a head and a share of gradients": (lambda: HEADED | ClientMomentum(), "knows nothing of what is"),
    "alone with a head": (lambda: local_only() | HEAD, "no release"),
    "alone with a copy": (lambda: local_only() | PersonalCopy(), "no release"),
    "alone and tuned": (lambda: local_only() | FineTuning(), "no release"),
    "alone and mixed": (lambda: local_only() | PersonalMixture(), "no release"),
    "an envelope and control variates": (lambda: EVERYBODY | ControlVariates() | MoreauEnvelope(), "they go elsewhere"),
    "an envelope and FedNova": (lambda: EVERYBODY | MoreauEnvelope() | NormalisedAveraging(), "they go elsewhere"),
    "a step ahead and FedNova": (lambda: EVERYBODY | MetaStep() | NormalisedAveraging(), "they go elsewhere"),
    "a start of one's own and control variates": (
        lambda: EVERYBODY | AdaptiveStart() | ControlVariates(),
        "more than what they went",
    ),
    "a step ahead and MOON": (lambda: EVERYBODY | MetaStep() | ModelContrast(), "takes gradients elsewhere"),
    "an envelope and an early stop": (lambda: EVERYBODY | MoreauEnvelope() | AFTER_ONE_EPOCH, "gradients elsewhere"),
    "a mixture and phases": (lambda: HEADED | PersonalMixture() | PersonalFirst(), "a part of it is held"),
    "an envelope and phases": (lambda: HEADED | PersonalFirst() | MoreauEnvelope(), "a part of it is held"),
    "two scales by staleness": (lambda: EVERYBODY | Staleness() | Staleness(rule="cutoff"), "squared"),
}


@row(
    "the same × local Adam",
    "the same × momentum kept over visits",
    "two of control variates, VRL-SGD, FedDyn, client momentum",
    "FedNova twice",
    "`skip_and_resend_model` × per-step weighing",
    "compression × `skip_and_resend_model`",
    "two parts that decide whether to skip, when to stop, or how large the cohort is",
    "`on_arrival` × critical periods, random resizing",
    "`last_updates`, `last_models`, `stale_updates` × one another, FedDyn, `from_current`",
    "`local_only` × anything exchanged",
    "`last_received` × `sampled_staleness`",
    "`personal_layers` × FedCM",
    "`personal_first` × early stop",
    "what is personal × `local_only`",
    "`moreau_envelope`, `meta_step`, `adaptive_start` × what divides by the sum of local steps",
    "`moreau_envelope`, `meta_step` × loss terms, early stop",
    "`personal_mixture`, `moreau_envelope`, `meta_step` × `personal_first`",
)
@pytest.mark.parametrize("pair", REFUSED)
def test_it_is_refused_when_it_is_put_together(pair: str) -> None:
    build, why = REFUSED[pair]
    with pytest.raises(UserError) as refused:
        build()
    assert why in refused.value.why
    assert refused.value.fix


@row("`stop_on_drift` × no number of rounds")
def test_a_rising_threshold_needs_the_number_of_rounds() -> None:
    assert "total_rounds" in (EVERYBODY | StopOnDrift()).needs()
    assert "total_rounds" not in (EVERYBODY | StopOnDrift(b=0)).needs()


@row("MOON × a client's first visit")
def test_moon_has_no_term_before_there_is_a_last_model() -> None:
    moon = ModelContrast(mu=5, layer="logits")
    assert alike(run(EVERYBODY | moon, Federation(), versions=1), run(EVERYBODY, Federation(), versions=1))
    assert not alike(run(EVERYBODY | moon, Federation(), versions=2), run(EVERYBODY, Federation(), versions=2))


@row("fewer samples than a batch × `drop_last`")
def test_who_has_less_than_a_batch_trains_on_it() -> None:
    story = run(fedavg(cohort=2, batch=4, drop_last=True, epochs=1), Federation(sizes=(3, 6)), versions=1)
    assert sorted(sorted(map(len, batches)) for batches in story.batches.values()) == [[3], [4]]


@row(
    "label smoothing × losses that are reported, or score samples and clients",
    "label smoothing × the gradient norm, the Fisher trace",
    "Fisher trace for the model's labels × for those in the data",
)
def test_label_smoothing_is_in_the_gradients_that_are_taken_and_nowhere_else() -> None:
    """One step on all samples: everything that is measured in it is of the initial model."""
    data, net = collection(), nn.Linear(4, 3)
    watch = (FisherTrace(), FisherTrace(labels="model"))
    recipe = fedavg(cohort=1, epochs=1, batch=None) | CriticalPeriods(act=False, watch=watch)
    visits, inputs, targets = {}, *data.train.batch(torch.arange(60))
    for smoothing in (0.0, 0.4):
        aim = task("classification", smoothing=smoothing)
        _, log = logged(federation=dealt(data, [60]), model=net, recipe=recipe, rounds=1, task=aim)
        visits[smoothing] = log.visits[0]
        loss = nn.functional.cross_entropy(net(inputs), targets, label_smoothing=smoothing)
        square = sum(float(g.square().sum()) for g in torch.autograd.grad(loss, list(net.parameters())))
        assert log.visits[0].measures["gradient_square"] == pytest.approx(square, rel=1e-5)
    assert visits[0.0].loss == visits[0.4].loss
    for measure in ("fisher", "fisher_model"):
        assert visits[0.0].measures[measure] == visits[0.4].measures[measure]
    assert visits[0.0].measures["fisher"] != visits[0.0].measures["fisher_model"]


CAPACITIES = "computation_ms_per_sample,communication_kbps\n10,80\n20,160\n"


@row(
    "a device with too little memory × an invitation",
    "`on_arrival` × a fleet in which everybody is always there",
    "arrivals × a recipe that invites whom it wants",
    "`by_labels` × samples without a class",
)
def test_fleets_that_a_recipe_cannot_use_are_told_or_refused(tmp_path: Path) -> None:
    small = fleets.ListedDevices(devices=(fleets.Device(seconds_per_sample=1.0, memory=60.0),))
    with pytest.raises(UserError, match="the most memory that any device has is 60 bytes"):
        logged(fleet=fleets.Fleet(devices=small))
    waiting = fedavg() | OnArrival() | Buffer(size=2)
    with pytest.raises(UserError, match="everybody is always there"):
        experiment(recipe=waiting)
    for there in (fleets.Poisson(rate=0.1), fleets.Markov(mean_on=1.0, mean_off=1.0)):
        experiment(recipe=waiting, fleet=fleets.Fleet() | there)
    for at_work in (fleets.Faults(crash=0.1), fleets.Energy(battery=1.0)):  # as long as nobody works, nobody goes
        with pytest.raises(UserError, match="everybody is always there"):
            experiment(recipe=waiting, fleet=fleets.Fleet() | at_work)
    plain, log = logged(fleet=fleets.Fleet() | fleets.Poisson(rate=100.0))
    assert plain["digest"] == logged()[0]["digest"]
    assert any("clients come by themselves" in notice for notice in log.plans[0].notices)
    numbers = replace(collection(), task="regression", classes=(), train=regression(60), test=regression(15))
    (tmp_path / "a.csv").write_text("time,client\n0,1\n1,4\n")
    with pytest.raises(UserError, match=r"line 3: client = 4"):
        prepared(fleet=fleets.Fleet() | fleets.ArrivalTrace(path=tmp_path / "a.csv")).world()
    with pytest.raises(UserError, match="samples without classes"):
        logged(federation=dealt(numbers, [30, 30]), fleet=fleets.Fleet() | fleets.ByLabels())


def regression(many: int) -> ArraySamples:
    return ArraySamples(torch.zeros(many, 4), torch.zeros(many, 3))


@row(
    "a device trace × links piped on after it",
    "more clients than a trace has rows × the trace",
    "energy of a device × energy of the fleet",
)
def test_parts_of_a_fleet_that_say_the_same_thing(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(CAPACITIES)
    trace = fleets.Fleet() | fleets.DeviceTrace(path=tmp_path / "c.csv")
    work = fleets.Load(samples=1, bytes_down=10_000)
    costs = {world.price(c, work, 0.0) for world in [fleets.FleetState(trace, 50, 0, range(50))] for c in range(50)}
    assert {(round(cost.compute, 6), round(cost.down, 6)) for cost in costs} == {(0.03, 1.0), (0.06, 0.5)}
    fixed = fleets.FleetState(trace | fleets.FixedLinks(down=1e4), 50, 0, range(50))
    assert {fixed.price(c, work, 0.0).down for c in range(50)} == {1.0}
    assert {round(fixed.price(c, work, 0.0).compute, 6) for c in range(50)} == {0.03, 0.06}
    own = (fleets.Device(seconds_per_sample=1.0, joules_per_flop=3.0), fleets.Device(seconds_per_sample=1.0))
    fleet = fleets.Fleet(devices=fleets.ListedDevices(devices=own)) | fleets.Energy(joules_per_flop=2.0)
    world = fleets.FleetState(fleet, 2, 0, range(2))
    assert [world.price(c, fleets.Load(flops=1), 0.0).joules for c in (0, 1)] == [3.0, 2.0]


@row(
    "costs × a visit that is lost, late or dropped",
    "costs × a visit under way when a version is made, or the run ends",
)
def test_what_comes_to_nothing_is_billed_too() -> None:
    """Two devices of one speed and one that is ten times slower: of its visit four tenths are over in the end."""
    speeds = tuple(fleets.Device(seconds_per_sample=s) for s in (0.1, 0.1, 1.0))
    fleet = fleets.Fleet(devices=fleets.ListedDevices(devices=speeds))
    recipe = fedavg(cohort=3, epochs=1, batch=5) | Buffer(size=2) | Rolling()
    summary, log = logged(recipe=recipe, fleet=fleet, federation=dealt(collection(), [10, 10, 10]), rounds=4)
    assert [version.time for version in log.versions] == [0.0, 1.0, 2.0, 3.0, 4.0]
    (left,) = (visit for visit in log.visits if visit.status == "unfinished")
    assert (left.client, left.started, left.finished, left.compute_seconds) == (2, 0.0, 4.0, 4.0)
    assert (left.samples, left.flops) == (4, left.forward_flops + left.backward_flops)
    assert [version.compute_seconds for version in log.versions] == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert summary["flops"] == sum(visit.flops for visit in log.visits)
    assert summary["utilisation"] == 1.0
    assert summary["visits"] == len(log.visits) - 1


@row("compression × control variates", "compression × BatchNorm")
def test_only_updates_are_compressed() -> None:
    story = run(EVERYBODY | ControlVariates() | TopK(share=0.1, error_feedback=False), Federation(net="batchnorm"))
    plain = run(EVERYBODY | ControlVariates(), Federation(net="batchnorm"))
    for dispatch, report in story.reports.items():
        assert report.update is not None
        assert int((report.update != 0).sum()) <= 6  # of 53
        if report.version == 0:
            assert same(report.extras, plain.reports[dispatch].extras)
            assert same(report.buffers, plain.reports[dispatch].buffers)


@row("compression × FedNova, per-step weighing, samples")
def test_what_waits_has_the_weight_of_the_visit_that_sends_it() -> None:
    story = run(EVERYBODY | RandomEpochs(epochs=3, spread=2) | PerStep() | TopK(share=0.1), Federation(), versions=4)
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        assert released.release is not None
        reports, shares = released.release.reports, released.release.shares
        mean = sum(s / r.steps * r.update for s, r in zip(shares, reports, strict=True) if r.update is not None)
        assert near(after.weights, before.weights + mean)


@row("partial work × a rate by step, a curriculum", "partial work × nobody knows the pace")
def test_a_curriculum_is_paced_over_the_steps_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    in_use = Curriculum.in_use

    def noted(self: Curriculum, visit: Visit, progress: Progress) -> int:
        asked.append(progress.steps)
        return in_use(self, visit, progress)

    monkeypatch.setattr(Curriculum, "in_use", noted)
    # A step of 4 takes 4 milliseconds, and scoring 9 samples 3.
    recipe = fedavg(cohort=1, batch=BATCH, epochs=2) | Curriculum(least=1) | PartialWork(seconds=0.0155)
    cut, whole = run(recipe, Federation(sizes=(9,))), play(recipe, Federation(sizes=(9,)))
    assert [r.steps for r in cut.reports.values()] == [3] * 3
    assert [r.steps for r in whole.reports.values()] == [6] * 3
    assert set(asked) == {3, 6}


@row(
    "`clip_updates`, other middles × what steps past the mean: `last_updates`, `from_current`, `unlike_updates`, "
    "FedDyn, …"
)
@pytest.mark.parametrize(
    "other",
    [
        LastUpdates(),
        FromCurrent(),
        DynamicRegularisation(),
        StaleUpdates(),
        LastModels(),
        Extrapolation(),
        UnlikeUpdates(),
    ],
    ids=lambda part: part.label(),
)
@pytest.mark.parametrize(
    "robust", [ClipUpdates(), Median(), TrimmedMean(), GeometricMedian()], ids=lambda part: part.label()
)
def test_what_has_a_way_of_its_own_into_the_step_is_refused(robust: Settings, other: Settings) -> None:
    for first, second in ((robust, other), (other, robust)):
        with pytest.raises(UserError) as refused:
            EVERYBODY | Equal() | first | second
        assert "way of its own" in refused.value.why


def test_there_is_one_middle() -> None:
    with pytest.raises(UserError, match="median and trimmed_mean"):
        EVERYBODY | TrimmedMean() | Median()


def far(which: int) -> Callable[[Assignment, Report], Event]:
    """One client's updates are a million times as long, and so is what follows from them."""

    def happening(assignment: Assignment, report: Report) -> Event:
        assert report.update is not None
        if assignment.client != which:
            return report
        extras = {
            key: {what: 1e6 * value for what, value in extra.items() if isinstance(value, torch.Tensor)}
            for key, extra in report.extras.items()
        }
        return replace(report, update=1e6 * report.update, extras=extras)

    return happening


@row("`clip_updates`, other middles × control variates, VRL-SGD")
def test_an_outlier_is_kept_out_of_the_step_and_not_out_of_c_unless_it_is_refused() -> None:
    recipe = EVERYBODY | ControlVariates()
    plain = play(recipe, Federation(), versions=1)
    for part, into in ((Median(), True), (ClipUpdates(norm=1.0), True), (ClipUpdates(norm=1.0, refuse=10), False)):
        story = play(recipe | part, Federation(), versions=1, happening=far(0))
        moved = story.weights - plain.states[0].weights
        assert torch.linalg.vector_norm(moved) < 3
        control = story.states[-1].parts["control_variates"]["control"]
        honest = plain.states[-1].parts["control_variates"]["control"]
        assert (torch.linalg.vector_norm(control) > 1e3 * torch.linalg.vector_norm(honest)) == into
        if not into:
            own = torch.stack([c.parts["control_variates"]["control"] for c in story.clients.values()])
            assert near(control, own.sum(0) / 4)


@row(
    "`clip_updates` × FedNova, per-step weighing, staleness",
    "other middles × FedNova, per-step weighing, staleness",
    "other middles × shares",
)
@pytest.mark.parametrize("scaling", [PerStep(), NormalisedAveraging()], ids=lambda part: part.label())
def test_updates_are_shortened_before_scales_and_sorted_after_them(scaling: Settings) -> None:
    recipe = EVERYBODY | RandomEpochs(epochs=3, spread=2) | scaling
    federation = Federation(dtype=torch.float64)
    clipped, middle = (run(recipe | part, federation, versions=1) for part in (ClipUpdates(norm=0.2), Median()))
    for story, limit in ((clipped, 0.2), (middle, math.inf)):
        release = story.released[0].release
        assert release is not None
        rows = [
            s * min(1.0, limit / float(torch.linalg.vector_norm(u))) * u
            for u, s in zip(release.updates(), release.scales, strict=True)
        ]
        moved = story.weights - story.states[0].weights
        if limit < math.inf:
            assert near(moved, torch.stack([a * u for a, u in zip(release.shares, rows, strict=True)]).sum(0), 1e-10)
            continue
        values, order = torch.stack(rows).sort(dim=0)
        shares = torch.tensor(release.shares, dtype=torch.float64)[order[1:3]]
        assert near(moved, (values[1:3] * shares).sum(0) / shares.sum(0), 1e-10)


@row("other middles × BatchNorm")
def test_statistics_have_no_other_middle() -> None:
    federation = Federation(net="batchnorm")
    plain, story = (run(r, federation, versions=1) for r in (EVERYBODY, EVERYBODY | Median()))
    assert same(plain.states[-1].buffers, story.states[-1].buffers)
    assert not same(plain.weights, story.weights)


@row("`clip_updates` × a movement sent again")
def test_a_movement_sent_again_is_shortened_again() -> None:
    story = play(EVERYBODY | ODD_ONES_SKIP | ClipUpdates(norm=0.05), Federation(dtype=torch.float64))
    assert skipped(story)
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        assert released.release is not None
        shares, updates = released.release.shares, released.release.updates()
        mean = sum(a * min(1.0, 0.05 / float(u.norm())) * u for a, u in zip(shares, updates, strict=True))
        assert near(after.weights, before.weights + mean, 1e-10)


@row("a version that is skipped × control variates, FedDyn, movements")
@pytest.mark.parametrize("memory", [ControlVariates(), DynamicRegularisation()], ids=lambda part: part.label())
def test_a_skipped_version_keeps_what_was_said_at_both_ends(memory: Settings) -> None:
    def alone(assignment: Assignment, report: Report) -> Event:
        gone = assignment.version == 1 and assignment.client != 2
        return Lost(dispatch=report.dispatch, reason="away") if gone else report

    story = play(EVERYBODY | memory | MinReports(count=2), Federation(), versions=3, happening=alone)
    skipped_one = story.released[1]
    assert skipped_one.release is None
    assert skipped_one.note == "reports: 1, where at least 2 are needed"
    assert same(story.states[2].weights, story.states[1].weights)
    at_server, at_client = {"control_variates": ("control", "control")}.get(memory.label(), ("h", "dual"))
    own = torch.stack([c.parts[memory.label()][at_client] for c in story.clients.values()]).mean(0)
    assert near(story.states[-1].parts[memory.label()][at_server], own)


@row("flipped bits without a checksum × FedDyn, CCFL's storages")
def test_what_nobody_can_know_is_taken_for_true() -> None:
    def other(assignment: Assignment, report: Report) -> Event:
        assert report.update is not None
        return replace(report, update=report.update + 1e-3)

    story = play(EVERYBODY | DynamicRegularisation(), Federation(), versions=1, happening=other)
    duals = torch.stack([c.parts["dynamic_regularisation"]["dual"] for c in story.clients.values()]).mean(0)
    assert not near(story.states[-1].parts["dynamic_regularisation"]["h"], duals)


@row("a slow visit × partial work")
def test_a_slow_visit_is_late_where_it_was_to_be_cut() -> None:
    fleet = UNEQUAL | fleets.Faults(slow=1.0, slowdown=5.0)
    recipe = fedavg(cohort=4, batch=BATCH, epochs=2) | PartialWork(seconds=1.5)
    plain, slow = (run(recipe, Federation(fleet=f), versions=1) for f in (UNEQUAL, fleet))
    assert [r.steps for r in plain.reports.values()] == [r.steps for r in slow.reports.values()]
    ends = [max(m.time for m in story.moments) for story in (plain, slow)]
    assert ends[0] <= 1.5 < ends[1]
