"""Reports on assignments."""

from __future__ import annotations

from typing import Any

from polyrhythm.base.frozen import new_unchecked
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.methods.work.base import Substitute


def report_on(assignment: Assignment, num_samples: int, **rest: object) -> Report:
    """A report on an assignment, with what is given of it; of a visit without an update, if nothing is."""
    given: dict[str, Any] = {"update": None, "extras": {}, "measures": {}, **rest}
    return new_unchecked(
        Report,
        dispatch=assignment.dispatch,
        client=assignment.client,
        visit=assignment.visit,
        version=assignment.version,
        kind=assignment.kind,
        recipe=assignment.recipe,
        num_samples=num_samples,
        **given,
    )


def substitute_on(assignment: Assignment, num_samples: int, substitute: Substitute, **rest: object) -> Report:
    """The report of a visit that does not train; what is sent describes the visit that it stems from."""
    return report_on(
        assignment,
        num_samples,
        substitute=substitute.kind,
        age=substitute.age,
        steps=substitute.steps,
        travel=substitute.travel,
        pull=substitute.pull,
        rate=substitute.rate,
        **rest,
    )


def rehearsed(assignment: Assignment, report: Report) -> Report:
    """What is told of a visit that trained and keeps its update to itself: how long that is, and how much was done.

    Of a client that would not train but send something else nothing is told.
    """
    if report.update is None or report.substitute:
        return report_on(assignment, report.num_samples)
    return report_on(
        assignment,
        report.num_samples,
        steps=report.steps,
        samples=report.samples,
        forward_samples=report.forward_samples,
        gradient_samples=report.gradient_samples,
        measures={"norm": report.norm},
    )


def foreseen(assignment: Assignment, plan: VisitPlan) -> Report:
    """What can be told of a report before the work is done: one of as much work, with no content."""
    num_samples, instead = plan.visit.num_samples, plan.work.substitute
    if instead is not None:
        return substitute_on(assignment, num_samples, instead, packed=plan.packed)
    return report_on(
        assignment,
        num_samples,
        packed=plan.packed,
        steps=plan.work.steps,
        samples=plan.samples,
        forward_samples=plan.forward_samples,
        gradient_samples=plan.gradient_samples,
    )
