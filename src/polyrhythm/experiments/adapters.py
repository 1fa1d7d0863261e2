"""A model as the parts of a recipe that are about adapters need it."""

from __future__ import annotations

from torch import nn

from polyrhythm.base.adapters import Adapter
from polyrhythm.base.errors import UserError
from polyrhythm.base.vectors import Layout
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import OfWork
from polyrhythm.models.low_rank import fitted
from polyrhythm.models.ranks import adapters_of


def for_adapters(recipe: Recipe, module: nn.Module) -> nn.Module:
    """The module, or a copy that has what the server changes, and in which a factor is frozen.

    Raises:
        UserError: a part is about adapters, and the model has none.
    """
    asking = _asking(recipe)
    if not asking:
        return module
    frozen = next((factor for _, part in recipe.of(OfWork) if (factor := part.freezes) is not None), None)
    return fitted(module, recipe.moves_base or asking, moves_base=bool(recipe.moves_base), frozen=frozen)


def adapters_for(recipe: Recipe, module: nn.Module, layout: Layout) -> tuple[Adapter, ...]:
    """The adapters in a module's vectors, as a setup has them: none where no part is about them."""
    return adapters_of(module, layout) if _asking(recipe) else ()


def check(recipe: Recipe, setup: Setup) -> None:
    """Goes on if both factors learn where a part needs that.

    Raises:
        UserError: one of them is frozen.
    """
    needing = next((part.label() for part in recipe.parts() if part.both_factors), "")
    if needing and not setup.adapters:
        raise UserError(
            f"{needing} and adapters of which one factor is frozen",
            expected="adapters of which A and B learn",
            why="where one factor is the same for all, the mean of the other is exact already",
            fix=f'leave {needing} out, or freeze="A" of the model and freeze_factor',
        )


def _asking(recipe: Recipe) -> str:
    """The first part that is about adapters; "" if none is."""
    return next((part.label() for part in recipe.parts() if part.of_adapters), "")
