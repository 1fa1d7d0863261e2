"""A node's end of secure aggregation. What it keeps secret lies in a file that only its owner may read.

Whatever carries messages may start a process for each of them, so keys lie in the node's store between stages. They are
of one version: forgotten with the answer of the last stage, or with the first question of another version. They are in
no checkpoint, and leave the node only as shares, sealed for neighbours.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report
from polyrhythm.core.sealing import with_update
from polyrhythm.deployment.messages import Order
from polyrhythm.deployment.sum_messages import (
    Keys,
    Shares,
    SumAnswer,
    SumQuestion,
    Unmask,
    keys_in,
    keys_of,
    letters_of,
    shares_in,
)
from polyrhythm.methods.secure_sum import protocol
from polyrhythm.methods.secure_sum.fixed_point import as_numbers, as_tensor
from polyrhythm.methods.secure_sum.protocol import Public, Secrets, Unfit

_FILE = "secagg.json"


def context_of(run: str, version: int) -> bytes:
    """Names the keys of a version."""
    return f"{run} version {version}".encode()


@final
@dataclass(kw_only=True)
class Kept:
    """What a node keeps between stages.

    Args:
        version: of the sum.
        secrets: its own.
        threshold: t; 0 before it has shared.
        keys: of neighbours.
        letters: from neighbours that shared; None before it has sent its update.
    """

    version: int
    secrets: Secrets
    threshold: int = 0
    keys: dict[int, Public]
    letters: dict[int, bytes] | None = None

    def written(self) -> dict[str, Any]:
        own = self.secrets
        return {
            "version": self.version,
            "client": own.client,
            "own": [own.channel.hex(), own.mask.hex(), own.seed.hex()],
            "threshold": self.threshold,
            "keys": [[client, key.channel.hex(), key.mask.hex()] for client, key in self.keys.items()],
            "letters": None if self.letters is None else [[c, text.hex()] for c, text in self.letters.items()],
        }

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Kept:
        channel, mask, seed = map(bytes.fromhex, kept["own"])
        letters = kept["letters"]
        return cls(
            version=kept["version"],
            secrets=Secrets(client=kept["client"], channel=channel, mask=mask, seed=seed),
            threshold=kept["threshold"],
            keys={c: Public(channel=bytes.fromhex(a), mask=bytes.fromhex(b)) for c, a, b in kept["keys"]},
            letters=None if letters is None else {c: bytes.fromhex(text) for c, text in letters},
        )


@final
class NodeSums:
    """One client's end of the sums of a run.

    Args:
        folder: in which it remembers.
        client: its number.
        run: the run's id.
    """

    def __init__(self, folder: Path, client: int, run: str) -> None:
        self._path, self._client, self._run = folder / _FILE, client, run

    def answer(self, question: SumQuestion) -> SumAnswer:
        """The answer to a question of any stage.

        Raises:
            UserError: it does not fit, or comes twice.
        """
        try:
            if isinstance(question, Keys):
                return self._keys(question)
            if isinstance(question, Shares):
                return self._shares(question)
            assert isinstance(question, Unmask)
            return self._unmasked(question)
        except Unfit as wrong:
            raise self._refused(str(wrong)) from wrong

    def _keys(self, question: Keys) -> SumAnswer:
        kept = Kept(version=question.version, secrets=protocol.advertise(self._client), keys={})
        self._write(kept)
        return self._said(question, 0, content=keys_in({self._client: kept.secrets.public}))

    def _shares(self, question: Shares) -> SumAnswer:
        kept = self._of(question.version)
        if kept.threshold:
            raise Unfit("letters that were written before: nobody gets two shares of one secret")
        keys = keys_of(question.neighbours, question.keys)
        if not len(keys) / 2 < question.threshold <= len(keys):
            raise Unfit(f"a threshold of {question.threshold} with {len(keys)} neighbours, which is no more than half")
        letters = protocol.share(kept.secrets, keys, question.threshold, self._context(question.version))
        kept.threshold, kept.keys = question.threshold, keys
        self._write(kept)
        return self._said(question, 1, clients=tuple(letters), content=b"".join(letters.values()))

    def masked(self, order: Order, report: Report) -> Report:
        """Stage 2: a report whose update is masked.

        Raises:
            UserError: the order brings no letters, or not those that it should.
        """
        if report.update is None:
            return report
        try:
            kept = self._of(order.assignment.version)
            letters = letters_of(order.senders, order.letters or b"")
            if not letters.keys() <= kept.keys.keys() or not kept.threshold or len(letters) < kept.threshold:
                raise Unfit(f"letters of {len(letters)} clients, where {kept.threshold} of its neighbours are needed")
            if kept.letters is not None and kept.letters != letters:
                raise Unfit("other letters than before, for an update that was masked with those")
            kept.letters = letters
            self._write(kept)
            sharing = {client: kept.keys[client] for client in letters}
            numbers = as_numbers(report.update)
            hidden = protocol.mask(kept.secrets, sharing, numbers, self._context(kept.version))
        except Unfit as wrong:
            raise self._refused(str(wrong)) from wrong
        return with_update(report, as_tensor(hidden))

    def _unmasked(self, question: Unmask) -> SumAnswer:
        kept = self._of(question.version)
        if kept.letters is None:
            raise Unfit("shares that are asked for before the update was masked")
        post = {client: (kept.keys[client], letter) for client, letter in kept.letters.items()}
        context = self._context(kept.version)
        opening = protocol.unmask(kept.secrets, post, question.summed, question.missing, kept.threshold, context)
        self.forget()  # whatever is asked next, nobody gets both secrets of a client
        return self._said(
            question,
            3,
            clients=(*opening.seeds, *opening.keys),
            content=shares_in(opening),
            seeds=len(opening.seeds),
        )

    def forget(self) -> None:
        """Forgets all keys."""
        self._path.unlink(missing_ok=True)

    def _of(self, version: int) -> Kept:
        try:
            kept = Kept.read(json.loads(self._path.read_text(encoding="ascii")))
        except FileNotFoundError as error:
            raise Unfit(f"no keys of version {version}: they were used, or never made") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unfit(f"keys that cannot be read: {type(error).__name__}") from error
        if kept.version != version or kept.secrets.client != self._client:
            raise Unfit(f"keys of version {kept.version}, where version {version} is asked for")
        return kept

    def _write(self, kept: Kept) -> None:
        """Writes what is kept: only the owner may read it, at any moment, and it is whole or not there."""
        unfinished = self._path.with_name(f".{_FILE}.unfinished")
        unfinished.unlink(missing_ok=True)
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump(kept.written(), file)
        unfinished.replace(self._path)

    def _context(self, version: int) -> bytes:
        return context_of(self._run, version)

    def _said(self, question: SumQuestion, stage: int, **content: Any) -> SumAnswer:
        return SumAnswer(run=question.run, version=question.version, client=self._client, stage=stage, **content)

    def _refused(self, words: str) -> UserError:
        return UserError(
            f"client {self._client} was asked for the sum of a version with {words}",
            expected="each stage once, in its order, about its own neighbours",
            why="whoever gets more could see a single update",
            fix="start server and nodes from the same experiment, and trust no other server",
        )
