"""Messages as Flower's records, and Flower's grid as a transport to nodes."""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import final

import httpx
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from google.protobuf.message import EncodeError

from polyrhythm.base.waiting import WaitingCalls
from polyrhythm.deployment.messages import Malformed
from polyrhythm.deployment.registry import Reply
from polyrhythm.deployment.wire import Parcel

_TEXT, _ARRAYS, _RAW = "polyrhythm", "arrays", "raw"
_DTYPES = ("uint8", "int16", "int32", "int64")
_UNAVAILABLE = {3, 4, 5, 8}
"""Flower's codes for a message, a reply or a node that is not there (any more), and for an app that has died."""
_NOT_TAKEN = {400, 413, 422}
"""Codes of HTTP with which a SuperLink answers to a message that is none to it, or too large."""
SLOW = 60.0
"""Seconds after which somebody is taken to have announced an answer whose parts do not come: Flower waits for 180."""
AT_ONCE = 64
"""Answers that are asked for at the same time, where each is asked for alone."""
_LOOK = 0.1  # seconds for which answers that are asked for alone are waited for
_YOUNG = 1  # the generation up to which rubbish is looked for
_SELDOM = 0.5, 0.05  # seconds for which they are not asked for again, and of the time that they are out


Made = dict[tuple[int, int], Array]
"""Arrays that were made of some memory, by its place and size: weights that go to many nodes are copied once."""


def records(parcel: Parcel, made: Made | None = None) -> RecordDict:
    """A parcel as records: its text as a config, its arrays as they are. Flower sends arrays in pieces of 5 MB."""
    known: Made = {} if made is None else made
    arrays = {str(i): _array(array, known) for i, array in enumerate(parcel.arrays)}
    return RecordDict({_TEXT: ConfigRecord({"text": parcel.text}), _ARRAYS: ArrayRecord(arrays)})


def _message(node: int, parcel: Parcel, made: Made) -> Message:
    kind = MessageType.TRAIN if parcel.arrays else MessageType.QUERY
    return Message(records(parcel, made), dst_node_id=node, message_type=kind)


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
    numbers = [str(i) for i in range(len(arrays))]
    if set(arrays) != {*numbers}:
        raise Malformed("arrays that are not numbered from 0 on")
    return Parcel(text=text, arrays=tuple(_read(arrays[number]) for number in numbers))


def _read(array: Array) -> np.ndarray:
    if array.stype != _RAW or array.dtype not in _DTYPES:
        raise Malformed(f"an array of {array.dtype} as {array.stype}")
    try:
        return np.frombuffer(array.data, dtype=array.dtype)
    except ValueError as error:
        raise Malformed(f"an array of {array.dtype} in {len(array.data)} bytes") from error


@final
@dataclass
class _Out:
    """A message that is out: to which node, since when, and before when its answer is not asked for again."""

    node: int
    since: float
    again: float = 0.0


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
        self._numbered = 0
        self._out: dict[str, _Out] = {}
        self._apart: dict[int, bool] = {}  # nodes whose answers are asked for alone, and whether that is for good
        self._asked: dict[str, Future[Sequence[Reply]]] = {}
        self._calls = WaitingCalls(AT_ONCE, "answers")

    def nodes(self) -> Collection[int]:
        return list(self._grid.get_node_ids())

    def push(self, letters: Sequence[tuple[int, Parcel]]) -> list[str]:
        made: Made = {}
        sent = self._pushed([_message(node, parcel, made) for node, parcel in letters])
        if not any(sent) and len(letters) > 1:
            # Together they may be too large, and each by itself not; one whose push broke off leaves the others whole.
            sent = [number for node, parcel in letters for number in self._pushed([_message(node, parcel, made)])]
        numbers = [
            number or self._named(parcel.bytes, self._why) for number, (_, parcel) in zip(sent, letters, strict=True)
        ]
        now = time.monotonic()
        self._out |= {number: _Out(node, now) for number, (node, _) in zip(numbers, letters, strict=True)}
        return numbers

    def _pushed(self, messages: Sequence[Message]) -> list[str | None]:
        """The ids of messages, none for those that Flower does not take.

        A push breaks off, too, where Flower believes that its session has ended, as when HTTP sends a part of it twice.
        """
        self._why = ""
        try:
            # What is too large for Flower is None, or there is nothing at all.
            return [*self._grid.push_messages(messages)] or [None for _ in messages]
        except (ValueError, EncodeError, ObjectPushError, httpx.HTTPStatusError) as error:
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
        """What has come.

        Flower reads what nodes have made, and stumbles over some of it in any way, without saying over whose. The other
        answers of that pull are gone, too: Flower will say that they are unavailable, and their visits are sent again.
        From then on all of these nodes are asked alone, each until it has given an answer that can be read, and whoever
        sends what cannot be read for good.
        """
        replies = [Reply(to=m, trouble=why, unsent=True) for m, why in self._not_sent.items()]
        self._not_sent.clear()
        waiting = [message for message in messages if not message.startswith("not sent")]
        alone = [m for m in waiting if m not in self._out or self._out[m].node in self._apart]
        together = [m for m in waiting if m in self._out and self._out[m].node not in self._apart]
        replies += self._pulled_together(together) if together else []
        replies += self._pulled_apart(alone)
        for reply in replies:
            self._out.pop(reply.to, None)
        if replies:
            gc.collect(_YOUNG)  # each response of HTTP, with up to 5 MB in it, is in a cycle with its stream
        return replies

    def _pulled_together(self, messages: Collection[str]) -> list[Reply]:
        began = time.monotonic()
        try:
            came = [_reply(message) for message in self._grid.pull_messages(messages)]
        except httpx.HTTPError:
            raise  # the run was stopped, or the SuperLink is in trouble
        except Exception:
            came = None
        if came is None or not {reply.to for reply in came} <= {*messages} or time.monotonic() - began > SLOW:
            self._apart |= {node: False for m in messages if (node := self._out[m].node) not in self._apart}
        return came or []

    def _pulled_apart(self, messages: Sequence[str]) -> list[Reply]:
        """What has come for some messages, none of which keeps another one waiting or spoils it."""
        now = time.monotonic()
        for message in messages:
            out = self._out.setdefault(message, _Out(-1, now))
            if message not in self._asked and now >= out.again:
                self._asked[message] = self._calls.submit(self._pulled_alone, message)
        asked = {message: self._asked[message] for message in messages if message in self._asked}
        wait(asked.values(), _LOOK)
        replies = list[Reply]()
        for message, done in asked.items():
            if done.done():
                del self._asked[message]
                replies += self._heard(self._out[message], done.result(), now)
        return replies

    def _heard(self, out: _Out, came: Sequence[Reply], now: float) -> Sequence[Reply]:
        least, share = _SELDOM
        out.again = now + max(least, share * (now - out.since))
        if any(reply.unreadable for reply in came):
            self._apart[out.node] = True
        elif not self._apart.get(out.node) and any(reply.parcel is not None for reply in came):
            self._apart.pop(out.node, None)
        return came

    def _pulled_alone(self, message: str) -> Sequence[Reply]:
        try:
            # A node may write to the server unasked, and say of its answer that it is one to something else: then
            # Flower says that there is none, and the visit is sent again.
            return [reply for came in self._grid.pull_messages([message]) if (reply := _reply(came)).to == message]
        except httpx.HTTPError:
            raise
        except Exception as error:
            words = f"what Flower cannot read: {error or type(error).__name__}"
            return [Reply(to=message, trouble=words, unreadable=True)]


def _reply(message: Message) -> Reply:
    to = message.metadata.reply_to_message_id
    if message.has_error():
        error = message.error
        return Reply(to=to, trouble=f"{error.reason} (Flower {error.code})", gone=error.code in _UNAVAILABLE)
    try:
        return Reply(to=to, parcel=parcel_of(message.content))
    except Malformed as wrong:
        return Reply(to=to, trouble=str(wrong), unreadable=True)
