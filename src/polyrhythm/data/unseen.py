"""Clients that never train: who they are."""

from __future__ import annotations

import math

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Share, fits
from polyrhythm.base.streams import stream


def check_unseen(share: float, local_test: float | str) -> None:
    """Refuses a share that is none, and one without tests.

    Raises:
        UserError: nothing could be measured of them.
    """
    if not fits(Share, share):
        raise UserError(
            f"unseen = {share!r}",
            expected="0 <= share < 1",
            why="it is the share of clients that never train",
            fix="unseen=0.1 sets a tenth of the clients aside, unseen=0 nobody",
        )
    if share and not local_test:
        raise UserError(
            f"unseen = {share:g} without tests of the clients' own",
            expected="local_test, too",
            why="unseen clients are there to be tested, each on samples of its own",
            fix="local_test=0.2 holds a fifth of each client's samples out as its own test; or unseen=0",
        )


def drawn_unseen(holds: np.ndarray, tested: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Draws who never trains, of those with training and test samples: round(share * N), at least one; [clients] bool.

    Args:
        holds: who has training samples, [clients] bool; N of them.
        tested: who has a test of its own, [clients] bool.
        share: of them, 0 < share < 1.
        seed: names the draw, which is none of any other's.

    Raises:
        UserError: nobody would be left to train, or too few have both.
    """
    able, holders = np.flatnonzero(holds & tested), int(np.count_nonzero(holds))
    many = max(1, math.floor(share * holders + 0.5))
    if many >= holders:
        raise UserError(
            f"unseen = {share:g} of {holders:,} clients with samples, which is {many:,} of them",
            expected="a share that leaves at least one client to train",
            why="nobody would be left to train",
            fix="a smaller share, or more clients",
        )
    if many > len(able):
        raise UserError(
            f"unseen = {share:g}: {many:,} clients that never train, where {len(able):,} have training and test "
            "samples of their own",
            expected=f"at most {len(able):,}",
            why="each of them makes a model of its own of the former, and is tested on the latter",
            fix="a smaller share, or a larger local_test",
        )
    never = np.zeros(len(holds), dtype=bool)
    never[stream(seed, "split", "unseen").permutation(able)[:many]] = True
    return never
