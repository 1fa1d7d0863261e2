"""Answers that are no parcels of ours: as Flower's records, as the objects that it makes of them, or as messages.

Each kind takes the message that is answered, the right answer and some earlier one, and gives what is sent. Imports
flwr.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, Metadata, MetricRecord, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from polyrhythm.deployment.on_flower.transport import records
from polyrhythm.deployment.wire import Parcel

Objects = tuple[ObjectTree, Mapping[str, bytes]]
"""What Flower makes of a message: a tree of digests, and the bytes of each."""
_DIVIDER = b"\x00"
_SERVER = 1
LYING_ARRAYS: tuple[tuple[str, tuple[int, ...], str, bytes], ...] = (
    ("object", (4,), "raw", b"abcd"),
    ("int32", (10**9,), "raw", b"abc"),
    ("int64", (-1,), "raw", bytes(8)),
    ("int32", (1,), "numpy.ndarray", b"\x93NUMPY"),
    ("float32", (1,), "raw", b"abcd"),
    ("int8", (), "raw", b""),
)
"""Arrays that are not what they say: type, shape, how their bytes are written, and these."""
"""The SuperLink's own number among nodes."""


@final
@dataclass
class Sent:
    """What a node sends.

    Args:
        kind: what was done.
        messages: in order, each with its objects where they are not its own.
        right: whether the right answer is among them.
    """

    kind: str
    messages: Sequence[tuple[Message, Objects | None]]
    right: bool = False


@final
@dataclass
class Asked:
    """A message, the right answer to it, an earlier message that was right, and chance."""

    message: Message
    honest: Parcel
    earlier: Message
    draws: np.random.Generator

    def one(self, of: Any) -> Any:
        return of[int(self.draws.integers(len(of)))]

    def reply(self, content: RecordDict | None = None) -> Message:
        return Message(records(self.honest) if content is None else content, reply_to=self.message)


def objects_of(message: Message) -> tuple[ObjectTree, dict[str, bytes]]:
    """The objects that Flower makes of a message, inner ones first."""
    return get_object_tree(message), {n: one.deflate() for n, one in get_all_nested_objects(message).items()}


def no_records(asked: Asked) -> Sent:
    return Sent("no records", [(asked.reply(RecordDict()), None)])


def other_records(asked: Asked) -> Sent:
    """Records of other types under the names of ours, and more than there should be."""
    content, name = records(asked.honest), asked.one(["polyrhythm", "arrays", "more"])
    if name in content:
        del content[name]
    content[name] = MetricRecord({"text": float("nan"), "num-examples": -(2**62)})
    return Sent("records of other types", [(asked.reply(content), None)], right=name == "more")


def other_text(asked: Asked) -> Sent:
    content = records(asked.honest)
    value: Any = asked.one([b"\xff", 3, True, ["a", "b"], "", "\x00", "[" * 100_000, "9" * 5_000])
    content["polyrhythm"] = ConfigRecord({"text": value, "more": [1.0, float("inf")]})
    return Sent("a text that is none", [(asked.reply(content), None)])


def huge(asked: Asked) -> Sent:
    content = records(asked.honest)
    if asked.draws.random() < 0.5:
        content["polyrhythm"] = ConfigRecord({"text": "x" * 9_000_000})
    else:
        content["arrays"] = ArrayRecord(
            {"0": Array(dtype="int8", shape=(6_000_000,), stype="raw", data=bytes(6_000_000))}
        )
    return Sent("megabytes", [(asked.reply(content), None)])


def lying_arrays(asked: Asked) -> Sent:
    """Arrays that are not what they say, or go by other names."""
    content = records(asked.honest)
    dtype, shape, stype, data = asked.one(LYING_ARRAYS)
    name = asked.one(["0", "-1", "polyrhythm", "9" * 50, "\x00"])
    content["arrays"] = ArrayRecord({name: Array(dtype=dtype, shape=shape, stype=stype, data=data)})
    return Sent("arrays that lie", [(asked.reply(content), None)])


def error(asked: Asked) -> Sent:
    said = Error(code=asked.one([0, 1, 2, 7, 99, 2**31]), reason="\x1b[2J" * 5_000)
    return Sent("an error of any code", [(Message(said, reply_to=asked.message), None)])


def twice(asked: Asked) -> Sent:
    """The same answer again, and another one, which nobody waits for."""
    return Sent(
        "twice, and something else",
        [(asked.reply(), None), (asked.reply(), None), (asked.reply(RecordDict()), None)],
        right=True,
    )


def elsewhere(asked: Asked) -> Sent:
    """An answer to somebody else's message, or to none; and then the right one."""
    stray = changed(asked.reply(), reply_to_message_id=asked.one(["", "0" * 64, "x"]))
    return Sent("to another message", [(stray, None), (asked.reply(), None)], right=True)


def replay(asked: Asked) -> Sent:
    """An old report as the answer to a new message."""
    return Sent("an earlier answer", [(asked.reply(asked.earlier.content), None)])


def unasked(asked: Asked) -> Sent:
    """Messages of its own to the server and to another node, in the server's name; and then the right answer."""
    own = asked.reply().metadata
    letters = [
        changed(asked.reply(), reply_to_message_id="", src_node_id=source, dst_node_id=to)
        for source, to in ((own.src_node_id, _SERVER), (_SERVER, _SERVER), (_SERVER, own.src_node_id))
    ]
    return Sent(
        "messages that nobody asked for", [*((one, None) for one in letters), (asked.reply(), None)], right=True
    )


def impostor(asked: Asked) -> Sent:
    """A message whose own metadata are others than those on its envelope."""
    true = asked.reply()
    lies: list[dict[str, Any]] = [
        {"src_node_id": 2**63 + 7},
        {"dst_node_id": 12345},
        {"run_id": 1},
        {"message_type": "train.other"},
        {"group_id": "x" * 1_000},
        {"ttl": -1.0},
        {"created_at": 1e300},
    ]
    return Sent("metadata that lie", [(true, objects_of(changed(true, **asked.one(lies))))], right=True)


def to_nobody(asked: Asked) -> Sent:
    """A message that is an answer by its envelope, and says itself that it is one to something else."""
    true = asked.reply()
    return Sent("an answer to nothing inside", [(true, objects_of(changed(true, reply_to_message_id="0" * 64)))])


def other_objects(asked: Asked) -> Sent:
    """Bytes that are none of Flower's records, under right digests."""
    true = asked.reply()
    deep = b"[" * 100_000 + b"]" * 100_000
    spoiled: list[tuple[str, bytes, bytes]] = [
        ("ConfigRecord", b"", b"\xff" * 40),
        ("ConfigRecord", b"", b""),
        ("Message", b"", b"\xff" * 40),
        ("ArrayRecord", b"", deep),
        ("ArrayRecord", b"", b"{"),
        ("ArrayRecord", b"", b"\xff\xfe"),
        ("ArrayRecord", b"", b"[]"),
        ("RecordDict", b"", deep),
        ("RecordDict", b"", b"null"),
        ("RecordDict", b"", b'{"polyrhythm": 1}'),
        ("Array", b'"arraychunk_ids": [0]', b'"arraychunk_ids": [7]'),
        ("Array", b'"arraychunk_ids": [0]', b'"arraychunk_ids": ["0"]'),
        ("Array", b'"arraychunk_ids": [0]', b'"arraychunk_ids": null'),
        ("Array", b'"shape"', b'"other"'),
        ("Array", b'"raw"', b"[1]"),
    ]
    kind, old, new = asked.one(spoiled)
    objects = reworked(true, kind, lambda body: body.replace(old, new) if old else new)
    untouched = objects[0] == objects_of(true)[0]  # it has none of this kind, such as an answer without arrays
    return Sent(f"{kind} of other bytes", [(true, objects)], right=untouched)


def childless(asked: Asked) -> Sent:
    """A message with neither content nor an error."""
    true = asked.reply()
    _, contents = objects_of(true)
    body = list(contents.values())[-1].split(_DIVIDER, 1)[1]
    content = b"Message  %d" % len(body) + _DIVIDER + body
    number = hashlib.sha256(content).hexdigest()
    return Sent("a message of nothing", [(true, (ObjectTree(object_id=number), {number: content}))])


def other_class(asked: Asked) -> Sent:
    """Something else than a message, or than records in one."""
    true = asked.reply()
    tree, contents = objects_of(true)
    if asked.draws.random() < 0.5:
        return Sent("no message at all", [(true, (tree.children[0], contents))])
    old, new = tree.children[0].object_id, tree.children[0].children[0].object_id
    content = contents[tree.object_id].replace(old.encode(), new.encode())
    number = hashlib.sha256(content).hexdigest()
    inner = ObjectTree(object_id=number, children=[ObjectTree(object_id=new)])
    return Sent("a record as the content", [(true, (inner, {number: content, new: contents[new]}))])


KINDS: Sequence[Callable[[Asked], Sent]] = (
    *(no_records, other_records, other_text, huge, lying_arrays, error, twice, elsewhere, replay, unasked, impostor),
    *(to_nobody, other_objects, other_objects, other_objects, childless, other_class),
)


def changed(message: Message, **metadata: Any) -> Message:
    """The same content with other metadata."""
    whole = {name.removeprefix("_"): value for name, value in message.metadata.__dict__.items()}
    known = {name: value for name, value in whole.items() if name != "delivered_at"}
    return Message(content=message.content, metadata=Metadata(**{**known, **metadata}))


def reworked(message: Message, kind: str, change: Callable[[bytes], bytes]) -> Objects:
    """The objects of a message, of which those of a class have another body; digests and lengths are right."""
    tree, contents = objects_of(message)
    new = dict[str, str]()
    made = dict[str, bytes]()
    for number, content in contents.items():  # inner ones first
        head, body = content.split(_DIVIDER, 1)
        for old, other in new.items():
            head, body = head.replace(old.encode(), other.encode()), body.replace(old.encode(), other.encode())
        if head.startswith(kind.encode() + b" "):
            body = change(body)
        head = head.rsplit(b" ", 1)[0] + b" %d" % len(body)
        whole = head + _DIVIDER + body
        new[number] = hashlib.sha256(whole).hexdigest()
        made[new[number]] = whole

    def of(old: ObjectTree) -> ObjectTree:
        return ObjectTree(object_id=new[old.object_id], children=[of(child) for child in old.children])

    return of(tree), made
