"""Flower without Flower's processes: apps are called in this one, on a clock that jumps. Imports flwr."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import Context, Error, Message, Metadata, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid

from pretend import JumpingClock


class PretendGrid(Grid):
    """Flower's grid without Flower: apps are called in this process, and what goes between them is serialised."""

    def __init__(self, client: Any, configurations: dict[int, dict[str, Any]], clock: JumpingClock) -> None:
        self.client, self.configurations, self.clock = client, configurations, clock
        self.replies: dict[str, tuple[float, Message]] = {}
        self.sent: list[Message] = []
        self.refuse: set[int] = set()

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *given: Any, **named: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *given: Any, **named: Any) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.configurations)

    def push_messages(self, messages: Iterable[Message]) -> Iterator[str | None]:
        for message in messages:
            number = len(self.sent)
            self.sent.append(message)
            if number in self.refuse:
                yield None
                continue
            message.metadata.__dict__["_message_id"] = f"m{number}"
            node = message.metadata.dst_node_id
            context = Context(1, node, self.configurations[node], RecordDict(), {})
            try:
                reply = self.client(serialised(message), context)
                reply = Message(content=through(reply.content), metadata=reply.metadata)
            except Exception as error:
                reply = Message(Error(code=2, reason=str(error)), reply_to=message)
            self.replies[f"m{number}"] = self.clock.time + 1.0 + number % 3, reply
            yield f"m{number}"

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        there = [m for m in message_ids if m in self.replies and self.replies[m][0] <= self.clock.time]
        return [self.replies.pop(m)[1] for m in there]


def through(content: RecordDict) -> RecordDict:
    return recorddict_from_proto(recorddict_to_proto(content))


def serialised(message: Message) -> Message:
    data = dict(message.metadata.__dict__)
    kept = Metadata(**{name.removeprefix("_"): value for name, value in data.items() if name != "_delivered_at"})
    return Message(content=through(message.content), metadata=kept)
