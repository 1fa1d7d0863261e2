"""The engine of an experiment, with the initial model in it."""

from __future__ import annotations

import dataclasses

from polyrhythm.base.errors import UserError
from polyrhythm.base.vectors import CPU
from polyrhythm.engines.devices import device_of
from polyrhythm.engines.frugal import Frugal
from polyrhythm.engines.repeating import repeated
from polyrhythm.engines.selection import Chosen, Work, choose
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.execution import Execution, tf32_on_a_processor
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.first_batch import checked_on_first_batch
from polyrhythm.models.probing import woken
from polyrhythm.models.representation import locate
from polyrhythm.models.weights import check_finite


def chosen_for(experiment: Experiment, execution: Execution) -> Chosen:
    """The engine, with the initial model in it; checked against the data, the task and the recipe."""
    module, samples, recipe = experiment.module(), experiment.federation.train, experiment.recipe
    check_finite(dict(module.named_parameters()), f"the model {type(module).__name__}")
    module, read = checked_on_first_batch(module, experiment.aim, experiment.federation, recipe.batch)
    for layer in (*recipe.watches, *((reads,) if (reads := recipe.personal.reads) else ())):
        locate(module, layer)
    _has_classes(experiment)
    several = execution.driver in ("processes", "threads", "ray") or (execution.workers or 1) > 1
    parted = several or recipe.fills_places
    # Ray's workers compute on processors unless they have GPUs, and so does this process unless told otherwise.
    on_processors = execution.driver == "ray" and execution.gpus is None and execution.device == "auto"
    device = CPU if on_processors else device_of(execution.device)
    if execution.precision == "tf32" and device == CPU and execution.gpus is None:
        raise tf32_on_a_processor()
    work = Work(
        module=module,
        task=experiment.aim,
        samples=samples,
        recipe=recipe,
        largest=int(experiment.federation.sizes.max()),
        at_once=1 if parted else recipe.cohort,
        device=device,
        precision=execution.precision,
        frugal=Frugal(micro_batch=execution.micro_batch, recompute=execution.recompute),
    )
    chosen = choose(execution.engine, work) if execution.gpus is None else _for_gpus(work, execution.gpus)
    if chosen.engine.single_sample_fails:
        _check_single_samples(experiment)
    reference = chosen.engine if isinstance(chosen.engine, TorchEngine) else chosen.engine.reference
    notes = repeated(reference, samples, batch=work.batch)
    return dataclasses.replace(chosen, woken=woken(module), notes=(*read, *notes))


def _has_classes(experiment: Experiment) -> None:
    """Refuses what is made of classes where samples have none."""
    recipe, task = experiment.recipe, experiment.aim
    by_classes = [part.label() for part in recipe.parts() if "class_means" in part.needs()]
    by_classes += [recipe.personal.label()] if recipe.personal.reads else []
    if by_classes and task.name != "classification":
        raise UserError(
            f"{by_classes[0]} for the task {task.name}",
            expected="classification, in which a sample has one class",
            why="it compares a sample with others of each class",
            fix=f"use such data, or leave {by_classes[0]} out",
        )


def _for_gpus(work: Work, gpus: float) -> Chosen:
    """The engine for workers with GPUs, of which there is one."""
    chosen = choose("stacked", work)
    if chosen.kind == "stacked":
        short = "" if work.precision == "float32" else f", {work.precision}"
        return dataclasses.replace(chosen, detail=f"GPUs of workers{short}")
    raise UserError(
        f"gpus={gpus:g}, and the stacked engine cannot be used here: {chosen.why_not}",
        expected="work that it takes",
        why="no other engine computes on a GPU, and workers would hold theirs and compute on processors",
        fix="leave gpus out, or change the model or the method",
    )


def _check_single_samples(experiment: Experiment) -> None:
    single = "batch=1" if experiment.recipe.batch == 1 else "at most one sample at every client"
    if experiment.recipe.batch == 1 or experiment.federation.sizes.max() == 1:
        raise UserError(
            f"{single} with a model that has BatchNorm",
            expected="2 samples or more in a batch",
            why="BatchNorm cannot train on one sample: it has no variance",
            fix="use a larger batch and fewer clients, or a model with GroupNorm",
        )
