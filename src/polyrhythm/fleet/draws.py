"""Numbers that belong to a client: drawn once, named by it, whoever else there is and whoever is asked first."""

from __future__ import annotations

import functools
from array import array
from typing import Literal

import numpy as np

from polyrhythm.base.streams import Purpose, stream

_BLOCK = 1024
Rows = Literal["file", "drawn"]


def uniform_of(seed: int, what: str, client: int, purpose: Purpose = "fleet") -> float:
    """A number in [0, 1) that belongs to one client: named by it, whoever else there is."""
    return _block(seed, purpose, what, client // _BLOCK)[client % _BLOCK]


def normal_of(seed: int, what: str, client: int) -> float:
    """A standard normal number that belongs to one client."""
    return _normal_block(seed, what, client // _BLOCK)[client % _BLOCK]


def uniforms(seed: int, what: str, clients: int) -> np.ndarray:
    """`uniform_of` the first so many clients, float64 [clients]."""
    blocks = [_block(seed, "fleet", what, block) for block in range(-(-clients // _BLOCK))]
    return np.concatenate([np.empty(0), *blocks])[:clients]


def row_of(seed: int, what: str, client: int, many: int, rows: Rows) -> int:
    """Which of many rows of a file is a client's: with "file" its own as far as they go, otherwise a drawn one."""
    if rows == "file" and client < many:
        return client
    return int(uniform_of(seed, what, client) * many)


@functools.lru_cache(maxsize=8192)
def _block(seed: int, purpose: Purpose, what: str, block: int) -> array[float]:
    # A generator takes longer to make than a thousand numbers take to draw.
    return array("d", stream(seed, purpose, what, block).random(_BLOCK).tobytes())


@functools.lru_cache(maxsize=8192)
def _normal_block(seed: int, what: str, block: int) -> array[float]:
    return array("d", stream(seed, "fleet", what, "normal", block).standard_normal(_BLOCK).tobytes())
