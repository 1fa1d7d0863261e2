"""Clients of like speed together: tiers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.frozen import persistent
from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count, NonNegative
from polyrhythm.base.streams import proportionally, stream
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import (
    Either,
    Invitation,
    InvitationContext,
    Invitations,
    Participation,
    to_train,
)
from polyrhythm.methods.privacy.effects import PrivacyEffect, drawing, refused
from polyrhythm.methods.secure_sum.effects import ONLY_FACTS, SumEffect, needs_single


@final
@dataclass(frozen=True, kw_only=True)
class TierSampling(Participation):
    """Sorts clients into tiers by how long their visits take, and invites from one tier at a time.

    A round then lasts as long as that tier's slowest client, and not as the slowest of all.

    1. *Profiling.* Clients with fewer than `profile` visits come first, uniformly, as long as there are any; what
       places they leave goes to tiers. A client's latency is the mean duration of its first `profile` visits that
       trained. One that was invited so often, and of which none was heard yet, counts as slowest of all until it is.
    2. *Tiers.* The profiled clients, by latency, in `tiers` groups whose sizes differ by at most one; equal latencies
       in an order drawn once. They are made anew in a version before which a profile has changed.
    3. *A round.* A tier is drawn by `probabilities`, then clients uniformly in it. A tier with nobody free is passed
       over, and one of probability 0 comes only if all others have nobody. A tier with fewer free clients than places
       makes a smaller cohort.
    4. *Adaptive*, with `interval`: as soon as there are tiers, and every `interval` versions, all profiled clients that
       are there measure the current model on their own samples; a tier's accuracy is the mean over its samples. If
       that of the tier drawn last has not risen since, tiers are ranked by accuracy, and of n tiers the i-th lowest
       is drawn with probability (n - i) / (n (n - 1) / 2) from then on, the most accurate one not at all. Where a task
       has no "accuracy", the loss is judged, and less is better.

    `credits` bounds how often a tier is drawn while others have credits left, and leaves those without out of the
    ranking; once nobody has any, they count no more. With tiers=1 all of this is a uniform draw, once the profiles are
    there. Where places are filled one by one (`rolling`), each is a round.

    Server state: three numbers and a tier for each client, O(population); making tiers is O(N log N) for a version in
    which a profile has changed, an invitation O(tiers * cohort) unless a tier has run empty. `interval` sends the model
    to everybody, and has everybody run one forward pass.

    Departures: the paper profiles before training begins, on a task of its own, and leaves out whoever does not answer
    in time; it keeps test sets at clients.

    Args:
        cohort: clients per version; None for that of the participation it takes the place of.
        tiers: how many.
        probabilities: of the tiers, the fastest first, in any unit; None for equal ones.
        interval: versions between two judgements, for adaptive probabilities; None for fixed ones.
        credits: draws of each tier; None for any number.
        profile: visits by which a client is known.

    Raises:
        UserError: probabilities that are not one for each tier, or all 0.

    Reference: Chai et al., "TiFL: A Tier-based Federated Learning System", HPDC 2020, section 4, Algorithm 2.
    """

    cohort: Count | None = None
    tiers: Count = 5
    probabilities: tuple[NonNegative, ...] | None = None
    interval: Count | None = None
    credits: Count | None = None
    profile: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.probabilities
        if given is not None and (len(given) != self.tiers or not sum(given) > 0):
            raise UserError(
                f"tifl: {self.tiers} tiers with probabilities {list(given)}",
                expected="one for each tier, not all of them 0",
                why="each is how often its tier is drawn",
                fix=f"give probabilities {self.tiers} numbers, the fastest tier's first, or leave it out",
            )

    @property
    def guesses(self) -> bool:
        return True

    def under_secagg(self) -> SumEffect:
        if self.interval is None:
            return ONLY_FACTS
        return needs_single("clients tell how accurate the model is on their own data", "leave interval out")

    def under_privacy(self) -> PrivacyEffect:
        if self.interval is None:
            return drawing("bounded", "draws among clients of like speed")
        return refused("who is invited follows from accuracies that clients report without noise", "leave interval out")

    def server_start(self, setup: Setup) -> State:
        return {
            "profiles": {},
            "tier_of": {},
            "changed": False,
            "sorted": -1,
            "probabilities": list(self.probabilities or (1.0,) * self.tiers),
            "credits": [] if self.credits is None else [self.credits] * self.tiers,
            "drawn": -1,
            "missed": -1,
            "answers": {},
            "judging": False,
            "judged": -1,
            "accuracies": [],
        }

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        tries, heard, seconds = state["profiles"].get(report.client, (0, 0, 0.0))
        if not report.fresh or heard >= self.profile:
            return state
        entry = [tries, heard + 1, seconds + report.duration]
        return {**state, "profiles": persistent(state["profiles"]).set(report.client, entry), "changed": True}

    def _sorted(self, setup: Setup, state: State, version: int) -> State:
        """With the tiers made anew, if a profile has changed; once a version, and whether or not it was skipped."""
        if not state["changed"] or (state["tier_of"] and state["sorted"] == version):
            return state
        latencies = {
            client: seconds / heard if heard else math.inf
            for client, (tries, heard, seconds) in state["profiles"].items()
            if tries >= self.profile
        }
        return {**state, "tier_of": self.tiered(setup, latencies), "changed": False, "sorted": version}

    def tiered(self, setup: Setup, latencies: Mapping[int, float]) -> dict[int, int]:
        """The tier of each client, 0 for the fastest."""
        clients = np.fromiter(latencies.keys(), dtype=np.int64)
        chance = stream(setup.seed, "cohort", "tiers").random(setup.population)[clients]
        order = clients[np.lexsort((chance, np.fromiter(latencies.values(), dtype=np.float64)))]
        pieces = np.array_split(order, self.tiers)
        return {client: tier for tier, piece in enumerate(pieces) for client in piece.tolist()}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places = context.places(self.size)
        if not places:
            return state, ()
        state, new = self._profiled(state, setup, context, places)
        invited = to_train(new)
        if len(new) == places:
            return state, invited
        state = self._sorted(setup, state, context.version)
        if state["judging"]:
            state = self._judged(state)
        elif self._is_due(state, context):
            others = [c for c in sorted(state["tier_of"]) if c not in new]
            asked = tuple(Invitation(client=c, kind="measure") for c in context.there(others, len(others)))
            if asked:
                return {**state, "judging": True, "judged": context.version}, (*invited, *asked)
        state, found = self._from_a_tier(state, setup, context, places - len(new), new)
        return state, (*invited, *to_train(found))

    def _profiled(
        self, state: State, setup: Setup, context: InvitationContext, places: int
    ) -> tuple[State, tuple[int, ...]]:
        """Clients whose visits are yet to tell how fast they are."""
        # A search that found too few has looked at everybody: it is not repeated in the same version. One that found
        # nobody is, since otherwise whoever comes first would never be asked.
        if state["missed"] == context.version or len(state["tier_of"]) == context.roster.eligible:
            return state, ()
        known = _Profiled(state["profiles"], self.profile)
        new = context.roster.draw(places, context.draws(setup), Either(context.busy, known))
        profiles = persistent(state["profiles"])
        for client in new:
            tries, heard, seconds = profiles.get(client, (0, 0, 0.0))
            profiles = profiles.set(client, [tries + 1, heard, seconds])
        missed = context.version if 0 < len(new) < places else state["missed"]
        return {**state, "profiles": profiles, "changed": state["changed"] or bool(new), "missed": missed}, new

    def _from_a_tier(
        self, state: State, setup: Setup, context: InvitationContext, places: int, taken: tuple[int, ...]
    ) -> tuple[State, tuple[int, ...]]:
        credits, sums = state["credits"], list(itertools.accumulate(state["probabilities"]))
        order = proportionally(sums, context.stream(setup, "tier"))
        for tier in sorted(order, key=lambda tier: bool(credits) and credits[tier] == 0):
            others = Either(context.busy, taken, _Outside(state["tier_of"], tier))
            found = context.roster.draw(places, context.draws(setup), others)
            if found:
                left = [c - (t == tier and c > 0) for t, c in enumerate(credits)]
                return {**state, "drawn": tier, "credits": left}, found
        return state, ()

    def _is_due(self, state: State, context: InvitationContext) -> bool:
        if self.interval is None or not state["tier_of"]:
            return False
        return not state["accuracies"] or context.version >= state["judged"] + self.interval

    def _judged(self, state: State) -> State:
        """What the answers say about the tiers."""
        before, now = state["accuracies"], self._accuracies(state)
        state = {**state, "judging": False, "answers": {}, "accuracies": now}
        drawn = state["drawn"]
        if not before or drawn < 0 or before[drawn] is None or now[drawn] > before[drawn]:
            return state
        return {**state, "probabilities": by_accuracy(now, state["credits"])}

    def _accuracies(self, state: State) -> list[float | None]:
        """Of each tier, over all samples of those who answered; as before where nobody did."""
        found: list[float | None] = list(state["accuracies"] or [None] * self.tiers)
        heard: list[list[tuple[float, int]]] = [[] for _ in found]
        for client, (accuracy, held) in state["answers"].items():
            heard[state["tier_of"][client]].append((accuracy, held))
        for tier, answers in enumerate(heard):
            if answers:
                found[tier] = math.fsum(a * n for a, n in answers) / sum(n for _, n in answers)
        return found

    def measured(self, setup: Setup, state: State, report: Report) -> State:
        accuracy = report.measures.get("accuracy", -report.measures["loss"])
        if not math.isfinite(accuracy):
            return state
        return {**state, "answers": persistent(state["answers"]).set(report.client, [accuracy, report.num_samples])}

    def measures(self, state: State) -> Mapping[str, float]:
        return {"tier": float(state["drawn"] + 1), "profiled": float(len(state["tier_of"]))}


def by_accuracy(accuracies: Sequence[float | None], credits: Sequence[int]) -> list[float]:
    """How often each tier is drawn: the less accurate, the more often; the most accurate one never.

    >>> by_accuracy([0.9, 0.5, 0.7], [])
    [0.0, 0.6666666666666666, 0.3333333333333333]
    """
    left = [tier for tier in range(len(accuracies)) if not any(credits) or credits[tier]]
    left.sort(key=lambda tier: -math.inf if (accuracy := accuracies[tier]) is None else accuracy)
    n, found = len(left), [0.0] * len(accuracies)
    for i, tier in enumerate(left, start=1):
        found[tier] = (n - i) / (n * (n - 1) / 2) if n > 1 else 1.0
    return found


@final
class _Profiled:
    """Whoever has had the visits that tell how fast it is."""

    def __init__(self, profiles: Mapping[int, Sequence[float]], visits: int) -> None:
        self._profiles, self._visits = profiles, visits

    def __contains__(self, client: object) -> bool:
        return client in self._profiles and self._profiles[client][0] >= self._visits  # type: ignore[index]


@final
class _Outside:
    """Whoever is not in a tier."""

    def __init__(self, tier_of: Mapping[int, int], tier: int) -> None:
        self._tier_of, self._tier = tier_of, tier

    def __contains__(self, client: object) -> bool:
        return client not in self._tier_of or self._tier_of[client] != self._tier  # type: ignore[index]
