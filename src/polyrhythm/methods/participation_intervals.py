"""How much does an update count of a client that is rarely there?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from immutables import Map

from polyrhythm.base.messages import Facts, State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.privacy.effects import timed
from polyrhythm.methods.secure_sum.effects import needs_single
from polyrhythm.methods.weighing import Scaling


@final
@dataclass(frozen=True, kw_only=True)
class ParticipationIntervals(Scaling):
    """Weighs a client by how many versions pass between two of its updates, as far as is known.

    scale_i = |S| / N * omega_i, so that with equal shares the mean is 1/N * sum of omega_i * update_i: omega_i is the
    mean length of the intervals between client i's updates, up to the one before this; 1 before any has ended. Who
    comes every tenth version counts ten times as much then, which undoes the bias towards whoever is often there, with
    no knowledge of how often that is.

    Neutral situation: everybody in every version: exactly 1. Server state: two integers per client heard.

    Args:
        cutoff: an interval of so many versions ends, and the next one begins; None for intervals of any length. It
            bounds omega_i, and so the variance of clients that hardly ever come.

    Reference: Wang, Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging",
    ICLR 2024, Algorithm 2 (FedAU).
    """

    cutoff: Count | None = 50

    of_all_clients = True
    privacy = timed("scales updates by how many are in the version, which tells of coins")
    in_sums = needs_single(
        "in how long a client was not heard only the server knows", "leave participation_intervals out"
    )

    def server_start(self, setup: Setup) -> State:
        return {"heard": Map()}

    def weigh(
        self, setup: Setup, state: State, version: int, facts: Sequence[Facts], shares: Sequence[float]
    ) -> list[float]:
        return [len(facts) / setup.holders * self._interval(state, version, f.client)[0] for f in facts]

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        heard = state["heard"]
        for client in {report.client for report in release.reports}:
            heard = heard.set(client, (release.version, self._interval(state, release.version, client)[1]))
        return {"heard": heard}

    def _interval(self, state: State, version: int, client: int) -> tuple[float, int]:
        """The mean interval of a client that is heard in a version, without the one that ends now, and their number."""
        last, ended = state["heard"].get(client, (-1, 0))
        cut = 0 if self.cutoff is None else (version - last - 1) // self.cutoff
        known = ended + cut
        return (last + 1 + (self.cutoff or 0) * cut) / known if known else 1.0, known + 1
