"""The virtual clock."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.errors import RunFailed
from polyrhythm.base.messages import Assignment
from polyrhythm.fleet import Fleet, FleetState, Links, Place
from polyrhythm.fleet.parts import Way
from polyrhythm.simulation.event_queue import Underway
from polyrhythm.simulation.roster import WorldRoster
from polyrhythm.simulation.simulator import InlineDriver
from small import collection, dealt, prepared


class ByClient(Links):
    """Client i needs 10 - i seconds before its first byte arrives, whatever it does."""

    def bind(self, place: Place) -> ByClient:
        return self

    def seconds(self, client: int, way: Way, size: int, now: float) -> float:
        return 10.0 - client if way == "down" else 0.0


BY_CLIENT = pr.Fleet(devices=pr.fleet.Uniform(seconds_per_sample=0.0), links=ByClient())


def driver(fleet: Fleet, sizes: list[int] | None = None, **changes: object) -> InlineDriver:
    made = prepared(
        federation=dealt(collection(), sizes or [15, 15, 15, 15]), recipe=pr.fedavg(cohort=4, batch=5), **changes
    )
    return InlineDriver(
        made.recipe,
        made.setup,
        made.chosen.engine,
        made.data_of,
        FleetState(fleet, made.federation.clients, made.experiment.seed, made.eligible.tolist()),
    )


def test_reports_are_heard_in_the_order_of_their_time() -> None:
    run = driver(BY_CLIENT)
    heard = [m for m in run.moments(run.engine.initial()) if m.report]
    assert [m.report.client for m in heard if m.report][:4] == [3, 2, 1, 0]
    times = [m.time for m in heard]
    assert times == sorted(times)
    assert times[3] == 10.0  # the slowest ends the version, and the next one starts from there
    assert times[4:8] == [17.0, 18.0, 19.0, 20.0]


def test_equal_times_are_heard_in_the_order_of_dispatch() -> None:
    run = driver(pr.Fleet(devices=pr.fleet.Uniform(seconds_per_sample=0.0)))
    heard = [m.assignment.dispatch for m in run.moments(run.engine.initial()) if m.assignment]
    assert heard == sorted(heard)


def test_a_synchronous_run_does_not_depend_on_speeds() -> None:
    ends = []
    for fleet in (BY_CLIENT, pr.Fleet(), pr.Fleet(devices=pr.fleet.Uniform(seconds_per_sample=0.0))):
        run = driver(fleet)
        *_, last = run.moments(run.engine.initial())
        ends.append(last.turn.state.weights)
    assert all(bool((ends[0] == other).all()) for other in ends[1:])


@pytest.mark.parametrize("told", [False, True])
def test_the_updates_of_a_turn_are_gone_before_the_next_visits_begin_unless_they_are_told(told: bool) -> None:
    run = driver(pr.Fleet(), rounds=4)
    run.tells_updates = told
    made, alive = list[weakref.ref[torch.Tensor]](), list[int]()
    set_out = run.visits.set_out

    def noted(assignments: Sequence[Assignment], now: float) -> list[Underway]:
        if assignments:
            alive.append(sum(update() is not None for update in made))
        visits = set_out(assignments, now)
        made.extend(weakref.ref(v.report.update) for v in visits if v.report.update is not None)
        return visits

    run.visits.set_out = noted  # type: ignore[method-assign]
    for moment in run.moments(run.engine.initial()):
        seen = moment.turn.released
        if seen is not None and seen.release is not None:
            assert all((r.update is not None) == told for r in seen.release.reports)
            assert all((r.norm or 0) > 0 for r in seen.release.reports)  # their lengths stay
        del moment, seen
    # The one that was heard last is still in the moment that it makes.
    assert alive == ([0, 4, 4, 4] if told else [0, 1, 1, 1])


def test_a_federation_with_nobody_to_invite_fails_in_words() -> None:
    run = driver(pr.Fleet())
    run.roster = WorldRoster(FleetState(pr.Fleet(), 4, 0, []))
    with pytest.raises(RunFailed, match="no client is left to invite"):
        list(run.moments(run.engine.initial()))


def test_an_error_in_a_visit_says_whose() -> None:
    broken = list[bool]()

    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, inputs: object) -> object:
            if self.training and broken:
                raise ZeroDivisionError("no reading")
            return self.linear(inputs)

    run = driver(pr.Fleet(), model=Fails())
    broken.append(True)
    with pytest.raises(ZeroDivisionError) as caught:
        list(run.moments(run.engine.initial()))
    assert any("client" in note and "visit 0" in note for note in caught.value.__notes__)
