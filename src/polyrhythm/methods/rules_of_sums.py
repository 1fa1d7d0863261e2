"""What cannot stand in one recipe with `secagg`: whatever needs a single update, and sums that are none."""

from __future__ import annotations

import math

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.base.settings import Settings
from polyrhythm.methods.answers import Answers
from polyrhythm.methods.compression import Compression
from polyrhythm.methods.secure_sum.effects import NEEDS_SINGLE
from polyrhythm.methods.secure_sum.secagg import Secagg
from polyrhythm.methods.work.budgets import EPSILON


def keeps_sums(before: Settings, part: Settings) -> None:
    """Refuses a compression beside a part that hides single updates.

    Raises:
        UserError: one of the two would silently take the place of the other.
    """
    if not (isinstance(before, Compression) and isinstance(part, Compression)):
        return
    if before.sums_only == part.sums_only:
        return
    packing = before if part.sums_only else part
    raise UserError(
        f"{packing.label()} with secagg",
        expected="one of the two",
        why=f"{packing.label()} {NEEDS_SINGLE}: what it leaves of each of them is read before they are summed",
        fix=f"leave {packing.label()} out, or secagg",
    )


def sums_have_enough(recipe: Answers) -> None:
    """Refuses a recipe in which a part needs single updates, or whose sums would be of too few."""
    if not isinstance(recipe.compression, Secagg):
        return
    wrong = Mistakes()
    if recipe.regime != "federated":
        wrong.add(
            UserError(
                f"secagg in a recipe that is {recipe.regime}",
                expected="a federation in which updates are averaged",
                why="there is no sum of several in which one could be hidden",
                fix="leave secagg out, or start from fedavg",
            )
        )
    effects = [(part.label(), part.under_secagg()) for part in recipe.parts()]
    if looking := [(label, effect) for label, effect in effects if effect.refused]:
        labels = " and ".join(label for label, _ in looking)
        wrong.add(
            UserError(
                f"{labels} with secagg",
                expected="parts that do with the sum of updates, and facts such as steps and durations",
                why="; ".join(f"{label} {effect.words}" for label, effect in looking),
                fix="; ".join(effect.fix or f"leave {label} out, or secagg" for label, effect in looking),
            )
        )
    if not recipe.participation.may_be_empty and recipe.regime == "federated":
        invited = math.ceil(recipe.cohort * recipe.releasing.surplus - EPSILON)
        try:
            recipe.compression.check_cohort(invited)
            _check_surplus(recipe.compression, recipe.cohort, invited)
        except UserError as error:
            wrong.add(error)
    wrong.refuse()


def _check_surplus(secagg: Secagg, needed: int, invited: int) -> None:
    """Refuses to give up so many that too few neighbours of a client are left, in every version."""
    degree, threshold = secagg.graph(invited)
    if degree * (needed - 1) / (invited - 1) >= threshold:
        return
    raise UserError(
        f"secagg: threshold = {threshold} of {degree} neighbours, where {invited} are invited and {needed} taken",
        expected=f"at least {threshold} of everybody's neighbours among those taken",
        why="else no sum could be read, and every version would be skipped",
        fix="a smaller factor of over_select, or leave it out",
    )
