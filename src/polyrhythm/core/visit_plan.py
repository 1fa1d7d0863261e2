"""The plan of a visit: made once, before anything in it is computed.

Whoever drives prices it, and whoever carries the visit out does what it says: it is a plain value that travels with the
assignment, so a worker has nothing to ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.messages import Assignment
from polyrhythm.base.vectors import Layout
from polyrhythm.core.batches import batch_sizes
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.forecast import Ahead, Forecast, fitting
from polyrhythm.core.personal import samples_at_start, samples_beside
from polyrhythm.core.portions import narrowed
from polyrhythm.core.protocols import ClientData, Engine
from polyrhythm.core.returned import returned
from polyrhythm.methods.mechanism import Setup, Visit
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Plan


@final
@dataclass(frozen=True, kw_only=True)
class VisitPlan:
    """Plan of a visit, and how much it is.

    Args:
        visit: whose it is, and how its samples are cut into batches.
        work: what the work policy wants, with the steps that fit into its time.
        samples, forward_samples, gradient_samples: as they will be in its report.
        sends: whether an update is sent up; else a bare word, or measures.
        packed: bytes of the update on the wire, as in a report.
        vectors: how many more vectors of the model's length are sent up.
        sure: whether the report will be of just so much work; else of as much at most, or nobody knows.
    """

    visit: Visit
    work: Plan
    samples: int = 0
    forward_samples: int = 0
    gradient_samples: int = 0
    sends: bool = False
    packed: int | None = None
    vectors: int = 0
    sure: bool = False


def plan_visit(
    recipe: Recipe,
    setup: Setup,
    state: ClientState,
    assignment: Assignment,
    data: ClientData,
    engine: Engine,
    pace: Forecast | None = None,
) -> VisitPlan:
    """Plans a visit.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        state: the client's state after its last accepted visit.
        assignment: what to do.
        data: the client's samples, of which none is read.
        engine: what will compute; it computes nothing here.
        pace: how long the visit would take, for work that must be done by a certain time; None if nobody knows.

    Raises:
        UserError: the assignment was made for another recipe.
    """
    if assignment.recipe != recipe.digest:
        raise UserError(
            f"client {assignment.client} has recipe {recipe.digest[:12]}, its work is for {assignment.recipe[:12]}",
            expected="the same recipe at the server and at every client",
            why="a client that follows another method would send updates that mean something else",
            fix="start server and clients from the same experiment file and version",
        )
    if (part := narrowed(recipe, setup, state, assignment, engine)) is not None:
        setup, state, engine = part.setup, part.state, part.engine
        assignment = part.assignment if assignment.briefs else assignment  # whose weights nobody reads here
    num_samples, fold = len(data), engine.single_sample_fails
    visit, sizes = visit_of(
        recipe,
        num_samples,
        fold,
        seed=setup.seed,
        client=assignment.client,
        visit=assignment.visit,
        version=assignment.version,
        total_rounds=assignment.total_rounds,
    )
    trains = assignment.kind == "train"
    if assignment.kind == "measure":
        samples = min(num_samples, assignment.samples or num_samples)
        return new_unchecked(VisitPlan, visit=visit, work=_NOTHING, forward_samples=samples)
    work = _wanted(recipe, setup, state, assignment, visit)
    if work.substitute is not None:
        sends, packed = _substitute_size(recipe, state, work, _returned(recipe, engine, assignment.version))
        sends, packed = sends and trains, packed if trains else None
        return new_unchecked(VisitPlan, visit=visit, work=work, sends=sends, packed=packed, sure=trains)
    beside = samples_beside(recipe, visit, fold) if trains else 0
    _, passes = samples_at_start(recipe, state, num_samples)
    ahead = replace_unchecked(ahead_of(recipe, state, data, engine, visit, work, sizes), beside=beside)
    work = fitting(work, ahead, pace)
    steps = work.steps
    return new_unchecked(
        VisitPlan,
        visit=visit,
        work=work,
        samples=ahead.samples(steps) - ahead.measured,
        forward_samples=ahead.forward_samples(steps) if steps else 0,
        gradient_samples=ahead.measured if steps else 0,
        sends=trains,
        packed=recipe.compression.size(_returned(recipe, engine, assignment.version)) if trains else None,
        vectors=recipe.extra_vectors if steps and trains else 0,
        sure=trains and work.stop is None and recipe.foreseeable and passes <= 1,
    )


def visit_of(recipe: Recipe, num_samples: int, fold: bool, **named: Any) -> tuple[Visit, tuple[int, ...]]:
    """A visit to a client with so many samples, and the sizes of its batches.

    Args:
        recipe: the method.
        num_samples: n_i.
        fold: whether a last batch of one sample joins the one before it.
        named: seed, client, visit, version and total_rounds of the visit.
    """
    batch = min(recipe.batch or num_samples, num_samples) or 1
    sizes = batch_sizes(num_samples, batch, recipe.drop_last, fold)
    visit = new_unchecked(
        Visit, **named, num_samples=num_samples, batch=batch, epoch_steps=len(sizes), least=2 if fold else 1
    )
    return visit, sizes


_NOTHING = Plan(steps=0)


def _wanted(recipe: Recipe, setup: Setup, state: ClientState, assignment: Assignment, visit: Visit) -> Plan:
    """What the work policy wants."""
    if not visit.epoch_steps:
        return _NOTHING
    parts = state.parts_of(recipe.planning.mechanisms, setup)
    return recipe.planning.plan(setup, visit, parts, assignment.briefs)


def _returned(recipe: Recipe, engine: Engine, version: int) -> Layout:
    """What an update carries."""
    return returned(recipe, recipe.scope.shared(engine.layout), version)


def _substitute_size(recipe: Recipe, state: ClientState, work: Plan, layout: Layout) -> tuple[bool, int | None]:
    """Whether what is sent instead is an update, and its bytes."""
    instead = work.substitute
    assert instead is not None
    sends = instead.update is not None or (instead.kind == "model" and state.previous is not None)
    if not sends or instead.packed is not None:
        return sends, instead.packed
    return sends, recipe.compression.size(layout)


def ahead_of(
    recipe: Recipe,
    state: ClientState,
    data: ClientData,
    engine: Engine,
    visit: Visit,
    work: Plan,
    sizes: tuple[int, ...],
) -> Ahead:
    """How much a visit computes by its number of steps."""
    num_samples, needs, has_previous = visit.num_samples, recipe.needs(), state.previous is not None
    asked = {("received", layer) for term in recipe.corrections if term.looks_back for layer in term.layers or ()}
    if has_previous:
        asked |= {("previous", layer) for _, layer in asked}
    if work.stop is not None:
        asked.add(("received", work.stop.layer))
    place = state.cursor[1] if work.continues else 0
    looked, _ = samples_at_start(recipe, state, num_samples)
    batches = (*sizes[place:], *sizes[:place])
    if not recipe.order.complete:
        batches = (
            min(num_samples, visit.batch + engine.single_sample_fails),
        )  # full ones, where a pass leaves samples out
    return new_unchecked(
        Ahead,
        num_samples=num_samples,
        batches=batches or (num_samples,),
        pass_steps=visit.epoch_steps,
        measured=looked + num_samples * len(needs & {"fisher", "fisher_model"}),
        scored=num_samples * (recipe.order.looks(has_previous) + len(needs & {"fisher_model", "class_means"})),
        judged=int(work.stop is not None and not engine.one_mode),
        frozen=len(asked),
        reuse=not data.augmented,
        first=work.first,
        gradients=recipe.personal.gradients,
    )
