"""The client: the only local training loop.

`work` is a pure function of its arguments: the state and the assignment are not changed, every random draw is named by
client and visit, and no clock, device list or global generator is read. The engine is scratch.

A client's new state is provisional until the server has accepted the report. The next assignment names the last visit
that was accepted, and the client goes on from the state of that visit.
"""

from __future__ import annotations

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.streams import stream
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.measuring import measuring
from polyrhythm.core.personal import model_at
from polyrhythm.core.portions import Narrowed, narrowed
from polyrhythm.core.protocols import ClientData, Done, Engine, takes_cohorts, takes_jobs
from polyrhythm.core.reports import rehearsed, report_on
from polyrhythm.core.sealing import sealed
from polyrhythm.core.training import Result, Training, Visiting
from polyrhythm.core.visit_plan import VisitPlan, plan_visit
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.recipe import Recipe


def work(
    recipe: Recipe,
    setup: Setup,
    state: ClientState,
    assignment: Assignment,
    data: ClientData,
    engine: Engine,
    plan: VisitPlan | None = None,
) -> Result:
    """Carries out one assignment.

    Args:
        recipe: the method; must be the one the assignment was made for.
        setup: what is fixed for the run.
        state: the client's state after its last accepted visit.
        assignment: what to do.
        data: the client's samples.
        engine: computes gradients.
        plan: what `plan_visit` made of it; made now if None, for a client whose pace nobody knows.

    Returns:
        The client's new, provisional state (the same one after measuring), and its report.

    Raises:
        UserError: the assignment was made for another recipe.
    """
    visit = visiting(recipe, setup, state, assignment, data, engine, plan)
    done: Done | None = None
    while True:
        try:
            job = visit.send(done)
        except StopIteration as end:
            result: Result = end.value
            return result
        assert takes_jobs(engine)
        done = engine.local_round(job)


def visiting(
    recipe: Recipe,
    setup: Setup,
    state: ClientState,
    assignment: Assignment,
    data: ClientData,
    engine: Engine,
    plan: VisitPlan | None = None,
) -> Visiting:
    """An assignment that lets somebody else take its steps: the same as `work`, which see, but with a pause.

    Where nothing is decided between two steps and the engine takes jobs, it stops and asks for all of them, and goes on
    when it is told what came of them; told None, it takes them itself. So several visits can wait for one engine, which
    takes the steps of all at once.
    """
    if plan is None:
        plan = plan_visit(recipe, setup, state, assignment, data, engine)
    if (part := narrowed(recipe, setup, state, assignment, engine)) is not None:
        if takes_cohorts(engine):
            return (yield from _among_others(recipe, part, data, plan))
        return _with_a_part(recipe, part, data, plan)
    if assignment.kind == "measure":
        model = model_at(recipe, engine.layout, state, Model(weights=assignment.weights, buffers=assignment.buffers))
        assignment = replace_unchecked(assignment, weights=model.weights, buffers=model.buffers)
        return state, measured(recipe, assignment, data, engine, plan)
    trained, report = yield from Training(recipe, setup, state, assignment, data, engine, plan).run()
    if assignment.kind != "train":
        return state, rehearsed(assignment, report)
    return trained, sealed(recipe, setup, engine.layout, assignment, report)


def _with_a_part(recipe: Recipe, part: Narrowed, data: ClientData, plan: VisitPlan) -> Result:
    """A visit with a part of the model, which nobody else takes the steps of: others have other parts."""
    state, report = work(recipe, part.setup, part.state, part.assignment, data, part.engine, plan)
    return part.after(state, report)


def _among_others(recipe: Recipe, part: Narrowed, data: ClientData, plan: VisitPlan) -> Visiting:
    """The same where whoever takes the steps can do so for many, each with an engine of its own."""
    visit = visiting(recipe, part.setup, part.state, part.assignment, data, part.engine, plan)
    done: Done | None = None
    while True:
        try:
            job = visit.send(done)
        except StopIteration as end:
            return part.after(*end.value)
        done = yield replace_unchecked(job, within=part.engine)


def measured(recipe: Recipe, assignment: Assignment, data: ClientData, engine: Engine, plan: VisitPlan) -> Report:
    """The report of a measuring visit."""
    model, seed = Model(weights=assignment.weights, buffers=assignment.buffers), plan.visit.seed
    positions, names = None, (assignment.client, assignment.version)
    if plan.forward_samples < len(data):
        drawn = stream(seed, "sample", "measure", *names)
        positions = drawn.permutation(len(data))[: plan.forward_samples]
    with measuring(engine, data, seed, "client", *names):
        measures = dict(engine.evaluate(model, data, positions))
    if "expert" in recipe.needs():
        measures["expert_loss"] = float(data.fixed("expert").mean())
    return report_on(assignment, len(data), measures=measures, forward_samples=plan.forward_samples)
