"""What travels between the server and the nodes of a real federation: a text and arrays of whole numbers, no pickle.

Each message is one frozen value. `pack` makes of it a text (JSON) that says what it is, and arrays with the bits of its
tensors, none larger than a piece; `unpack` makes the value again, every bit of it, in memory that kernels want. What
comes from elsewhere may be anything: whatever is not such a message is refused in words, and nothing in it is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.drivers.coding import Uncodable, bits, decode, encode
from polyrhythm.errors import UserError
from polyrhythm.runs.encoding import Codec
from polyrhythm.vectors import Spans
from polyrhythm.wires import Assignment, Report

FORMAT = 1
PIECE = 2**28
"""Bytes of the largest array of a message; a larger tensor travels in several. Flower's own limit is 2 GiB."""
_PADDING = 64  # elements, at most, behind the last parameter in a vector
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    )
}


class Malformed(Exception):
    """Something that is no message of this kind; says what is wrong with it."""


@final
@dataclass(frozen=True, kw_only=True)
class Greeting:
    """The server's question who a node is, and what it must have in common with it.

    Args:
        recipe: digest of the recipe.
        title: the recipe, for people.
        layout: digest of what is in a vector: names, shapes and types.
        classes: of the data, in order of class number.
        population: how many clients the federation has.
    """

    recipe: str
    title: str
    layout: str
    classes: tuple[str, ...]
    population: int


@final
@dataclass(frozen=True, kw_only=True)
class Present:
    """A node's answer to a greeting.

    Args:
        client: its number.
        held: how many samples it holds.
        engine: what computes its local steps.
    """

    client: int
    held: int
    engine: str


@final
@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A node does not do what it was asked to, with the four parts of an error."""

    client: int
    found: str
    expected: str
    why: str
    fix: str

    def error(self) -> UserError:
        """As an error of this process."""
        return UserError(self.found, expected=self.expected, why=self.why, fix=self.fix)


@final
@dataclass(frozen=True, kw_only=True)
class Order:
    """One piece of work for a node.

    Args:
        run: the run's id, under which the node remembers.
        seed: the experiment's, which names the node's random draws.
        population: how many clients the federation has.
        eligible: how many of them hold data.
        keep: the visits whose states the server may come back to, after it was killed; the node forgets all others.
        assignment: what to do.
    """

    run: str
    seed: int
    population: int
    eligible: int
    keep: tuple[int, ...]
    assignment: Assignment


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of an order.

    Args:
        seconds: that the node worked.
        report: the client's.
    """

    seconds: float
    report: Report


Message = Greeting | Present | Refusal | Order | Answer
A = TypeVar("A")
B = TypeVar("B")
_CODEC = Codec((Greeting, Present, Refusal, Order, Answer, Assignment, Report))


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
        return len(self.text.encode()) + sum(array.nbytes for array in self.arrays)


def pack(message: Message, spans: Spans | None = None, *, piece: int = PIECE) -> Parcel:
    """A message as a text and arrays.

    Args:
        message: what is to travel.
        spans: (offset, size) of each parameter in a vector, if its tensors are worth a code (`drivers.coding`).
        piece: bytes of the largest array.
    """
    tree, tensors = _CODEC.encode(message)
    table, arrays = list[Any](), list[np.ndarray]()
    for tensor in tensors:
        vector = spans if spans and tensor.dim() == 1 else None
        code, parts = ("plain", [bits(tensor).numpy()]) if vector is None else encode(tensor, vector)
        counts = list[int]()
        for part in parts:
            step = max(1, piece // part.itemsize)
            pieces = [part[i : i + step] for i in range(0, len(part), step)] or [part]
            counts.append(len(pieces))
            arrays += pieces
        table.append([str(tensor.dtype).removeprefix("torch."), list(tensor.shape), code, counts])
    return Parcel(text=json.dumps({"format": FORMAT, "tensors": table, **tree}), arrays=tuple(arrays))


def unpack(parcel: Parcel, one: type[A], other: type[B], *, spans: Spans = ()) -> A | B:
    """The message in a parcel.

    Args:
        parcel: as it came.
        one, other: what it may be.
        spans: as they were when it was packed, if they were.

    Raises:
        Malformed: it is none of these.
    """
    try:
        tree = json.loads(parcel.text)
        if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
            raise Malformed(f"no message in format {FORMAT} of polyrhythm")
        tensors = _tensors(tree.pop("tensors"), list(parcel.arrays), spans)
        value = _CODEC.decode(tree, tensors.__getitem__)
    except Malformed:
        raise
    except UserError as error:  # a class that nobody knows, or of another version
        raise Malformed(f"{error.found}, where a message of this version is expected") from error
    except Uncodable as error:
        raise Malformed(str(error)) from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, RuntimeError) as error:
        raise Malformed(f"a message that cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(value, (one, other)):
        raise Malformed(f"a {type(value).__name__}, where a {one.__name__} or a {other.__name__} is expected")
    _check(value)
    return value


def _tensors(table: Any, arrays: list[np.ndarray], spans: Spans) -> list[Tensor]:
    made, left = list[Tensor](), iter(arrays)
    for name, shape, code, counts in table:
        dtype = _DTYPES[name]
        if not all(type(n) is int and n >= 0 for n in (*shape, *counts)):
            raise Malformed(f"a tensor of the shape {shape!r}")
        size = dtype.itemsize
        for n in shape:
            size *= n
        parts = [_joined([next(left, None) for _ in range(count)]) for count in counts]
        # Nothing large is made of a few bytes: as many have come, or the vector is no longer than the model's.
        came, longest = sum(part.nbytes for part in parts), max((o + s for o, s in spans), default=0) + _PADDING
        if came != size if code == "plain" else size > longest * dtype.itemsize:
            raise Malformed(f"a tensor of {size:,} bytes in {came:,}")
        made.append(decode(code, parts, dtype, shape, spans))
    if next(left, None) is not None:
        raise Malformed("more arrays than were announced")
    return made


def _joined(pieces: Sequence[np.ndarray | None]) -> np.ndarray:
    whole = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    if len(whole) != len(pieces) or not whole:
        raise Malformed("fewer arrays than were announced")
    return whole[0] if len(whole) == 1 else np.concatenate(whole)


_WHOLE, _NUMBER, _TEXT = (int,), (int, float), (str,)
_NONE = type(None)
_FIELDS: Mapping[type, Mapping[str, tuple[type, ...]]] = {
    Greeting: {
        **dict.fromkeys(("recipe", "title", "layout"), _TEXT),
        **{"population": _WHOLE, "classes": (tuple,)},
    },
    Present: {"client": _WHOLE, "held": _WHOLE, "engine": _TEXT},
    Refusal: {"client": _WHOLE, **dict.fromkeys(("found", "expected", "why", "fix"), _TEXT)},
    Order: {
        **dict.fromkeys(("seed", "population", "eligible"), _WHOLE),
        **{"run": _TEXT, "keep": (tuple,), "assignment": (Assignment,)},
    },
    Answer: {"seconds": _NUMBER, "report": (Report,)},
    Assignment: {
        **dict.fromkeys(("dispatch", "client", "visit", "accepted", "version"), _WHOLE),
        **{"kind": _TEXT, "horizon": (int, _NONE), "weights": (Tensor,), "buffers": (tuple,)},
        **{"briefs": (dict,), "recipe": _TEXT, "samples": (int, _NONE)},
    },
    Report: {
        **dict.fromkeys(("dispatch", "client", "visit", "version", "held", "steps", "samples"), _WHOLE),
        **dict.fromkeys(("forward_samples", "gradient_samples", "age"), _WHOLE),
        **dict.fromkeys(("kind", "recipe", "substitute"), _TEXT),
        **dict.fromkeys(("rate", "travel", "pull", "duration", "time"), _NUMBER),
        **{"update": (Tensor, _NONE), "buffers": (tuple,), "idle": (tuple,), "loss": (int, float, _NONE)},
        **{"extras": (dict,), "measures": (dict,), "packed": (int, _NONE), "checksum": (int, _NONE)},
    },
}
_WORDS = {
    "kind": ("train", "measure"),
    "substitute": ("", "movement", "model", "silence"),
}
_PLAIN = (bool, int, float, str, bytes, _NONE, Tensor, np.ndarray, np.generic)


def _check(value: Any) -> None:
    """Refuses fields of other types than this process would put there."""
    kind = type(value)
    for name, allowed in _FIELDS[kind].items():
        given = getattr(value, name)
        # True is an int in Python, but no number that anybody counts with.
        if not isinstance(given, allowed) or isinstance(given, bool):
            raise Malformed(f"{name} of a {kind.__name__} is a {type(given).__name__}")
        if name in _WORDS and given not in _WORDS[name]:
            raise Malformed(f"{name} of a {kind.__name__} is {given!r}, none of {', '.join(map(repr, _WORDS[name]))}")
    if isinstance(value, Order):
        if not all(type(visit) is int for visit in value.keep):
            raise Malformed("keep of an Order holds something else than visits")
        _check(value.assignment)
    elif isinstance(value, Answer):
        _check(value.report)
    elif isinstance(value, Greeting):
        if not all(isinstance(name, str) for name in value.classes):
            raise Malformed("classes of a Greeting that are no texts")
    elif isinstance(value, (Assignment, Report)):
        _check_contents(value)


def _check_contents(value: Assignment | Report) -> None:
    if not all(isinstance(buffer, Tensor) for buffer in value.buffers):
        raise Malformed("buffers that are no tensors")
    states = value.briefs if isinstance(value, Assignment) else value.extras
    for key, state in states.items():
        if not isinstance(key, str) or not isinstance(state, dict) or not _plain(state):
            raise Malformed(f"what {key!r} sends is no state of a mechanism")
    if isinstance(value, Report):
        if not all(isinstance(k, str) and isinstance(v, (int, float)) for k, v in value.measures.items()):
            raise Malformed("measures that are no numbers")
        if not all(
            isinstance(span, tuple) and len(span) == 2 and all(type(n) is int for n in span) for span in value.idle
        ):
            raise Malformed("idle parts that are no spans")


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, (str, int)) and _plain(inner) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, _PLAIN)
