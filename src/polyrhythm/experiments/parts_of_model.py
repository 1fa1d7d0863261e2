"""Which parts of the model clients hold, where they do not hold all of it: found, dealt and tried before round 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from polyrhythm.base.depths import Depths
from polyrhythm.base.errors import UserError
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.vectors import Layout
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.proof import prove
from polyrhythm.engines.selection import Chosen
from polyrhythm.engines.stacked import StackedEngine
from polyrhythm.engines.unsupported import Unsupported
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.fleet import Place
from polyrhythm.fleet.parts import Device
from polyrhythm.methods.footprint import least_memory
from polyrhythm.methods.work.budgets import EPSILON
from polyrhythm.models.exits import depths_of
from polyrhythm.models.flops import Cost, count
from polyrhythm.models.magnitudes import magnitudes_of
from polyrhythm.models.parts import part_of
from polyrhythm.models.ranks import ranks_of
from polyrhythm.models.widths import axes_of


def cuts(experiment: Experiment, chosen: Chosen) -> tuple[Chosen, Cuts | None]:
    """Along what the model is cut, None where every client has all of it; and what computes its parts.

    Engines of all levels are made and proven. Where one is not right, torch computes all of the run.

    Raises:
        UserError: the model cannot be cut, or the task does not go with how its parts are trained.
    """
    capacity, samples = experiment.recipe.capacity, experiment.federation.train
    if capacity.whole:
        if "submodels" in experiment.evaluation.measure:
            raise UserError(
                f"measure = submodels, and {experiment.recipe.title}",
                expected="a recipe with clients that train parts of the model, such as heterofl",
                why="here every client has all of it, of which the test is there anyway",
                fix="leave submodels out, or pipe width_prefix onto the recipe",
            )
        return chosen, None
    _trains(experiment)
    inputs, _ = samples.batch(torch.arange(min(2, len(samples))))
    _has_rows(experiment, chosen.engine.layout)
    found, engine = _found(experiment, chosen, inputs), chosen.engine
    batch = min(experiment.recipe.batch or 32, int(experiment.federation.sizes.max()))
    for level in capacity.levels:
        part = capacity.of_level(found, level)
        if part is None or not isinstance(engine, NativeEngine | StackedEngine):
            continue
        try:
            prove(engine.narrowed(part), samples, batch=batch, layers=experiment.recipe.watches)
        except Unsupported as reason:
            why_not = f"with {level:g} of each width, {reason}"
            reference = engine.reference
            return (
                replace(chosen, engine=reference, kind="torch", detail="", refused=chosen.kind, why_not=why_not),
                found,
            )
    return chosen, found


def _found(experiment: Experiment, chosen: Chosen, inputs: torch.Tensor) -> Cuts:
    kind, engine = experiment.recipe.capacity.cuts, chosen.engine
    if kind == "magnitude":
        return magnitudes_of(engine.at_rest(), engine.layout)
    if kind == "ranks":
        return _ranks(experiment, engine.at_rest(), engine.layout)
    return axes_of(engine.at_rest(), inputs) if kind == "widths" else _depths(experiment, engine.at_rest(), inputs)


def _ranks(experiment: Experiment, module: nn.Module, layout: Layout) -> Cuts:
    found, largest = ranks_of(module, layout), int(max(experiment.recipe.capacity.levels))
    most = max(axis.units for axis in found.axes)
    if largest != most:
        own = experiment.recipe.capacity.label()
        raise UserError(
            f"{own} with ranks up to {largest}, and a model whose adapters have rank {most}",
            expected=f"{most} as the largest of its ranks",
            why="the model has the largest rank of any client, and what nobody trains stays as it was drawn",
            fix=f"make the model's adapters with rank={largest}, or add the rank {most}",
        )
    return found


def _depths(experiment: Experiment, module: nn.Module, inputs: torch.Tensor) -> Depths:
    found, deepest = depths_of(module, inputs), int(max(experiment.recipe.capacity.levels))
    if deepest < found.exits:
        own = experiment.recipe.capacity.label()
        raise UserError(
            f"{own} with no depth above {deepest}, and a model with {found.exits} exits",
            expected=f"a client that holds all of it, of depth {found.exits} or more",
            why="nobody would ever train its last blocks, which are in every prediction of the whole model",
            fix=f"add the depth {found.exits}, or take a model with {deepest} exits",
        )
    return found


def _has_rows(experiment: Experiment, layout: Layout) -> None:
    """Goes on if the model has an output row for each class, where these are asked for."""
    capacity, count = experiment.recipe.capacity, experiment.federation.outputs
    if capacity.by_classes and {s.shape[0] for s in layout.segments if s.name in layout.head} != {count}:
        raise UserError(
            f"{capacity.label()}(masked=true) and a model whose last linear layer does not give {count} outputs",
            expected=f"a model that ends in an nn.Linear with a row for each of {count} classes, which learns",
            why="rows of classes that a client lacks count in no mean",
            fix="end the model so, or leave masked out",
        )


def _trains(experiment: Experiment) -> None:
    """Goes on if the task goes with how parts of the model are trained."""
    capacity, task = experiment.recipe.capacity, experiment.aim
    if capacity.by_classes and task.name != "classification":
        raise UserError(
            f"{capacity.label()}(masked=true) for the task {task.name}",
            expected="classification, in which a sample has one class",
            why="it leaves out outputs for classes that a client has no sample of",
            fix="use such data, or leave masked out",
        )
    if capacity.exits(0) is not None and task.name not in ("classification", "next_character"):
        raise UserError(
            f"{capacity.label()} for the task {task.name}",
            expected="classification or next_character, in which a sample has one class",
            why="exits learn from the probabilities of classes that the others give",
            fix="use such data, or a method that cuts in width",
        )


def levels(experiment: Experiment, chosen: Chosen, found: Cuts | None) -> tuple[float, ...] | None:
    """How much of the model each client's device can hold, where devices say so; of every client."""
    recipe = experiment.recipe
    if found is None or not recipe.capacity.by_device:
        return None
    devices, population = experiment.fleet.devices, experiment.federation.clients
    place = Place(population=population, seed=experiment.seed)
    machines = [devices.device(place, client) for client in range(population)]
    widest = sorted(set(recipe.capacity.levels), reverse=True)
    needs = {ratio: memory_of(experiment, chosen, found, ratio) for ratio in widest}
    if recipe.capacity.by_device == "memory":
        able = [[r for r in widest if m.memory is None or needs[r] <= m.memory] for m in machines]
        return tuple((some or widest[-1:])[0] for some in able)
    flops = cost_of(experiment, chosen, None).training
    seconds = [_seconds(machine, flops) for machine in machines]
    fastest = min(seconds)
    share = {ratio: 1.0 if (part := recipe.capacity.of_level(found, ratio)) is None else part.share for ratio in widest}
    return tuple(next((r for r in widest if share[r] * own <= fastest * (1 + EPSILON)), widest[-1]) for own in seconds)


def _seconds(machine: Device, flops: int) -> float:
    """How long a machine takes to train the whole model on a sample."""
    return machine.seconds(1.0, 0.0, flops)


def memory_of(experiment: Experiment, chosen: Chosen, found: Cuts, ratio: float) -> int:
    """What a visit with a ratio of the model needs in bytes, at the very least; under adapters also the base."""
    part = experiment.recipe.capacity.of_level(found, ratio)
    vectors = least_memory(experiment.recipe, found.layout if part is None else part.layout)
    return vectors + (frozen_bytes(experiment, chosen) if experiment.recipe.capacity.cuts == "ranks" else 0)


def frozen_bytes(experiment: Experiment, chosen: Chosen) -> int:
    """Bytes of what lies under adapters, where a part is about them."""
    if not any(part.of_adapters for part in experiment.recipe.parts()):
        return 0
    frozen = (p for p in chosen.engine.at_rest().parameters() if not p.requires_grad)
    return sum(p.numel() * p.element_size() for p in frozen)


def cost_of(experiment: Experiment, chosen: Chosen, part: Portion | None) -> Cost:
    """Floating-point operations per sample, of the model or of a part."""
    samples, aim = experiment.federation.train, experiment.aim
    inputs, targets = samples.batch(torch.from_numpy(np.arange(min(2, len(samples)))))
    engine = chosen.engine
    module = engine.at_rest() if part is None else part_of(engine.at_rest(), part)
    return count(module, inputs, lambda outputs: aim.loss(outputs, targets))
