"""Easy clients and hard clients: another partition's class counts, dealt out in the order of difficulty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Fraction
from polyrhythm.base.streams import stream
from polyrhythm.data.keys import Keys
from polyrhythm.data.partitions.base import Deal, Partition, View, deal_counts


@final
@dataclass(frozen=True, kw_only=True)
class Difficulty(Partition):
    """Keeps how many samples of each class another partition gives each client, and spreads their difficulty.

    Each class is sorted from easy to hard and cut into one chunk for each client, the first client's being the easiest.
    A client keeps the share `ordered` of its chunk; all the rest of the class is dealt at random. So at 1 the samples
    of a client are alike in difficulty and clients differ; at 0 the other partition's counts are dealt at random.
    Equal difficulties are ordered by chance. How far difficulty was spread is told in the notes; nobody can ask for a
    certain spread.

    Args:
        inner: gives the counts, and the samples that nobody gets.
        ordered: share of each client's samples of each class that is dealt in order, 0 to 1 (the paper's f_ord).
        column: how difficult each sample is: a column of numbers. "difficulty" is there once an expert is given.
        by: a column to use in place of the class.

    Raises:
        UserError: no such column, or one that holds no numbers; `parts` given to the inner partition.

    Reference: Vahidian et al., "When Do Curricula Work in Federated Learning?", ICCV 2023, Algorithm 2.
    """

    inner: Partition
    ordered: Fraction = 1.0
    column: str = "difficulty"
    by: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.parts is not None:
            raise UserError(
                f"difficulty around {self.inner.text()}",
                expected="parts given to difficulty itself",
                why="the partition inside is asked for as many parts as the one around it",
                fix=f"write difficulty(inner=…, parts={self.inner.parts}), and leave parts out inside",
            )

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        difficulty = self._difficulty(view)
        codes = view.labels(self.by, self.label())
        inner = self.inner.deal(view, parts, seed)
        dealt = np.flatnonzero(inner.owner >= 0)
        given, codes = inner.owner[dealt], codes[dealt]
        random = stream(seed, "partition", self.label())
        chance = random.permutation(len(dealt))
        # Sorted by class, then difficulty, then chance; in the same order, the clients of the chunks.
        sorted_ = chance[np.lexsort((difficulty.codes[dealt][chance], codes[chance]))]
        chunks = np.lexsort((given, codes))
        client, of_class = given[chunks], codes[chunks]
        keeps = _first_share(client, of_class, self.ordered)
        owner = np.full(len(dealt), -1, dtype=np.int64)
        owner[sorted_[keeps]] = client[keeps]
        left = sorted_[~keeps]
        counts = np.zeros((int(codes.max(initial=-1)) + 1, inner.parts), dtype=np.int64)
        np.add.at(counts, (of_class[~keeps], client[~keeps]), 1)
        owner[left] = deal_counts(codes[left], counts, random)
        whole = np.full(len(view), -1, dtype=np.int64)
        whole[dealt] = owner
        values = difficulty.values[difficulty.codes[dealt]].astype(np.float64)
        note = f"difficulty: {_spread(values, owner)}; dealt as {self.inner.text()}: {_spread(values, given)}"
        return Deal(owner=whole, parts=inner.parts, names=inner.names, notes=(*inner.notes, note))

    def _difficulty(self, view: View) -> Keys:
        if self.column not in view.columns and self.column == "difficulty":
            raise UserError(
                "difficulty without an expert",
                expected="how difficult each training sample is, as a column named difficulty",
                why="this partition deals samples out in that order",
                fix="train an expert (polyrhythm expert -o expert.safetensors) and give --expert expert.safetensors; "
                'in Python, federate(collection.with_column("difficulty", losses), …)',
            )
        keys = view.column(self.column, self.label())
        if not np.issubdtype(keys.values.dtype, np.number):
            raise UserError(
                f"difficulty(column={self.column!r}) with values such as {keys.values[:1].tolist()}",
                expected="a column of numbers, higher for harder samples",
                why="samples are sorted by it",
                fix="name another column, or give an expert and leave column out",
            )
        return keys


def _first_share(client: np.ndarray, of_class: np.ndarray, share: float) -> np.ndarray:
    """Marks the first `share` of each run of equal (class, client), rounded to the nearest whole, [n] bool."""
    starts = np.flatnonzero(np.diff(of_class, prepend=-1) | np.diff(client, prepend=-1))
    sizes = np.diff(starts, append=len(client))
    rank = np.arange(len(client)) - np.repeat(starts, sizes)
    marked: np.ndarray = rank < np.repeat(np.rint(share * sizes), sizes)
    return marked


def _spread(values: np.ndarray, owner: np.ndarray) -> str:
    """How difficulty is spread over clients, in words: between their means, and within them (means over clients)."""
    sizes = np.bincount(owner)
    held = sizes > 0
    means = np.bincount(owner, values)[held] / sizes[held]
    deviations = np.sqrt(np.maximum(np.bincount(owner, values**2)[held] / sizes[held] - means**2, 0.0))
    return f"standard deviation {means.std():.3g} between clients and {deviations.mean():.3g} within"
