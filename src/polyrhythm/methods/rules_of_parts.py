"""What cannot be combined with clients that train parts of the model, and why."""

from __future__ import annotations

from polyrhythm.base.errors import UserError
from polyrhythm.methods.answers import Answers
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.order.base import Order
from polyrhythm.methods.participation.base import Participation
from polyrhythm.methods.personal.models import GlobalModel
from polyrhythm.methods.personal.scope import Everything
from polyrhythm.methods.work.base import WorkModifier


def parts_of_models_are_enough(recipe: Answers) -> None:
    capacity, parts = recipe.capacity, recipe.parts()
    if capacity.whole or recipe.regime == "local":  # where nothing is exchanged, of which it is refused
        return
    own = capacity.label()
    if recipe.regime == "centralised":
        raise UserError(
            f"{own} in a recipe that is {recipe.regime}",
            expected="a federation in which updates are averaged",
            why="what a client does not hold, it would never have from anybody else",
            fix=f"leave {own} out, or start from fedavg",
        )
    personal = next((p for p in (recipe.scope, recipe.personal) if p not in (Everything(), GlobalModel())), None)
    if personal is not None:
        raise UserError(
            f"{own} with {personal.label()}",
            expected="one of the two",
            why="what is a client's own would have to lie within what it holds, on each of its visits",
            fix=f"leave {own} out, or {personal.label()}",
        )
    for part in (p for p in parts if p.of_whole_models and p.by_coordinate != "any"):
        other = part.label()
        if part.by_coordinate == "no":
            raise UserError(
                f"{own} with {other}",
                expected="one of the two",
                why=f"{other} {part.why_whole}",
                fix=f"leave {own} out, or {other}",
            )
        if not capacity.static:
            raise _goes_on_elsewhere(own, other)
        if capacity.by_classes:
            raise UserError(
                f"{own}(masked=true) with {other}",
                expected="one of the two",
                why=f"{other} counts who ever holds a coordinate, and of rows for classes only each client knows",
                fix=f"leave masked out, or {other}",
            )
    if "previous" in recipe.needs() and not (capacity.static and capacity.cuts in ("widths", "ranks")):
        asking = next(p.label() for p in parts if "previous" in p.needs())
        raise UserError(
            f"{own} with {asking}",
            expected="width_prefix or rank_prefix, with which a client's models all have the same widths and layers",
            why=f"{asking} goes by the client's last local model, and that may be another part of the model",
            fix=f"use width_prefix or rank_prefix without redrawn, or leave {own} or {asking} out",
        )
    if capacity.cuts == "magnitude" and (asked := recipe.needs() & {"fisher", "fisher_model"}):
        asking = next(p.label() for p in parts if asked & p.needs())
        raise UserError(
            f"{own} with {asking}",
            expected="one of the two",
            why=f"{asking} asks for gradients of single samples, which are not to be had of single weights",
            fix=f"leave {own} out, or {asking}",
        )
    looking = next((p.label() for p in parts if _looks_at_models(p)), None) if capacity.statistics_apart else None
    if looking is not None:
        raise UserError(
            f"{own}(static_norms=true) with {looking}",
            expected="one of the two",
            why=f"{looking} has clients look at a model before anybody has counted the statistics of its norms",
            fix=f"leave static_norms out, or {looking}",
        )
    sending = next((p.label() for p in parts if isinstance(p, WorkModifier) and p.substitutes), None)
    if capacity.by_classes and sending is not None:
        raise UserError(
            f"{own}(masked=true) with {sending}",
            expected="one of the two",
            why="what is sent again does not say which classes its client has",
            fix=f"leave masked out, or {sending}",
        )
    if capacity.static:
        return
    if sending is not None or recipe.optimiser.keep_state:
        raise _goes_on_elsewhere(own, sending or f"{recipe.optimiser.label()}(keep_state=true)")


def _goes_on_elsewhere(own: str, kept: str) -> UserError:
    return UserError(
        f"{own} with {kept}",
        expected="width_prefix or depth_prefix, with which a client holds the same part on all its visits",
        why=f"{kept} goes on from an earlier visit, and here that was with other coordinates",
        fix=f"use width_prefix or depth_prefix without redrawn, or leave {kept} out",
    )


def _looks_at_models(part: Mechanism) -> bool:
    """Whether a part has clients look at models that they do not train."""
    if isinstance(part, Participation):
        return type(part).measured is not Participation.measured
    looks = isinstance(part, Order) and part.looks(True) > 0
    return looks or bool(part.watches or part.needs() & {"fisher", "fisher_model"})
