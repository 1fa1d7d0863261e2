"""What is a client's own: the model that it works with, what it trains beside its work, and the one that it uses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator

import numpy as np
from torch import Tensor

from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.messages import Report, State
from polyrhythm.base.streams import stream, torch_generator, torch_seed
from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.core.batches import batch_sizes, cut
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.local_run import LocalRun
from polyrhythm.core.local_step import LocalRule
from polyrhythm.core.measuring import measuring
from polyrhythm.core.path import Path, Watch
from polyrhythm.core.protocols import ClientData, Done, Engine, Job, Opening, takes_jobs
from polyrhythm.methods.correction import Push
from polyrhythm.methods.mechanism import Mechanism, Model, Visit
from polyrhythm.methods.personal.guides import Guide, Slope
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


def started(
    recipe: Recipe,
    visit: Visit,
    data: ClientData,
    engine: Engine,
    state: ClientState,
    received: Model,
    *names: int | str,
) -> tuple[Model, State, int]:
    """Where a visit begins, what the client knows then, and of how many samples it has taken a gradient for that.

    Args:
        recipe: the method.
        visit: of whom.
        data: the client's samples.
        engine: computes; it is opened where anything is learned.
        state: the client's, after its last accepted visit.
        received: the model that it works from.
        names: of its draws.
    """
    part = recipe.personal
    known = _remembered(recipe, part, state)
    size, most = part.sampled(known, visit.num_samples)
    batches = cut(size, min(visit.batch, size), False, engine.single_sample_fails) if size else []
    if not batches:
        return received, known, 0
    seed, looked = torch_seed(visit.seed, "network", "start", *names), 0
    opening = new_unchecked(
        Opening, data=data, start=received, received=received, previous=None, reuse=False, seed=seed
    )
    engine.open(opening)
    drawn = stream(visit.seed, "sample", "start", *names).permutation(visit.num_samples)[:size]
    augment = torch_generator(visit.seed, "augment", "start", *names) if data.augmented else None

    def one_pass() -> Iterator[Callable[[Tensor], Slope]]:
        nonlocal looked
        for batch in batches:
            positions = drawn[batch]
            looked += len(positions)
            inputs, targets = data.batch(positions, augment)
            yield functools.partial(_sloped, engine, inputs, targets, positions, received.buffers)

    with measuring(engine, data, visit.seed, "start", *names):
        model, known = part.start(known, received, engine.layout, (one_pass() for _ in range(most)))
    return model, known, looked


def _sloped(
    engine: Engine, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers, at: Tensor
) -> Slope:
    return engine.slope(at, inputs, targets, positions, buffers)


def samples_at_start(recipe: Recipe, state: ClientState, num_samples: int) -> tuple[int, int]:
    """Of how many samples `started` takes a gradient at most, and in how many passes."""
    size, most = recipe.personal.sampled(_remembered(recipe, recipe.personal, state), num_samples)
    return size * most, most


def guided(recipe: Recipe, guide: Guide | None, ended: Result, model: Model) -> Result:
    """What comes of a visit that had a guide, and ended with a model: the client remembers what it made."""
    state, report = ended
    if guide is None or not report.steps or not (kept := guide.kept(model)):
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
    # Named by the version: the same however often it is measured, and apart from all training.
    names = visit.client, "used", visit.version
    if recipe.personal.moves:
        return started(recipe, visit, data, engine, state, received, *names)[0]
    start = recipe.personal.begins(_remembered(recipe, recipe.personal, state), received)
    if (asked := recipe.personal.when_used(visit)) is None:
        return start
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
