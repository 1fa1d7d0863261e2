"""The two bounds that every comparison should show: all data in one place, and nobody exchanging anything."""

from __future__ import annotations

from typing import Unpack

from polyrhythm.base.errors import UserError
from polyrhythm.methods.papers.common import Common, recipe
from polyrhythm.methods.participation.base import Uniform
from polyrhythm.methods.recipe import Recipe


def centralised(**common: Unpack[Common]) -> Recipe:
    """Centralised training: one client holds all the data. What federated learning is measured against.

    Optimiser state is kept from version to version unless `keep_state=False`, so this is plain training cut into
    versions.

    Args:
        common: settings of every recipe, see `Common`, but no `cohort`.

    Raises:
        UserError: a cohort was given.
    """
    if "cohort" in common:
        raise UserError(
            f"centralised: cohort={common['cohort']}",
            expected="no cohort",
            why="there is one client, which holds all the data",
            fix="leave cohort out",
        )
    kept = Common(keep_state=True)
    kept.update(common)
    return recipe("centralised", kept, participation=Uniform(cohort=1), regime="centralised")


def local_only(**common: Unpack[Common]) -> Recipe:
    """Local training: every client learns alone on its own data. What a client gains by taking part.

    Every figure is the mean over all clients' own models. There is no global model: the server's stays as it began.

    Args:
        common: settings of every recipe, see `Common`.
    """
    return recipe("local_only", common, regime="local")
