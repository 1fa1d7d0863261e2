"""Does the server hide a client as well as it says? An attack on its own noise, and what that proves.

Nothing is trained. A recipe's draws, clip, noise and denominators are carried out on made-up reports of 64 weights: in
one world a canary client sends a vector much longer than the clip whenever it is drawn, in the other its data are
nothing. An attacker who knows all but the coins and the noise tells the worlds apart by the likelihood of what was
released. How often it is right, over many repetitions of both, bounds from above how much noise there can have been,
and so from below what the versions have cost.

What an attack proves is in `methods/privacy/refuting.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report, State
from polyrhythm.base.streams import stream
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import prepare
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.participation.base import InvitationContext
from polyrhythm.methods.privacy.account import Account
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.privacy.refuting import at_least, most_noise, threshold
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.differential_privacy import Dp
from polyrhythm.simulation.roster import OpenRoster

WEIGHTS = 64
LEAST = 100
"""Repetitions of a world below which nothing can be said."""
_LONGER = 10.0
"""How many clips the canary's vector is long."""


@final
@dataclass(frozen=True, kw_only=True)
class Audit:
    """Audit of a recipe's noise.

    Args:
        epsilon: what is claimed for the versions that were audited.
        at_least: what they have cost at least, by 95 % confidence; 0 if nothing was found.
        delta: at which both are told.
        noise: z, that is claimed.
        noise_at_most: what it can have been at most; None if any amount.
        law: of the account.
        versions: audited, of each repetition.
        canaries: repetitions of each world.
        true_positives, false_positives: how often the canary was found in the world where it is, and in the other.
        holds: whether the claim is not refuted.
    """

    epsilon: float
    at_least: float
    delta: float
    noise: float
    noise_at_most: float | None
    law: str
    versions: int
    canaries: int
    true_positives: float
    false_positives: float
    holds: bool


def audit(
    experiment: Experiment, *, canaries: int = 1000, versions: int = 10, execution: Execution = AUTO, seed: int = 0
) -> Audit:
    """Attacks what an experiment's `dp` releases, and compares what that proves with what is claimed.

    Args:
        experiment: with `dp` in its recipe; nothing of it is trained.
        canaries: repetitions of each of two worlds; half of them choose a threshold, the others are judged by it. A
            thousand find half the noise, four thousand seven tenths of it.
        versions: that each of them releases.
        execution: as for a run.
        seed: of the attack's own draws.

    Raises:
        UserError: nobody is hidden, or there are too few repetitions.
    """
    attack = _attack(experiment, execution, canaries, versions)
    account, count, half = attack.account, attack.count, canaries // 2
    worlds = [
        np.array([attack.score(stream(seed, "audit", world, number), canary=world == 1) for number in range(canaries)])
        for world in (0, 1)
    ]
    limit = threshold(*(scores[:half] for scores in worlds))
    wrong, right = (int(np.sum(scores[half:] >= limit)) for scores in worlds)
    judged = canaries - half
    low, up = float(at_least(right, judged)), 1 - float(at_least(judged - wrong, judged))
    most = most_noise(account.sampling, account.noise, count, low, up)
    return Audit(
        epsilon=account.epsilon(count),
        at_least=0.0 if most is None else dataclasses.replace(account, noise=most).epsilon(count),
        delta=account.delta,
        noise=account.noise,
        noise_at_most=most,
        law=account.sampling.law,
        versions=versions,
        canaries=canaries,
        true_positives=right / judged,
        false_positives=wrong / judged,
        holds=most is None or most >= account.noise,
    )


def _attack(experiment: Experiment, execution: Execution, canaries: int, versions: int) -> _Attack:
    """The attacker of an experiment, whose vectors are short."""
    if canaries < LEAST or versions < 1:
        raise UserError(
            f"an audit of {versions:,} versions by {canaries:,} canaries",
            expected=f"a version at least, and {LEAST} canaries",
            why="from fewer repetitions nothing follows with any confidence",
            fix="--canaries 1000 --versions 10, for example",
        )
    prepared = prepare(experiment, execution)
    account = None if prepared.privacy is None else prepared.privacy.account
    if account is None or not account.noise:
        raise UserError(
            f"an audit of {experiment.recipe.title}",
            expected="a recipe with dp, and noise",
            why="there is no guarantee that could be refuted",
            fix="pipe dp(noise=1, clip=1, delta=1e-5) onto the recipe",
        )
    short = dataclasses.replace(prepared.setup, size=WEIGHTS, dtype=torch.float64, places=(), axes=None)
    return _Attack(recipe=prepared.recipe, account=account, setup=short, versions=versions)


@final
@dataclass(frozen=True, kw_only=True)
class _Attack:
    """One attacker, who knows everything of a recipe but its coins and its noise."""

    recipe: Recipe
    account: Account
    setup: Setup
    versions: int

    @functools.cached_property
    def start(self) -> Mapping[str, State]:
        return self.recipe.server_start(self.setup)

    @functools.cached_property
    def roster(self) -> OpenRoster:
        return OpenRoster(self.setup.population, range(self.setup.holders))

    @functools.cached_property
    def dp(self) -> Dp:
        return next(part for _, part in self.recipe.of(Dp))

    @property
    def sampled(self) -> bool:
        """Whether chance hides who is in a version; else the canary is in as many as the account allows."""
        return self.account.sampling.law != "bounded"

    @property
    def count(self) -> int:
        """What the account counts."""
        return self.versions

    def score(self, draws: np.random.Generator, *, canary: bool) -> float:
        """The logarithm of how much likelier what is released is in the world with the canary."""
        setup = dataclasses.replace(self.setup, seed=int(draws.integers(2**62)))
        parts, key, total, bare = dict(self.start), self.account.key, 0.0, torch.zeros(WEIGHTS, dtype=torch.float64)
        for version in range(self.versions):
            invited = True
            if self.sampled:
                invited, parts = self._drawn(setup, parts, version, bare)
            before = parts[key]
            sent = _LONGER * before["clip"] * (1.0 if canary else -1.0 if self._replaced else 0.0)
            reports = (_report(version, sent),) if invited and sent else ()
            release = Release(
                version=version,
                reports=reports,
                shares=(1.0,) * len(reports),
                scales=(1.0,) * len(reports),
                weights=bare,
            )
            found, mean = self.recipe.releasing.mean(setup, parts, release)
            parts = dict(found)
            total += self._evidence(before, parts[key], float(mean[0]), invited)
        return total

    @property
    def _replaced(self) -> bool:
        """Whether the other world has other data at the canary, and not nothing."""
        return self.account.sampling.law == "fixed_size"

    def _drawn(
        self, setup: Setup, parts: Mapping[str, State], version: int, bare: torch.Tensor
    ) -> tuple[bool, dict[str, State]]:
        """Whether the recipe draws client 0."""
        context = InvitationContext(version=version, weights=bare, buffers=(), roster=self.roster)
        after, invitations = self.recipe.inviting.invite(setup, parts, context)
        return any(invitation.client == 0 for invitation in invitations), dict(after)

    def _evidence(self, before: State, after: State, seen: float, invited: bool) -> float:
        """What one version says, as a logarithm of likelihoods."""
        expected, spread, rate = before["cohort"], before.get("of_sum", before["noise"]), self._rate
        place, against = seen * expected / before["clip"], -math.inf
        found = (2 * place - 1) / (2 * spread**2)
        if self._replaced:
            against = (-2 * place - 1) / (2 * spread**2)
        elif isinstance(self.dp.clip, Adaptive):  # the canary takes a half from the count of those not clipped
            of_count, counted = self.dp.clip.spread(expected), (after["unclipped"] - 0.5) * expected
            found += (-counted - 0.25) / (2 * of_count**2)
        if rate == 1.0 and not self._replaced:
            return found if invited else 0.0
        nothing = math.log1p(-rate) if rate < 1 else -math.inf
        return float(np.logaddexp(nothing, math.log(rate) + found) - np.logaddexp(nothing, math.log(rate) + against))

    @property
    def _rate(self) -> float:
        sampling = self.account.sampling
        return sampling.cohort / sampling.population if self._replaced else sampling.rate


def _report(version: int, sent: float) -> Report:
    """What the canary sends: a vector along the first weight, and so many samples that no cap shortens it."""
    update = torch.zeros(WEIGHTS, dtype=torch.float64)
    update[0] = sent
    return Report(
        dispatch=version,
        client=0,
        visit=version,
        version=version,
        kind="train",
        recipe="",
        num_samples=2**31,
        update=update,
    )
