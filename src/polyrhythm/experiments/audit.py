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
from polyrhythm.methods.privacy.refuting import at_least, evidence, evidence_of_turns, most_noise, threshold
from polyrhythm.methods.recipe import Recipe
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
    short = dataclasses.replace(prepared.setup, size=WEIGHTS, dtype=torch.float64, places=())
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

    @property
    def sampled(self) -> bool:
        """Whether chance hides who is in a version; else the canary is in as many as the account allows."""
        return self.account.sampling.law in ("poisson", "fixed_size")

    @property
    def count(self) -> int:
        """What the account counts."""
        most = self.account.sampling.most if self.account.sampling.law == "bounded" else None
        return self.versions if most is None else min(most, self.versions)

    def score(self, draws: np.random.Generator, *, canary: bool) -> float:
        """The logarithm of how much likelier what is released is in the world with the canary."""
        setup = dataclasses.replace(self.setup, seed=int(draws.integers(2**62)))
        parts, key, total, seen = dict(self.start), self.account.key, 0.0, list[float]()
        bare = torch.zeros(WEIGHTS, dtype=torch.float64)
        for version in range(self.versions):
            invited = version % self.account.sampling.bands == 0 and version < self.count
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
            found, mean, _ = self.recipe.releasing.mean(setup, parts, release)
            parts = dict(found)
            seen.append(float(mean[0]) * before["cohort"] / before["clip"])
            if invited or self.sampled:
                total += evidence(self.account.sampling, before, parts[key], seen[-1])
        if self.account.sampling.bands > 1:
            return evidence_of_turns(self.account.sampling.bands, before["of"], before["noise"], seen)
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
