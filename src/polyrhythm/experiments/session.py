"""Carries out an experiment and tells observers how it goes. Observers and evaluation change no weight."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, final

from polyrhythm.base.errors import PolyrhythmError, UserError
from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.interrupts import Wish, wishes
from polyrhythm.base.messages import Report
from polyrhythm.base.surroundings import plain_surroundings
from polyrhythm.base.threads import lean_memory, one_thread, settled_memory
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.server_state import ServerState
from polyrhythm.experiments import ending, visit_records
from polyrhythm.experiments.members import members
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.experiments.runstate import RunState, check_origin, origin
from polyrhythm.experiments.version_records import VersionRecords
from polyrhythm.methods.mechanism import Model
from polyrhythm.runs.at_work import AtWork
from polyrhythm.runs.ledger import Ledger, Part
from polyrhythm.runs.observer import Enough, Observer, Start, using
from polyrhythm.runs.records import AnswerRecord, Plan, RunStatus
from polyrhythm.runs.summary import Best, Summary
from polyrhythm.simulation.client_store.budget import store_of
from polyrhythm.simulation.client_store.store import ClientStore, InMemory
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.event_queue import DriverState, Underway
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep
from polyrhythm.simulation.workers.choosing import ExecutionPlan
from polyrhythm.simulation.workers.executors import Executor, OneByOne


class Driver(Protocol):
    """Carries out what the server decides."""

    def moments(self, start: Model | DriverState) -> Iterator[SimulationStep]:
        """The run, event by event, from its initial model or from where an earlier one stood."""

    def under_way(self) -> list[Underway]:
        """Visits whose end was not heard yet, by dispatch number."""

    def state(self) -> DriverState:
        """All that there is to know of the run between two moments."""

    def state_of(self, client: int, accepted: int) -> ClientState:
        """A client's state after the given accepted visit, where it is known here."""


class Backend(Protocol):
    """Somebody else than this process and its workers who carries out visits: the nodes of a real federation."""

    @property
    def name(self) -> str:
        """Of the driver, for the record."""

    @property
    def at_once(self) -> int:
        """How many visits may run at once."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know."""

    def driver(self, meter: Meter) -> Driver:
        """Whoever leads them."""


def carry_out(
    prepared: Prepared,
    observers: Sequence[Observer],
    *,
    start: RunState | None = None,
    backend: Backend | None = None,
) -> dict[str, Any]:
    """Carries out an experiment and gives its summary; keeping a record is the observers' business.

    Ctrl-C stops it at its next step, with a checkpoint if an observer keeps some; a second one stops it at once.

    Args:
        prepared: what to do.
        observers: whoever wants to know how it goes.
        start: where an earlier run of the same experiment stood, to go on from there.
        backend: who carries out visits; clients are simulated here, on the experiment's fleet, if None.

    Raises:
        UserError: something is wrong that can be known before the first round.
        RunFailed: the run could not go on.
    """
    with plain_surroundings(), one_thread(), (settled_memory if backend is None else lean_memory)(), wishes() as wish:
        session = _Session(prepared, observers, start, backend, wish)
        status: RunStatus = "failed"
        reason = ""
        begun: list[Observer] = []
        try:
            for observer in observers:
                begun.append(observer)
                observer.begin(session.plan)
            reason = session.go()
            status = "finished"
        except (KeyboardInterrupt, Enough) as stop:
            status, reason = "stopped", str(stop) or "Ctrl-C"
        except BaseException as error:
            reason = in_words(error)
            raise
        finally:
            if session.executor is not None:
                session.executor.close()
            summary = session.summary()
            with contextlib.ExitStack() as ends:  # everybody hears of the end, even if one of them fails
                ends.callback(session.store.close)
                for observer in reversed(begun):
                    ends.callback(observer.end, status, reason, summary)
        return {"status": status, "reason": reason, **summary}


def in_words(error: BaseException) -> str:
    """What went wrong, with the notes on where: the client, its visit, the version."""
    if isinstance(error, PolyrhythmError):
        return str(error)
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{notes}"


@final
class _Session:
    """One run in progress."""

    def __init__(
        self,
        prepared: Prepared,
        observers: Sequence[Observer],
        start: RunState | None,
        backend: Backend | None,
        wish: Wish,
    ) -> None:
        self.wish = wish
        experiment, execution = prepared.experiment, prepared.execution
        self.prepared, self.experiment, self.observers = prepared, experiment, observers
        self.event_hooks, self.answer_hooks = using("event", observers), using("answer", observers)
        self.client_hooks, self.class_hooks = using("client_results", observers), using("class_results", observers)
        self.work_hooks, self.member_hooks = using("at_work", observers), using("members", observers)
        self.start_hooks, self.checkpoint_hooks = using("started", observers), using("at_rest", observers)
        self.engine = prepared.chosen.engine
        self.initial = prepared.initial
        self.origin = origin(prepared) if start is not None or self.checkpoint_hooks else {}
        if start is not None:
            check_origin(self.origin, start)
        # Neither may hold the session: what is in a cycle, vectors too, would stay until somebody collects it.
        meter = prepared.meter()
        self.executor: Executor | None = None
        self.store: ClientStore = InMemory()
        computed = prepared.computed()
        if backend is None:
            crew, self.executor, about = _start_workers(prepared)
            self.store = store_of(execution.client_memory, _folder(self.checkpoint_hooks))
            self.driver: Driver = InlineDriver(
                experiment.recipe,
                prepared.setup,
                self.engine,
                prepared.data_of,
                prepared.world(),
                meter,
                executor=self.executor,
                store=self.store,
            )
            self.who: tuple[str, int] = crew.driver, crew.workers
            ray = {"address": crew.address, "gpus": crew.gpus}
            computed |= {key: value for key, value in ray.items() if value is not None}
        else:
            self.driver, about, self.who = backend.driver(meter), backend.notes, (backend.name, backend.at_once)
        self.versions = VersionRecords(
            prepared,
            self.driver.state_of,
            server=None if start is None else _told(start.driver.server),
            digests=any(observer.wants_digests for observer in observers),
            by_class=bool(self.class_hooks),
            states_known=backend is None,
        )
        self.plan = Plan(
            name=experiment.name,
            config=experiment.describe(),
            recipe=experiment.recipe.title,
            recipe_digest=experiment.recipe.digest,
            seed=experiment.seed,
            rounds=experiment.rounds,
            notices=(*prepared.notices(), *about),
            headline=experiment.aim.headline,
            parameters=self.engine.layout.parameters,
            clients=experiment.federation.clients,
            driver=self.who[0],
            workers=self.who[1],
            execution=computed,
            classes=experiment.federation.classes,
            base=self.versions.base,
        )
        self.start = self.initial if start is None else start.driver
        self.ledger = Ledger(len(prepared.eligible)) if start is None else start.ledger
        self._events, self._answers = (0, 0) if start is None else (start.events, start.answers)
        self._silent = 0 if start is None else start.silent  # clients that said so since the last version
        self._summary = (
            Summary(Best(self.plan.headline), ending.watched(experiment)) if start is None else start.summary
        )
        self._started = time.perf_counter() - (0.0 if start is None else start.seconds)

    def go(self) -> str:
        """The whole run, or the rest of it; gives the reason why it ended."""
        if self.versions.server is not None:
            for observer in self.observers:
                observer.goes_on(self.versions.server.version, self.versions.state_dict)
        for observer in self.start_hooks:
            observer.started(self._begin())
        self._tell_members()
        # No moment may be held while the next one is made: a version's updates go before the next visits begin.
        heard = map(self._hear, itertools.count(self._events), self.driver.moments(self.start))
        reason = next(filter(None, heard), "all rounds made")
        return self._summary.ending(reason, moved=self.versions.moved())

    def _hear(self, number: int, moment: SimulationStep) -> str:
        """One moment; gives the reason why the run ends with it, empty if it goes on."""
        self.versions.server = _told(moment.turn.state)
        self._log(number, moment)
        if moment.report is not None and moment.assignment is not None:
            self._book(moment, moment.report)
        elif moment.turn.verdict is not None:  # of a report that nobody waits for, beside all visits
            self.ledger.went_wrong(moment.turn.verdict.fault or "")
        new = number == 0 or moment.turn.released is not None
        if new:
            self.ledger.released(moment.time)
            made = moment.turn.state.version
            reason = ending.without_looking(self.experiment, made, moment.time, self.ledger.client_updates)
            reason = reason or ending.by_privacy(self.prepared.privacy, moment.turn.state)
            version = self.versions.of(
                moment,
                wall=self._wall(),
                silent=self._silent,
                evaluate=bool(reason),
                totals=self.ledger.totals(moment.time, self._parts(moment.time)),
            )
            self._silent = 0
            self._summary.add(version)
            for observer in self.observers:
                observer.version(version, self.versions.state_dict)
            reason = reason or ending.by_metric(self.experiment, version, self._summary.watched)
            self._tell_details(made, last=bool(reason))
            if reason:
                self._leave(moment.time)
                self._tell_members(until=None if self.executor is None else moment.time)
                return reason
        self.ledger.sent((a.client for a in moment.turn.assignments), moment.time)
        self._events = number + 1
        for observer in self.work_hooks:
            observer.at_work(moment.time, functools.partial(self._at_work, moment))
        if new:
            self._rest(moment.turn.state.version)
        if self.wish.to_end:
            self._keep(moment.turn.state.version, surely=True)
            raise KeyboardInterrupt(self.wish.to_end)
        for observer in self.observers:
            if reason := observer.why_end():
                self._keep(moment.turn.state.version, surely=True)
                raise Enough(reason)
        return ""

    def _tell_members(self, until: float | None = None) -> None:
        """Tells whoever wants to know what the clients are, and in the end how long each of them was there."""
        for observer in self.member_hooks:
            observer.members(members(self.experiment, self.versions.measured, until=until))

    def _tell_details(self, version: int, *, last: bool) -> None:
        """Tells whoever wants to know what the newest version is to single clients and classes."""
        if (of_clients := self.versions.of_clients) is not None:
            for observer in self.client_hooks:
                observer.client_results(of_clients)
        if self.class_hooks and (of_classes := self.versions.of_classes(version, last=last)) is not None:
            for observer in self.class_hooks:
                observer.class_results(of_classes)

    def _book(self, moment: SimulationStep, report: Report) -> None:
        """Enters a visit that is over into the books, and tells whoever wants to know."""
        record = visit_records.over(moment, report)
        if record.status == "trained" and self.ledger.stands_out(record.update_norm):
            record = replace_unchecked(record, fault="outlier")
        if report.fresh and (gauged := self.versions.gauged(moment, record)):
            record = replace_unchecked(record, measures={**record.measures, **gauged})
        silent = report.substitute == "silence"
        self._silent += silent
        self.ledger.heard(record, counts=record.status in ("trained", "skipped") and not silent)
        if isinstance(moment.event, Report):
            for observer in self.observers:
                observer.report(moment.event)
        for observer in self.observers:
            observer.visit(record)

    def _begin(self) -> Start:
        federation = self.experiment.federation
        return Start(
            initial=self.initial,
            population=federation.clients,
            clients=tuple(self.prepared.eligible.tolist()),
            shape=tuple(federation.train.shape),
            outputs=federation.outputs,
            task=federation.task,
        )

    def _rest(self, version: int) -> None:
        """Lets those keep the state who do, in any case where the run may later go on to more versions than planned."""
        extends = "total_rounds" not in self.experiment.recipe.needs()
        self._keep(version, surely=extends and version + 1 == self.experiment.rounds)

    def _keep(self, version: int, *, surely: bool) -> None:
        for observer in self.checkpoint_hooks:
            observer.at_rest(version, self.state, surely=surely)

    def state(self) -> RunState:
        """All that the run is between two events."""
        return RunState(
            driver=self.driver.state(),
            events=self._events,
            silent=self._silent,
            ledger=self.ledger,
            summary=self._summary,
            seconds=self._wall(),
            origin=self.origin,
            answers=self._answers,
        )

    def _wall(self) -> float:
        return time.perf_counter() - self._started

    def summary(self) -> dict[str, Any]:
        """The summary so far."""
        fields = self._summary.fields(digest=self.versions.digest(), wall_seconds=self._wall())
        deaths = 0 if self.executor is None else self.executor.deaths
        who = {"driver": self.who[0], "workers": self.who[1], "worker_deaths": deaths}
        hidden = self.prepared.privacy
        told = {} if hidden is None else hidden.fields(self.versions.server)
        return {**fields, **told, **who, "engine": self.prepared.chosen.kind}

    def _under_way(self, now: float) -> Iterator[Underway]:
        """Visits that set out before now, and are not over."""
        return (visit for visit in self.driver.under_way() if visit.started < now)

    def _at_work(self, moment: SimulationStep) -> list[AtWork]:
        """Visits under way, and those that are about to begin."""
        sent = [AtWork(a.client, a.dispatch, a.version, moment.time) for a in moment.turn.assignments]
        new = {visit.dispatch for visit in sent}
        there = [(visit.assignment, visit.started) for visit in self.driver.under_way()]
        older = (AtWork(a.client, a.dispatch, a.version, since) for a, since in there if a.dispatch not in new)
        return [*older, *sent]

    def _parts(self, now: float) -> Iterator[Part]:
        """What those have done by now."""
        return (visit_records.part(visit, now) for visit in self._under_way(now))

    def _leave(self, now: float) -> None:
        """Writes down visits that nobody will hear of any more: what they have cost by now."""
        for visit in self._under_way(now):
            record = visit_records.unfinished(visit, now)
            for observer in self.observers:
                observer.visit(record)

    def _log(self, number: int, moment: SimulationStep) -> None:
        """Tells whoever keeps it what the server heard, and what it asked of the roster then."""
        self._answers += len(moment.answers)
        for observer in self.event_hooks if number else ():
            observer.event(visit_records.event(number, moment))
        for place, answer in enumerate(moment.answers if self.answer_hooks else ()):
            clients = None if answer.question == "all" else answer.clients
            told = AnswerRecord(event=number, place=place, question=answer.question, clients=clients)
            for observer in self.answer_hooks:
                observer.answer(told)


def _folder(keepers: Sequence[Observer]) -> Callable[[], Path] | None:
    """Gives the folder of the checkpoints, if anybody keeps some."""
    return (lambda: keepers[0].path) if keepers else None


def _told(state: ServerState) -> ServerState:
    """A server's state without the reports that wait in it, which must not live longer than their version."""
    return replace_unchecked(state, waiting=())


def _start_workers(prepared: Prepared) -> tuple[ExecutionPlan, Executor, tuple[str, ...]]:
    """Whoever carries out the visits of an experiment, started; and what is to be said about it."""
    crew, clients = prepared.crew, prepared.clients
    try:
        return crew, crew.executor(clients), ()
    except UserError as reason:
        if not crew.chosen:
            raise
        return ExecutionPlan(driver="inline"), OneByOne(clients), (f"visits run one after the other: {reason.found}",)
