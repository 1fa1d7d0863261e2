"""The two partitions that are both called "Dirichlet": classes over clients, and clients over classes.

At the same number they give different skew, so each has its own name and its own letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.settings import Count, Positive
from polyrhythm.data.partitions.base import Deal, Partition, View, numbered, whole
from polyrhythm.data.partitions.minimum import Minimum, until_large_enough


@final
@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Every class is spread over the clients by shares q ~ Dir(alpha, ..., alpha); sizes come out unequal.

    A small alpha gives few classes a client and very unequal sizes; alpha -> infinity is the IID histogram.

    Args:
        alpha: concentration, > 0.
        min_size: smallest part allowed, in samples; the whole partition is drawn again until it is reached. None
            means 10, as the papers have it, but no more than a tenth of the mean size (7 for the digits over 20
            clients). 0 allows empty clients.
        balance: a client that already holds its fair share n / N gets nothing of the classes still to be dealt. The
            papers do so; it reads like alpha and lessens the skew in size. False is the plain draw.
        tries: most draws before the request is refused.
        repair: after the last draw, move samples from the largest parts to those that are short, and say so.
        by: a column to use in place of the class.

    Raises:
        UserError: clients x min_size > samples, or min_size not reached in `tries` draws.

    Reference: Li et al., "Federated Learning on Non-IID Data Silos" (NIID-Bench), ICDE 2022; used by FedCL and ALT.
    """

    alpha: Positive
    min_size: Minimum | None = None
    balance: bool = True
    tries: Count = 200
    repair: bool = False
    by: str = ""

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        codes = numbered(view, self.by, self.label())
        stock = np.bincount(codes)
        fair = len(codes) / parts

        def draw(random: np.random.Generator) -> np.ndarray:
            counts = np.zeros((len(stock), parts), dtype=np.int64)
            held = np.zeros(parts, dtype=np.int64)
            for row, samples in zip(counts, stock, strict=True):
                shares = random.dirichlet(np.full(parts, self.alpha))
                if self.balance:
                    shares = np.where(held < fair, shares, 0.0)
                row[:] = whole(_normalised(shares, held < fair, random), int(samples), random)
                held += row
            return counts

        return until_large_enough(
            draw,
            codes,
            label=self.label(),
            what=f"dirichlet(alpha={self.alpha})",
            parts=parts,
            seed=seed,
            min_size=self.min_size,
            tries=self.tries,
            repair=self.repair,
        )


@final
@dataclass(frozen=True, kw_only=True)
class DirichletPerClient(Partition):
    """Every client draws a mix of classes from Dir(beta * C * prior); sizes come out nearly equal.

    Each class is then cut in proportion to what the clients' mixes ask of it, so that every sample is used exactly
    once and no class runs out. beta -> infinity gives every client the overall mix; beta -> 0 gives each class to one
    client, and then sizes are no longer alike.

    Args:
        beta: concentration, > 0; with equal classes each of the C parameters is beta.
        min_size: smallest part allowed, in samples; as in `dirichlet`.
        tries: most draws before the request is refused.
        repair: after the last draw, move samples from the largest parts to those that are short, and say so.
        by: a column to use in place of the class.

    Raises:
        UserError: clients x min_size > samples, or min_size not reached in `tries` draws.

    Reference: Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
        Classification", 2019; this form: Vahidian et al., "When Do Curricula Work in Federated Learning?", ICCV 2023.
    """

    beta: Positive
    min_size: Minimum | None = None
    tries: Count = 200
    repair: bool = False
    by: str = ""

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        codes = numbered(view, self.by, self.label())
        stock = np.bincount(codes)
        prior = stock / len(codes)

        def draw(random: np.random.Generator) -> np.ndarray:
            mixes = random.dirichlet(self.beta * len(stock) * prior, size=parts)  # [parts, C]
            rows = [
                whole(_normalised(mixes[:, c], np.ones(parts, dtype=bool), random), int(stock[c]), random)
                for c in range(len(stock))
            ]
            return np.stack(rows)

        return until_large_enough(
            draw,
            codes,
            label=self.label(),
            what=f"dirichlet_per_client(beta={self.beta})",
            parts=parts,
            seed=seed,
            min_size=self.min_size,
            tries=self.tries,
            repair=self.repair,
        )


def _normalised(shares: np.ndarray, allowed: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if (total := float(shares.sum())) > 0:
        spread: np.ndarray = shares / total
        return spread
    # With a tiny concentration all shares of the parts still allowed can be exactly 0. Of numbers that were any larger
    # one, each with the same chance, would be as good as all; spread evenly they would be nearer to IID again.
    whole = np.zeros(len(shares))
    whole[random.choice(np.flatnonzero(allowed))] = 1.0
    return whole
