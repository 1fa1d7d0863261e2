"""Messages as Flower's records, and Flower's grid as a transport to nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final

import httpx
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from google.protobuf.message import EncodeError

from polyrhythm.deployment.messages import Malformed
from polyrhythm.deployment.registry import Reply
from polyrhythm.deployment.wire import Parcel

_TEXT, _ARRAYS, _RAW = "polyrhythm", "arrays", "raw"
_DTYPES = ("uint8", "int16", "int32", "int64")
_UNAVAILABLE = {3, 4, 5, 8}
"""Flower's codes for a message, a reply or a node that is not there (any more), and for an app that has died."""
_NOT_TAKEN = {400, 413, 422}
"""Codes of HTTP with which a SuperLink answers to a message that is none to it, or too large."""
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
"""What Flower raises where the bytes of an answer are none of its records."""


Made = dict[tuple[int, int], Array]
"""Arrays that were made of some memory, by its place and size: weights that go to many nodes are copied once."""


def records(parcel: Parcel, made: Made | None = None) -> RecordDict:
    """A parcel as records: its text as a config, its arrays as they are. Flower sends arrays in pieces of 5 MB."""
    known: Made = {} if made is None else made
    arrays = {str(i): _array(array, known) for i, array in enumerate(parcel.arrays)}
    return RecordDict({_TEXT: ConfigRecord({"text": parcel.text}), _ARRAYS: ArrayRecord(arrays)})


def _array(array: np.ndarray, made: Made) -> Array:
    place = int(array.__array_interface__["data"][0]), array.nbytes
    if place not in made or made[place].dtype != str(array.dtype):
        made[place] = Array(dtype=str(array.dtype), shape=array.shape, stype=_RAW, data=array.tobytes())
    return made[place]


def parcel_of(content: RecordDict) -> Parcel:
    """The parcel in some records.

    Raises:
        Malformed: there is none.
    """
    config, arrays = content.config_records.get(_TEXT), content.array_records.get(_ARRAYS)
    text = None if config is None else config.get("text")
    if not isinstance(text, str) or arrays is None:
        raise Malformed("records that hold no message of polyrhythm")
    return Parcel(text=text, arrays=tuple(_read(arrays[str(i)]) for i in range(len(arrays)) if str(i) in arrays))


def _read(array: Array) -> np.ndarray:
    if array.stype != _RAW or array.dtype not in _DTYPES:
        raise Malformed(f"an array of {array.dtype} as {array.stype}")
    try:
        return np.frombuffer(array.data, dtype=array.dtype)
    except ValueError as error:
        raise Malformed(f"an array of {array.dtype} in {len(array.data)} bytes") from error


@final
class GridTransport:
    """A transport over Flower's grid.

    Args:
        grid: of a server app.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._not_sent: dict[str, str] = {}  # why, by our own number
        self._why = ""  # the last message was not taken, as far as Flower says
        self._apart = False  # whether each answer is asked for alone
        self._numbered = 0

    def nodes(self) -> Collection[int]:
        return list(self._grid.get_node_ids())

    def push(self, letters: Sequence[tuple[int, Parcel]]) -> list[str]:
        made: Made = {}
        messages = []
        for node, parcel in letters:
            kind = MessageType.TRAIN if parcel.arrays else MessageType.QUERY
            messages.append(Message(records(parcel, made), dst_node_id=node, message_type=kind))
        sent = self._pushed(messages)
        if not any(sent) and len(messages) > 1:  # together they may be too large, and each by itself not
            sent = [number for message in messages for number in self._pushed([message])]
        sizes = [parcel.bytes for _, parcel in letters]
        return [number or self._named(size, self._why) for number, size in zip(sent, sizes, strict=True)]

    def _pushed(self, messages: Sequence[Message]) -> list[str | None]:
        """The ids of messages, none for those that Flower does not take."""
        self._why = ""
        try:
            # What is too large for Flower is None, or there is nothing at all.
            return [*self._grid.push_messages(messages)] or [None for _ in messages]
        except (ValueError, EncodeError, httpx.HTTPStatusError) as error:
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in _NOT_TAKEN:
                raise  # the run was stopped, or the SuperLink is in trouble
            self._why = f": {error}"
            return [None for _ in messages]

    def _named(self, size: int, why: str) -> str:
        """A number of our own for a message that Flower did not take."""
        self._numbered += 1
        number = f"not sent {self._numbered}"
        self._not_sent[number] = f"Flower did not take the message, of {size:,} bytes{why}"
        return number

    def pull(self, messages: Collection[str]) -> list[Reply]:
        failed = [Reply(to=m, trouble=why, unsent=True) for m, why in self._not_sent.items()]
        self._not_sent.clear()
        sent = [message for message in messages if not message.startswith("not sent")]
        if self._apart:
            return failed + [reply for message in sent for reply in self._pulled_alone(message)]
        try:
            return failed + [_reply(message) for message in (self._grid.pull_messages(sent) if sent else ())]
        except _UNREADABLE:
            # Nobody can tell whose answer it was. The others of that pull are gone, too: Flower will say that they are
            # unavailable, and their visits are sent again.
            self._apart = True
            return failed

    def _pulled_alone(self, message: str) -> list[Reply]:
        """What has come for one message, which spoils nobody else's."""
        try:
            return [_reply(reply) for reply in self._grid.pull_messages([message])]
        except _UNREADABLE as error:
            return [Reply(to=message, trouble=f"what Flower cannot read: {error}", unreadable=True)]


def _reply(message: Message) -> Reply:
    to = message.metadata.reply_to_message_id
    if message.has_error():
        error = message.error
        return Reply(to=to, trouble=f"{error.reason} (Flower {error.code})", gone=error.code in _UNAVAILABLE)
    try:
        return Reply(to=to, parcel=parcel_of(message.content))
    except (Malformed, *_UNREADABLE) as wrong:
        return Reply(to=to, trouble=str(wrong), unreadable=True)
