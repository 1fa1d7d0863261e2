"""Reports of clients whose updates only count in a sum: as they leave a client, and as the server sums them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Assignment, Facts, Fault, FaultKind, Report
from polyrhythm.base.vectors import Layout
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum import summands
from polyrhythm.methods.secure_sum.fixed_point import as_numbers

REFUSALS: tuple[FaultKind, ...] = ("not_finite", "too_far")
"""For what a client sends no update."""
_REFUSED = "refused"


def sealed(recipe: Recipe, setup: Setup, layout: Layout, assignment: Assignment, report: Report) -> Report:
    """A report as it leaves its client: its update as whole numbers, and nothing else that is of its data alone.

    Where the server knows single updates it is the report as it is.
    """
    if not recipe.sums_only or report.kind != "train":
        return report
    bare: dict[str, Any] = {"loss": None, "measures": {}, "idle": (), "buffers": ()}
    if report.update is None:
        return replace_unchecked(report, **bare)
    key = recipe.key_of(recipe.compression)
    most = int(assignment.briefs[key]["most"])
    shared = recipe.scope.shared(layout)
    clip = assignment.briefs[key].get("clip")
    found = summands.summand(recipe, setup, shared, facts_alone(report), most, report.update, clip)
    if isinstance(found, Fault):
        return refusing(replace_unchecked(report, **bare), found)
    return _with(report, update=found, packed=found.element_size() * found.numel(), **bare)


def refusing(report: Report, fault: Fault) -> Report:
    """The report of a client that has no update to add, and says why."""
    said = {_REFUSED: fault.kind, "words": fault.words}
    return _with(report, update=None, packed=None, extras={summands.KEY: said})


def refused(report: Report) -> Fault | None:
    """Why a client says that it has no update to add; None if it does not say so."""
    said = report.extras.get(summands.KEY, {})
    kind = said.get(_REFUSED)
    if report.update is not None or kind not in REFUSALS:
        return None
    return Fault(kind, str(said.get("words", ""))[:200])


def misfit(recipe: Recipe, layout: Layout, report: Report) -> Fault | None:
    """What is wrong with the shape of a masked update, if anything is."""
    expected = summands.numbers_of(recipe, recipe.scope.shared(layout))
    if report.update is None or report.update.shape != (expected,):
        return Fault("shape", f"the masked update is not {expected:,} numbers")
    if report.update.dtype != torch.int32:
        return Fault("dtype", f"the masked update is {report.update.dtype}, not whole numbers of 32 bits")
    if report.buffers:
        return Fault("shape", "buffers beside a masked update")
    return None


def summed(reports: Sequence[Report]) -> np.ndarray:
    """The sum of masked updates modulo 2^32."""
    total: np.ndarray | None = None
    for report in reports:
        assert report.update is not None
        numbers = as_numbers(report.update)
        total = numbers if total is None else np.add(total, numbers, out=total)
    assert total is not None, "a sum of nobody"
    return total


def facts_alone(report: Report) -> Facts:
    """What a client knows of its own update."""
    return Facts(
        dispatch=report.dispatch,
        client=report.client,
        num_samples=report.num_samples,
        steps=report.steps,
        travel=report.travel,
        pull=report.pull,
        rate=report.rate,
        staleness=0,
    )


def with_update(report: Report, update: Tensor) -> Report:
    """A report with another update, such as one under a mask."""
    return _with(report, update=update)


def without(report: Report) -> Report:
    """A report without its update, which tells nothing any more."""
    return _with(report, update=None)


def _with(report: Report, **fields: Any) -> Report:
    """The report with other fields; its length, which may have been measured, is none of the new update."""
    kept = {name: value for name, value in vars(report).items() if name != "norm"}
    return Report(**{**kept, **fields})
