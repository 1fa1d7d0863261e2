"""REFL: who will be away soon is asked first, and late updates count by how late and how unlike the others they are.

Abdelmoniem, Sahu, Canini, Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023.
"""

from __future__ import annotations

import math
from typing import Literal, Unpack

from polyrhythm.methods.papers.common import DEFAULTS, Common, recipe
from polyrhythm.methods.participation.availability_sampling import AvailabilitySampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.unlike_updates import UnlikeUpdates
from polyrhythm.methods.weighing import Equal


def refl(
    *,
    rest: int = 5,
    buffer: int | None = None,
    beta: float = 0.35,
    boost: Literal["code", "paper"] = "code",
    **common: Unpack[Common],
) -> Recipe:
    """REFL: little work is thrown away, and rare clients are heard (Abdelmoniem et al., EuroSys 2023).

    A version is made once most of a cohort have reported; the others count in a later one, which invites so many fewer.

    Args:
        rest: versions for which a client is not invited again.
        buffer: updates after which a version is made; None for four fifths of the cohort.
        beta: how much it counts that a late update is unlike the others.
        boost: "code" for the weight of the authors' program, "paper" for that of the paper.
        common: settings of every recipe, see `Common`.
    """
    cohort = common.get("cohort", DEFAULTS["cohort"])
    return recipe(
        "refl",
        common,
        participation=AvailabilitySampling(cohort=cohort, rest=rest),
        sharing=Equal(),
        release=Buffer(size=math.ceil(0.8 * cohort) if buffer is None else buffer),
        modifiers=(UnlikeUpdates(beta=beta, boost=boost),),
    )
