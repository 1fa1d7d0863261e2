"""What travels between the server and the nodes of a real federation: a text and arrays of whole numbers, no pickle.

Each message is one frozen value. `pack` makes of it a text (JSON) that says what it is, and arrays with the bits of its
tensors, none larger than a piece; `unpack` makes the value again, every bit of it, in memory that kernels want. What
comes from elsewhere may be anything: whatever is not such a message is refused in words, and nothing in it is run.

Rules of this file:

- What a message announces is held against what has come before anything is made of it, in whole numbers without limit:
  no message takes more memory than a fixed multiple of its own bytes, and of the model's where a vector is compressed.
- Every message carries checksums of its text and of each array. They are against accidents, not against liars, who
  write them too. So fields are judged first, and a wrong one is named although the sums do not fit either.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.vectors import Spans
from polyrhythm.data.schema import Schema
from polyrhythm.deployment.coding import CODES, Uncodable, bits, decode, encode
from polyrhythm.deployment.messages import (
    MOST_WHOLE,
    Answer,
    Greeting,
    Malformed,
    Message,
    Order,
    Present,
    Refusal,
    check_fields,
    shown,
)
from polyrhythm.deployment.sum_messages import Keys, Shares, SumAnswer, Unmask
from polyrhythm.runs.encoding import Codec

FORMAT = 1
PIECE = 2**28
"""Bytes of the largest array of a message; a larger tensor travels in several. Flower's own limit is 2 GiB."""
LONGEST_TEXT = 2**23
"""Characters of the text of a message, at most: what it becomes in memory is some twenty times as large."""
_MOST_DIMENSIONS = 32
_MOST_PARTS = 3  # arrays of a code, each in as many pieces as it takes
_MOST_USES = 16  # of all that has come in arrays, since a value may stand in several places
_PADDING = 64  # elements, at most, behind the last parameter in a vector
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    )
}
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
_CODEC = Codec((Greeting, Schema, Present, Refusal, Order, Answer, Assignment, Report, Keys, Shares, Unmask, SumAnswer))


@final
@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A message on its way.

    Args:
        text: what it is.
        arrays: one-dimensional, of whole numbers.
    """

    text: str
    arrays: tuple[np.ndarray, ...] = ()

    @property
    def bytes(self) -> int:
        """Of its text and its arrays."""
        return len(self.text.encode(errors="replace")) + sum(array.nbytes for array in self.arrays)


Sums = dict[tuple[int, int], int]
"""Checksums of memory that does not change meanwhile, by its place and size: weights that go to many are read once."""


def pack(message: Message, spans: Spans | None = None, *, piece: int = PIECE, sums: Sums | None = None) -> Parcel:
    """A message as a text and arrays.

    Args:
        message: what is to travel.
        spans: (offset, size) of each parameter in a vector, if its tensors are worth a code (`coding`).
        piece: bytes of the largest array.
        sums: of arrays that were packed before and are still there; those of this message are added.
    """
    tree, tensors = _CODEC.encode(message)
    table, arrays = list[Any](), list[np.ndarray]()
    for tensor in tensors:
        code, parts = _coded(tensor, spans)
        counts = list[int]()
        for part in parts:
            step = max(1, piece // part.itemsize)
            pieces = [part[i : i + step] for i in range(0, len(part), step)] or [part]
            counts.append(len(pieces))
            arrays += pieces
        table.append([str(tensor.dtype).removeprefix("torch."), list(tensor.shape), code, counts])
    whole = {"format": FORMAT, "tensors": table, **tree, "sums": _sums(arrays, {} if sums is None else sums)}
    return Parcel(text=json.dumps({**whole, "sum": _sum(whole)}), arrays=tuple(arrays))


def _coded(tensor: Tensor, spans: Spans | None) -> tuple[str, list[np.ndarray]]:
    """A code that fits a tensor, and the arrays in it. Only what is as long as a vector may be coded as one."""
    whole = max((offset + size for offset, size in spans or ()), default=0)
    if spans and tensor.dim() == 1 and whole <= len(tensor) <= whole + _PADDING:
        return encode(tensor, spans)
    return "plain", [bits(tensor).numpy()]


def _sum(tree: Mapping[str, Any]) -> int:
    """CRC-32 of what JSON says, however it is written. No text in it may be half a character."""
    return zlib.crc32(json.dumps(tree, ensure_ascii=False).encode())


def _sums(arrays: Sequence[np.ndarray], known: Sums) -> list[int]:
    """CRC-32 of each array."""
    places = [(int(array.__array_interface__["data"][0]), array.nbytes) for array in arrays]
    for place, array in zip(places, arrays, strict=True):
        if place not in known:
            known[place] = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data) if array.size else 0
    return [known[place] for place in places]


def unpack(
    parcel: Parcel,
    one: type[A],
    other: type[B],
    third: type[C] = NoneType,  # type: ignore[assignment]
    *,
    spans: Spans = (),
    vectors: int = 1,
    check: Callable[[A | B | C], None] = lambda value: None,
) -> A | B | C:
    """The message in a parcel.

    Args:
        parcel: as it came.
        one, other, third: what it may be.
        spans: as they were when it was packed, if they were.
        vectors: how many vectors a message may hold that are longer than what has come of them.
        check: refuses, by `Malformed`, what is such a message and yet not what is expected.

    Raises:
        Malformed: it is none of these.
    """
    try:
        tree = _read(parcel.text)
        whole = {name: part for name, part in tree.items() if name != "sum"}
        tensors = _tensors(tree["tensors"], parcel.arrays, spans, vectors)
        value = _CODEC.decode({name: tree[name] for name in ("classes", "value")}, _Uses(tensors).fetch)
        if not isinstance(value, (one, other, third)):
            raise Malformed(f"a {type(value).__name__}, where a {one.__name__} or a {other.__name__} is expected")
        check_fields(value)
        check(value)
        if tree.get("sum") != _sum(whole) or tree.get("sums") != _sums(parcel.arrays, {}):
            raise Malformed("a message that was damaged on the way: its checksum does not fit", "damaged")
    except Malformed:
        raise
    except UserError as error:  # a class that nobody knows, or of another version
        raise Malformed(f"{shown(error.found)}, where a message of this version is expected") from error
    except Uncodable as error:
        raise Malformed(shown(str(error))) from error
    except Exception as error:  # whatever it is, it came from elsewhere and must not end anything here
        words = f"{type(error).__name__}: {error}"
        raise Malformed(f"a message that cannot be read: {shown(words)}") from error
    return value


_PARTS = frozenset({"tensors", "classes", "value", "sums", "sum"})


def _read(text: str) -> dict[str, Any]:
    if len(text) > LONGEST_TEXT:
        raise Malformed(f"a text of {len(text):,} characters, more than {LONGEST_TEXT:,}")
    tree = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    if not isinstance(tree, dict) or type(tree.get("format")) is not int or tree["format"] != FORMAT:
        raise Malformed(f"no message in format {FORMAT} of polyrhythm")
    if strange := tree.keys() - _PARTS - {"format"}:
        raise Malformed(f"a message with {shown(', '.join(map(repr, sorted(strange))))}")
    return tree


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("a message in which a name stands twice")
    return found


def _no_number(word: str) -> float:
    raise Malformed(f"{word}, which is no JSON")


@final
class _Uses:
    """The tensors of a message, from which no more is made than a multiple of what has come."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._left = _MOST_USES * (sum(t.nbytes for t in tensors) + len(tensors))

    def fetch(self, place: int) -> Tensor:
        if type(place) is not int or not 0 <= place < len(self._tensors):
            raise Malformed(f"tensor {shown(repr(place))} of {len(self._tensors)}")
        self._left -= self._tensors[place].nbytes + 1
        if self._left < 0:
            raise Malformed("the same tensor over and over")
        return self._tensors[place]


def _tensors(table: Any, arrays: Sequence[np.ndarray], spans: Spans, vectors: int) -> list[Tensor]:
    rows = _rows(table, len(arrays))
    # Nothing large is made of a few bytes: as many have come, or the vector is no longer than the model's.
    made, left, longest = list[Tensor](), iter(arrays), max((o + s for o, s in spans), default=0) + _PADDING
    room = vectors * longest
    for name, shape, code, counts in rows:
        dtype, elements = _DTYPES[name], math.prod(shape)
        parts = [_joined([next(left) for _ in range(count)]) for count in counts]
        came, size = sum(part.nbytes for part in parts), elements * dtype.itemsize
        if came != size if code == "plain" else elements > longest:
            raise Malformed(f"a tensor of {size:,} bytes in {came:,}")
        room -= 0 if code == "plain" else elements
        if room < 0:
            raise Malformed(f"more than {vectors} vectors of the model's length")
        made.append(decode(code, parts, dtype, shape, spans))
    return made


def _rows(table: Any, came: int) -> list[tuple[str, list[int], str, list[int]]]:
    """What is announced of each tensor, if it is announced as it should be, and as many arrays have come."""
    if not isinstance(table, list):
        raise Malformed("a message without its tensors")
    announced = 0
    for row in table:
        if not isinstance(row, list) or len(row) != 4:
            raise Malformed("a tensor that is not announced as name, shape, code and pieces")
        name, shape, code, counts = row
        if not isinstance(name, str) or name not in _DTYPES or not isinstance(code, str) or code not in CODES:
            raise Malformed(f"a tensor of {shown(repr(name), 40)} in the code {shown(repr(code), 40)}")
        if not _wholes(shape, _MOST_DIMENSIONS) or not _wholes(counts, _MOST_PARTS):
            pieces = shown(repr(counts), 80)
            raise Malformed(f"a tensor of the shape {shown(repr(shape), 80)} in {pieces} pieces")
        if not counts or 0 in counts:
            raise Malformed("fewer arrays than were announced")
        announced += sum(counts)
    if announced != came:
        raise Malformed(f"{'fewer' if announced > came else 'more'} arrays than were announced")
    return table


def _wholes(numbers: Any, most: int) -> bool:
    return (
        isinstance(numbers, list)
        and len(numbers) <= most
        and all(type(n) is int and 0 <= n < MOST_WHOLE for n in numbers)
    )


def _joined(pieces: Sequence[np.ndarray]) -> np.ndarray:
    if not all(isinstance(piece, np.ndarray) and piece.ndim == 1 for piece in pieces):
        raise Malformed("arrays with more than one dimension")
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
