"""What every partition has in common: which data it may look at, what it answers, and what is checked around it.

A partition gives every sample the number of one part, so parts are disjoint by construction. It draws from streams
named by the experiment's seed only, never from a position or a label's name.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import final

import numpy as np

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.settings import Count, Settings
from polyrhythm.base.streams import stream
from polyrhythm.data.keys import Columns, Keys
from polyrhythm.data.labels import by_first_appearance


@final
@dataclass(frozen=True, kw_only=True)
class View:
    """What a partition may look at: targets and columns of the samples to split, never the inputs.

    Args:
        targets: [n] class numbers or floats, or [n, C].
        columns: keys [n] of the samples.
        labelled: True if the targets are one class a sample.
    """

    targets: np.ndarray
    labelled: bool
    columns: Columns = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.targets)

    def labels(self, by: str, who: str) -> np.ndarray:
        """The class of each sample as int64 [n], in class order; or the values of column `by`, in their order.

        Raises:
            UserError: there is no such column, or the targets are not one class a sample.
        """
        if by:
            return self.column(by, who).codes
        if not self.labelled:
            keys = ", ".join(f"{who}(by={name!r})" for name in sorted(self.columns))
            raise UserError(
                f"{who}: targets of {self.targets.dtype} and shape {self.targets.shape}",
                expected="one class a sample (integers or text)",
                why="this partition deals out classes; each float or set of tags would be a class of its own",
                fix="use iid, quantity_skew, by_column, or give a column to use as the class"
                + (f": {keys}" if keys else " with by="),
            )
        return self.targets.astype(np.int64)

    def column(self, name: str, who: str) -> Keys:
        """A key of the samples, [n]."""
        if name not in self.columns:
            wrong = unknown("column", name, self.columns, where=who)
            if self.columns:
                raise wrong
            raise UserError(
                wrong.found,
                expected="data with columns that say whose each sample is",
                why="these data have none",
                fix="name one when the data are made: table(…, client=…) or arrays(…, columns={…}). Or split by a "
                "rule, such as dirichlet(alpha=0.3)",
            )
        return self.columns[name]


@final
@dataclass(frozen=True, kw_only=True)
class Deal:
    """A partition's answer: the part of each sample.

    Args:
        owner: [n] int64, 0 .. parts - 1, or -1 for a sample that nobody gets.
        parts: how many parts there are.
        names: a name for each part, () if they have none.
        notes: what was relaxed, repaired or left out.
    """

    owner: np.ndarray
    parts: int
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Split:
    """Which client holds which samples: one array of indices, cut into clients.

    Args:
        order: int64, indices of all clients one after another, ascending within a client.
        sizes: [clients] int64.
        names: a name for each client, () if they have none.
        notes: what was relaxed, repaired or left out.
    """

    order: np.ndarray
    sizes: np.ndarray
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """[clients + 1] int64: client i holds order[offsets[i] : offsets[i + 1]]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def indices(self, client: int) -> np.ndarray:
        """The samples of one client."""
        return self.order[self.offsets[client] : self.offsets[client + 1]]


@dataclass(frozen=True, kw_only=True)
class Partition(Settings):
    """Base of all partitions.

    Args:
        parts: into how many parts the data is cut; None means one for each client. With more parts than clients, only
            `clients` random parts are used and the unused share is reported (the curriculum paper's Fig. 10).
    """

    parts: Count | None = None

    @abstractmethod
    def deal(self, view: View, parts: int, seed: int) -> Deal:
        """Gives every sample a part. `parts` is the number wanted; natural partitions answer with their own."""

    @final
    def split(self, view: View, clients: int | None, seed: int) -> Split:
        """Splits the samples over clients.

        Args:
            view: the samples to split.
            clients: how many clients; None takes all parts there are.
            seed: the experiment's seed.

        Raises:
            UserError: what was asked for is impossible, or was not reached in bounded work.
        """
        wanted = self._wanted(len(view), clients)
        deal = self.deal(view, wanted, seed)
        used = deal.parts if clients is None else clients
        if used > deal.parts:
            raise UserError(
                f"{self.label()}: {used:,} clients, but the data has {deal.parts:,} parts",
                expected=f"at most {deal.parts:,} clients",
                why="a natural client cannot be cut in two",
                fix=f"clients={deal.parts}",
            )
        owner, names, notes = deal.owner, deal.names, list(deal.notes)
        if used < deal.parts:
            # The first of one permutation: fewer clients are a prefix of more.
            chosen = stream(seed, "partition", self.label(), "parts").permutation(deal.parts)[:used]
            new = np.full(deal.parts + 1, -1, dtype=np.int64)  # the last entry serves owner -1
            new[chosen] = np.arange(used)
            owner = new[owner]
            names = tuple(names[i] for i in chosen) if names else ()
            left = 1.0 - float((owner >= 0).sum()) / max(int((deal.owner >= 0).sum()), 1)
            notes.append(f"{used:,} of {deal.parts:,} parts are used; {left:.1%} of the training samples are not")
        order = np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :]
        sizes = np.bincount(owner[owner >= 0], minlength=used).astype(np.int64)
        return Split(order=order, sizes=sizes, names=names, notes=tuple(notes))

    def _wanted(self, samples: int, clients: int | None) -> int:
        wanted = self.parts or clients or 1
        if clients is not None and (clients < 1 or clients > wanted):
            raise UserError(
                f"{self.label()}: {clients:,} clients of {wanted:,} parts",
                expected="at least one client, and at least as many parts as clients",
                why="each client holds one part",
                fix=f"clients={wanted}, or parts={max(clients, 1)} or more",
            )
        if wanted > samples:
            raise UserError(
                f"{self.label()}: {wanted:,} {'parts' if self.parts else 'clients'} for {samples:,} training samples",
                expected="at most one client for each sample",
                why="a client without data takes no part in training",
                fix=f"use {samples:,} clients or fewer, or a larger data set",
            )
        return wanted


def deal_counts(codes: np.ndarray, counts: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Deals random samples of each class so that every part gets its count.

    Args:
        codes: [n] int64 class of each sample, 0 .. C - 1.
        counts: [C, parts] int64; row c sums to the number of samples of class c.
        random: draws which of them.

    Returns:
        owner [n] int64.
    """
    shuffled = random.permutation(len(codes))
    grouped = shuffled[np.argsort(codes[shuffled], kind="stable")]  # class after class, in random order within each
    owner = np.empty(len(codes), dtype=np.int64)
    owner[grouped] = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.reshape(-1))
    return owner


def even(samples: int, parts: int) -> np.ndarray:
    """Sizes of `parts` parts that differ by one at most, [parts] int64."""
    return np.diff(np.arange(parts + 1) * samples // parts)


def whole(shares: np.ndarray, samples: int, random: np.random.Generator) -> np.ndarray:
    """Turns shares [parts] that sum to 1 into whole counts that sum to `samples`, each share's mean kept exactly.

    One random offset for the whole row (systematic sampling): cutting at fixed places would give the same few parts
    the left-over sample of every class.
    """
    cuts = np.floor(np.cumsum(shares) * samples + random.random()).astype(np.int64)
    cuts[-1] = samples  # a cumulative sum of floats need not end at exactly 1
    return np.diff(np.minimum(cuts, samples), prepend=0)


def numbered(view: View, by: str, who: str) -> np.ndarray:
    """Classes renumbered by first appearance, so that no draw depends on what a class is called."""
    return by_first_appearance(view.labels(by, who))
