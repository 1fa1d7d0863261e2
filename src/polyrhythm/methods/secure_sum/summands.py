"""What a client adds to a sum that hides it, and what the server reads of the sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Facts, Fault
from polyrhythm.base.vectors import Layout
from polyrhythm.methods.answers import Answers
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.secure_sum import fixed_point
from polyrhythm.methods.secure_sum.secagg import Secagg
from polyrhythm.methods.weighing import Scaling

_MOST_ROUNDING = 0.1
KEY = Secagg.label()
"""Of the part, among the states and extras of mechanisms."""


def part_of(recipe: Answers) -> Secagg:
    """The part that hides single updates, in a recipe of which the server knows sums only."""
    assert isinstance(recipe.compression, Secagg)
    return recipe.compression


def bound_of(recipe: Answers) -> float:
    """B: the largest entry that a client may add to the sum; none is larger than a clipped update is long.

    Where clients are hidden, sums are in clips.
    """
    if recipe.releasing.private:
        return 1.0  # in clips
    longest = recipe.releasing.longest
    return part_of(recipe).limit if longest is None or recipe.scalings else longest


def steps_of(recipe: Answers, setup: Setup) -> float:
    """s: steps to a unit of the weights.

    Raises:
        UserError: a sum of so many, with entries so large, leaves too few.
    """
    return fixed_point.scale_for(recipe.most_in_a_sum(setup), bound_of(recipe))


def numbers_of(recipe: Answers, layout: Layout) -> int:
    """How many numbers a client adds to a sum: one for each parameter that travels, and what is counted beside them."""
    hiding = recipe.releasing.hiding
    return layout.parameters + (0 if hiding is None else hiding[1].tallies)


def longest_of(recipe: Answers, setup: Setup, layout: Layout) -> float:
    """How long an update may be, in clips, so that it is no longer than one once its entries are rounded.

    Raises:
        UserError: rounding alone may be as long as a clip.
    """
    rounding = math.sqrt(layout.parameters) / (2 * steps_of(recipe, setup))
    if rounding < _MOST_ROUNDING:
        return 1.0 - rounding
    raise UserError(
        f"dp with secagg: {layout.parameters:,} weights, and {steps_of(recipe, setup):g} steps to a clip",
        expected=f"rounding that is no longer than {_MOST_ROUNDING:g} clips; here it may be {rounding:.3g}",
        why="each client shortens its update by as much as rounding may lengthen it, and little would be left",
        fix="a smaller cohort, or a smaller model",
    )


def largest_of(recipe: Answers, setup: Setup) -> float:
    """The largest whole number that a client adds to a sum; infinity where single updates are sent."""
    return steps_of(recipe, setup) * bound_of(recipe) if recipe.sums_only else math.inf


def summand(
    recipe: Answers,
    setup: Setup,
    layout: Layout,
    facts: Facts,
    most: int,
    update: Tensor,
    clip: float | None = None,
) -> Tensor | Fault:
    """What a client adds, int32 [parameters that travel, and what is counted]; or why it adds nothing.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        layout: of what travels.
        facts: of the visit.
        most: max n_i.
        update: [P].
        clip: to which a client that is hidden clips its own.
    """
    scale = 1.0
    for _, scaling in recipe.of(Scaling):
        scale *= scaling.alone(facts)
    if (hiding := recipe.releasing.hiding) is not None:
        assert clip is not None, "a clip, where a client is hidden"
        longest = longest_of(recipe, setup, layout)
        hidden = hiding[1].clipped_alone(update, facts.num_samples, scale, clip, longest)
        values = torch.cat([update.narrow(0, s.offset, s.size) for s in layout.segments]).to(torch.float64)
        values = values * hidden.factor if hidden.factor else torch.zeros_like(values)
        counted = torch.full((hiding[1].tallies,), hidden.tally, dtype=torch.float64)
        return torch.round(torch.cat([values, counted]) * steps_of(recipe, setup)).to(torch.int32)
    bound = bound_of(recipe)
    weight = recipe.sharing.alone(facts, most) * scale * recipe.releasing.shortens(update)
    values = torch.cat([update.narrow(0, s.offset, s.size) for s in layout.segments]).to(torch.float64)
    whole = fixed_point.rounded(values * weight, steps_of(recipe, setup), bound * (1 + 1e-6))
    if whole is not None:
        return whole
    if not bool(torch.isfinite(values).all()):
        return Fault("not_finite", "not a finite number in the update, as the client says")
    largest = float((values * weight).abs().max())
    return Fault("too_far", f"an entry of {largest:.3g} to add to a sum, where {bound:g} is the limit")


def total(recipe: Answers, setup: Setup, layout: Layout, numbers: np.ndarray) -> tuple[Tensor, float]:
    """The sum as a vector, float64 [P], zero where nothing travels; and what is counted beside it.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        layout: of what travels.
        numbers: the sum, uint32 [parameters that travel, and what is counted].
    """
    values, vector, place = fixed_point.read(numbers, steps_of(recipe, setup)), layout.zeros().to(torch.float64), 0
    for segment in layout.segments:
        vector.narrow(0, segment.offset, segment.size).copy_(values[place : place + segment.size])
        place += segment.size
    return vector, float(values[place:].sum())


def counted(recipe: Answers, facts: Sequence[Facts], shares: Sequence[float], most: int) -> float:
    """By what the sum is divided to be the mean: sum_i w_i, over what all scales have in common; 0 for nobody."""
    weights = sum(recipe.sharing.alone(f, most) for f in facts)
    for _, scaling in recipe.of(Scaling):
        common = scaling.together(facts, shares)
        weights = weights / common if common else 0.0
    return weights
