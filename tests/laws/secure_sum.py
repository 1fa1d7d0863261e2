"""A cohort that goes through the stages of secure aggregation, in one process, and loses clients at any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.streams import stream
from polyrhythm.methods.secure_sum import protocol
from polyrhythm.methods.secure_sum.graph import neighbours
from polyrhythm.methods.secure_sum.protocol import Opening, Public, Secrets

CONTEXT = b"run 3"


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who is lost when.

    Args:
        count: clients, numbered by threes.
        degree, threshold: k and t.
        lost: at which stage each client is lost: 0 before keys, 1 before letters, 2 before its vector, 3 before its
            shares of others; 4 for never.
        seed: of keys, vectors and the ring.
        length: P.
    """

    count: int
    degree: int
    threshold: int
    lost: tuple[int, ...]
    seed: int = 0
    length: int = 5

    @property
    def clients(self) -> list[int]:
        return [3 * place for place in range(self.count)]

    def there(self, stage: int) -> list[int]:
        """Who answers in a stage."""
        return [client for client, lost in zip(self.clients, self.lost, strict=True) if lost > stage]


def randomness(*names: int | str) -> Callable[[int], bytes]:
    """A source of random bytes with a name."""
    draws = stream(0, "secagg", *names)
    return draws.bytes


def vectors(plan: Plan) -> dict[int, np.ndarray]:
    """What each client has to say."""
    draws = stream(plan.seed, "sample", "vectors")
    return {c: draws.integers(0, 2**32, plan.length, dtype=np.uint32) for c in plan.clients}


def drawn(number: int) -> Plan:
    """A plan by its number: cohorts of 2 to 9 clients, of which some are lost at every stage."""
    draws = stream(number, "sample", "plans")
    count = int(draws.integers(2, 10))
    degree = count - 1 if count < 6 or draws.random() < 0.5 else 4
    threshold = int(draws.integers(degree // 2 + 1, degree + 1))
    dies = draws.random(count) < draws.choice([0.0, 0.1, 0.3])
    lost = tuple(int(draws.integers(0, 4)) if dead else 4 for dead in dies)
    return Plan(count=count, degree=degree, threshold=threshold, lost=lost, seed=number)


def carried_out(plan: Plan) -> tuple[Sequence[int], np.ndarray]:
    """Whose vectors are in the sum, and the sum; `protocol.Unfit` where there is none."""
    order = stream(plan.seed, "secagg", "ring").permutation(plan.count)
    around = neighbours(plan.clients, plan.degree, order)
    random = randomness(plan.seed)
    own: dict[int, Secrets] = {c: protocol.advertise(c, random) for c in plan.there(0)}
    known: dict[int, Public] = {c: secrets.public for c, secrets in own.items()}
    letters: dict[int, dict[int, bytes]] = {}
    for c in plan.there(1):
        letters[c] = protocol.share(
            own[c], {n: known[n] for n in around[c] if n in known}, plan.threshold, CONTEXT, random
        )
    keys = {c: known[c] for c in letters}
    sharing = {c: [n for n in around[c] if n in letters] for c in letters}
    said, total = vectors(plan), np.zeros(plan.length, dtype=np.uint32)
    summed = plan.there(2)
    for c in summed:
        total += protocol.mask(own[c], {n: keys[n] for n in sharing[c]}, said[c], CONTEXT)
    missing = [c for c in letters if c not in summed]
    openings: dict[int, Opening] = {}
    for c in plan.there(3):
        post = {n: (keys[n], letters[n][c]) for n in sharing[c]}
        openings[c] = protocol.unmask(own[c], post, summed, missing, plan.threshold, CONTEXT)
    return summed, protocol.opened(total, keys, sharing, summed, openings, plan.threshold, CONTEXT)
