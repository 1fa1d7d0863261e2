"""Clients from which much is to be learnt, and soon: UtilitySampling."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from polyrhythm.base.frozen import persistent
from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count, Fraction, NonNegative
from polyrhythm.base.streams import proportionally
from polyrhythm.methods.mechanism import Need, Release, Setup
from polyrhythm.methods.participation.base import (
    Either,
    InvitationContext,
    Invitations,
    Participation,
    to_train,
)
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import needs_single

MOST_SET_ASIDE = 0.3


@final
@dataclass(frozen=True, kw_only=True)
class UtilitySampling(Participation):
    """Weighs how much a client's data would teach the model against how long it takes.

        U_i     = n_i * sqrt(mean of the squared losses of all samples trained on in the last visit)
        score_i = (min(U_i, clip) - min U) / (max U - min U) + sqrt(bonus * ln t / last_i)
                  all of it times (T / t_i)^alpha where t_i > T

    t is the round to come and last_i the one of the client's last visit, both counted from 1 (version + 1); t_i is how
    long that visit took, from dispatch to arrival; clip is the `clip` quantile of all U, and T, the preferred duration,
    the `preferred` quantile of all t_i. If all U are equal, the first term is 1.

    Of the free places a share e = max(least, exploration * decay^version) goes to clients never heard, uniformly; it is
    rounded by chance, so that places filled one by one come to the same. For the other k, all clients are admitted
    whose score is at least `cut_off` times that of the k-th best one there, and k of them are drawn with probability
    proportional to score. Where clients are missing on either side, anybody free is invited, uniformly.

    The pacer looks every `window` versions: if the clients of the last `window` versions had less utility (the mean U
    of a version, summed) than those of the `window` before, T's quantile rises by `pace`. `set_aside` takes the clients
    with more visits than that out of the ranking, at most 30 % of those known, most visits first; they then come only
    where nobody else is left.

    With alpha = 0, bonus = 0, exploration = 0 and cut_off = 1 it invites by utility alone. A visit that did not train
    teaches nothing about its client, and neither does one that was lost: such a client stays as it was, unheard or at
    its last duration. Server state: nine numbers for each client heard, and their ranking. O(N log N) for each version,
    O(cohort log N) for an invitation. Clients send one number more, from the outputs that training has anyway.

    Departures: unheard clients are explored uniformly, not by speed, which nobody knows; last_i is never 0; the exact
    minimum of U, where the code takes 0.999 of it; T is a quantile as in the code, the pacer's rule is the paper's.

    Args:
        cohort: clients per version; None for that of the participation it takes the place of.
        alpha: how much slow clients lose; 0 for not at all.
        exploration: share of unheard clients in the first version, 0 to 1.
        decay: of that share, for each version.
        least: that share does not fall below, or below `exploration`, if that is less.
        bonus: for clients that were long not heard; 0 for none.
        clip: quantile of the utilities that none may exceed.
        cut_off: share of the k-th best score from which clients are admitted.
        preferred: quantile of the durations that is T in the beginning; 1 for any duration.
        pace: by which it rises.
        window: versions between two looks of the pacer.
        set_aside: visits after which a client is set aside; None for never.

    Reference: Lai, Zhu, Madhyastha, Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection",
    OSDI 2021, Algorithm 1, and the authors' code, `oort/oort.py`.
    """

    cohort: Count | None = None
    alpha: NonNegative = 2.0
    exploration: Fraction = 0.9
    decay: Fraction = 0.95
    least: Fraction = 0.2
    bonus: NonNegative = 0.1
    clip: Fraction = 0.95
    cut_off: Fraction = 0.7
    preferred: Fraction = 0.3
    pace: Fraction = 0.05
    window: Count = 20
    set_aside: Count | None = None

    privacy = refused(
        "who is invited follows from losses that clients report without noise, so that one of them would change who "
        "else takes part",
        "take poisson or uniform",
    )
    in_sums = needs_single("clients tell their own losses", "take uniform")

    @property
    def guesses(self) -> bool:
        return True

    def needs(self) -> frozenset[Need]:
        return frozenset({"squared_loss"})

    def server_start(self, setup: Setup) -> State:
        ranking: dict[str, Any] = {"ranked": [], "scores": [], "sums": []}
        table = torch.empty(5, 0, dtype=torch.float64)
        return {
            "heard": {},
            "table": table,
            "newer": {},
            **ranking,
            "quantile": self.preferred,
            "utilities": [],
            "missed": -1,
        }

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        if not report.fresh:
            return state
        utility = _utility(report)
        if not math.isfinite(utility):
            return state
        _, _, _, visits = state["heard"].get(report.client, (0.0, 0.0, 0, 0))
        entry = [utility, report.duration, report.version + 1, visits + 1]
        heard, newer = (persistent(state[name]).set(report.client, entry) for name in ("heard", "newer"))
        return {**state, "heard": heard, "newer": newer}

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        return self._ranked(self._paced(state, release), release.version + 2)

    def _paced(self, state: State, release: Release) -> State:
        utilities = [u for u in map(_utility, release.fresh) if math.isfinite(u)]
        mean = math.fsum(utilities) / len(utilities) if utilities else 0.0
        history, quantile = [*state["utilities"], mean][-2 * self.window :], state["quantile"]
        looks = (release.version + 1) % self.window == 0 and len(history) == 2 * self.window
        if looks and math.fsum(history[: self.window]) > math.fsum(history[self.window :]):
            quantile = min(1.0, quantile + self.pace)
        return {**state, "utilities": history, "quantile": quantile}

    def _ranked(self, state: State, coming: int) -> State:
        """The ranking for the round to come."""
        if not state["heard"]:
            return state
        table = _updated(state["table"].numpy(), state["newer"])
        clients, utility, duration, last, visits = table
        scores = self.scores(utility, duration, last, coming, state["quantile"])
        order = np.argsort(-scores, kind="stable")
        if self.set_aside is not None:
            tired = np.flatnonzero(visits > self.set_aside)
            most = tired[np.argsort(-visits[tired], kind="stable")][: int(MOST_SET_ASIDE * len(clients))]
            order = order[~np.isin(order, most)]
        ranked, best = clients[order].astype(np.int64).tolist(), scores[order]
        ranking = {"ranked": ranked, "scores": best.tolist(), "sums": np.cumsum(best).tolist()}
        return {**state, "table": torch.from_numpy(table), "newer": {}, **ranking}

    def scores(
        self, utility: np.ndarray, duration: np.ndarray, last: np.ndarray, coming: int, quantile: float
    ) -> np.ndarray:
        """The score of each client, from its utility, the duration and the round of its last visit; all [n].

        Args:
            utility, duration, last: of each client.
            coming: the round to come, t.
            quantile: of the durations that is T.
        """
        low, high = utility.min(), utility.max()
        clipped = np.minimum(utility, _quantile(utility, self.clip))
        gain = (clipped - low) / (high - low) if high > low else np.ones_like(utility)
        score = gain + np.sqrt(self.bonus * math.log(coming) / last)
        preferred = _quantile(duration, quantile) if quantile < 1 else math.inf
        late = duration > preferred
        score[late] *= (preferred / duration[late]) ** self.alpha
        return np.asarray(score)

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places = context.places(self.size)
        if not places:
            return state, ()
        generator = context.stream(setup)
        wanted = self._explorers(places, context.version, float(generator.random()))
        new: tuple[int, ...] = ()
        # A search that found too few has looked at everybody: it is not repeated in the same version.
        if wanted and state["missed"] < context.version and len(state["heard"]) < context.roster.eligible:
            new = context.roster.draw(wanted, generator, Either(context.busy, state["heard"]))
            state = {**state, "missed": context.version if len(new) < wanted else state["missed"]}
        known = self._exploited(state, context, generator, places - len(new))
        left = places - len(new) - len(known)
        others = context.roster.draw(left, generator, Either(context.busy, new, known)) if left else ()
        return state, to_train((*known, *new, *others))

    def _explorers(self, places: int, version: int, chance: float) -> int:
        """How many places go to clients never heard."""
        share = places * max(min(self.least, self.exploration), self.exploration * self.decay**version)
        return math.floor(share) + (chance < share - math.floor(share))

    def _exploited(
        self, state: State, context: InvitationContext, generator: np.random.Generator, count: int
    ) -> tuple[int, ...]:
        """Clients drawn by score among those whose score is high enough."""
        ranked, scores = state["ranked"], state["scores"]
        best = context.there(ranked, count)
        if not best:
            return ()
        least = self.cut_off * scores[ranked.index(best[-1])]
        admitted = bisect_right(scores, -least, key=lambda score: -score)
        return context.there((ranked[i] for i in proportionally(state["sums"], generator, among=admitted)), count)

    def measures(self, state: State) -> Mapping[str, float]:
        return {"heard": float(len(state["heard"])), "preferred_quantile": state["quantile"]}


def _updated(table: np.ndarray, newer: Mapping[int, Sequence[float]]) -> np.ndarray:
    """The table of those heard, each with its client and the four numbers, by client, with newer columns: [5, n].

    Only what has changed is looked at one by one, since a ranking is made in every version.
    """
    if not newer:
        return table
    columns = np.array([(client, *newer[client]) for client in sorted(newer)], dtype=np.float64).T
    places = np.searchsorted(table[0], columns[0])
    known = np.isin(columns[0], table[0][places[places < len(table[0])]])
    table = table.copy()
    table[:, places[known]] = columns[:, known]
    return np.insert(table, places[~known], columns[:, ~known], axis=1)


def _utility(report: Report) -> float:
    """How much a client's data would teach: the statistical utility."""
    return report.num_samples * math.sqrt(report.measures["squared_loss"])


def _quantile(values: np.ndarray, share: float) -> float:
    """The value below which that share of the values lies."""
    return float(np.sort(values)[min(int(len(values) * share), len(values) - 1)])
