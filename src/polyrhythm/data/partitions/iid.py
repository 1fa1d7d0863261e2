"""Partitions whose clients look alike, wholly or in part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.settings import Fraction
from polyrhythm.base.streams import stream
from polyrhythm.data.partitions.base import Deal, Partition, View, deal_counts, even


@final
@dataclass(frozen=True, kw_only=True)
class Iid(Partition):
    """Equal random parts: sizes differ by one at most. Fits any kind of target.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
    """

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        random = stream(seed, "partition", self.label())
        counts = even(len(view), parts)[None]
        return Deal(owner=deal_counts(np.zeros(len(view), dtype=np.int64), counts, random), parts=parts)


@final
@dataclass(frozen=True, kw_only=True)
class IidFraction(Partition):
    """A share of every class is dealt at random, the rest in label order: CCFL's "x % non-IID" is share 1 - x.

    Of each class, `share` goes to a pool that is dealt out evenly at random. What is left is sorted by class and cut
    into equal blocks, one a part. share = 1 is IID in distribution; share = 0 is one contiguous block of labels each.
    Sizes differ by two at most. Blocks follow the class order, so only relabellings that keep it change nothing.

    Args:
        share: of every class, 0 to 1.
        by: a column to use in place of the class.

    Reference: Zhang et al., "FedCos", 2022, as CC-FedAvg (IEEE IoT-J, 2024) uses it for 10 clients or fewer.
    """

    share: Fraction
    by: str = ""

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        labels = view.labels(self.by, self.label())
        random = stream(seed, "partition", self.label())
        shuffled = random.permutation(len(labels))
        grouped = shuffled[np.argsort(labels[shuffled], kind="stable")]
        sizes = np.bincount(labels)
        rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        pooled = rank < np.rint(self.share * np.repeat(sizes, sizes))
        pool, rest = random.permutation(grouped[pooled]), grouped[~pooled]
        owner = np.empty(len(labels), dtype=np.int64)
        owner[pool] = np.repeat(np.arange(parts), even(len(pool), parts))
        owner[rest] = np.repeat(np.arange(parts), even(len(rest), parts))
        return Deal(owner=owner, parts=parts)
