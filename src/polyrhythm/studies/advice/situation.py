"""Situation of an experiment: how unlike its clients are in data, speed and presence, its cohort, and its budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from polyrhythm.experiments.experiment import Experiment
from polyrhythm.fleet.survey import met, survey

_STEPS: Mapping[str, float] = {"skew": 0.3, "speeds": 2.0, "there": 0.4, "met": 0.4, "cohort": 2.0, "rounds": 1.0}
"""What counts as a distance of 1: about that between neighbouring settings of the evidence."""
_BY_RATIO = ("speeds", "cohort", "rounds")
_UNKNOWN = 1.0  # the distance of what is not known


@final
@dataclass(frozen=True, kw_only=True)
class Situation:
    """Situation: what advice goes by.

    Args:
        skew: how far clients' classes are from those of all, 0 to 1; None where samples have no classes.
        sizes: the coefficient of variation of how many samples clients hold; shown, and not gone by.
        speeds: how many times longer a sample takes the slowest 5 % of devices than the fastest 5 %, 1 or more.
        there: the share of a day in which a client is there, mean over clients.
        met: the share of the clients that are there at some time while FedAvg spends the budget.
        cohort: the share of the clients that is at work at a time.
        rounds: that FedAvg makes of the budget.
    """

    skew: float | None
    sizes: float
    speeds: float
    there: float
    met: float
    cohort: float
    rounds: float

    def apart(self, other: Situation) -> dict[str, float]:
        """The distance to another one in each respect, in units of about one step of the evidence.

        Speeds, cohorts and rounds are compared by their ratio, in doublings.
        """
        found = {}
        for name, step in _STEPS.items():
            one, two = getattr(self, name), getattr(other, name)
            if one is None or two is None:
                found[name] = _UNKNOWN
            else:
                found[name] = abs(math.log2(one / two) if name in _BY_RATIO else one - two) / step
        return found

    def distance(self, other: Situation) -> float:
        """The Euclidean distance over all respects."""
        return math.hypot(*self.apart(other).values())

    def plain(self) -> dict[str, float | None]:
        """As plain data."""
        return asdict(self)


def situation(experiment: Experiment, cohort: int, rounds: float, seconds: float) -> Situation:
    """The situation of an experiment. Nothing is trained.

    Args:
        experiment: which.
        cohort: clients at work at a time.
        rounds: that FedAvg makes of the budget.
        seconds: of virtual time that these take.
    """
    federation, fleet, seed = experiment.federation, experiment.fleet, experiment.seed
    sizes, labels = federation.sizes[experiment.holders()].astype(float), federation.label_shares()
    found = survey(fleet, federation.clients, seed, labels=labels)
    slow = np.concatenate([found.seconds_per_sample, 1.0 / found.flops_per_second])
    low, high = np.quantile(slow, (0.05, 0.95))
    return Situation(
        skew=skew(federation.histogram()),
        sizes=float(sizes.std() / sizes.mean()),
        speeds=float(high / low),
        there=float(found.share.mean()),
        met=met(fleet, federation.clients, seed, seconds, labels=labels),
        cohort=min(1.0, cohort / len(sizes)),
        rounds=float(rounds),
    )


def skew(counts: np.ndarray) -> float | None:
    """How far the classes of clients are from those of all, from 0 (drawn from all alike) to nearly 1.

    The total variation distance between a client's share of each class and that of all, beyond what chance alone gives
    a client of its size, as a share of what is left up to 1; mean over clients, weighted by their samples. Chance gives
    about half the sum over classes of sqrt(2 p (1 - p) / (pi n)).

    >>> skew(np.array([[50, 0], [0, 50]])) > 0.4, skew(np.array([[50, 50], [50, 50]]))
    (True, 0.0)

    Args:
        counts: of samples, [clients, classes].
    """
    counts = counts[counts.sum(axis=1) > 0].astype(float)
    if counts.size == 0 or counts.shape[1] < 2:
        return None
    sizes = counts.sum(axis=1)
    of_all = counts.sum(axis=0) / counts.sum()
    apart = 0.5 * np.abs(counts / sizes[:, None] - of_all).sum(axis=1)
    chance = 0.5 * np.sqrt(2 * of_all * (1 - of_all) / (np.pi * sizes[:, None])).sum(axis=1)
    beyond = np.maximum(0.0, apart - chance) / np.maximum(1e-9, 1.0 - np.minimum(chance, 0.999))
    return float((beyond * sizes).sum() / sizes.sum())
