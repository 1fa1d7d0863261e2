"""Who holds whose shares: everybody everybody's in a small cohort, else neighbours on a ring, and how many it takes.

On a ring of a random order every client has k neighbours, k / 2 at each side. k and t are the smallest for which, with
so many corrupt clients and so many dropped ones among n, chosen before the order is drawn,

- secrecy: no client has t corrupt neighbours, but with probability 2^-40 (n times a hypergeometric tail);
- connectivity: what is left of the ring hangs together, but with probability 2^-40: it falls apart only where k / 2
  places in a row are gone twice (n^2 / 2 pairs of such runs);
- failure: every client keeps t neighbours, but with probability 2^-20;
- t > k / 2: else two disjoint sets of neighbours could make both secrets of a client.

Reference: Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020, section 3 (the
three properties). The bounds here are our own, exact tails in place of the paper's inequalities.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

COMPLETE = 40
"""Up to so many clients everybody is everybody's neighbour: a ring would save nothing."""
CORRUPT = DROPPED = 0.1
"""Shares of a cohort that may be on the server's side, and that may be lost."""
_SECRECY, _FAILURE = 2.0**-40, 2.0**-20


@functools.lru_cache(maxsize=256)
def sizes(count: int, corrupt: float = CORRUPT, dropped: float = DROPPED) -> tuple[int, int]:
    """(k, t) for a cohort of so many clients.

    >>> sizes(100), sizes(1000), sizes(100, corrupt=1 / 3), sizes(20)
    ((22, 12), (46, 26), (42, 32), (19, 10))

    Args:
        count: n, two or more.
        corrupt, dropped: shares of them.
    """
    if count > COMPLETE:
        bad, gone = math.floor(corrupt * count), math.floor(dropped * count)
        for degree in range(2, count - 1, 2):
            for threshold in range(degree // 2 + 1, degree + 1):
                if not count * tail(count - 1, gone, degree, degree - threshold + 1) <= _FAILURE:
                    break  # a higher one is harder to reach still
                if count * tail(count - 1, bad, degree, threshold) <= _SECRECY:
                    if _apart(count, bad + gone, degree) <= _SECRECY:
                        return degree, threshold
                    break
    return count - 1, (count - 1) // 2 + 1


def neighbours(clients: Sequence[int], degree: int, order: np.ndarray) -> dict[int, tuple[int, ...]]:
    """The neighbours of each client, in order.

    Args:
        clients: of a cohort.
        degree: k, even; everybody else where it is no less than that.
        order: a permutation of their places.
    """
    count = len(clients)
    if degree >= count - 1:
        return {client: tuple(other for other in clients if other != client) for client in clients}
    ring, half = [clients[int(place)] for place in order], degree // 2
    found = {}
    for place, client in enumerate(ring):
        around = (ring[(place + step) % count] for step in (*range(-half, 0), *range(1, half + 1)))
        found[client] = tuple(sorted(around))
    return {client: found[client] for client in clients}


def tail(whole: int, marked: int, drawn: int, least: int) -> float:
    """The probability that of so many drawn without replacement at least so many are marked ones."""
    hits = sum(
        math.comb(marked, m) * math.comb(whole - marked, drawn - m) for m in range(least, min(marked, drawn) + 1)
    )
    return hits / math.comb(whole, drawn)


def _apart(count: int, gone: int, degree: int) -> float:
    """A bound on the probability that a ring without so many of its clients falls apart."""
    return count**2 / 2 * math.comb(gone, degree) / math.comb(count, degree)
