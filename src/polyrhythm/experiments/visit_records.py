"""Visits as they are written down: what was done and spent, by whom, and what became of it; and what was heard."""

from __future__ import annotations

from polyrhythm.base.messages import Arrived, Lost, Report
from polyrhythm.core.validation import READ
from polyrhythm.fleet import Spent
from polyrhythm.runs.ledger import Part
from polyrhythm.runs.records import EventRecord, VisitRecord, VisitStatus
from polyrhythm.simulation.event_queue import Underway
from polyrhythm.simulation.simulator import SimulationStep


def over(moment: SimulationStep, report: Report) -> VisitRecord:
    """The record of a visit that was heard of or lost.

    Args:
        moment: when that was.
        report: what the client made of it.
    """
    verdict = moment.turn.verdict
    lost, accepted = isinstance(moment.event, Lost), verdict is None or verdict.accepted
    status: VisitStatus = "measured" if report.kind != "train" else "trained" if report.fresh else "skipped"
    if lost or not accepted:
        status = "lost" if lost else "late" if moment.late else "dropped"
    read = accepted or (verdict is not None and verdict.fault in READ)
    reason = ("" if verdict is None else verdict.reason) or _SUBSTITUTES[report.substitute].format(age=report.age)
    started = moment.time - report.duration
    return _record(
        report,
        moment.spent,
        moment.done,
        status,
        reason,
        fault="" if verdict is None else verdict.fault or "",
        # What the server heard, which is not what the client sent if it was spoiled on the way. Of what it refused
        # before it had read the update nothing is computed: that may be of any shape and type.
        norm=moment.event.norm if read and isinstance(moment.event, Report) else None,
        started=started,
        finished=moment.time,
    )


def unfinished(visit: Underway, now: float) -> VisitRecord:
    """The record of a visit that is under way when the run ends."""
    spent, done = _by(visit, now)
    return _record(visit.report, spent, done, "unfinished", "the run ended", started=visit.started, finished=now)


def part(visit: Underway, now: float) -> Part:
    """What a visit under way has done by now."""
    spent, done = _by(visit, now)
    report = visit.report
    return Part(int(done * report.steps) if report.stepped else 0, int(done * report.samples), spent)


def event(number: int, moment: SimulationStep) -> EventRecord:
    """The record of what the server heard, the end of a visit or something else."""
    if moment.assignment is not None:
        return EventRecord(event=number, kind="visit", number=moment.assignment.dispatch, time=moment.time)
    if isinstance(moment.event, Arrived):
        return EventRecord(event=number, kind="arrival", number=moment.event.client, time=moment.time)
    if isinstance(moment.event, Report):
        return EventRecord(event=number, kind="beside", number=moment.event.dispatch, time=moment.time)
    return EventRecord(event=number, kind="timer", number=0, time=moment.time)


def _by(visit: Underway, now: float) -> tuple[Spent, float]:
    """What a visit has spent by now, and the share of its work that it has done."""
    seconds = now - visit.started
    return visit.outcome.spent.until(seconds), visit.outcome.done * visit.outcome.spent.done(seconds)[1]


def _record(
    report: Report,
    spent: Spent,
    done: float,
    status: VisitStatus,
    reason: str,
    *,
    fault: str = "",
    norm: float | None = None,
    started: float,
    finished: float,
) -> VisitRecord:
    silent = status in ("lost", "unfinished")
    measures = {} if status == "unfinished" else report.measures  # somebody may still be at it
    return VisitRecord(
        dispatch=report.dispatch,
        client=report.client,
        version=report.version,
        visit=report.visit,
        status=status,
        reason=reason,
        fault=fault,
        steps=int(done * report.steps) if report.stepped else 0,
        epochs=done * report.samples / report.num_samples if report.num_samples else 0.0,
        samples=int(done * report.samples),
        num_samples=report.num_samples,
        forward_samples=int(done * report.forward_samples),
        gradient_samples=int(done * report.gradient_samples),
        loss=None if silent else report.loss,
        update_norm=norm,
        bytes_down=spent.bytes_down,
        bytes_up=spent.bytes_up,
        flops=spent.flops,
        forward_flops=spent.forward_flops,
        backward_flops=spent.backward_flops,
        joules=spent.joules,
        started=started,
        finished=finished,
        down_seconds=spent.down,
        compute_seconds=spent.compute,
        up_seconds=spent.up,
        measures={**measures, "age": report.age} if report.substitute else measures,
    )


_SUBSTITUTES = {
    "": "",
    "movement": "its movement of {age} versions ago was used",
    "model": "its model of {age} versions ago was used",
    "silence": "silent",
}
