"""The server's end of secure aggregation over nodes: the stages around the work of a version.

Keys and letters are asked for before the orders go out, shares once the last masked update is there. Whoever does not
answer in time, or sends what does not fit, is left out of the version by name; the others go on, as long as they are
enough. What the server learns here is of one version and lies in no checkpoint: a server that is killed in a version
that has masked updates loses that version, and goes on with the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from polyrhythm.base.streams import stream
from polyrhythm.core.sums import Cohort
from polyrhythm.deployment.messages import Malformed, Refusal, shown
from polyrhythm.deployment.node_sums import context_of
from polyrhythm.deployment.registry import Clock, Nodes, Reply, Tell, Transport
from polyrhythm.deployment.sum_messages import (
    Keys,
    Shares,
    SumAnswer,
    SumQuestion,
    Unmask,
    keys_in,
    letters_of,
    opening_of,
    public_of,
)
from polyrhythm.deployment.wire import pack, unpack
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum import protocol
from polyrhythm.methods.secure_sum.graph import neighbours
from polyrhythm.methods.secure_sum.protocol import Opening, Public, Unfit
from polyrhythm.methods.secure_sum.summands import part_of

Mail = Mapping[int, Mapping[int, bytes]]
"""Letters by receiver and sender."""


@final
@dataclass(kw_only=True)
class _Round:
    """One version's clients, as far as they have come."""

    version: int
    threshold: int
    around: dict[int, tuple[int, ...]] = field(default_factory=dict)
    keys: dict[int, Public] = field(default_factory=dict)


@final
class RemoteSums:
    """The server's end of the sums of a run.

    Args:
        recipe: the method, which hides single updates.
        setup: what is fixed for the run.
        transport: to the nodes.
        nodes: who they are.
        clock: the time.
        run: gives the run's id.
        patience: seconds that a stage waits for answers.
        pause: seconds between two looks for them.
        tell: says who is left out.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        transport: Transport,
        nodes: Nodes,
        clock: Clock,
        *,
        run: Callable[[], str],
        patience: float,
        pause: float,
        tell: Tell,
    ) -> None:
        self._recipe, self._setup, self._transport, self._nodes = recipe, setup, transport, nodes
        self._clock, self._run, self._patience, self._pause, self._tell = clock, run, patience, pause, tell
        self._round: _Round | None = None
        protocol.check_library()

    def begin(self, version: int, cohort: Cohort) -> Mail:
        """Stages 0 and 1: the letters for each client that goes on; the others are left out."""
        part, clients = part_of(self._recipe), [client for _, client in cohort]
        degree, threshold = part.graph(len(clients))
        order = stream(self._setup.seed, "secagg", "ring", version).permutation(len(clients))
        around = neighbours(clients, degree, order)
        self._round = now = _Round(version=version, threshold=threshold)
        about: dict[str, Any] = {"run": self._run(), "version": version, "recipe": self._recipe.digest}
        public: dict[int, Public] = {}
        asked = {c: Keys(client=c, **about) for c in clients}
        for client, answer in self._asked(asked, 0).items():
            with self._taking(client):
                public[client] = public_of(answer.content)
        known = {c: tuple(n for n in around[c] if n in public) for c in public}
        wanted = {
            c: Shares(
                client=c, neighbours=near, keys=keys_in({n: public[n] for n in near}), threshold=threshold, **about
            )
            for c, near in known.items()
            if len(near) >= threshold
        }
        letters: dict[int, dict[int, bytes]] = {}
        for client, answer in self._asked(wanted, 1).items():
            with self._taking(client):
                letters[client] = _letters(answer, known[client])
        now.keys = {c: public[c] for c in letters}
        now.around = {c: tuple(n for n in known[c] if n in letters) for c in letters}
        mail = {c: {n: letters[n][c] for n in near} for c, near in now.around.items()}
        return {c: post for c, post in mail.items() if len(post) >= threshold}

    def unmask(
        self, version: int, clients: tuple[int, ...], masked: np.ndarray
    ) -> tuple[tuple[int, ...], np.ndarray | None]:
        """Stage 3: who has helped, and the sum without masks; None where they are too few."""
        now = self._round
        if now is None or now.version != version:
            return (), None
        missing = tuple(c for c in now.keys if c not in clients)
        about: dict[str, Any] = {"run": self._run(), "version": version, "recipe": self._recipe.digest}
        asked = {c: Unmask(client=c, summed=clients, missing=missing, **about) for c in clients}
        openings: dict[int, Opening] = {}
        for client, answer in self._asked(asked, 3).items():
            with self._taking(client):
                openings[client] = _opening(answer, now.around[client], clients)
        helped, context = tuple(c for c in clients if c in openings), context_of(self._run(), version)
        try:
            return helped, protocol.opened(masked, now.keys, now.around, clients, openings, now.threshold, context)
        except Unfit as why:
            self._tell(f"version {version + 1}: {why}, so the sum cannot be read")
            return helped, None

    @contextlib.contextmanager
    def _taking(self, client: int) -> Iterator[None]:
        """Goes on without what is in an answer, if it does not fit."""
        try:
            yield
        except Unfit as wrong:
            self._tell(f"client {client} is left out of the sum: it has sent {wrong}")

    def _asked(self, questions: Mapping[int, SumQuestion], stage: int) -> dict[int, SumAnswer]:
        """The answers of those that are there, by client in the order of the questions."""
        letters, asking = [], []
        for client, question in questions.items():
            if (node := self._nodes.node(client)) is not None:
                letters.append((node, pack(question)))
                asking.append(client)
        waiting = dict(zip(self._transport.push(letters), asking, strict=True)) if letters else {}
        found, until = dict[int, SumAnswer](), self._clock.now() + self._patience
        while waiting and self._clock.now() < until:
            for reply in self._transport.pull(list(waiting)):
                if (client := waiting.pop(reply.to, -1)) < 0:
                    continue
                answer = self._read(reply, client, stage)
                if answer is not None:
                    found[client] = answer
            if waiting:
                self._clock.sleep(self._pause)
        for client in waiting.values():
            self._tell(f"client {client} is left out of the sum: no answer within {self._patience:g} s")
        return {client: found[client] for client in questions if client in found}

    def _read(self, reply: Reply, client: int, stage: int) -> SumAnswer | None:
        """The answer in a reply; None, and why is said, where it is none to the question."""
        if reply.parcel is None:
            self._tell(f"client {client} is left out of the sum: {shown(reply.trouble)}")
            return None
        try:
            answer = unpack(reply.parcel, SumAnswer, Refusal)
        except Malformed as wrong:
            self._tell(f"client {client} is left out of the sum: it has sent {wrong}")
            return None
        if isinstance(answer, Refusal):
            self._tell(f"client {client} is left out of the sum: it refuses: {answer.error()}")
            return None
        now, asked = self._round, (self._run(), client, stage)
        version = -1 if now is None else now.version
        if (answer.run, answer.client, answer.stage, answer.version) != (*asked, version):
            self._tell(f"client {client} is left out of the sum: it has answered another question")
            return None
        return answer


def _letters(answer: SumAnswer, near: Collection[int]) -> dict[int, bytes]:
    """The letters in an answer, one for each neighbour."""
    letters = letters_of(answer.clients, answer.content)
    if letters.keys() != set(near):
        raise Unfit(f"letters to {len(letters)} clients, where it has {len(near)} neighbours")
    return letters


def _opening(answer: SumAnswer, near: Collection[int], summed: Collection[int]) -> Opening:
    """The shares in an answer: of neighbours, of the one kind for those in the sum, of the other for the rest."""
    opening = opening_of(answer)
    inside = set(near).intersection(summed)
    if not (opening.seeds.keys() <= inside and opening.keys.keys() <= set(near) - inside):
        raise Unfit("shares that nobody asked for")
    return opening
