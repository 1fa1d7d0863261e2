"""Clients that stand for the others: whose updates are near to those of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, Participation, to_train
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class DiverseSampling(Participation):
    """Invites one client after the other so that those invited stand for all: greedily the least of

        sum over all clients i of min over invited j of |g_i - g_j|

    with g_i = update_i / (steps * rate) of client i's last visit, so that who works longer is not further away. With
    `as_invited` an update counts as often as there are clients that have their nearest in it, the first of equally near
    ones.

    Clients that are there and were never heard come before all others: in the first version everybody, whatever the
    cohort, later within it. A cohort of everybody is exactly `equal`: each stands for itself. Server state: a vector
    per client heard, N * P; O(N^2 P) per version.

    Departures: the authors' program weighs by samples instead, which is this part with `by_samples`; their test
    whether to look at gradients anew reads another variable than it sets, so it is not here.

    Args:
        cohort: clients per version; None for the cohort of the participation it takes the place of.

    Reference: Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes, "Diverse Client Selection for Federated Learning via
    Submodular Maximization", ICLR 2022, and the authors' program.
    """

    cohort: Count | None = None

    privacy = refused("who is invited follows from updates without noise", "take poisson or uniform")
    in_sums = needs_single("it chooses clients whose updates differ", "take uniform")

    @property
    def of_rounds(self) -> bool:
        return True

    @property
    def guesses(self) -> bool:
        return True

    why_whole = "compares clients' updates with each other, and those here are of different coordinates"

    @property
    def of_whole_models(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"last": setup.table(), "stands": {}}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places, last = context.places(self.size), state["last"]
        everybody = context.roster.all()
        there = context.there(everybody, len(everybody))
        new = [client for client in there if client not in last]
        if not places or not len(last):
            return {**state, "stands": {}}, to_train(new if places else ())
        heard = sorted(last)
        pool = [heard.index(client) for client in there if client in last]
        places = max(0, places - len(new))
        rows = torch.stack([last[client] for client in heard]).double()
        away = torch.cdist(rows, rows[pool], compute_mode="donot_use_mm_for_euclid_dist") if pool else rows[:, :0]
        chosen = greedy(away, min(places, len(pool)))
        stands = dict.fromkeys(new[: context.places(self.size)], 1)
        if chosen:
            nearest = away[:, chosen].argmin(dim=1).bincount(minlength=len(chosen)).tolist()
            stands |= {heard[pool[j]]: count for j, count in zip(chosen, nearest, strict=True)}
        return {**state, "stands": stands}, to_train(stands)

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        if not report.fresh or report.update is None or not report.steps:
            return state
        return {**state, "last": state["last"].set(report.client, report.update / (report.steps * report.rate))}

    def weight(self, setup: Setup, state: State, client: int) -> float:
        return float(state["stands"].get(client, 1))


def greedy(away: Tensor, count: int) -> list[int]:
    """Columns of distances [n, m], one after the other, that make the sum of each row's least one smallest."""
    chosen, least = list[int](), torch.full((len(away), 1), torch.inf, dtype=away.dtype)
    for _ in range(count):
        sums = torch.minimum(away, least).sum(dim=0)
        sums[chosen] = torch.inf
        chosen.append(int(sums.argmin()))
        least = torch.minimum(least, away[:, chosen[-1], None])
    return chosen
