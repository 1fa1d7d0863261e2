"""Messages between the server and the nodes of a real federation: frozen values, and what may be in their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.faults import FaultKind
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.data.schema import Schema
from polyrhythm.deployment.sum_messages import MOST_NEIGHBOURS, Keys, Shares, SumAnswer, SumQuestion, Unmask

LONGEST_NAME = 10_000
"""Characters of one text that a message names something by, at most."""
MOST_COUNTED = 2**40
"""Samples that a client may hold, and samples or steps of one visit: sums over many are still numbers of 64 bits."""
MOST_WHOLE = 2**63


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
        schema: of the data: what a sample and its target are.
        population: how many clients the federation has.
    """

    recipe: str
    title: str
    layout: str
    schema: Schema
    population: int


@final
@dataclass(frozen=True, kw_only=True)
class Present:
    """A node's answer to a greeting.

    Args:
        client: its number.
        num_samples: how many samples it holds.
        engine: what computes its local steps.
    """

    client: int
    num_samples: int
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
        scaling: float64 [2, features], the server's means and standard deviations, where inputs are scaled by such.
        assignment: what to do; of its vectors only what the client holds.
        held: which coordinates these are, uint8, where both ends cannot tell.
        senders, letters: whose letters come with it, and these, where single updates are hidden in a sum.
    """

    run: str
    seed: int
    population: int
    eligible: int
    keep: tuple[int, ...]
    scaling: Tensor | None = None
    assignment: Assignment
    held: Tensor | None = None
    senders: tuple[int, ...] = ()
    letters: bytes | None = None


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


Message = Greeting | Present | Refusal | Order | Answer | SumQuestion | SumAnswer
_WHOLE, _NUMBER, _TEXT = (int,), (int, float), (str,)
_NONE = type(None)
_QUESTION: Mapping[str, tuple[type, ...]] = {"run": _TEXT, "version": _WHOLE, "client": _WHOLE, "recipe": _TEXT}
_CLIENTS = ("senders", "neighbours", "summed", "missing", "clients")
_FIELDS: Mapping[type, Mapping[str, tuple[type, ...]]] = {
    Greeting: {
        **dict.fromkeys(("recipe", "title", "layout"), _TEXT),
        **{"population": _WHOLE, "schema": (Schema,)},
    },
    Schema: {
        **dict.fromkeys(("task", "target", "dtype"), _TEXT),
        **dict.fromkeys(("classes", "shape", "features", "transforms", "scaling"), (tuple,)),
        **{"outputs": _WHOLE},
    },
    Present: {"client": _WHOLE, "num_samples": _WHOLE, "engine": _TEXT},
    Refusal: {"client": _WHOLE, **dict.fromkeys(("found", "expected", "why", "fix"), _TEXT)},
    Order: {
        **dict.fromkeys(("seed", "population", "eligible"), _WHOLE),
        **{"run": _TEXT, "keep": (tuple,), "assignment": (Assignment,), "scaling": (Tensor, _NONE)},
        **{"senders": (tuple,), "letters": (bytes, _NONE), "held": (Tensor, _NONE)},
    },
    Keys: _QUESTION,
    Shares: {**_QUESTION, "neighbours": (tuple,), "keys": (bytes,), "threshold": _WHOLE},
    Unmask: {**_QUESTION, "summed": (tuple,), "missing": (tuple,)},
    SumAnswer: {
        **{"run": _TEXT, "version": _WHOLE, "client": _WHOLE, "stage": _WHOLE},
        **{"clients": (tuple,), "content": (bytes,), "seeds": _WHOLE},
    },
    Answer: {"seconds": _NUMBER, "report": (Report,), "run": _TEXT},
    Assignment: {
        **dict.fromkeys(("dispatch", "client", "visit", "accepted", "version"), _WHOLE),
        **{"kind": _TEXT, "total_rounds": (int, _NONE), "weights": (Tensor,), "buffers": (tuple,)},
        **{"briefs": (dict,), "recipe": _TEXT, "samples": (int, _NONE)},
    },
    Report: {
        **dict.fromkeys(("dispatch", "client", "visit", "version", "num_samples", "steps", "samples"), _WHOLE),
        **dict.fromkeys(("forward_samples", "gradient_samples", "age"), _WHOLE),
        **dict.fromkeys(("kind", "recipe", "substitute"), _TEXT),
        **dict.fromkeys(("rate", "travel", "pull", "duration", "time"), _NUMBER),
        **{"update": (Tensor, _NONE), "buffers": (tuple,), "idle": (tuple,), "loss": (int, float, _NONE)},
        **{"extras": (dict,), "measures": (dict,), "packed": (int, _NONE), "checksum": (int, _NONE)},
    },
}
_WORDS = {
    "kind": ("train", "measure", "rehearse"),
    "substitute": ("", "movement", "model", "silence"),
}
_PLAIN = (bool, int, float, str, bytes, _NONE, Tensor, np.ndarray, np.generic)


def check_fields(value: Any) -> None:
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
        if name in _CLIENTS and not _clients(given):
            raise Malformed(f"{name} of a {kind.__name__} that are no distinct clients")
    if isinstance(value, Order):
        if not all(type(visit) is int for visit in value.keep):
            raise Malformed("keep of an Order holds something else than visits")
        if value.scaling is not None and (value.scaling.dim() != 2 or len(value.scaling) != 2):
            raise Malformed("a scaling that is no mean and standard deviation for each input")
        check_fields(value.assignment)
    elif isinstance(value, Answer):
        check_fields(value.report)
    elif isinstance(value, Greeting):
        check_fields(value.schema)
    elif isinstance(value, Schema):
        _check_schema(value)
    elif isinstance(value, (Assignment, Report)):
        _check_contents(value)


def _clients(given: Any) -> bool:
    """Whether these are the numbers of some clients, each once."""
    whole = len(given) <= MOST_NEIGHBOURS and all(
        type(client) is int and 0 <= client < MOST_COUNTED for client in given
    )
    return whole and len(set(given)) == len(given)


def _sized(value: Any) -> bool:
    """Whether a text or a whole number is of a size that can be kept."""
    if isinstance(value, str):
        return len(value) <= LONGEST_NAME
    return not isinstance(value, int) or -MOST_WHOLE < value < MOST_WHOLE


def _check_schema(schema: Schema) -> None:
    texts = (*schema.classes, *schema.features, *schema.transforms)
    if not all(isinstance(name, str) for name in texts) or not all(type(n) is int for n in schema.shape):
        raise Malformed("names of a Schema that are no texts, or a shape of something else than whole numbers")
    rows = [row for row in schema.scaling if isinstance(row, tuple) and all(type(n) is float for n in row)]
    if len(rows) != len(schema.scaling) or (rows and (len(rows) != 2 or len(rows[0]) != len(rows[1]))):
        raise Malformed("a scaling that is no mean and standard deviation for each input")


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
