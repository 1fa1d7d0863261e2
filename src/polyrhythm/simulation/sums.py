"""Secure aggregation in a simulation: all clients' ends of it, in the driver, around visits that anybody carries out.

Keys are drawn by name, so that a run that goes on has those that it had, and a checkpoint needs none of them. Masks
cancel exactly: other keys, or none at all (`secagg(real=false)`), give the same models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Event, Lost, Report
from polyrhythm.base.streams import stream
from polyrhythm.core.sealing import with_update
from polyrhythm.core.sums import Cohort
from polyrhythm.core.validation import checksum
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum import protocol
from polyrhythm.methods.secure_sum.fixed_point import as_numbers, as_tensor
from polyrhythm.methods.secure_sum.graph import neighbours
from polyrhythm.methods.secure_sum.protocol import Opening, Public, Random, Secrets, Unfit
from polyrhythm.methods.secure_sum.summands import part_of

Leaves = Callable[[int, int], bool]
"""Whether a client is gone before a stage, by stage and dispatch number."""


@final
@dataclass(kw_only=True)
class _Round:
    """One version's clients, as far as they have come."""

    version: int
    threshold: int
    dispatches: Mapping[int, int]
    around: dict[int, tuple[int, ...]]  # neighbours that shared, of those that did
    secrets: dict[int, Secrets] = field(default_factory=dict)
    keys: dict[int, Public] = field(default_factory=dict)
    letters: dict[int, dict[int, bytes]] = field(default_factory=dict)


@final
class SimulatedSums:
    """The clients' ends of secure aggregation.

    Args:
        recipe: the method, which hides single updates.
        setup: what is fixed for the run.
        leaves: who is gone when.
        keys: names the draws of keys, beside seed, version and client.
    """

    def __init__(self, recipe: Recipe, setup: Setup, leaves: Leaves, keys: str = "keys") -> None:
        self._part, self._setup, self._leaves, self._keys = part_of(recipe), setup, leaves, keys
        if self._part.real:
            protocol.check_library()
        self._round: _Round | None = None

    def begin(self, version: int, cohort: Cohort) -> None:
        """Stages 0 and 1, among those invited for a version."""
        seed = self._setup.seed
        clients, dispatches = [client for _, client in cohort], {client: dispatch for dispatch, client in cohort}
        degree, threshold = self._part.graph(len(clients))
        order = stream(seed, "secagg", "ring", version).permutation(len(clients))
        around = neighbours(clients, degree, order)
        known = [c for c in clients if not self._leaves(0, dispatches[c])]
        # Who has fewer than t neighbours left gives its secrets to nobody.
        sharing = [
            c
            for c in known
            if not self._leaves(1, dispatches[c]) and len(set(around[c]).intersection(known)) >= threshold
        ]
        shared = set(sharing)
        self._round = now = _Round(
            version=version,
            threshold=threshold,
            dispatches=dispatches,
            around={c: tuple(n for n in around[c] if n in shared) for c in sharing},
        )
        if not self._part.real:
            return
        random = {c: self._random(version, c) for c in known}
        secrets = {c: protocol.advertise(c, random[c]) for c in known}
        public = {c: own.public for c, own in secrets.items()}
        for c in sharing:
            to = {n: public[n] for n in around[c] if n in public}
            now.letters[c] = protocol.share(secrets[c], to, threshold, self._context(version), random[c])
        now.secrets, now.keys = {c: secrets[c] for c in sharing}, {c: public[c] for c in sharing}

    def heard(self, event: Event) -> Event:
        """Stage 2: what the server hears in place of a client's report on its update."""
        now = self._round
        if not isinstance(event, Report) or now is None or now.dispatches.get(event.client) != event.dispatch:
            return event
        if event.kind == "train" and event.client not in now.around:
            reason = "too few of its neighbours had sent keys"
            return Lost(dispatch=event.dispatch, reason=reason, time=event.time, fault="dropout")
        if not self._part.real or event.update is None or event.update.dtype != torch.int32:
            return event
        own, sharing = now.secrets[event.client], {n: now.keys[n] for n in now.around[event.client]}
        masked = protocol.mask(own, sharing, as_numbers(event.update), self._context(now.version))
        hidden = with_update(event, as_tensor(masked))
        whole = event.checksum is not None and event.checksum == checksum(event)
        return replace_unchecked(hidden, checksum=checksum(hidden)) if whole else hidden

    def unmask(
        self, version: int, clients: tuple[int, ...], masked: np.ndarray
    ) -> tuple[tuple[int, ...], np.ndarray | None]:
        """Stage 3: who has helped, and the sum without masks; None where they are too few."""
        now = self._round
        if now is None or now.version != version:
            return (), None
        there = [c for c in clients if not self._leaves(3, now.dispatches[c])]
        if not self._part.real:
            helping = protocol.helping(now.around, clients, there, now.threshold)
            return helping, masked if protocol.readable(now.around, clients, helping, now.threshold) else None
        context, openings = self._context(version), dict[int, Opening]()
        missing = [c for c in now.around if c not in clients]
        for c in there:
            post = {n: (now.keys[n], now.letters[n][c]) for n in now.around[c]}
            try:
                openings[c] = protocol.unmask(now.secrets[c], post, clients, missing, now.threshold, context)
            except Unfit:
                continue  # and keeps what it has
        helped = tuple(openings)
        try:
            return helped, protocol.opened(masked, now.keys, now.around, clients, openings, now.threshold, context)
        except Unfit:
            return helped, None

    def _context(self, version: int) -> bytes:
        return b"%d version %d" % (self._setup.seed, version)

    def _random(self, version: int, client: int) -> Random:
        draws = stream(self._setup.seed, "secagg", self._keys, version, client)
        return draws.bytes
