"""What is a client's own: the model that it works with, what it trains beside its work, and the one that it uses."""

from __future__ import annotations

from collections.abc import Generator

from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.messages import Report, State
from polyrhythm.base.streams import torch_seed
from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.core.batches import batch_sizes
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.local_run import LocalRun
from polyrhythm.core.local_step import LocalRule
from polyrhythm.core.path import Path, Watch
from polyrhythm.core.protocols import ClientData, Done, Engine, Job, Opening, takes_jobs
from polyrhythm.methods.correction import Push
from polyrhythm.methods.mechanism import Mechanism, Model, Visit
from polyrhythm.methods.personal.guides import Guide
from polyrhythm.methods.personal.models import Round
from polyrhythm.methods.personal.scope import NOTHING, matching
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Plan

Result = tuple[ClientState, Report]
Names = tuple[int | str, ...]


def model_at(recipe: Recipe, layout: Layout, state: ClientState, sent: Model) -> Model:
    """The model that a client works with when it is sent one: with its own part in it.

    Args:
        recipe: the method.
        layout: of the vectors.
        state: the client's, after its last accepted visit.
        sent: what the server sends.
    """
    return recipe.scope.of_client(layout, _remembered(recipe, recipe.scope, state), sent)


def _remembered(recipe: Recipe, part: Mechanism, state: ClientState) -> State:
    """What a client remembers for one of the recipe's parts; nothing for a neutral one, which is no mechanism of it."""
    return next((state.parts.get(key, {}) for key, own in recipe.mechanisms() if own is part), {})


def guide_of(recipe: Recipe, state: ClientState, received: Model) -> Guide | None:
    """What goes along with the local steps of a visit, in the client's state and from the model that it works from."""
    return recipe.personal.guide(_remembered(recipe, recipe.personal, state), received, recipe.optimiser)


def guided(recipe: Recipe, guide: Guide | None, ended: Result, buffers: Buffers) -> Result:
    """What comes of a visit that had a guide, and left these buffers: the client remembers what it made."""
    state, report = ended
    if guide is None or not report.steps or not (kept := guide.kept(buffers)):
        return ended
    return replace_unchecked(state, parts={**state.parts, recipe.key_of(recipe.personal): kept}), report


def beside(
    recipe: Recipe, visit: Visit, data: ClientData, engine: Engine, received: Model, ended: Result
) -> Generator[Job, Done | None, Result]:
    """What comes of a visit whose work is done, once the client has also trained what it keeps for itself.

    Args:
        recipe: the method.
        visit: of whom.
        data: the client's samples.
        engine: computes.
        received: the model that the client worked from.
        ended: its state and report so far.
    """
    if (asked := recipe.personal.beside(visit)) is None:
        return ended
    (state, report), key = ended, recipe.key_of(recipe.personal)
    start = recipe.personal.begins(_remembered(recipe, recipe.personal, state), received)
    # By the draws of the visit itself: whoever trains alone has the same ones.
    names, of_pass = (visit.client, visit.visit), ("visit", visit.visit)
    trained, path = yield from _round(asked, recipe, visit, data, engine, start, received, names, of_pass)
    state = replace_unchecked(state, parts={**state.parts, key: recipe.personal.kept(trained)})
    return state, replace_unchecked(report, samples=report.samples + path.samples)


def samples_beside(recipe: Recipe, visit: Visit, fold: bool) -> int:
    """How many samples a visit trains on for what the client keeps for itself.

    Args:
        recipe: the method.
        visit: of whom.
        fold: whether a last batch of one sample joins the one before it.
    """
    if (asked := recipe.personal.beside(visit)) is None:
        return 0
    sizes = batch_sizes(visit.num_samples, visit.batch, recipe.drop_last, fold)
    passes, rest = divmod(asked.steps, len(sizes)) if sizes else (0, 0)
    return passes * sum(sizes) + sum(sizes[:rest])


def used(recipe: Recipe, visit: Visit, state: ClientState, sent: Model, data: ClientData, engine: Engine) -> Model:
    """The model that a client uses when it is sent one, trained on its own samples where the method says so.

    Args:
        recipe: the method.
        visit: as for a visit at which it is sent.
        state: the client's, after its last accepted visit.
        sent: what the server sends.
        data: the client's training samples.
        engine: computes; it is opened, so no visit may be under way in it.
    """
    received = model_at(recipe, engine.layout, state, sent)
    start = recipe.personal.begins(_remembered(recipe, recipe.personal, state), received)
    if (asked := recipe.personal.when_used(visit)) is None:
        return start
    # Named by the version: the same however often it is measured, and apart from all training.
    names = visit.client, "used", visit.version
    training = _round(asked, recipe, visit, data, engine, start, received, names, ("used", visit.version))
    done: Done | None = None
    while True:
        try:
            job = training.send(done)
        except StopIteration as end:
            trained: Model = end.value[0]
            return trained
        assert takes_jobs(engine)
        done = engine.local_round(job)


def _round(
    asked: Round,
    recipe: Recipe,
    visit: Visit,
    data: ClientData,
    engine: Engine,
    start: Model,
    received: Model,
    names: Names,
    of_pass: Names,
) -> Generator[Job, Done | None, tuple[Model, Path]]:
    """Trains a model of the client's own, and gives it with the way there."""
    seed = torch_seed(visit.seed, "network", *names)
    engine.open(
        new_unchecked(
            Opening, data=data, start=start, received=received, previous=None, reuse=not data.augmented, seed=seed
        )
    )
    layout = engine.layout
    part = matching(asked.layers, layout) if asked.layers else NOTHING
    held = tuple(s for s in layout.segments if s not in part.segments) if part else ()
    rule = new_unchecked(
        LocalRule,
        optimiser=recipe.optimiser,
        push=Push(pull=asked.pull) if asked.pull else None,
        start=received.weights if asked.pull else start.weights,
        moments=recipe.optimiser.start(engine.weights),
        seed=seed,
        gradient_squares=False,
        held=held,
        away=start is not received,
    )
    run = LocalRun(
        recipe=recipe,
        order=asked.order,
        data=data,
        engine=engine,
        visit=visit,
        plan=Plan(steps=asked.steps),
        cursor=(0, 0),
        personal=(),
        names=names,
        of_pass=of_pass,
        lr=asked.lr,
    )
    path = Path(cursor=(0, 0))
    yield from run.take(rule, path, Watch(None))
    return Model(weights=engine.weights.clone(), buffers=engine.buffers()), path
