"""What cannot be combined with how adapters are averaged, or with which of their factors is trained, and why."""

from __future__ import annotations

from polyrhythm.base.errors import UserError
from polyrhythm.methods.adapters.base import AdapterAverage
from polyrhythm.methods.adapters.factors import AlternateFactors
from polyrhythm.methods.answers import Answers
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.personal.models import GlobalModel
from polyrhythm.methods.personal.scope import Everything
from polyrhythm.methods.release.robust import ClipUpdates, Middle
from polyrhythm.methods.server_step import Sgd


def _average(recipe: Answers) -> AdapterAverage | None:
    return next((p for p in recipe.modifiers if isinstance(p, AdapterAverage)), None)


def adapters_are_averaged_once(recipe: Answers) -> None:
    """Refuses what changes the mean of updates beside a part that says what becomes of adapters."""
    average = _average(recipe)
    if average is None:
        return
    own = average.label()
    if recipe.server_step != Sgd():
        raise UserError(
            f"{own} with {recipe.server_step.text()}",
            expected="server_sgd(lr=1), which takes what it is given",
            why=f"{own} says where adapters are in the next version, and another step would not lead there",
            fix=f"leave {recipe.server_step.label()} out, or {own}",
        )
    changing = (
        *(p for p in recipe.parts() if p is not average and type(p).before_step is not Mechanism.before_step),
        *(p for p in recipe.parts() if isinstance(p, (Middle, ClipUpdates))),
        *recipe.scalings,
    )
    if changing:
        other = changing[0].label()
        raise UserError(
            f"{own} with {other}",
            expected="one of the two",
            why=f"{other} changes what updates count for in their sum, and products of factors are no such sum",
            fix=f"leave {own} out, or {other}",
        )
    if not recipe.capacity.whole and recipe.capacity.cuts != "ranks":
        raise UserError(
            f"{own} with {recipe.capacity.label()}",
            expected="rank_prefix, or clients that train all of the model",
            why="factors of which clients hold other parts than ranks have no product",
            fix=f"use rank_prefix, or leave {recipe.capacity.label()} out",
        )
    if recipe.scope != Everything():
        raise UserError(
            f"{own} with {recipe.scope.label()}",
            expected="one of the two",
            why="what stays at clients is in no product that the server knows",
            fix=f"leave {own} out, or {recipe.scope.label()}",
        )


def adapters_are_of_one_version(recipe: Answers) -> None:
    """Refuses updates that began at other versions, where factors of one version are put together."""
    part = _average(recipe) or next((p for p in recipe.modifiers if isinstance(p, AlternateFactors)), None)
    if part is None:
        return
    delayed = next((p.label() for p in recipe.parts() if isinstance(p, SampledStaleness)), "")
    late = delayed or recipe.filling or (recipe.release.label() if recipe.release.carries_over else "")
    if late:
        raise UserError(
            f"{part.label()} with {late}",
            expected="rounds: everybody begins at the same version",
            why="it puts factors together that clients have begun from the same ones",
            fix=f"leave {late} out, or {part.label()}",
        )


def new_adapters_have_no_past(recipe: Answers) -> None:
    """Refuses what clients remember in coordinates of adapters that begin each version in other ones."""
    average = _average(recipe)
    if average is None or not average.new_coordinates:
        return
    own = average.label()
    kept = next((p.label() for p in recipe.parts() if p is not average and _remembers(p)), "")
    if not kept and recipe.compression.remembers:
        kept = recipe.compression.label()
    if not kept and recipe.optimiser.keep_state:
        kept = f"{recipe.optimiser.label()}(keep_state=true)"
    if not kept and recipe.personal != GlobalModel():
        kept = recipe.personal.label()
    if kept:
        raise UserError(
            f"{own} with {kept}",
            expected="residual_in_base, under which adapters go on from version to version",
            why=f"adapters begin each version in other coordinates, and {kept} goes on from an earlier one",
            fix=f"use residual_in_base, or leave {kept} out",
        )


def _remembers(part: Mechanism) -> bool:
    """Whether it keeps vectors from one visit to the next."""
    return "previous" in part.needs() or part.extra_vectors > 0 or part.of_all_clients or part.past_the_mean
