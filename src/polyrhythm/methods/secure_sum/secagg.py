"""How does an update travel where the server is to know the sum of all, and no single one?"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count, Positive
from polyrhythm.base.vectors import Layout, Spans
from polyrhythm.methods.compression import Compression, Packed
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.privacy.effects import timed
from polyrhythm.methods.secure_sum.effects import works_in_sums
from polyrhythm.methods.secure_sum.graph import COMPLETE, sizes
from polyrhythm.methods.secure_sum.protocol import KEY, LETTER, SHARE

FEWEST = 3
"""Clients of a cohort, at least: of a sum of two each knows the other's part."""
_NUMBER = 4  # bytes of one in a masked vector
_EXCHANGE, _STREAM = 80e-6, 2.1e9  # seconds of one key exchange, bytes of masks in a second


@final
@dataclass(frozen=True, kw_only=True)
class Ceremony:
    """What the stages around a visit cost a client, beside its masked vector.

    Args:
        up, down: bytes: keys, sealed letters, shares.
        turns: round trips: keys, letters, shares.
        seconds: of cryptography, as measured on one core.
    """

    up: int
    down: int
    turns: int = 3
    seconds: float = 0.0


@final
@dataclass(frozen=True, kw_only=True)
class Secagg(Compression):
    """Secure aggregation: the server learns the sum of a version's updates, and nothing of a single one.

    Each client rounds what it adds to the sum, w_i * update_i, to whole numbers modulo 2^32 and hides them under masks
    that cancel in the sum of all (`polyrhythm.methods.secure_sum.protocol` has the stages):

        y_i = round(s w_i u_i) + PRG(b_i) + sum_{j>i} PRG(s_ij) - sum_{j<i} PRG(s_ij)  mod 2^32,
        mean = (sum_i y_i without masks) / (s sum_i w_i),  w_i = n_i / max n under by_samples, 1 under equal

    Whoever is lost on the way is left out, as long as `threshold` of everybody's neighbours are left; else the version
    is skipped, and its note says so. What a client refuses to send (no finite numbers, or larger than the limit) is not
    cut: its report is refused.

    Neutral situation: the sum is within K / (2 s) of the plain one, for K updates and s steps to a unit: with 20
    clients and a limit of 1, s = 2^26, 1.5e-7 at most. Everything else is as without it. It protects from a server
    that follows the protocol and is curious. The server knows who took part, how much each did and how long it took,
    and the sum; not losses, lengths and measures of single clients, which therefore are in no record. A client forgets
    all keys after each version. Costs a client, beside 4 bytes for each weight, 128 k + 64 bytes up and 158 k down with
    k neighbours, three round trips, and about (k + 1) (80 µs + 4 P / 2.1 GB/s) of its time, which is told and not
    added to that of its device. No state at clients.

    Args:
        limit: the largest entry of w_i * update_i, in units of the weights, that a client may add; where updates are
            clipped, their longest length takes its place, and with `dp` the clip.
        neighbours: k, clients that hold shares of a client's keys; everybody else in a cohort of up to 40, or what
            keeps 10 % on the server's side and 10 % lost at bay (`polyrhythm.methods.secure_sum.graph`).
        threshold: t, neighbours of a client that must be there at the end, more than half of them.
        real: whether a simulation really masks. If not it sums the same whole numbers: the same models, sooner.

    Raises:
        UserError: more than k neighbours at the end, or no more than half of them.

    Reference: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017; Bell
    et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020 (neighbours on a ring).
    """

    limit: Positive = 1.0
    neighbours: Count | None = None
    threshold: Count | None = None
    real: bool = field(default=True, metadata={"digest": False})

    of_a_release = True
    privacy = timed("makes versions of those whose sum can be read, and tells the server who they are", "fixed_size")
    in_sums = works_in_sums("is what hides single updates")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours is None or self.threshold is None:
            return
        if not self.neighbours / 2 < self.threshold <= self.neighbours:
            raise UserError(
                f"secagg: threshold = {self.threshold} of neighbours = {self.neighbours}",
                expected="more than half of them, and no more than all",
                why="two halves of a client's neighbours could make both of its secrets, and see its update",
                fix=f"threshold = {self.neighbours // 2 + 1}, or leave it out",
            )

    @property
    def sums_only(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"cohort": (), "missing": 0, "seconds": 0.0}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        clip = {"clip": state["clip"]} if "clip" in state else {}
        return {"most": setup.most_samples, **clip}

    def measures(self, state: State) -> dict[str, float]:
        return {"secagg_missing": float(state["missing"]), "secagg_seconds": state["seconds"]}

    def pack(self, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> tuple[State, Packed]:
        return state, Packed(update=update)  # it becomes numbers once it is known what it counts

    def size(self, layout: Layout) -> int | None:
        return _NUMBER * layout.parameters

    def graph(self, count: int) -> tuple[int, int]:
        """(k, t) in a cohort of so many clients, as far as there are as many.

        >>> Secagg().graph(20), Secagg(neighbours=6).graph(20), Secagg(neighbours=6, threshold=5).graph(4)
        ((19, 10), (6, 4), (3, 5))
        """
        degree, threshold = sizes(count) if count > 1 else (0, 1)
        if self.neighbours is not None:
            degree = min(degree if count <= 2 else count - 1, self.neighbours)
            threshold = degree // 2 + 1
        return degree, threshold if self.threshold is None else self.threshold

    def ceremony(self, count: int, numbers: int) -> Ceremony:
        """What the stages cost a client in a cohort of so many, with so many numbers in a vector."""
        degree, _ = self.graph(count)
        return Ceremony(
            up=2 * KEY + (LETTER + SHARE + 1) * degree,
            down=(2 * KEY + LETTER) * degree,
            seconds=(degree + 1) * (_EXCHANGE + _NUMBER * numbers / _STREAM),
        )

    def check_cohort(self, count: int) -> None:
        """Refuses settings with which no version of such a cohort could ever be summed.

        Raises:
            UserError: a cohort of fewer than three, neighbours that are an odd number of it, or too few of them.
        """
        degree, threshold = self.graph(count)
        if count < FEWEST:
            raise UserError(
                f"secagg in a cohort of {count}",
                expected=f"{FEWEST} clients or more",
                why="of a sum of two each client knows the other's part, and a sum of one is that one",
                fix=f"a cohort of {FEWEST} or more",
            )
        if degree < count - 1 and degree % 2:
            raise UserError(
                f"secagg: neighbours = {degree} in a cohort of {count}",
                expected="an even number, or all the others",
                why="on a ring a client has as many neighbours at each side",
                fix=f"neighbours = {degree + 1}, or leave it out: up to {COMPLETE} clients everybody is one",
            )
        if not degree / 2 < threshold <= degree:
            raise UserError(
                f"secagg: threshold = {threshold} in a cohort of {count} with {degree} neighbours each",
                expected="more than half of the neighbours, and no more than all",
                why="with more every version would be skipped; with fewer, two halves could make a client's secrets",
                fix=f"threshold = {math.floor(degree / 2) + 1}, or leave it out",
            )
