"""Seconds of cryptography in one version with `secagg`, every stage of every client and the server in one process.

    chrt -r 1 python benchmarks/secure_sum.py

prints a line for a cohort of 20 that all stay, one where 2 of them are lost before they send, and one of 100 on a ring.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from polyrhythm.base.streams import stream
from polyrhythm.methods.secure_sum import protocol
from polyrhythm.methods.secure_sum.graph import neighbours, sizes

WEIGHTS = 55_000
CONTEXT = b"benchmark 1"


def version(count: int, lost: int, weights: int = WEIGHTS) -> float:
    """Seconds of a version of so many clients, the last of which are lost before they send."""
    clients, draws = list(range(count)), stream(0, "sample", "secure_sum")
    degree, threshold = sizes(count)
    around = neighbours(clients, degree, draws.permutation(count))
    vectors = [draws.integers(0, 2**32, weights, dtype=np.uint32) for _ in clients]
    began = time.perf_counter()
    own = {c: protocol.advertise(c) for c in clients}
    keys = {c: own[c].public for c in clients}
    letters = {c: protocol.share(own[c], {n: keys[n] for n in around[c]}, threshold, CONTEXT) for c in clients}
    summed, total = clients[: count - lost], np.zeros(weights, dtype=np.uint32)
    for c in summed:
        total += protocol.mask(own[c], {n: keys[n] for n in around[c]}, vectors[c], CONTEXT)
    openings = {
        c: protocol.unmask(
            own[c],
            {n: (keys[n], letters[n][c]) for n in around[c]},
            summed,
            clients[count - lost :],
            threshold,
            CONTEXT,
        )
        for c in summed
    }
    total = protocol.opened(total, keys, around, summed, openings, threshold, CONTEXT)
    seconds = time.perf_counter() - began
    assert np.array_equal(total, np.sum([vectors[c] for c in summed], axis=0, dtype=np.uint32))
    return seconds


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    version(4, 1, 100)
    for count, lost in ((20, 0), (20, 2), (100, 0)):
        took = min(version(count, lost) for _ in range(3))
        degree, threshold = sizes(count)
        print(f"{count:>4} clients, k={degree}, t={threshold}, {lost} lost, {WEIGHTS:,} weights: {took:.3f} s")


if __name__ == "__main__":
    main()
