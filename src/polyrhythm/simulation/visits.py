"""Visits on the virtual clock: when each ends, and what comes of it.

What comes of a visit follows from the model, the client's state and the random streams at its dispatch, so it may be
carried out then, here or in several workers; its report is heard when the clock gets there.

How long it takes follows from what really happens in it. Mostly that can be foreseen: so many steps of so many samples,
so many bytes. Then its end is known at once, workers compute while the clock goes on, and the report is asked for when
it is to be heard. Otherwise the clock waits until the visit is done. So nothing is heard before everything that ends
earlier, and who carries visits out changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.client_state import Memory
from polyrhythm.core.reports import foreseen
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.fleet import FleetState, Load
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum.summands import largest_of
from polyrhythm.simulation.client_store.store import ClientStore
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.event_queue import Underway
from polyrhythm.simulation.transit import Transit
from polyrhythm.simulation.workers.executors import Clients, Executor, OneByOne, VisitFuture, VisitTask, named


@final
class Visits:
    """The visits of a run.

    Args:
        clients: what visits need.
        world: the clients on their devices.
        meter: measures visits.
        store: keeps what clients remember.
        executor: carries visits out; one by one in this process if None.
    """

    def __init__(
        self, clients: Clients, world: FleetState, meter: Meter, store: ClientStore, executor: Executor | None = None
    ) -> None:
        self._clients, self._world, self._meter, self._store = clients, world, meter, store
        self._executor: Executor = executor or OneByOne(clients)
        faults = world.fleet.faults
        largest = largest_of(clients.recipe, clients.setup)
        self.transit = (
            Transit(faults, clients.setup.seed, clients.engine.layout, largest) if faults.on_reports else None
        )
        self._futures: dict[int, VisitFuture] = {}  # of visits that are not told yet, by dispatch number

    def set_out(self, assignments: Sequence[Assignment], now: float) -> list[Underway]:
        """Lets clients set out, and says how each visit ends."""
        tasks = [self._task(a, now) for a in assignments]
        ahead: dict[int, Underway] = {}
        if self._executor.goes_on:
            for place, task in enumerate(tasks):
                what, plan, needed = task.assignment, task.plan, now
                if plan.sure and self.transit is None:  # what becomes of a report on its way depends on all of it
                    with named(what):
                        ahead[what.dispatch] = visit = self._foreseen(what, plan, now)
                    if self._clients.recipe.fills_places:  # else a round needs all of its own
                        needed = visit.outcome.time
                tasks[place] = replace_unchecked(task, urgency=(needed, -plan.samples))
        self._start(tasks)
        return [ahead.get(a.dispatch) or self.underway(a, self._report(a), now) for a in assignments]

    def _foreseen(self, assignment: Assignment, plan: VisitPlan, now: float) -> Underway:
        """A visit that begins now, from its plan: its report has no content yet."""
        report = foreseen(assignment, plan)
        return self._on_its_way(assignment, report, self._meter.planned(assignment, plan), now, foreseen=True)

    def underway(self, assignment: Assignment, report: Report, now: float) -> Underway:
        """A visit that begins now, from its report."""
        return self._on_its_way(assignment, report, self._meter.load(assignment, report), now)

    def _on_its_way(
        self, assignment: Assignment, report: Report, load: Load, now: float, *, foreseen: bool = False
    ) -> Underway:
        outcome = self._world.undertake(assignment.dispatch, assignment.client, load, now)
        report = report.heard(after=outcome.time - now, at=outcome.time)
        arrives = report if self.transit is None or outcome.lost else self.transit.arrives(report)
        return new_unchecked(
            Underway,
            started=now,
            assignment=assignment,
            report=report,
            load=load,
            outcome=outcome,
            heard=None if arrives is report else arrives,
            foreseen=foreseen,
        )

    def told(self, visit: Underway) -> Underway:
        """A visit that is over, with all that has come of it."""
        if not visit.foreseen:
            return visit
        report = self._report(visit.assignment).heard(after=visit.report.duration, at=visit.report.time)
        load = self._meter.load(visit.assignment, report)
        if (load, report.steps) != (visit.load, visit.report.steps):
            raise RunFailed(
                f"client {report.client}, visit {report.visit}: {report.steps} steps and {load}, where "
                f"{visit.report.steps} steps and {visit.load} were foreseen. A part of the recipe says that it "
                "`sends_alike` and does not, or an order is not `complete`; with driver=inline nothing is foreseen"
            )
        return replace_unchecked(visit, report=report, foreseen=False)

    def take_up(self, visits: Sequence[Underway]) -> None:
        """Begins visits anew that somebody was at when an earlier run was left."""
        left = [visit for visit in visits if visit.foreseen]
        tasks = [self._task(visit.assignment, visit.started) for visit in left]
        self._start([replace_unchecked(e, urgency=(v.outcome.time, 0)) for e, v in zip(tasks, left, strict=True)])

    def carry_out(self, assignments: Sequence[Assignment], now: float) -> list[Report]:
        """The reports of visits that begin now, once all are done."""
        self._start([self._task(a, now) for a in assignments])
        return [self._report(a) for a in assignments]

    def _task(self, assignment: Assignment, now: float) -> VisitTask:
        state = self._store.get(assignment.client).at(assignment.accepted)
        pace = DeviceForecast(self._meter, self._world, self._clients.recipe, assignment, now)
        return self._clients.task(assignment, state, pace=pace)

    def _start(self, tasks: Sequence[VisitTask]) -> None:
        for future in self._executor.start(tasks):
            self._futures[future.task.assignment.dispatch] = future

    def _report(self, assignment: Assignment) -> Report:
        """What comes of a visit, once it is done; what the client remembers of it stays here."""
        future = self._futures.pop(assignment.dispatch)
        state, report = self._executor.done(future)
        if assignment.kind == "train":
            self._store.put(assignment.client, Memory().then(future.task.state, state, assignment.visit))
        return report


@final
class DeviceForecast:
    """How long a visit that begins at some time would take: to the last bit as it will be."""

    def __init__(self, meter: Meter, world: FleetState, recipe: Recipe, assignment: Assignment, now: float) -> None:
        self._meter, self._world, self._recipe, self._assignment, self._now = meter, world, recipe, assignment, now

    def seconds(self, samples: int, forward_samples: int) -> float:
        load = self._meter.ahead(self._recipe, self._assignment, samples, forward_samples)
        return self._world.price(self._assignment.client, load, self._now).seconds
