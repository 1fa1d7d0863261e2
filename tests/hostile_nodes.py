"""Nodes that are programs of their own: they speak to a real SuperLink as Flower's do, and send what they like."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supernode.fleet_http_connection import http_request_response

from mutations import Mutator
from polyrhythm.deployment.on_flower.transport import parcel_of, records
from polyrhythm.deployment.wire import Parcel
from wire_lies import LYING_ARRAYS

SHARE = 0.6
"""Of the answers to visits that are spoiled."""


@final
class HostileNode(threading.Thread):
    """One node, until it is told to stop.

    Args:
        folder: of the federation, with its authority's certificate.
        address: of the SuperLink.
        key: the node's private one.
        answer: what an honest node answers.
        mutator: spoils answers; its draws say what else is done.
    """

    def __init__(
        self, folder: Path, address: str, key: Path, answer: Callable[[Parcel], Parcel], mutator: Mutator
    ) -> None:
        super().__init__(daemon=True)
        self._folder, self._address, self._answer, self._mutator = folder, address, answer, mutator
        self._key: Any = load_ssh_private_key(key.read_bytes(), None)
        self._over = threading.Event()
        self._earlier: list[Message] = []
        self.done: collections.Counter[str] = collections.Counter()
        """What was sent, by kind."""
        self.trouble: list[str] = []

    def stop(self) -> None:
        self._over.set()
        self.join(30)

    def run(self) -> None:
        certificate = (self._folder / "ca.crt").read_bytes()
        keys = self._key, self._key.public_key()
        with http_request_response(self._address, False, certificate, keys) as connection:
            _, receive, send, _, _, pull, push, confirm = connection
            while not self._over.is_set():
                try:
                    came = receive()
                    if came is None:
                        time.sleep(0.05)
                        continue
                    message, tree = came
                    run = message.metadata.run_id
                    contents = pull_objects([t.object_id for t in iterate_object_tree(tree)], lambda i: pull(run, i))  # noqa: B023
                    confirm(run, message.metadata.message_id)
                    whole: Any = inflate_object_from_contents(message.metadata.message_id, contents)
                    whole.metadata.__dict__["_message_id"] = message.metadata.message_id  # which its reply is to
                    taken = [self._send(reply, send, push) for reply in self._replies(whole)]
                    if not any(taken):
                        self._send(Message(Error(code=2, reason="nothing was taken"), reply_to=whole), send, push)
                except Exception as error:  # Flower has not taken what was sent, which is as well
                    self.trouble.append(f"{type(error).__name__}: {error}")

    def _send(self, reply: Message, send: Any, push: Any) -> bool:
        """Whether Flower has taken a message."""
        try:
            reply.metadata.__dict__["_message_id"] = reply.object_id
            objects = {number: one.deflate() for number, one in get_all_nested_objects(reply).items()}
            wanted, session = send(reply, get_object_tree(reply), 0.1)
            for number in wanted:
                push(reply.metadata.run_id, session, number, objects[number])
        except Exception as error:
            self.trouble.append(f"{type(error).__name__}: {error}")
            return False
        return True

    def _replies(self, message: Message) -> list[Message]:
        asked = parcel_of(message.content)
        honest, visit = self._answer(asked), '"Order"' in asked.text
        true = Message(records(honest), reply_to=message)
        if not visit or self._mutator.draws.random() >= SHARE:
            self.done["honest"] += visit
            return [true]
        self._earlier = [*self._earlier[-10:], true]
        if self._mutator.draws.random() < 0.6:
            how, spoiled = self._mutator(honest)
            self.done[how] += 1
            text = spoiled.text.encode(errors="replace").decode()  # Flower has no half characters
            return [Message(records(Parcel(text=text, arrays=spoiled.arrays)), reply_to=message)]
        own = [
            self.no_records,
            self.metrics,
            self.text,
            self.arrays,
            self.error,
            self.twice,
            self.elsewhere,
            self.replay,
        ]
        kind = self._one(own)
        self.done[kind.__name__] += 1
        made: list[Message] = kind(message, honest)
        return made

    def _one(self, of: Any) -> Any:
        return of[int(self._mutator.draws.integers(len(of)))]

    def no_records(self, message: Message, honest: Parcel) -> list[Message]:
        return [Message(RecordDict(), reply_to=message)]

    def metrics(self, message: Message, honest: Parcel) -> list[Message]:
        """Records of other types under the names of ours, and more than there should be."""
        content = records(honest)
        name = self._one(["polyrhythm", "arrays", "more"])
        if name in content:
            del content[name]
        content[name] = MetricRecord({"text": float("nan"), "num-examples": -(2**62)})
        return [Message(content, reply_to=message)]

    def text(self, message: Message, honest: Parcel) -> list[Message]:
        content = records(honest)
        value: Any = self._one([b"\xff", 3, True, ["a", "b"], "", "x" * 9_000_000, "\x00"])
        content["polyrhythm"] = ConfigRecord({"text": value, "more": [1.0, float("inf")]})
        return [Message(content, reply_to=message)]

    def arrays(self, message: Message, honest: Parcel) -> list[Message]:
        """Arrays that are not what they say, or go by other names."""
        content = records(honest)
        dtype, shape, stype, data = self._one((*LYING_ARRAYS, ("int8", (10**6,), "raw", bytes(10**7))))
        name = self._one(["0", "-1", "polyrhythm", "9" * 50])
        content["arrays"] = ArrayRecord({name: Array(dtype=dtype, shape=shape, stype=stype, data=data)})
        return [Message(content, reply_to=message)]

    def error(self, message: Message, honest: Parcel) -> list[Message]:
        return [Message(Error(code=self._one([0, 1, 2, 7, 99, 2**31]), reason="\x1b[2J" * 5_000), reply_to=message)]

    def twice(self, message: Message, honest: Parcel) -> list[Message]:
        """The same answer again, and another one, which nobody waits for."""
        wrong = Message(RecordDict(), reply_to=message)
        return [Message(records(honest), reply_to=message), Message(records(honest), reply_to=message), wrong]

    def elsewhere(self, message: Message, honest: Parcel) -> list[Message]:
        """An answer to somebody else's message, or to none; and then the honest one."""
        stray = Message(records(honest), reply_to=message)
        stray.metadata.__dict__["_reply_to_message_id"] = self._one(["", "0" * 64, "x"])
        return [stray, Message(records(honest), reply_to=message)]

    def replay(self, message: Message, honest: Parcel) -> list[Message]:
        """An old report as the answer to a new message."""
        return [Message(self._one(self._earlier).content, reply_to=message)]


def draws(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))
