"""Visits on the virtual clock: when each ends, and what comes of it.

What comes of a visit follows from the model, the client's state and the random streams at its dispatch, so it may be
carried out then, here or in several workers; its report is heard when the clock gets there.

How long it takes follows from what really happens in it. Mostly that can be foreseen: so many steps of so many samples,
so many bytes. Then its end is known at once, workers compute while the clock goes on, and the report is asked for when
it is to be heard. Otherwise the clock waits until the visit is done. So nothing is heard before everything that ends
earlier, and who carries visits out changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import final

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.frozen import changed, made
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.client import foreseen
from polyrhythm.core.client_state import Memory
from polyrhythm.fleet import World
from polyrhythm.simulation.client_store.store import ClientStore
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.event_queue import Underway
from polyrhythm.simulation.transit import Transit
from polyrhythm.simulation.workers.executors import Clients, Errand, Executor, OneByOne, Ticket, named


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
        self, clients: Clients, world: World, meter: Meter, store: ClientStore, executor: Executor | None = None
    ) -> None:
        self._clients, self._world, self._meter, self._store = clients, world, meter, store
        self._executor: Executor = executor or OneByOne(clients)
        faults = world.fleet.faults
        self.transit = Transit(faults, clients.setup.seed, clients.engine.layout) if faults.on_reports else None
        self._tickets: dict[int, Ticket] = {}  # of visits that are not told yet, by dispatch number
        self._pricing = threading.Lock()

    def set_out(self, assignments: Sequence[Assignment], now: float) -> list[Underway]:
        """Lets clients set out, and says how each visit ends."""
        errands = [self._errand(a, now) for a in assignments]
        ahead: dict[int, Underway] = {}
        if self._executor.goes_on:
            for place, errand in enumerate(errands):
                with named(what := errand.assignment):
                    report, sure = self._foreseen(errand)
                    needed = now
                    if sure and self.transit is None:  # what becomes of a report on its way depends on all of it
                        ahead[what.dispatch] = visit = self.underway(what, report, now, foreseen=True)
                        if self._clients.recipe.fills_places:  # else a round needs all of its own
                            needed = visit.fate.time
                errands[place] = replace(errand, urgency=(needed, -report.samples))
        self._start(errands)
        return [ahead.get(a.dispatch) or self.underway(a, self._report(a), now) for a in assignments]

    def underway(self, assignment: Assignment, report: Report, now: float, *, foreseen: bool = False) -> Underway:
        """A visit that begins now, from its report or from what is foreseen of that."""
        load = self._meter.load(assignment, report)
        fate = self._world.undertake(assignment.dispatch, assignment.client, load, now)
        report = report.heard(after=fate.time - now, at=fate.time)
        arrives = report if self.transit is None or fate.lost else self.transit.arrives(report)
        return made(
            Underway,
            started=now,
            assignment=assignment,
            report=changed(report, update=None, buffers=(), extras={}) if foreseen else report,
            load=load,
            fate=fate,
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
        return changed(visit, report=report, foreseen=False)

    def take_up(self, visits: Sequence[Underway]) -> None:
        """Begins visits anew that somebody was at when an earlier run was left."""
        left = [visit for visit in visits if visit.foreseen]
        errands = [self._errand(visit.assignment, visit.started) for visit in left]
        self._start([replace(e, urgency=(v.fate.time, 0)) for e, v in zip(errands, left, strict=True)])

    def carry_out(self, assignments: Sequence[Assignment], now: float) -> list[Report]:
        """The reports of visits that begin now, once all are done."""
        self._start([self._errand(a, now) for a in assignments])
        return [self._report(a) for a in assignments]

    def _errand(self, assignment: Assignment, now: float) -> Errand:
        pace = _Forecast(self, assignment, now)
        return Errand(
            assignment=assignment,
            state=self._store.get(assignment.client).at(assignment.accepted),
            pace=pace,
            known=pace.known,
        )

    def _foreseen(self, errand: Errand) -> tuple[Report, bool]:
        of, what = self._clients, errand.assignment
        return foreseen(of.recipe, of.setup, errand.state, what, of.data(what.client), of.engine, errand.pace)

    def _start(self, errands: Sequence[Errand]) -> None:
        for ticket in self._executor.start(errands):
            self._tickets[ticket.errand.assignment.dispatch] = ticket

    def _report(self, assignment: Assignment) -> Report:
        """What comes of a visit, once it is done; what the client remembers of it stays here."""
        ticket = self._tickets.pop(assignment.dispatch)
        state, report = self._executor.done(ticket)
        if assignment.kind == "train":
            self._store.put(assignment.client, Memory().then(ticket.errand.state, state, assignment.visit))
        return report

    def price(self, assignment: Assignment, samples: int, forward_samples: int, now: float) -> float:
        """Seconds that a visit takes on its client's device if it begins now, as it will be priced itself."""
        with self._pricing:  # several threads may ask at once
            load = self._meter.ahead(self._clients.recipe, assignment, samples, forward_samples)
            return self._world.price(assignment.client, load, now).seconds


@final
class _Forecast:
    """How long a visit that begins at some time would take: to the last bit as it will be. Nothing is asked twice."""

    def __init__(self, visits: Visits, assignment: Assignment, now: float) -> None:
        self._visits, self._assignment, self._now = visits, assignment, now
        self.known: dict[tuple[int, int], float] = {}

    def seconds(self, samples: int, forward_samples: int) -> float:
        asked = samples, forward_samples
        if asked not in self.known:
            self.known[asked] = self._visits.price(self._assignment, *asked, self._now)
        return self.known[asked]
