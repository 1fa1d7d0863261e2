"""What a run does around its training: measuring, counting, ending, and what is left when it goes wrong."""

from __future__ import annotations

import ast
import dataclasses
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.base.errors import RunFailed
from polyrhythm.base.faults import IGNORED
from polyrhythm.data import ArraySamples
from polyrhythm.data.federation import Shares
from polyrhythm.data.holding import Holding
from polyrhythm.experiments import parts_of_model
from polyrhythm.experiments.evaluation import Evaluator
from polyrhythm.experiments.experiment import Evaluation, Until
from polyrhythm.experiments.session import carry_out
from polyrhythm.models.flops import count
from polyrhythm.runs import VersionRecord, VisitRecord
from polyrhythm.runs.observer import Observer
from small import Explodes, Log, collection, dealt, experiment, federation, logged, prepared
from surviving import scenarios


def marked(which: list[int], mark: float = 99.0) -> Any:
    """The blobs with a mark in the first feature of some training samples."""
    data = collection()
    inputs = data.train.batch(torch.arange(60))[0].clone()
    inputs[which, 0] = mark
    return dataclasses.replace(data, train=ArraySamples(inputs, data.train.targets))


# Looking changes nothing.


def test_evaluation_observers_and_records_change_no_weight(tmp_path: Path) -> None:
    digest = carry_out(prepared(), [])["digest"]
    assert logged()[0]["digest"] == digest
    assert logged(evaluation=Evaluation(every=2, train_samples=30))[0]["digest"] == digest
    assert logged(evaluation=Evaluation(every=3))[0]["digest"] == digest
    assert pr.run(experiment(), out=tmp_path).summary["digest"] == digest


def test_a_net_with_dropout_and_batch_norm_is_not_disturbed_either() -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    often = logged(model=net, evaluation=Evaluation(every=1, train_samples=20))[0]
    seldom = logged(model=net, evaluation=Evaluation(every=3))[0]
    assert often["digest"] == seldom["digest"]


def test_what_ran_before_in_the_process_does_not_matter() -> None:
    first = logged()[0]["digest"]
    torch.manual_seed(123)
    torch.rand(7)
    np.random.default_rng(5).normal(size=3)
    logged(recipe=pr.scaffold(cohort=3), seed=9)
    assert logged()[0]["digest"] == first
    assert logged(seed=1)[0]["digest"] != first


def test_an_experiment_can_be_run_twice() -> None:
    made = prepared(recipe=pr.scaffold(cohort=2))
    assert carry_out(made, [])["digest"] == carry_out(made, [])["digest"]


@pytest.mark.parametrize("hash_seed", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_another_process_gives_the_same_digests(hash_seed: str) -> None:
    """Of runs of every kind, in the opposite order, whatever order sets have there."""
    code = "from surviving import scenarios; print(scenarios.digests(reversed(scenarios.MAKE)))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), environment["PYTHONPATH"]])
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert ast.literal_eval(found.stdout) == scenarios.digests(scenarios.MAKE)


def test_the_number_of_threads_is_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        logged()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# When it is measured, and when it ends.


def test_the_first_and_the_last_version_are_always_measured() -> None:
    _, log = logged(rounds=5, evaluation=Evaluation(every=3))
    assert [v.version for v in log.versions if v.test is not None] == [0, 3, 5]
    assert [v.version for v in log.versions] == [0, 1, 2, 3, 4, 5]


def test_until_updates_and_time_end_a_run_with_a_measured_version() -> None:
    summary, log = logged(rounds=None, until=Until(updates=7), evaluation=Evaluation(every=100))
    assert summary["client_updates"] == 8
    assert log.versions[-1].test is not None
    assert "8 client updates" in summary["reason"]
    seconds = log.versions[-1].time
    summary, log = logged(rounds=50, until=Until(time=seconds))
    assert log.versions[-1].time >= seconds > log.versions[-2].time


def test_until_accuracy_ends_a_run_at_the_first_version_that_reaches_it() -> None:
    summary, log = logged(rounds=50, until=Until(accuracy=0.8))
    scores = [v.test["accuracy"] for v in log.versions if v.test]
    assert scores[-1] >= 0.8
    assert all(s < 0.8 for s in scores[1:-1])
    assert summary["rounds"] < 50


def test_with_validation_data_they_and_not_the_test_set_end_the_run() -> None:
    held_out = federation(validation=0.3)
    _, log = logged(federation=held_out, rounds=50, until=Until(accuracy=0.8))
    assert log.versions[-1].validation is not None
    assert log.versions[-1].validation["accuracy"] >= 0.8
    assert all(v.validation["accuracy"] < 0.8 for v in log.versions[1:-1] if v.validation)


def test_validation_chooses_the_best_version(tmp_path: Path) -> None:
    run = pr.run(experiment(federation=federation(validation=0.3), rounds=8), out=tmp_path)
    history = run.history
    assert run.summary["best_by"] == "validation"
    best = history.loc[run.summary["best_version"]]
    assert best["validation_accuracy"] == history["validation_accuracy"].max()
    assert run.summary["best_accuracy"] == best["test_accuracy"]


def test_test_samples_never_reach_training() -> None:
    data = collection()
    inputs = data.test.batch(torch.arange(15))[0].clone()
    inputs[::2, 0] = 99.0
    planted = dataclasses.replace(data, test=ArraySamples(inputs, data.test.targets))
    split = pr.federate(planted, pr.data.Iid(), 4, 0, validation=0.2, local_test=0.2)
    # The net raises in training mode on a marked sample.
    summary, _ = logged(federation=split, model=Explodes(4, 3, 99.0, "raise"), rounds=4)
    assert summary["status"] == "finished"


def test_clients_own_tests_are_pooled_and_averaged_under_two_names() -> None:
    data = collection(samples=68)
    labels = torch.zeros(34, dtype=torch.int64)
    labels[0] = 1  # the first client's one sample, which a net that always says 0 gets wrong
    tests = ArraySamples(torch.zeros(34, 4), labels)
    shares = Shares.of(tests, np.arange(34), np.array([1, 33]))
    split = dealt(data, [30, 30], local_tests=shares)
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    _, log = logged(federation=split, model=net)
    first = log.versions[0].clients
    assert first is not None
    assert first["accuracy_pooled"] == pytest.approx(33 / 34)
    assert first["accuracy_mean"] == pytest.approx(1 / 2)


# What is counted.


def test_steps_samples_bytes_and_flops_add_up() -> None:
    summary, log = logged()
    parameters = 4 * 3 + 3
    assert [v.steps for v in log.visits] == [3] * 6  # 15 samples each, batch 5
    assert summary["local_steps"] == 18
    assert summary["samples"] == 90
    assert summary["bytes_up"] == summary["bytes_down"] == 6 * 4 * parameters
    # A linear layer: 2 * 4 * 3 operations forward; the gradient of the weights as many again, none of the inputs.
    assert summary["flops"] == 90 * (2 * 12 + 2 * 12)
    assert log.versions[-1].local_steps == sum(v.steps for v in log.visits)
    assert log.versions[-1].bytes_up == sum(v.bytes_up for v in log.visits)


def test_control_variates_and_buffers_are_counted_on_the_wire() -> None:
    vector = 4 * (4 * 3 + 3)
    summary, _ = logged(recipe=pr.scaffold(cohort=2, epochs=1, batch=5))
    assert summary["bytes_up"] == summary["bytes_down"] == 6 * 2 * vector
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    summary, _ = logged(model=net)
    assert summary["bytes_up"] == 6 * (4 * (15 + 6) + 4 * 6 + 8)  # weights, two statistics, one counter


def test_a_skipped_visit_costs_no_flops_and_sends_what_it_must() -> None:
    everybody = pr.fedavg(cohort=4, epochs=1, batch=5)
    kept = everybody | pr.parts.skip_and_estimate(storage="server", cold_start="exclude")
    _, log = logged(recipe=kept, rounds=12)
    skipped = [v for v in log.visits if v.status == "skipped"]
    assert skipped
    assert all(v.flops == v.steps == v.samples == 0 and v.bytes_up == 1 for v in skipped)
    assert any("versions ago" in v.reason for v in skipped)


def test_silent_clients_were_asked_and_are_counted() -> None:
    recipe = pr.fedavg(cohort=4, epochs=1, batch=5) | pr.parts.skip_silently()
    _, log = logged(recipe=recipe, rounds=6)
    assert [v.cohort for v in log.versions[1:]] == [4] * 6
    assert min(v.accepted for v in log.versions[1:]) < 4
    assert all(v.dropped == 0 for v in log.versions)


def test_virtual_time_follows_the_work() -> None:
    _, log = logged(fleet=pr.Fleet(devices=pr.fleet.Uniform(seconds_per_sample=0.5)))
    assert [v.time for v in log.versions] == [0.0, 7.5, 15.0, 22.5]
    assert all(v.finished - v.started == 7.5 for v in log.visits)


def test_what_is_no_version_leaves_no_record_of_one() -> None:
    """Timers of a deadline that everybody keeps, and visits given up long before their end, make no version."""
    slow = pr.Fleet(devices=pr.fleet.Tiers(slowdown=(1.0, 8.0), seconds_per_sample=0.01))
    recipe = pr.fedavg(cohort=4, epochs=1, batch=5) | pr.parts.time_out(seconds=1.0) | pr.parts.deadline(seconds=0.5)
    _, log = logged(recipe=recipe, fleet=slow, rounds=20)
    assert [v.version for v in log.versions] == list(range(21))
    assert {v.status for v in log.visits} == {"trained", "late", "unfinished"}
    assert all(v.reason.startswith("too late") for v in log.visits if v.status == "late")


def test_operations_are_counted_once_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    monkeypatch.setattr(parts_of_model, "count", lambda *given: counted.append(1) or count(*given))
    logged(rounds=6)
    assert counted == [1]


# Results by group.


TIERS = pr.Fleet(devices=pr.fleet.Tiers(slowdown=(1.0, 4.0)))


def test_each_group_is_measured_on_its_clients_own_tests() -> None:
    one = prepared(federation=federation(12, local_test=0.4), fleet=TIERS, evaluation=Evaluation(groups=True))
    evaluator, model = Evaluator(one), one.chosen.engine.initial()
    own = one.federation.local_tests
    assert own is not None
    assert set(one.groups) == {"tier 1", "tier 2"}
    found = evaluator.over_groups(evaluator.own_tests(lambda _: model), model)
    assert found is not None
    for name, members in one.groups.items():
        pooled = Holding(own.samples, torch.cat([own.indices(client) for client in members]))
        for metric, value in one.chosen.engine.evaluate(model, pooled).items():
            assert found[f"{name.replace(' ', '_')}_{metric}"] == pytest.approx(value)
    assert sum(len(members) for members in one.groups.values()) == 12


def test_without_own_tests_groups_are_measured_on_a_sample_of_their_training_data() -> None:
    plan = Evaluation(groups=True, train_samples=7)
    one = prepared(federation=federation(12), fleet=TIERS, evaluation=plan)
    assert any("by group are on training data" in notice for notice in one.notices())
    _, log = logged(federation=federation(12), fleet=TIERS, evaluation=plan)
    assert log.versions[-1].groups is not None
    assert set(log.versions[-1].groups) == {f"tier_{i}_{metric}" for i in (1, 2) for metric in ("loss", "accuracy")}
    assert logged(federation=federation(12), fleet=TIERS)[1].versions[-1].groups is None


# When clients or the whole run go wrong.


def test_a_client_with_nan_is_dropped_by_name_and_the_rest_go_on() -> None:
    split = dealt(marked([0]), [15, 15, 15, 15])
    recipe = pr.fedavg(cohort=4, epochs=1, batch=5)
    summary, log = logged(federation=split, recipe=recipe, model=Explodes(4, 3, 99.0, "nan"))
    dropped = [v for v in log.visits if v.status == "dropped"]
    assert {v.client for v in dropped} == {0}
    assert all("linear." in v.reason for v in dropped)
    assert [v.accepted for v in log.versions[1:]] == [3, 3, 3]
    assert [v.dropped for v in log.versions[1:]] == [1, 1, 1]
    assert summary["client_updates"] == 9
    assert all(math.isfinite(float(t.sum())) for t in log.states[-1].values())


def test_if_all_give_nan_the_run_fails_and_keeps_the_last_good_model(tmp_path: Path) -> None:
    everything = list(range(60))
    doomed = experiment(
        federation=dealt(marked(everything), [15, 15, 15, 15]), model=Explodes(4, 3, 99.0, "nan"), rounds=3
    )
    with pytest.raises(pr.RunFailed, match="every update had to be dropped"):
        pr.run(doomed, out=tmp_path)
    run = pr.Run.open(next(p.name for p in tmp_path.iterdir() if p.is_dir()), tmp_path)
    assert run.status == "failed"
    assert all(math.isfinite(float(t.sum())) for t in run.weights("final").values())
    assert run.status == "failed"
    assert list(run.visits["status"]) == ["dropped", "dropped"]


def test_what_a_client_raises_names_the_client_and_keeps_the_record(tmp_path: Path) -> None:
    split = dealt(marked([45]), [15, 15, 15, 15])
    broken = experiment(
        federation=split, model=Explodes(4, 3, 99.0, "raise"), recipe=pr.fedavg(cohort=1, batch=5), rounds=50
    )
    with pytest.raises(ValueError, match="a sensor is broken") as caught:
        pr.run(broken, out=tmp_path)
    assert any("client 3" in note for note in caught.value.__notes__)
    run = pr.Run.open(next(p.name for p in tmp_path.iterdir() if p.is_dir()), tmp_path)
    assert run.status == "failed"
    assert "a sensor is broken" in run.reason
    assert "client 3" in run.reason
    assert 3 not in set(run.visits["client"])
    assert set(run.history.index) == set(range(len(run.history)))


def test_ctrl_c_stops_and_keeps_what_there_is(tmp_path: Path) -> None:
    def interrupt(record: VisitRecord | VersionRecord) -> None:
        if isinstance(record, VersionRecord) and record.version == 2:
            raise KeyboardInterrupt

    run = pr.run(experiment(rounds=50), out=tmp_path, observers=[Log(interrupt)])
    assert run.status == "stopped"
    assert list(run.history.index) == [0, 1, 2]
    assert set(run.weights("final")) == set(prepared().chosen.engine.state_of(prepared().chosen.engine.initial()))


def test_every_observer_hears_of_the_end_even_if_one_fails() -> None:
    class Bad(Observer):
        def end(self, status: object, reason: object, summary: object) -> None:
            raise OSError("disk full")

    first, last = Log(), Log()
    with pytest.raises(OSError, match="disk full"):
        carry_out(prepared(), [first, Bad(), last])
    assert [log.ends for log in (first, last)] == [[("finished", "all rounds made")]] * 2


# The bounds, and clients with nothing.


def test_centralised_is_plain_training_on_everything() -> None:
    data = collection()
    net = nn.Linear(4, 3)
    recipe = pr.centralised(epochs=1, batch=None, lr=0.1, momentum=0.9)
    _, log = logged(federation=dealt(data, [10, 20, 30]), model=net, recipe=recipe, rounds=5)
    inputs, targets = data.train.batch(torch.arange(60))
    twin = nn.Linear(4, 3)
    twin.load_state_dict(net.state_dict())
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        optimiser.zero_grad()
        functional.cross_entropy(twin(inputs), targets).backward()
        optimiser.step()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(log.states[-1][name], value, atol=1e-6, rtol=1e-5)


def test_centralised_is_measured_on_clients_own_tests() -> None:
    """As a model of FedAvg with the same weights is, though there are no such clients any more."""
    made = pr.federate(collection(120), pr.data.Dirichlet(alpha=0.5), 6, 0, local_test=0.3, unseen=0.2)
    summary, log = logged(federation=made, recipe=pr.centralised(epochs=1, batch=10, lr=0.1), rounds=2)
    weights = log.states[-1]
    same, _ = logged(federation=made, recipe=pr.fedavg(cohort=2, lr=1e-30), rounds=1, initial=weights)
    names = ("global_mean", "global_pooled", "global_worst_decile", "global_sd_over_clients")
    assert {name: summary[name] for name in names} == {name: same[name] for name in names}
    assert "unseen_global_mean" not in summary


def test_local_only_shows_the_mean_of_all_clients_own_models() -> None:
    split = dealt(collection(), [30, 30])
    recipe = pr.local_only(cohort=2, epochs=1, batch=10)
    together, log = logged(federation=split, recipe=recipe)
    # Each alone, as the only one of its federation that holds data; the draws are named by client, not by company.
    alone = [
        logged(federation=dealt(collection(), sizes, shares=shares), recipe=pr.local_only(cohort=1, epochs=1, batch=10))
        for sizes, shares in (
            ([30, 0], Shares.of(collection().train, np.arange(30), np.array([30, 0]))),
            ([0, 30], Shares.of(collection().train, np.arange(30, 60), np.array([0, 30]))),
        )
    ]
    mean = sum(summary["final_accuracy"] for summary, _ in alone) / 2
    assert together["final_accuracy"] == pytest.approx(mean)
    assert all(torch.equal(log.states[0][n], log.states[-1][n]) for n in log.states[0])


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (pr.fedavg(cohort=3, batch=5), "cohort 3, but 2 clients hold data: all of them take part in every version"),
        (pr.fedbuff(concurrency=3, batch=5), "concurrency 3, but 2 clients hold data: no more can be at work"),
        (
            pr.fedavg(cohort=2, batch=5) | pr.parts.buffer(size=3),
            "buffer(size=3), but 2 clients are invited at a time: a version is made once all of them are heard",
        ),
        (pr.fedbuff(concurrency=2, buffer=3, batch=5), ""),
        (pr.tifl(cohort=2, tiers=2, batch=5), "tifl: cohort 2, but 2 clients make 2 tiers of at most 1"),
    ],
)
def test_sizes_that_do_not_fit_are_told(recipe: pr.Recipe, words: str) -> None:
    made = prepared(federation=dealt(collection(), [20, 0, 20, 0]), recipe=recipe)
    assert list(made.notices()) == ([words] if words else [])


def test_clients_without_samples_are_never_invited() -> None:
    summary, log = logged(federation=dealt(collection(), [20, 0, 20, 0]), recipe=pr.fedavg(cohort=4, batch=5), rounds=4)
    assert {v.client for v in log.visits} == {0, 2}
    assert summary["client_updates"] == 8
    assert any("2 clients hold data" in notice for notice in log.plans[0].notices)


def test_a_long_run_keeps_its_memory_and_its_files(tmp_path: Path) -> None:
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        pytest.skip("reads /proc, which this system does not have")
    seen: dict[int, tuple[int, int]] = {}

    def look(record: VisitRecord | VersionRecord) -> None:
        if isinstance(record, VersionRecord) and record.version in (40, 200):
            resident = int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            seen[record.version] = resident, len(list(Path("/proc/self/fd").iterdir()))

    recipe = pr.scaffold(cohort=4, epochs=1, batch=15)
    pr.run(experiment(recipe=recipe, rounds=200, evaluation=Evaluation(every=20)), out=tmp_path, observers=[Log(look)])
    assert seen[200][0] - seen[40][0] < 8 * 2**20
    assert seen[200][1] == seen[40][1]


def test_what_goes_wrong_is_counted_by_kind_in_visits_versions_and_summary() -> None:
    plan = pr.fleet.Faults(
        **dict.fromkeys(("dropout", "nan", "malformed", "lost", "duplicate", "stray", "corrupt"), 0.2)
    )
    summary, log = logged(rounds=20, fleet=pr.Fleet() | plan, recipe=pr.fedavg(cohort=4, epochs=1, batch=5))
    faults, last = summary["faults"], log.versions[-1]
    assert faults == last.faults
    of_visits = Counter(v.fault for v in log.visits if v.fault)
    beside = {kind: count for kind, count in faults.items() if kind in IGNORED}
    assert {**of_visits, **beside} == faults
    assert {"dropout", "transit", "not_finite", "damaged", "duplicate", "not_asked"} <= set(faults)
    assert sum(of_visits.values()) == summary["dropped_visits"] + summary["late_visits"] + summary["lost_visits"]
    assert all(bool(v.fault) == (v.status in ("dropped", "late", "lost")) for v in log.visits)
    assert sorted(v.dispatch for v in log.visits) == list(range(len(log.visits)))  # what comes beside is nobody's visit
    counts = [sum(v.faults.values()) for v in log.versions]
    assert counts == sorted(counts)


def test_an_update_that_is_far_longer_than_those_before_is_accepted_and_said() -> None:
    plan = pr.Fleet() | pr.fleet.Faults(inflate=0.05, inflation=100.0)
    summary, log = logged(rounds=30, fleet=plan, recipe=pr.fedavg(cohort=4, epochs=1, batch=5))
    told = [v for v in log.visits if v.fault == "outlier"]
    assert len(told) == summary["faults"]["outlier"] > 0
    assert all(v.status == "trained" for v in told)
    clipped, _ = logged(
        rounds=30, fleet=plan, recipe=pr.fedavg(cohort=4, epochs=1, batch=5) | pr.parts.clip_updates(norm=1.0, refuse=5)
    )
    assert clipped["faults"]["too_far"] > 0
    assert clipped["dropped_visits"] == clipped["faults"]["too_far"]


class Causal(nn.Module):
    """A mask of zeros and infinities."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(1, 4), nn.Linear(4, 3)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(4))

    def forward(self, inputs: Tensor) -> Tensor:
        embedded = self.embed(inputs[..., None])
        attended, _ = self.attend(embedded, embedded, embedded, attn_mask=self.mask, need_weights=False)
        outputs: Tensor = self.head(attended[:, -1])
        return outputs


@pytest.mark.parametrize("method", [pr.fedavg(cohort=2), pr.fedbuff(concurrency=3, buffer=2)])
def test_a_mask_of_infinities_stays_as_it_is(method: Any, tmp_path: Path) -> None:
    run = pr.run(experiment(model=Causal(), recipe=method), out=tmp_path)
    assert run.status == "finished"
    assert torch.equal(run.weights("final")["mask"], nn.Transformer.generate_square_subsequent_mask(4))


class Notes(nn.Linear):
    """Puts something in place of a zero and an infinity."""

    def __init__(self, noted: list[float]) -> None:
        super().__init__(4, 3)
        self.register_buffer("seen", torch.tensor([0.0, -math.inf]))
        self.noted = noted

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.seen = torch.tensor(self.noted)
        return super().forward(inputs)


@pytest.mark.parametrize("noted", [[math.inf, -math.inf], [math.nan, -math.inf], [0.0, math.inf], [0.0, math.nan]])
def test_what_was_finite_must_stay_so_and_what_was_not_must_stay_or_become_so(
    noted: list[float], tmp_path: Path
) -> None:
    with pytest.raises(RunFailed, match="not a finite number in the buffer seen"):
        pr.run(experiment(model=Notes(noted)), out=tmp_path)
    for right in ([1.0, -math.inf], [1.0, 2.0]):
        assert pr.run(experiment(model=Notes(right)), out=tmp_path).weights("final")["seen"].tolist() == right
