"""A fixed number of classes for every client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count
from polyrhythm.base.streams import stream
from polyrhythm.data.partitions.base import Deal, Partition, View, even, numbered


@final
@dataclass(frozen=True, kw_only=True)
class ClassesPerClient(Partition):
    """Every client holds exactly `classes` distinct classes; each class is shared evenly by those who hold it.

    All samples are used. Every class has as many holders as any other, or one more where they do not divide; sizes
    are then equal only up to that, which the notes say.

    Args:
        classes: distinct classes a client.
        by: a column to use in place of the class.

    Raises:
        UserError: the promise cannot be kept: more classes asked for than there are, a class that nobody would hold,
            or a class with fewer samples than holders.

    Reference: the "#label-k" of Li et al., "Federated Learning on Non-IID Data Silos" (NIID-Bench), ICDE 2022, with
        equal numbers of holders.
    """

    classes: Count
    by: str = ""

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        codes = numbered(view, self.by, self.label())
        stock = np.bincount(codes)
        self._check(len(stock), parts)
        random = stream(seed, "partition", self.label())
        held = self._holdings(len(stock), parts, random)  # [parts, classes]
        holders = np.bincount(held.reshape(-1), minlength=len(stock))
        if (stock < holders).any():
            scarce = int(np.argmax(holders - stock))
            raise UserError(
                f"classes_per_client(classes={self.classes}): a class of {stock[scarce]:,} samples would have "
                f"{holders[scarce]:,} holders",
                expected="at least one sample of each class for each client that holds it",
                why="a client would otherwise hold fewer classes than promised",
                fix="fewer clients or fewer classes a client",
            )
        owner = np.empty(len(codes), dtype=np.int64)
        shuffled = random.permutation(len(codes))
        members = np.split(shuffled[np.argsort(codes[shuffled], kind="stable")], np.cumsum(stock)[:-1])
        order = np.argsort(held.reshape(-1), kind="stable") // self.classes  # parts, class after class
        for samples, sharers in zip(members, np.split(order, np.cumsum(holders)[:-1]), strict=True):
            owner[samples] = np.repeat(sharers, even(len(samples), len(sharers)))
        sizes = np.bincount(owner, minlength=parts)
        uneven = int(sizes.max() - sizes.min()) > self.classes
        note = f"every client holds {self.classes} classes, but sizes run from {sizes.min():,} to {sizes.max():,}"
        return Deal(owner=owner, parts=parts, notes=(note,) if uneven else ())

    def _check(self, known: int, parts: int) -> None:
        if self.classes > known or self.classes * parts < known:
            raise UserError(
                f"classes_per_client(classes={self.classes}) with {parts:,} clients and {known:,} classes",
                expected=f"at most {known:,} classes a client, and at least {known:,} holdings in all",
                why="a client cannot hold more classes than there are, and a class without a holder would be lost",
                fix=f"classes between {-(-known // parts)} and {known}",
            )

    def _holdings(self, known: int, parts: int, random: np.random.Generator) -> np.ndarray:
        """Deals shuffled packs of all classes, one after another; nobody gets a class twice."""
        packs = -(-parts * self.classes // known)
        cards = np.argsort(random.random((packs, known)), axis=1)  # one random permutation a row
        for pack in range(1, packs):
            begun = pack * known % self.classes  # cards the client at the seam already has, from the pack before
            if begun:
                again = np.isin(cards[pack], cards[pack - 1, known - begun :])
                # Its remaining cards come first in this pack: put those it does not have there, in their order.
                cards[pack] = np.concatenate([cards[pack][~again], cards[pack][again]])
        return cards.reshape(-1)[: parts * self.classes].reshape(parts, self.classes)
