"""What a reader of a run's results should know, and is told before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from polyrhythm.base.metric_names import in_words
from polyrhythm.data.federation import Federation
from polyrhythm.data.partitions import Difficulty
from polyrhythm.engines.selection import Chosen
from polyrhythm.experiments.difficulty import foreign
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.privacy import Privacy
from polyrhythm.experiments.privacy import about as about_privacy
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.size_notes import about_sizes
from polyrhythm.models.tasks import Classification
from polyrhythm.models.weights import skipped
from polyrhythm.simulation.workers.choosing import ExecutionPlan


class Ready(Protocol):
    """An experiment that is ready to run, as far as there is something to tell of it."""

    @property
    def experiment(self) -> Experiment: ...
    @property
    def execution(self) -> Execution: ...
    @property
    def federation(self) -> Federation: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def chosen(self) -> Chosen: ...
    @property
    def crew(self) -> ExecutionPlan: ...
    @property
    def eligible(self) -> np.ndarray: ...
    @property
    def memory_needed(self) -> int: ...
    @property
    def groups(self) -> Mapping[str, np.ndarray]: ...
    @property
    def privacy(self) -> Privacy | None: ...


def notices(prepared: Ready) -> tuple[str, ...]:
    """What a reader of the results should know of a run that begins."""
    notes = [*prepared.federation.notes, *prepared.recipe.notices]
    there = len(prepared.eligible)
    without = int(np.count_nonzero(prepared.federation.sizes)) - there
    notes += about_sizes(prepared.recipe, there, some_unable=without > 0)
    if without:
        one, some = "client is never invited: its device has", "clients are never invited: their devices have"
        notes.append(
            f"{without:,} {one if without == 1 else some} less memory than the {prepared.memory_needed:,} bytes that a "
            "visit needs at least"
        )
    if prepared.experiment.fleet.arrivals is not None and prepared.recipe.participation.invites:
        notes.append("clients come by themselves, but this recipe does not wait for them: it invites whom it wants")
    single = int(np.count_nonzero(prepared.federation.sizes == 1))
    if single and prepared.chosen.engine.single_sample_fails:
        notes.append(
            f"{single:,} of {prepared.federation.clients:,} clients hold a single sample, which BatchNorm cannot train "
            "on: what they report does not count"
        )
    if prepared.groups and prepared.federation.local_tests is None:
        notes.append("results by group are on training data, since no client has test samples of its own")
    about = (
        _about_initial,
        _about_metrics,
        _about_release,
        _about_personal,
        _about_crew,
        _about_modes,
        _about_engine,
        _about_expert,
        _about_privacy,
    )
    return (*notes, *prepared.chosen.notes, *(note for tell in about for note in tell(prepared)))


def _about_initial(prepared: Ready) -> tuple[str, ...]:
    """Which weights are not those that were given."""
    skip = prepared.experiment.initial_skip
    layout = prepared.chosen.engine.layout
    names = [*(segment.name for segment in layout.segments), *(slot.name for slot in layout.buffers)]
    left = [name for name in names if skipped(name, skip)]
    return (f"{', '.join(left)} begin as the model makes them, and not with the initial weights",) if left else ()


def _about_metrics(prepared: Ready) -> tuple[str, ...]:
    """Metrics that cannot tell versions apart, and weights that follow from everybody's data."""
    aim, federation = prepared.experiment.aim, prepared.federation
    constant, undefined = (
        aim.constant(federation.outputs),
        aim.undefined(federation.test.targets, federation.outputs),
    )
    notes = [
        f"{in_words(name)} is the same whatever a model gives for {federation.outputs} labels: choose k below "
        "that, or judge by another metric, as in multilabel(metrics=[f1])"
        for name in constant
    ]
    notes += [
        f"{in_words(name)} has no value on the test data, as their targets do not vary enough: it is left out"
        for name in undefined
    ]
    given = prepared.experiment.task
    if isinstance(given, Classification) and given.class_weights == "balanced":
        notes.append("class weights follow from the training samples of all clients, which would have to be counted")
    return tuple(notes)


def _about_release(prepared: Ready) -> tuple[str, ...]:
    """What a release that needs all updates at once takes."""
    layout, part = prepared.chosen.engine.layout, prepared.recipe.releasing.needing_all
    if part is None:
        return ()
    waiting = min(prepared.recipe.cohort, len(prepared.eligible))
    size = waiting * layout.size * layout.dtype.itemsize / 1e6
    return (f"{part.label()} looks at all updates of a version at once: about {waiting:,} of them, {size:,.1f} MB",)


def _about_personal(prepared: Ready) -> tuple[str, ...]:
    """What of the model is personal, and whether anybody measures it."""
    recipe, layout, notes = prepared.recipe, prepared.chosen.engine.layout, list[str]()
    if not recipe.has_personal:
        return ()
    own, label = recipe.scope.own(layout), recipe.scope.label()
    if own:
        kept = f"{own.size:,} of {layout.parameters:,} weights stay at clients"
        says = "the global model has version 0's in their place, so that its test results say little"
        notes.append(f"{kept}; {says}")
        if own.size == layout.parameters:
            notes.append(f"{label} leaves nothing to share: every client trains alone")
    elif recipe.scope in recipe.parts():
        notes.append(f"{label} names nothing in this model: all of it is shared, as without it")
    if prepared.federation.local_tests is None:
        notes.append(
            "clients' own models are not measured, since no client has test samples of its own: local_test=0.2 "
            "gives each some"
        )
    return tuple(notes)


def _about_crew(prepared: Ready) -> tuple[str, ...]:
    """Who carries out visits, where the rule chose somebody else than this process."""
    crew, notes = prepared.crew, []
    if crew.chosen and crew.workers > 1:
        notes.append(f"visits run in {crew.workers} {crew.driver} at once")
    if crew.driver == "ray" and prepared.execution.stack is None and (crew.stack or 1) > 1:
        notes.append(
            f"visits are stacked by {crew.stack}, which follows from workers={crew.workers}: with others, "
            f"stack={crew.stack} gives the same numbers"
        )
    return tuple(notes)


def _about_modes(prepared: Ready) -> tuple[str, ...]:
    """Which parts of a model were given in evaluation mode, and train all the same, as under `.train()`."""
    parts = prepared.chosen.woken
    if not parts:
        return ()
    some = ", ".join(map(repr, parts[:3])) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
    return (
        f"{some} of the model {'was' if len(parts) == 1 else 'were'} given in evaluation mode, and "
        f"{'is' if len(parts) == 1 else 'are'} put into training mode in training, as by .train(): statistics of "
        "BatchNorm move, dropout drops. To keep the mode, set it again in a train() method of the model's class",
    )


def _about_engine(prepared: Ready) -> tuple[str, ...]:
    """What computes, unless it is what was asked for."""
    chosen, asked = prepared.chosen, prepared.execution
    if chosen.why_not:
        return (f"engine: torch, since the {chosen.refused} one cannot be used here: {chosen.why_not}",)
    if asked.stack is not None and chosen.kind != "stacked":
        return (f"stack={asked.stack} has no effect: local steps are computed by the {chosen.name} engine",)
    if asked.engine == "auto" and prepared.federation.structure is not None:
        return ("local steps are computed by the torch engine, as a sample is several arrays, or padded",)
    if asked.engine == "auto" and chosen.kind != "torch":
        return (f"local steps are computed by the {chosen.name} engine",)
    return ()


def _about_expert(prepared: Ready) -> tuple[str, ...]:
    """Where the expert comes from, and whether it is of any use."""
    expert = prepared.experiment.expert
    if expert is None:
        return ()
    notes = [] if isinstance(expert, np.ndarray) else [*foreign(expert, prepared.federation.name)]
    if "expert" not in prepared.recipe.needs() and not isinstance(prepared.federation.partition, Difficulty):
        notes.append("an expert is given, but no part of this recipe asks for one")
    return tuple(notes)


def _about_privacy(prepared: Ready) -> tuple[str, ...]:
    """What is said of privacy before a run."""
    return tuple(about_privacy(prepared.privacy))
