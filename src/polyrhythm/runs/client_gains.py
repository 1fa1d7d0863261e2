"""What one method gives single clients more than another: pairs of one client and one seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from polyrhythm.runs.paired import Difference, difference
from polyrhythm.runs.spread import ClientResults, spread

Scores = Mapping[int, float]
"""Of each client a number."""


@final
@dataclass(frozen=True, kw_only=True)
class ClientDifference:
    """What a method gives clients more than another one, of each the model that the client uses.

    Two spreads, never one: over seeds, which is how sure the mean is, and over clients, which is how unequally they
    gain.

    Args:
        mean: over seeds, of the mean over clients, with its interval.
        clients: how many pairs a seed has, at least and at most.
        lose: the share of clients that do worse, as a mean over seeds; None without any pair.
        win: that do better.
        sd: standard deviation over clients, of one seed, as a mean over seeds.
        worst: the mean over the tenth of clients that lose most, likewise.
    """

    mean: Difference
    clients: tuple[int, int] = (0, 0)
    lose: float | None = None
    win: float | None = None
    sd: float | None = None
    worst: float | None = None


def scores_used(found: ClientResults) -> Scores:
    """The newest result of each client that has one: of its own model, where it was measured, else of the global one.

    Of a run that was stopped before its last version, models that are only made then have none.
    """
    newest = found.personal[-1][1] if found.personal else found.versions[-1][1] if found.versions else ()
    pairs = zip(found.clients, newest, strict=False)
    return {client: score for client, score in pairs if not math.isnan(score)}


def gains(ours: Scores, theirs: Scores) -> dict[int, float]:
    """What each client that has both gets more from us."""
    return {client: ours[client] - theirs[client] for client in ours if client in theirs}


def mean_of(several: Sequence[Scores]) -> dict[int, float]:
    """The mean of each client that all have."""
    shared = set(several[0]).intersection(*several[1:]) if several else set[int]()
    return {client: statistics.fmean(one[client] for one in several) for client in sorted(shared)}


def client_difference(of_seeds: Iterable[Scores], level: float = 0.95) -> ClientDifference:
    """Sums gains up.

    >>> found = client_difference([{0: 0.2, 1: -0.1}, {0: 0.1, 1: 0.0}])
    >>> round(found.mean.mean or 0.0, 3), found.lose, found.win
    (0.05, 0.25, 0.5)

    Args:
        of_seeds: of each seed what its clients gain.
        level: of the interval.
    """
    known = [list(of.values()) for of in of_seeds if of]
    over = [one for one in map(spread, known) if one is not None]
    if not over:
        return ClientDifference(mean=Difference(mean=None, level=level))
    return ClientDifference(
        mean=difference([one.mean for one in over], level),
        clients=(min(one.clients for one in over), max(one.clients for one in over)),
        lose=statistics.fmean(sum(value < 0 for value in of) / len(of) for of in known),
        win=statistics.fmean(sum(value > 0 for value in of) / len(of) for of in known),
        sd=statistics.fmean(one.sd for one in over),
        worst=statistics.fmean(one.worst for one in over),
    )
