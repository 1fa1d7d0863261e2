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
from typing import Any, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.faults import FaultKind
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.vectors import Spans
from polyrhythm.deployment.coding import CODES, Uncodable, bits, decode, encode
from polyrhythm.runs.encoding import Codec

FORMAT = 1
PIECE = 2**28
"""Bytes of the largest array of a message; a larger tensor travels in several. Flower's own limit is 2 GiB."""
LONGEST_TEXT = 2**23
"""Characters of the text of a message, at most: what it becomes in memory is some twenty times as large."""
LONGEST_NAME = 10_000
"""Characters of one text that a message names something by, at most."""
MOST_COUNTED = 2**40
"""Samples that a client may hold, and samples or steps of one visit: sums over many are still numbers of 64 bits."""
_MOST_WHOLE = 2**63
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


class Malformed(Exception):
    """Something that is no message of this kind; says what is wrong with it.

    Args:
        words: what.
        kind: as what it counts, where it is the answer of a visit.
    """

    def __init__(self, words: str, kind: FaultKind = "unfit") -> None:
        super().__init__(words)
        self.kind = kind


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
        """As an error of this process, in words that can be shown."""
        found, expected, why, fix = map(shown, (self.found, self.expected, self.why, self.fix))
        return UserError(found, expected=expected, why=why, fix=fix)


def shown(text: str, most: int = 500) -> str:
    """What somebody else has written, as it may be printed and recorded: one line of so many characters at most.

    >>> shown("a\\n\\x1b[31m b", 8)
    'a [31m b'
    >>> shown("a long text", 6)
    'a lon…'
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * most]).split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"


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
        run: the id in the order.
    """

    seconds: float
    report: Report
    run: str = ""


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
        return len(self.text.encode(errors="replace")) + sum(array.nbytes for array in self.arrays)


Sums = dict[tuple[int, int], int]
"""Checksums of memory that does not change meanwhile, by its place and size: weights that go to many are read once."""


def pack(message: Message, spans: Spans | None = None, *, piece: int = PIECE, sums: Sums | None = None) -> Parcel:
    """A message as a text and arrays.

    Args:
        message: what is to travel.
        spans: (offset, size) of each parameter in a vector, if its tensors are worth a code (`drivers.coding`).
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
    *,
    spans: Spans = (),
    vectors: int = 1,
    check: Callable[[A | B], None] = lambda value: None,
) -> A | B:
    """The message in a parcel.

    Args:
        parcel: as it came.
        one, other: what it may be.
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
        if not isinstance(value, (one, other)):
            raise Malformed(f"a {type(value).__name__}, where a {one.__name__} or a {other.__name__} is expected")
        _check(value)
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
        and all(type(n) is int and 0 <= n < _MOST_WHOLE for n in numbers)
    )


def _joined(pieces: Sequence[np.ndarray]) -> np.ndarray:
    if not all(isinstance(piece, np.ndarray) and piece.ndim == 1 for piece in pieces):
        raise Malformed("arrays with more than one dimension")
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


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
    Answer: {"seconds": _NUMBER, "report": (Report,), "run": _TEXT},
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
    """Refuses fields of other types than this process would put there, and of sizes that nobody can count with."""
    kind = type(value)
    for name, allowed in _FIELDS[kind].items():
        given = getattr(value, name)
        # True is an int in Python, but no number that anybody counts with.
        if not isinstance(given, allowed) or isinstance(given, bool):
            raise Malformed(f"{name} of a {kind.__name__} is a {type(given).__name__}")
        if name in _WORDS and given not in _WORDS[name]:
            words = ", ".join(map(repr, _WORDS[name]))
            raise Malformed(f"{name} of a {kind.__name__} is {shown(repr(given), 40)}, none of {words}")
        if name != "seed" and not _sized(given):
            raise Malformed(f"{name} of a {kind.__name__} is too large: {shown(repr(given), 40)}")
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


def _sized(value: Any) -> bool:
    """Whether a text or a whole number is of a size that can be kept."""
    if isinstance(value, str):
        return len(value) <= LONGEST_NAME
    return not isinstance(value, int) or -_MOST_WHOLE < value < _MOST_WHOLE


def _check_contents(value: Assignment | Report) -> None:
    if not all(isinstance(buffer, Tensor) for buffer in value.buffers):
        raise Malformed("buffers that are no tensors")
    states = value.briefs if isinstance(value, Assignment) else value.extras
    for key, state in states.items():
        if not isinstance(key, str) or not isinstance(state, dict) or not _plain(state):
            raise Malformed(f"what {shown(repr(key), 40)} sends is no state of a mechanism")
    if isinstance(value, Report):
        if not all(
            isinstance(k, str) and isinstance(v, (int, float)) and not isinstance(v, bool) and _sized(v)
            for k, v in value.measures.items()
        ):
            raise Malformed("measures that are no numbers")
        if not all(
            isinstance(span, tuple) and len(span) == 2 and all(type(n) is int for n in span) for span in value.idle
        ):
            raise Malformed("idle parts that are no spans")


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        # Keys of one kind, so that there is an order of them.
        kinds = {type(key) for key in value}
        return (kinds <= {str} or kinds <= {int}) and all(map(_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, _PLAIN)
