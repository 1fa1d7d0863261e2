"""Shards of label-sorted data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count, Fraction
from polyrhythm.base.streams import stream
from polyrhythm.data.partitions.base import Deal, Partition, View, even


@final
@dataclass(frozen=True, kw_only=True)
class Shards(Partition):
    """Sorts samples by class, cuts them into `per_client` equal shards a client, and deals the shards.

    Shards are class-pure where the class sizes are multiples of a shard. A client can hold a single class if its
    shards match; such clients are counted in the notes. Shards follow the class order, so this one partition is
    unchanged only under relabellings that keep it.

    Args:
        per_client: shards a client.
        pairing: "random" deals shards at random (CCFL's Table 2); "mirrored" gives client i shards i and 2N - 1 - i,
            so that with ten classes clients hold {0, 9}, {1, 8}, ... in order (Table 3; per_client must be 2).
        mirrored_share: with "mirrored", the share of clients, from the first on, that are paired so; the others get
            random shards of what is left (Table 4: 0.1).
        by: a column to use in place of the class.

    Raises:
        UserError: fewer samples than shards, or mirrored pairs of anything but two shards.

    Reference: McMahan et al., 2017, section 3; Zhang et al., "CC-FedAvg", IEEE IoT-J 2024, Tables 2 to 4.
    """

    per_client: Count = 2
    pairing: Literal["random", "mirrored"] = "random"
    mirrored_share: Fraction = 1.0
    by: str = ""

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        labels = view.labels(self.by, self.label())
        shards = parts * self.per_client
        self._check(len(labels), shards)
        random = stream(seed, "partition", self.label())
        # `dealt` lists the shards of part 0, then of part 1, and so on.
        paired = round(self.mirrored_share * parts) if self.pairing == "mirrored" else 0
        mirrored = np.stack([np.arange(paired), shards - 1 - np.arange(paired)], axis=1).reshape(-1)
        rest = np.setdiff1d(np.arange(shards), mirrored)
        dealt = np.concatenate([mirrored, random.permutation(rest)])
        part_of_shard = np.empty(shards, dtype=np.int64)
        part_of_shard[dealt] = np.repeat(np.arange(parts), self.per_client)
        by_class = np.argsort(labels, kind="stable")
        owner = np.empty(len(labels), dtype=np.int64)
        owner[by_class] = part_of_shard[np.repeat(np.arange(shards), even(len(labels), shards))]
        return Deal(owner=owner, parts=parts, notes=self._notes(owner, labels, parts, shards))

    def _check(self, samples: int, shards: int) -> None:
        if shards > samples:
            raise UserError(
                f"shards: {shards:,} shards of {samples:,} samples",
                expected="at least one sample a shard",
                why=f"each client holds {self.per_client} shards",
                fix="fewer clients, or a smaller per_client",
            )
        if self.pairing == "mirrored" and self.per_client != 2:
            raise UserError(
                f"shards: pairing='mirrored' with per_client={self.per_client}",
                expected="per_client=2",
                why="a mirrored client holds one shard from each end of the label order",
                fix="per_client=2, or pairing='random'",
            )

    def _notes(self, owner: np.ndarray, labels: np.ndarray, parts: int, shards: int) -> tuple[str, ...]:
        notes = []
        if len(labels) % shards:
            notes.append(f"{len(labels):,} samples do not divide into {shards:,} shards: shard sizes differ by one")
        pairs = np.unique(owner * (labels.max() + 1) + labels)
        single = np.count_nonzero(np.bincount(pairs // (labels.max() + 1), minlength=parts) == 1)
        if single and self.per_client > 1:
            notes.append(f"{single:,} of {parts:,} parts hold a single class: all their shards are of it")
        return tuple(notes)
