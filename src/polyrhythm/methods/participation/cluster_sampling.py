"""One client from each of as many groups as there are places: chance chooses no worse mixture than it must."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, Participation, to_train
from polyrhythm.methods.participation.ward import merged
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import needs_single

Bins = list[dict[int, int]]
"""For each place the clients that it may draw, with their masses."""


@final
@dataclass(frozen=True, kw_only=True)
class ClusterSampling(Participation):
    """Draws one client from each of m groups, m the cohort, so that client i is drawn m * p_i times in the mean.

    p_i = n_i / sum of n over the clients that are there. Their masses m * p_i are poured into m bins of mass 1, and
    each bin draws one client by the masses in it; with `as_invited` a client counts as often as it was drawn, of m. The
    mean is then that of all clients without bias, as under the draw by samples, but with less variance.

    - by="samples": poured in the order of p_i, the largest first, so that clients of a size are in one bin.
    - by="updates": clients are joined to groups by Ward's rule on how unlike their last updates are, as long as no
      group has more mass than a bin; the m largest groups begin a bin each, and the others are poured in. Who was never
      heard is at distance 0 from everybody, as in the authors' program.

    m = the number of clients, all of one size, is exactly everybody. Server state: how often each was drawn; for
    "updates" a vector per client heard, N * P, and O(N^2 P) per version. n_i is what client i declared when it joined.

    Departure: the authors' program hands Ward's rule the square matrix of distances as if its rows were points; here it
    has the distances.

    Args:
        cohort: m, draws per version; None for the cohort of the participation it takes the place of.
        by: what groups clients.
        measure: how unlike two updates are: "angle" between them, or "l1" or "l2" distance.

    Reference: Fraboni, Vidal, Kameni, Lorenzi, "Clustered Sampling: Low-Variance and Improved Representativity for
    Clients Selection in Federated Learning", ICML 2021, Algorithms 1 and 2.
    """

    cohort: Count | None = None
    by: Literal["samples", "updates"] = "samples"
    measure: Literal["angle", "l1", "l2"] = "angle"

    privacy = refused(
        "who is invited follows from how much data clients hold, or from their updates without noise",
        "take poisson or uniform",
    )
    in_sums = needs_single("it groups clients by their updates", "take uniform")

    @property
    def of_rounds(self) -> bool:
        return True

    @property
    def guesses(self) -> bool:
        return self.by == "updates"

    why_whole = "compares clients' updates with each other, and those here are of different coordinates"

    @property
    def of_whole_models(self) -> bool:
        return self.by != "samples"

    def server_start(self, setup: Setup) -> State:
        start: State = {"held": {}, "drawn": {}}
        return start if self.by == "samples" else {**start, "last": setup.table()}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places = context.places(self.size)
        held, free = context.samples(state["held"])
        there = {client: held[client] for client in free}
        if not places or not there:
            return {**state, "held": held}, ()
        bins = poured(self._groups(state, there, places), there, places)
        draws, drawn = context.stream(setup, "bins"), Counter[int]()
        for held_in in bins:
            clients, masses = zip(*held_in.items(), strict=True)
            drawn[clients[int(draws.choice(len(clients), p=np.array(masses) / sum(masses)))]] += 1
        return {**state, "held": held, "drawn": dict(drawn)}, to_train(drawn)

    def _groups(self, state: State, there: Mapping[int, int], places: int) -> list[list[int]]:
        """Clients in the order in which they are poured, in groups that begin a bin each; only one where none does."""
        by_size = sorted(there, key=lambda client: -there[client])
        if self.by == "samples":
            return [by_size]
        away = distances([state["last"].get(client) for client in by_size], self.measure)
        masses = [there[client] * places for client in by_size]
        groups = [[by_size[i] for i in group] for group in merged(away, masses, sum(there.values()), places)]
        return sorted(groups, key=lambda group: -sum(there[client] for client in group))

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        if self.by == "samples" or not report.fresh or report.update is None:
            return state
        return {**state, "last": state["last"].set(report.client, report.update)}

    def weight(self, setup: Setup, state: State, client: int) -> float:
        return float(state["drawn"].get(client, 1))


def poured(groups: Sequence[Sequence[int]], held: Mapping[int, int], places: int) -> Bins:
    """Clients in bins of equal mass.

    A client has `places` times its samples, and a bin room for all samples of all clients once, so sums are exact.

    Args:
        groups: of clients, in order; with more than one, each of the first `places` begins a bin.
        held: samples of each client.
        places: how many bins.
    """
    bins, room = [dict[int, int]() for _ in range(places)], [sum(held.values())] * places
    left = {client: held[client] * places for group in groups for client in group}

    def pour(client: int, k: int) -> None:
        if taken := min(left[client], room[k]):
            bins[k][client] = bins[k].get(client, 0) + taken
            room[k], left[client] = room[k] - taken, left[client] - taken

    for k, group in enumerate(groups[:places] if len(groups) > 1 else ()):
        for client in group:
            pour(client, k)
    for client, k in itertools.product(left, range(places)):
        pour(client, k)
    return bins


def distances(updates: Sequence[Tensor | None], measure: str) -> np.ndarray:
    """How unlike updates [P] are to one another, float64 [n, n]; 0 from what is not there, or of no length."""
    known = [(i, u.double()) for i, u in enumerate(updates) if u is not None and bool(u.any())]
    away = np.zeros((len(updates), len(updates)))
    if not known:
        return away
    places, rows = [i for i, _ in known], torch.stack([update for _, update in known])
    if measure == "angle":
        unit = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        between = torch.arccos((unit @ unit.T).clamp(-1, 1))
    else:
        between = torch.cdist(
            rows, rows, p=1.0 if measure == "l1" else 2.0, compute_mode="donot_use_mm_for_euclid_dist"
        )
    away[np.ix_(places, places)] = between.fill_diagonal_(0).numpy()
    return away
