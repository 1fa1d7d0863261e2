"""What a run says it has cost is what its visits have cost, whatever came of them."""

from __future__ import annotations

import collections
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

import polyrhythm as pr
from polyrhythm.experiments import session, version_records, visit_records
from polyrhythm.experiments.evaluation import Evaluator
from polyrhythm.experiments.session import carry_out
from polyrhythm.fleet import (
    Device,
    Energy,
    Faults,
    FixedLinks,
    Fleet,
    FleetState,
    Links,
    Load,
    Place,
    Spent,
    Tiers,
    Uniform,
)
from polyrhythm.fleet.parts import Way
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate
from polyrhythm.models.flops import Cost
from polyrhythm.runs import VersionRecord, VisitRecord
from polyrhythm.runs.ledger import Ledger
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.simulator import InlineDriver
from small import Explodes, Log, collection, dealt, experiment, federation, prepared

from .law import Mutation, law, swap

Event = VisitRecord | VersionRecord
SIZES = [4, 6, 8, 10, 12, 5, 7, 8]
SECONDS = 0.01  # per sample, on the reference device
UNEVEN = (
    Fleet(devices=Tiers(slowdown=(1.0, 5.0), seconds_per_sample=SECONDS))
    | FixedLinks(down=4000.0, up=1000.0, latency=0.2)
    | Faults(dropout=0.2)
)
COMMON: dict[str, Any] = {"epochs": 1, "batch": 5}
HALF = Listed(shares=(0.5,) * 8)
METHODS = {
    "fedavg": pr.fedavg(cohort=3, **COMMON),
    "scaffold": pr.scaffold(cohort=3, **COMMON),
    "over_select": pr.fedavg(cohort=3, **COMMON) | pr.parts.over_select(factor=1.7),
    "deadline": pr.fedavg(cohort=4, **COMMON) | pr.parts.deadline(seconds=1.0),
    "rolling": pr.fedavg(**COMMON) | pr.parts.rolling(concurrency=4) | pr.parts.buffer(size=2),
    "skipping": pr.fedavg(cohort=4, **COMMON) | pr.parts.skip_and_estimate(budgets=HALF, storage="server"),
    "silent": pr.fedavg(cohort=4, **COMMON) | pr.parts.skip_silently(budgets=HALF),
    "measuring": pr.fedavg(cohort=2, **COMMON) | pr.parts.client_curriculum(),
    "fisher": pr.fedavg(cohort=2, **COMMON) | CriticalPeriods(detector=FisherTrace(labels="model")),
    "curriculum": pr.fedavg(cohort=2, **COMMON) | pr.parts.curriculum(),
}


def events(recipe: pr.Recipe, fleet: Fleet = UNEVEN, **changes: Any) -> tuple[list[Event], dict[str, Any]]:
    """Visits and versions in the order in which an observer hears of them, and the summary."""
    heard: list[Event] = []
    given: dict[str, Any] = {"federation": dealt(collection(), SIZES), "rounds": 6}
    one = prepared(recipe=recipe, fleet=fleet, **(given | changes))
    summary = carry_out(one, [Log(heard.append)])
    return heard, summary


def visits_of(heard: Sequence[Event], *status: str) -> list[VisitRecord]:
    return [e for e in heard if isinstance(e, VisitRecord) and (not status or e.status in status)]


def versions_of(heard: Sequence[Event]) -> list[VersionRecord]:
    return [e for e in heard if isinstance(e, VersionRecord)]


def counts(visit: VisitRecord) -> bool:
    """Whether what a visit sent became part of a version."""
    return visit.status == "trained" or (visit.status == "skipped" and visit.reason != "silent")


def forgets(*status: str) -> Callable[[Ledger, VisitRecord], None]:
    """A ledger that does not book visits that end so."""
    book = Ledger.heard

    def heard(self: Ledger, record: VisitRecord, *, counts: bool) -> None:
        if record.status in status:
            record = VisitRecord(
                dispatch=record.dispatch, client=record.client, version=0, visit=0, status=record.status
            )
        book(self, record, counts=counts)

    return heard


EXACT = ("samples", "flops", "forward_flops", "backward_flops", "bytes_up", "bytes_down")


@law(
    method=st.sampled_from(sorted(METHODS)),
    seed=st.integers(0, 20),
    broken_by={
        "what was lost is not booked": swap(Ledger, "heard", forgets("lost")),
        "what came late is not booked": swap(Ledger, "heard", forgets("late")),
        "measuring is not booked": swap(Ledger, "heard", forgets("measured")),
        "gradients are booked with the passes": swap(Spent, "backward_flops", property(lambda self: self.flops)),
        "a version says what the last visit cost": swap(session, "Ledger", lambda n: Amnesiac(n)),
        "what is under way is not booked": swap(InlineDriver, "under_way", lambda self: iter(())),
        "what is under way is booked as if it were over": swap(
            visit_records, "part", lambda visit, now, part=visit_records.part: part(visit, now + 1e9)
        ),
    },
)
def test_costs_add_up(method: str, seed: int) -> None:
    """Every version says what all visits have cost together by then; so the run is the sum of its parts."""
    heard, summary = events(METHODS[method], seed=seed)
    past: list[VisitRecord] = []
    for place, event in enumerate(heard):
        if isinstance(event, VisitRecord):
            assert event.flops == event.forward_flops + event.backward_flops
            past.append(event)
            continue
        out = [by(visit, event.time) for visit in visits_of(heard[place:]) if visit.started < event.time]
        for name in EXACT:
            # Each that is under way is rounded down to whole operations, as it is when the run ends.
            known = sum(getattr(v, name) for v in past) + sum(part[name] for part in out)
            assert abs(getattr(event, name) - known) <= 2 * len(out)
        number = collections.Counter(v.status for v in past)
        assert event.visits == len(past)
        assert event.client_updates == number["trained"]
        assert (event.lost_visits, event.late_visits, event.dropped_visits) == (
            *(number["lost"], number["late"]),
            number["dropped"],
        )
        assert abs(event.local_steps - sum(v.steps for v in past) - sum(part["steps"] for part in out)) <= 2 * len(out)
        links = [v.down_seconds + v.up_seconds for v in past] + [part["link_seconds"] for part in out]
        working = [v.compute_seconds for v in past] + [part["compute_seconds"] for part in out]
        assert math.isclose(event.link_seconds, math.fsum(links))
        assert math.isclose(event.compute_seconds, math.fsum(working))
        spent = [v.joules for v in past] + [part["joules"] for part in out]
        assert math.isclose(event.joules, math.fsum(spent), abs_tol=1e-6 * len(out))
    versions = versions_of(heard)
    assert [v.version for v in versions] == list(range(len(versions)))
    for name in SAME_IN_THE_SUMMARY:
        assert summary[name] == getattr(versions[-1], name)
    for name in EXACT:
        assert summary[name] == sum(getattr(visit, name) for visit in visits_of(heard))
    assert {v.finished for v in visits_of(heard, "unfinished")} <= {versions[-1].time}


def by(visit: VisitRecord, time: float) -> dict[str, float]:
    """What of a visit was done by a time, from its record: receiving, working and sending follow each other."""
    left, shares = time - visit.started, []
    for whole in (visit.down_seconds, visit.compute_seconds, visit.up_seconds):
        shares.append(1.0 if left >= whole else max(0.0, left) / (whole or 1.0))
        left -= whole
    down, compute, up = shares
    worked = {name: compute * getattr(visit, name) for name in (*EXACT[:4], "steps", "compute_seconds")}
    sent = {"bytes_down": down * visit.bytes_down, "bytes_up": up * visit.bytes_up}
    joules = Energy().joules_per_flop * worked["flops"] + Energy().joules_per_byte * sum(sent.values())
    links = down * visit.down_seconds + up * visit.up_seconds
    return {**worked, **sent, "joules": joules, "link_seconds": links}


SAME_IN_THE_SUMMARY = (
    *("client_updates", "local_steps", *EXACT, "joules", "compute_seconds", "link_seconds", "waiting_seconds"),
    *("visits", "dropped_visits", "late_visits", "lost_visits", "utilisation", "fairness"),
)


def _other_links(change: Callable[[FixedLinks], FixedLinks]) -> Mutation:
    bind = FixedLinks.bind
    return swap(FixedLinks, "bind", lambda self, place: bind(change(self), place))


class Amnesiac:
    """A ledger that knows of one visit at a time."""

    def __init__(self, eligible: int) -> None:
        self._eligible, self._ledger = eligible, Ledger(eligible)

    def heard(self, record: VisitRecord, *, counts: bool) -> None:
        self._ledger = Ledger(self._eligible)
        self._ledger.heard(record, counts=counts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


@law(
    method=st.sampled_from(sorted(METHODS)),
    seed=st.integers(0, 20),
    broken_by={
        "a visit lasts as long as its work": swap(Spent, "seconds", property(lambda self: self.compute)),
        "sending is free": _other_links(lambda links: replace(links, up=None)),
    },
)
def test_a_visit_lasts_as_long_as_its_parts(method: str, seed: int) -> None:
    """Receiving, working and sending follow each other, at the rates of links and devices; a lost visit is cut off."""
    heard, _ = events(METHODS[method], seed=seed)
    for visit in visits_of(heard):
        parts = (visit.down_seconds, visit.compute_seconds, visit.up_seconds)
        assert math.isclose(visit.finished - visit.started, math.fsum(parts), abs_tol=1e-9)
        if visit.status not in ("lost", "unfinished"):
            assert math.isclose(visit.down_seconds, 0.2 + visit.bytes_down / 4000)
            assert math.isclose(visit.up_seconds, 0.2 + visit.bytes_up / 1000)
            work = SECONDS * (visit.samples + visit.gradient_samples + visit.forward_samples / 3)
            slow = visit.compute_seconds / work if work else 1.0
            assert math.isclose(slow, 1.0) or math.isclose(slow, 5.0)


LINKS = FixedLinks(down=1000.0, up=500.0, latency=0.5)
ENERGY = Energy(joules_per_flop=1e-6, joules_per_byte=1e-4)
LINEAR = 2 * 4 * 3  # operations of one pass of the linear model, and of the gradients of its weights


def price_without_links(
    self: FleetState, client: int, load: Load, now: float, price: Callable[..., Spent] = FleetState.price
) -> Spent:
    return replace(price(self, client, load, now), joules=1e-6 * load.flops)


def unit(**costs: float) -> Fleet:
    return Fleet(devices=Uniform(**costs)) | LINKS | ENERGY


@law(
    examples=2,
    seed=st.integers(0, 20),
    broken_by={
        "the latency is forgotten": _other_links(lambda links: replace(links, latency=0.0)),
        "down and up are mixed up": _other_links(lambda links: replace(links, down=links.up, up=links.down)),
        "a forward pass takes as long as training": swap(Device, "seconds", lambda s, a, b, f: SECONDS * (a + b) * 2),
        "energy counts no bytes": swap(FleetState, "price", price_without_links),
    },
)
def test_time_and_energy_by_hand(seed: int) -> None:
    """Ten samples, a linear model of 15 weights, given rates: every number on paper."""
    size = 4 * (4 * 3 + 3)
    heard, _ = events(METHODS["fedavg"], unit(seconds_per_sample=SECONDS), federation=dealt(collection(), [10] * 6))
    flops = 10 * 2 * LINEAR
    for visit in visits_of(heard):
        assert (visit.bytes_down, visit.bytes_up, visit.flops) == (size, size, flops)
        assert math.isclose(visit.down_seconds, 0.5 + size / 1000)
        assert math.isclose(visit.compute_seconds, 10 * SECONDS)
        assert math.isclose(visit.up_seconds, 0.5 + size / 500)
        assert math.isclose(visit.joules, 1e-6 * flops + 1e-4 * 2 * size)
    round_trip = 1.0 + size / 1000 + size / 500 + 10 * SECONDS
    assert all(math.isclose(v.time, v.version * round_trip) for v in versions_of(heard))
    heard, _ = events(METHODS["fedavg"], unit(flops_per_second=1e5), federation=dealt(collection(), [10] * 6))
    assert all(math.isclose(v.compute_seconds, flops / 1e5) for v in visits_of(heard))


@law(
    method=st.sampled_from(("fedavg", "measuring", "fisher", "curriculum", "skipping")),
    seed=st.integers(0, 20),
    broken_by={
        "a gradient costs a pass too": swap(Cost, "backward", property(lambda self: self.training)),
        "measuring is free": swap(
            Meter,
            "load",
            lambda self, a, r, load=Meter.load: load(self, a, replace(r, forward_samples=0)),
        ),
        "the Fisher trace is free": swap(
            Meter,
            "load",
            lambda self, a, r, load=Meter.load: load(self, a, replace(r, gradient_samples=0)),
        ),
    },
)
def test_operations_of_a_linear_model_by_hand(method: str, seed: int) -> None:
    """4 inputs, 3 outputs: 24 operations for a pass, 24 for the gradients of the weights, none for the inputs'."""
    heard, _ = events(METHODS[method], Fleet(), seed=seed)
    for visit in visits_of(heard):
        gradients = visit.samples + visit.gradient_samples
        assert visit.forward_flops == LINEAR * (gradients + visit.forward_samples)
        assert visit.backward_flops == LINEAR * gradients
    extra = {"measuring": "forward_samples", "fisher": "gradient_samples", "curriculum": "forward_samples"}
    if method in extra:
        assert any(getattr(v, extra[method]) for v in visits_of(heard))


@law(
    examples=2,
    seed=st.integers(0, 20),
    broken_by={
        "measuring costs no time": swap(Device, "seconds", lambda self, a, b, f, *effort: SECONDS * a),
        "its result travels for free": swap(
            Meter, "load", lambda self, a, r, load=Meter.load: replace(load(self, a, r), bytes_up=0)
        ),
        "it counts as training": swap(
            Meter,
            "load",
            lambda self, a, r, load=Meter.load: load(self, a, replace(r, samples=r.num_samples)),
        ),
    },
)
def test_measuring_costs_passes_bytes_and_time(seed: int) -> None:
    heard, _ = events(METHODS["measuring"], unit(seconds_per_sample=SECONDS), seed=seed)
    measured = visits_of(heard, "measured")
    assert measured
    for visit in measured:
        assert (visit.steps, visit.samples, visit.forward_samples) == (0, 0, visit.num_samples)
        assert (visit.forward_flops, visit.backward_flops) == (LINEAR * visit.num_samples, 0)
        assert visit.bytes_down == 4 * (4 * 3 + 3)
        assert 0 < visit.bytes_up < visit.bytes_down
        assert math.isclose(visit.compute_seconds, visit.num_samples * SECONDS / 3)
        assert visit.finished > visit.started


SKIPS: dict[str, pr.Recipe] = {
    "server": pr.parts.skip_and_estimate(budgets=HALF, storage="server"),
    "client": pr.parts.skip_and_estimate(budgets=HALF, storage="client"),
    "model": pr.parts.skip_and_resend_model(budgets=HALF),
    "silent": pr.parts.skip_silently(budgets=HALF),
}


@law(
    kind=st.sampled_from(sorted(SKIPS)),
    seed=st.integers(0, 20),
    broken_by={
        "who skips is billed for its samples": swap(
            Meter,
            "load",
            lambda self, a, r, load=Meter.load: load(self, a, replace(r, samples=r.num_samples)),
        ),
        "an idle device takes time": swap(Device, "seconds", lambda self, a, b, f, *effort: SECONDS * (1 + a + b / 3)),
    },
)
def test_a_skipped_visit_costs_no_local_work(kind: str, seed: int) -> None:
    """No step, no operation, no second of computing; only its traffic, and the energy of that."""
    recipe = pr.fedavg(cohort=4, **COMMON) | SKIPS[kind]
    heard, _ = events(recipe, unit(seconds_per_sample=SECONDS), seed=seed, rounds=12)
    skipped = visits_of(heard, "skipped")
    assert skipped
    for visit in skipped:
        assert (visit.steps, visit.samples, visit.forward_samples, visit.flops) == (0, 0, 0, 0)
        assert visit.compute_seconds == 0.0
        assert math.isclose(visit.joules, 1e-4 * (visit.bytes_down + visit.bytes_up))
        assert (visit.bytes_up == 1) is (kind in ("server", "silent"))


@law(
    examples=2,
    seed=st.integers(0, 20),
    schedule=st.sampled_from(("ad_hoc", "round_robin")),
    broken_by={
        "the server forgets movements": swap(
            SkipAndEstimate,
            "fill",
            lambda self, setup, state, report: (
                report if report.update is not None else replace(report, update=setup.zeros())
            ),
        ),
        "a bare word costs a vector": swap(
            Meter, "load", lambda self, a, r, load=Meter.load: load(self, a, replace(r, update=a.weights))
        ),
    },
)
def test_storages_give_the_same_model_for_other_bytes(seed: int, schedule: Any) -> None:
    """A movement kept at the server is not sent again: one byte instead of a vector for each skipped visit."""
    found = []
    for storage in ("client", "server"):
        skips = SkipAndEstimate(budgets=HALF, storage=storage, schedule=schedule, cold_start="exclude")
        heard, summary = events(pr.fedavg(cohort=4, **COMMON) | skips, unit(), seed=seed, rounds=8)
        found.append((summary, [v for v in visits_of(heard, "skipped") if v.reason != "silent"]))
    (client, estimated), (server, again) = found
    assert client["digest"] == server["digest"]
    assert client["flops"] == server["flops"]
    assert len(estimated) == len(again) > 0
    assert client["bytes_up"] - server["bytes_up"] == len(estimated) * (4 * (4 * 3 + 3) - 1)


@law(
    examples=2,
    seed=st.integers(0, 20),
    share=st.floats(0.3, 0.9),
    broken_by={
        "lost visits pay for all of it": swap(Spent, "until", lambda self, seconds: self),
        "lost visits pay nothing": swap(Spent, "until", lambda self, seconds: Spent()),
        "what a lost visit did is taken for whole": swap(Spent, "done", lambda self, seconds: (1.0, 1.0, 1.0)),
        "energy evenly over its time": swap(
            Spent,
            "until",
            lambda self, seconds, until=Spent.until: replace(
                until(self, seconds), joules=self.joules * min(1.0, seconds / self.seconds)
            ),
        ),
    },
)
def test_a_lost_visit_costs_what_it_spent(seed: int, share: float) -> None:
    """Cut off after t seconds: the model that had come by then, the samples worked through, the bytes on their way."""
    fleet = unit(seconds_per_sample=SECONDS) | Faults(dropout=share)
    heard, summary = events(METHODS["fedavg"], fleet, seed=seed, federation=dealt(collection(), [10] * 6))
    size, flops = 4 * (4 * 3 + 3), 10 * 2 * LINEAR
    down, compute, up = 0.5 + size / 1000, 10 * SECONDS, 0.5 + size / 500
    for visit in visits_of(heard, "lost"):
        t = visit.finished - visit.started
        assert t < down + compute + up
        assert math.isclose(visit.down_seconds, min(t, down), abs_tol=1e-9)
        assert math.isclose(visit.compute_seconds, min(max(0.0, t - down), compute), abs_tol=1e-9)
        assert math.isclose(visit.up_seconds, max(0.0, t - down - compute), abs_tol=1e-9)
        worked = visit.compute_seconds / compute
        assert abs(visit.bytes_down - size * visit.down_seconds / down) <= 1
        assert abs(visit.flops - flops * worked) <= 1
        assert abs(visit.samples - 10 * worked) <= 1
        assert abs(visit.steps - 2 * worked) <= 1
        assert abs(visit.bytes_up - size * visit.up_seconds / up) <= 1
        travelled = size * (visit.down_seconds / down + visit.up_seconds / up)
        assert math.isclose(visit.joules, 1e-6 * flops * worked + 1e-4 * travelled, abs_tol=1e-9)
        assert visit.loss is None
    assert summary["flops"] == sum(v.flops for v in visits_of(heard))


@law(
    examples=2,
    seed=st.integers(0, 20),
    broken_by={
        "who is refused is not billed": swap(Ledger, "heard", forgets("dropped")),
        "who is late is not billed": swap(Ledger, "heard", forgets("late")),
    },
)
def test_what_was_refused_has_been_paid_for(seed: int) -> None:
    """A report with a NaN, or one that comes too late, has cost as much as any other."""
    data = collection()
    inputs = data.train.batch(torch.arange(60))[0].clone()
    inputs[0, 0] = 99.0
    marked = replace(data, train=pr.data.ArraySamples(inputs, data.train.targets))
    recipe = pr.fedavg(cohort=4, **COMMON) | pr.parts.over_select(factor=1.5)
    heard, summary = events(
        recipe, unit(), seed=seed, federation=dealt(marked, [10] * 6), model=Explodes(4, 3, 99.0, "nan")
    )
    wasted = visits_of(heard, "dropped", "late")
    assert visits_of(heard, "dropped") or visits_of(heard, "late")
    assert {(v.steps, v.samples, v.flops) for v in wasted} == {(2, 10, 10 * 2 * LINEAR)}
    assert summary["samples"] == 10 * len(visits_of(heard))
    assert summary["flops"] == 10 * 2 * LINEAR * len(visits_of(heard))


@law(
    clients=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    idle=st.integers(0, 3),
    broken_by={
        "clients are not told apart": swap(
            Ledger,
            "heard",
            lambda self, record, counts, book=Ledger.heard: book(self, replace(record, client=0), counts=counts),
        ),
        "whoever is lost takes part": swap(
            Ledger, "heard", lambda self, record, counts, book=Ledger.heard: book(self, record, counts=True)
        ),
    },
)
def test_fairness_is_jains_index(clients: list[int], idle: int) -> None:
    ledger = Ledger(6 + idle)
    assert ledger.totals(1.0)["fairness"] is None
    for dispatch, client in enumerate(clients):
        ledger.heard(VisitRecord(dispatch=dispatch, client=client, version=0, visit=0, status="trained"), counts=True)
        ledger.heard(VisitRecord(dispatch=-1, client=0, version=0, visit=0, status="lost"), counts=False)
    number = [clients.count(client) for client in range(6)] + [0] * idle
    jain = sum(number) ** 2 / (len(number) * sum(x * x for x in number))
    assert math.isclose(ledger.totals(1.0)["fairness"], jain)


@law(
    method=st.sampled_from(sorted(METHODS)),
    seed=st.integers(0, 20),
    broken_by={
        "everybody who reports takes part": swap(
            Ledger, "heard", lambda self, record, counts, book=Ledger.heard: book(self, record, counts=True)
        ),
        "who skips takes no part": swap(
            Ledger,
            "heard",
            lambda self, record, counts, book=Ledger.heard: book(
                self, record, counts=counts and record.status == "trained"
            ),
        ),
    },
)
def test_fairness_is_of_the_updates_that_made_it(method: str, seed: int) -> None:
    heard, summary = events(METHODS[method], seed=seed)
    accepted = collections.Counter(v.client for v in visits_of(heard) if counts(v))
    assert sum(accepted.values()) == sum(v.accepted for v in versions_of(heard))
    jain = sum(accepted.values()) ** 2 / (len(SIZES) * sum(x * x for x in accepted.values()))
    assert math.isclose(summary["fairness"], jain)


class Watched(Links):
    """Links with a latency, which write down who sets out when: the driver asks for the way down first."""

    def bind(self, place: Place) -> Watched:
        SET_OUT.clear()
        return self

    def seconds(self, client: int, way: Way, size: int, now: float) -> float:
        if way == "down":
            SET_OUT.append((client, now))
        return 0.1


SET_OUT: list[tuple[int, float]] = []


@law(
    method=st.sampled_from(sorted(METHODS)),
    seed=st.integers(0, 20),
    broken_by={
        "waiting goes on while a client works again": swap(Ledger, "sent", lambda self, clients, now: None),
        "waiting goes on after the version": swap(Ledger, "released", lambda self, now: None),
        "who is refused waits too": swap(
            Ledger, "heard", lambda self, record, counts, book=Ledger.heard: book(self, record, counts=True)
        ),
        "visits under way do not count as busy": swap(
            Ledger, "totals", lambda self, now, under_way, totals=Ledger.totals: totals(self, now)
        ),
    },
)
def test_clients_time_is_busy_or_waiting_or_idle(method: str, seed: int) -> None:
    """Busy from setting out to the end of the visit; waiting from an accepted report to its version or the next visit.

    From the log alone: the two are as the run says, never overlap, and no client has more of them than there was time.
    """
    fleet = Fleet(devices=Tiers(slowdown=(1.0, 7.0), seconds_per_sample=0.05), links=Watched()) | Faults(dropout=0.2)
    heard, summary = events(METHODS[method], fleet, seed=seed, rounds=8)
    end = versions_of(heard)[-1].time
    busy, waiting, moved = collections.Counter[int](), collections.Counter[int](), list(SET_OUT)
    for visit in visits_of(heard):
        busy[visit.client] += visit.finished - visit.started  # type: ignore[assignment]
        moved.remove(next(m for m in moved if m[0] == visit.client and math.isclose(m[1], visit.started, abs_tol=1e-9)))
    for client, started in moved:  # under way at the end
        if started <= end:
            busy[client] += end - started  # type: ignore[assignment]
    for place, visit in enumerate(heard):
        if isinstance(visit, VisitRecord) and counts(visit):
            version = next(e.time for e in heard[place:] if isinstance(e, VersionRecord))
            again = [now for client, now in SET_OUT if client == visit.client and now > visit.started + 1e-9]
            waiting[visit.client] += min(version, *again, math.inf) - visit.finished  # type: ignore[assignment]
    assert math.isclose(summary["waiting_seconds"], math.fsum(waiting.values()), abs_tol=1e-9)
    assert math.isclose(summary["utilisation"], math.fsum(busy.values()) / (len(SIZES) * end), abs_tol=1e-9)
    assert all(busy[client] + waiting[client] <= end + 1e-9 for client in range(len(SIZES)))


@law(
    method=st.sampled_from(("rolling", "fedavg", "skipping")),
    seed=st.integers(0, 20),
    broken_by={
        "one version too many": swap(
            version_records, "staleness", lambda version, reports: [version - r.version for r in reports]
        ),
        "nothing is stale": swap(version_records, "staleness", lambda version, reports: [0 for _ in reports]),
    },
)
def test_staleness_is_how_far_updates_are_behind(method: str, seed: int) -> None:
    heard, _ = events(METHODS[method], seed=seed, rounds=10)
    behind: list[int] = []
    for event in heard:
        if isinstance(event, VisitRecord):
            behind += [event.version] if counts(event) else []
            continue
        stale = [event.version - 1 - sent for sent in behind]
        assert event.staleness_max == max(stale, default=None)
        assert event.staleness_mean == (sum(stale) / len(stale) if stale else None)
        behind.clear()
    assert max(v.staleness_max or 0 for v in versions_of(heard)) > 0 or method != "rolling"


def nudges(name: str, *, at: int) -> Callable[..., Any]:
    """A way to measure that leaves a mark on the model, which is its argument number `at`."""
    measure = getattr(Evaluator, name)

    def measured(self: Evaluator, *given: Any) -> Any:
        given[at].weights.mul_(1.001)
        return measure(self, *given)

    return measured


@law(
    method=st.sampled_from(("fedavg", "rolling", "measuring")),
    seed=st.integers(0, 20),
    broken_by={
        "measuring leaves a mark": swap(Evaluator, "validation", nudges("validation", at=0)),
        "results by group leave a mark": swap(Evaluator, "over_groups", nudges("over_groups", at=1)),
    },
)
def test_looking_and_recording_change_no_weight(method: str, seed: int) -> None:
    """However much is measured and kept of a run, it is the same run: bits, visits and costs."""
    split = federation(8, validation=0.2)
    given: dict[str, Any] = {"federation": split, "recipe": METHODS[method], "fleet": UNEVEN, "rounds": 5, "seed": seed}
    plain = carry_out(prepared(evaluation=pr.Evaluation(every=100), **given), [])
    with tempfile.TemporaryDirectory() as folder:
        looking = pr.Evaluation(every=1, train_samples=10, groups=True)
        run = pr.run(experiment(evaluation=looking, **given), out=folder)
        assert len(run.answers) > 0
        looked = run.summary
    # The plain one is measured at the end too, by when nothing can depend on it but the last digest.
    assert plain["digest"] == looked["digest"]
    assert {k: v for k, v in plain.items() if k in EXACT} == {k: v for k, v in looked.items() if k in EXACT}


FEWER: dict[str, tuple[pr.Recipe, pr.Recipe]] = {
    "stop_on_drift": (
        pr.fedavg(cohort=3, epochs=4, batch=5),
        pr.fedavg(cohort=3, epochs=4, batch=5) | pr.parts.stop_on_drift(a=1.0, b=0.0, representation="logits"),
    ),
    "skip_and_estimate": (
        pr.fedavg(cohort=3, epochs=2, batch=5),
        pr.fedavg(cohort=3, epochs=2, batch=5)
        | pr.parts.skip_and_estimate(budgets=HALF, schedule="round_robin", cold_start="zero"),
    ),
    "budget_steps": (
        pr.fedavg(cohort=3, epochs=2, batch=5),
        pr.fedavg(cohort=3, epochs=2, batch=5) | pr.parts.budget_steps(budgets=HALF),
    ),
}


@law(
    part=st.sampled_from(sorted(FEWER)),
    seed=st.integers(0, 20),
    broken_by={
        "all visits take a second": swap(Device, "seconds", lambda self, a, b, f, *effort: 1.0),
        "all visits are billed alike": swap(
            Meter,
            "load",
            lambda self, a, r, load=Meter.load: load(self, a, replace(r, samples=4 * r.num_samples, forward_samples=0)),
        ),
    },
)
def test_fewer_steps_take_less_time(part: str, seed: int) -> None:
    """What a method spares its clients is there in their time, their energy and the run's own time."""
    fleet = Fleet(devices=Tiers(seconds_per_sample=SECONDS))
    many, few = (events(recipe, fleet, seed=seed, rounds=8)[1] for recipe in FEWER[part])
    assert few["local_steps"] < many["local_steps"]
    for name in ("samples", "flops", "joules", "compute_seconds", "virtual_seconds"):
        assert few[name] < many[name]


@law(
    examples=2,
    seed=st.integers(0, 20),
    broken_by={
        "scores are free": swap(Device, "seconds", lambda self, a, b, f, *effort: SECONDS * a),
        "scores are not sent to the bill": swap(
            Meter,
            "load",
            lambda self, a, r, load=Meter.load: load(self, a, replace(r, forward_samples=0)),
        ),
    },
)
def test_a_curriculum_pays_for_its_scores(seed: int) -> None:
    """As many steps as without, and a third of an epoch's time more: the pass that scores the samples."""
    fleet = Fleet(devices=Uniform(seconds_per_sample=SECONDS))
    given: dict[str, Any] = {"federation": dealt(collection(), [10] * 6), "seed": seed}
    plain, paced = (events(METHODS[name], fleet, **given)[1] for name in ("fedavg", "curriculum"))
    visits = {name: summary["visits"] for name, summary in (("plain", plain), ("paced", paced))}
    assert plain["local_steps"] / visits["plain"] == paced["local_steps"] / visits["paced"]
    assert math.isclose(paced["compute_seconds"], SECONDS * (paced["samples"] + 10 * visits["paced"] / 3))
    assert paced["compute_seconds"] / visits["paced"] > plain["compute_seconds"] / visits["plain"]
