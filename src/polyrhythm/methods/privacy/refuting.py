"""What an attack proves: how much noise there can have been at most, if it was right so often.

An attacker tells a world with a client from one without. By 95 % confidence it is right in the first in a share of
`low` at least, and wrong in the second in one of `up` at most. Of a Gaussian mechanism that is so only if they are
mu >= Phi^-1(low) - Phi^-1(up) standard deviations apart; of any, only if low <= e^epsilon * up + delta(epsilon), and
1 - up <= e^epsilon * (1 - low) + delta(epsilon), for every epsilon.

Reference: Nasr et al., "Tight Auditing of Differentially Private Machine Learning", USENIX Security 2023, section 4.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyrhythm.base.messages import State
from polyrhythm.methods.privacy import accounting
from polyrhythm.methods.privacy.accounting import Sampling
from polyrhythm.methods.privacy.correlated import coefficients, length

_DOUBT = 0.025
"""That one of two bounds does not hold: 95 % for both."""
_LOSSES = np.concatenate([np.linspace(0, 4, 21), np.linspace(4.5, 30, 52)])
_FAR, _FINE = 16.0, 1e-2
"""How far from what is claimed noise is looked for, and how closely it is found, relative."""


def evidence(sampling: Sampling, before: State, after: State, place: float) -> float:
    """How much likelier a version is in a world where a client sends a vector of one clip, as a logarithm.

    Args:
        sampling: how clients come into versions. Of "fixed_size" the client sends as much the other way in the other
            world; else its data are nothing there.
        before, after: the state of `dp`, before the version and after it.
        place: the sum that was released along that vector, in clips.
    """
    spread, replaced = before.get("of_sum", before["noise"]), sampling.law == "fixed_size"
    found = (2 * place - 1) / (2 * spread**2)
    against = (-2 * place - 1) / (2 * spread**2) if replaced else -math.inf
    if "of_count" in before and not replaced:  # the client takes a half from the count of those that are not clipped
        counted = (after["unclipped"] - 0.5) * before["cohort"]
        found += (-counted - 0.25) / (2 * before["of_count"] ** 2)
    rate = sampling.cohort / sampling.population if replaced else sampling.rate
    nothing, chosen = (math.log1p(-rate) if rate < 1 else -math.inf), math.log(rate)
    return float(np.logaddexp(nothing, chosen + found) - (np.logaddexp(nothing, chosen + against) if replaced else 0.0))


def evidence_of_turns(bands: int, versions: int, noise: float, places: Sequence[float]) -> float:
    """The same of all versions together, where noise is correlated and a client is in every b-th, from the first.

    Args:
        bands: b.
        versions: T, of the whole run.
        noise: z.
        places: the sums that were released along that vector, in clips.
    """
    shares, total = coefficients(bands), 0.0
    lengths = [length(bands, version, versions) for version in range(len(places))]
    for t in range(len(places)):
        # Times C, noise is independent again.
        sent = shares[t % bands] / lengths[t - t % bands]
        seen = sum(shares[i] * places[t - i] / lengths[t - i] for i in range(min(t + 1, bands)))
        total += sent * (2 * seen - sent) / (2 * noise**2)
    return total


def at_least(right: Any, of: int) -> Any:
    """The lower bound of a share, of so many out of so many (Clopper-Pearson); of arrays, too."""
    beta = importlib.import_module("scipy.stats").beta
    counts = np.asarray(right, dtype=np.float64)
    with np.errstate(all="ignore"):
        return np.where(counts > 0, beta.ppf(_DOUBT, counts, of - counts + 1), 0.0)


def apart(low: Any, up: Any) -> Any:
    """mu, how many standard deviations two normal distributions are apart at least."""
    quantile = importlib.import_module("scipy.special").ndtri
    return quantile(low) - quantile(up)


def threshold(without: np.ndarray, with_it: np.ndarray) -> float:
    """The score from which on a client is said to be there, with which most is proved on these scores."""
    tried = np.unique(np.concatenate([without, with_it]))
    right = len(with_it) - np.searchsorted(np.sort(with_it), tried)
    wrong = len(without) - np.searchsorted(np.sort(without), tried)
    found = apart(at_least(right, len(with_it)), 1 - at_least(len(without) - wrong, len(without)))
    return float(tried[int(np.argmax(found))])


def most_noise(sampling: Sampling, noise: float, count: int, low: float, up: float) -> float | None:
    """The most noise z with which rates like these can be; None if nothing is proved.

    Args:
        sampling: how clients come into versions.
        noise: what is claimed, near which it is looked for.
        count: versions, or visits of a client where "bounded".
        low: a lower bound of how often a client is found where it is.
        up: an upper bound of how often it is found where it is not.
    """
    if sampling.law in ("bounded", "banded"):
        mu = float(apart(low, up))
        return math.sqrt(accounting.visits_in(sampling, count)) / mu if mu > 0 else None

    def may_be(much: float) -> bool:
        return low <= most_found(accounting.deltas(sampling, much, count), up)

    few = many = noise
    if may_be(noise):
        while may_be(many := 2 * many):
            if many > noise * _FAR:
                return None
        few = many / 2
    else:
        while not may_be(few := few / 2):
            if few < noise / _FAR:
                return few
        many = 2 * few
    while many > few * (1 + _FINE):
        middle = math.sqrt(few * many)
        few, many = (middle, many) if may_be(middle) else (few, middle)
    return few


def most_found(delta: Callable[[float], float], up: float) -> float:
    """How often a client can be found where it is, at most, if it is found so often where it is not.

    Args:
        delta: of an epsilon, by what is claimed.
        up: how often it is found where it is not.
    """
    spent = np.array([delta(float(at)) for at in _LOSSES])
    one, other = np.exp(_LOSSES) * up + spent, 1 - np.exp(-_LOSSES) * (1 - up - spent)
    return float(min(1.0, one.min(), other.min()))
