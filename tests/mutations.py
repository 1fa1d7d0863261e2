"""Answers of nodes, spoiled: what accidents do to them, and what a node may send that lies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import torch

from polyrhythm.base.vectors import Spans
from polyrhythm.deployment.messages import Answer, Present, Refusal
from polyrhythm.deployment.wire import Parcel, pack, unpack

Draws = np.random.Generator

JUNK: list[Any] = [
    *(None, True, False, "", "x", "\ud800", "ä" * 20_000, 1.5, -1, 2**62, 2**70, 10**400, 1e308, -1e308),
    *([], {}, [[]], [1, 2], {"tuple": []}, {"float": "nan"}, {"float": "inf"}, {"float": 10**400}, {"tensor": 0}),
    *({"tensor": -1}, {"tensor": 10**9}, {"bytes": 0}, {"dict": ["a", 1, "a", 2]}, {"Report": []}, {"nothing": 1}),
]
"""What stands where something else is due."""

NUMBERS = (-1, -1.0, True, "1", None, 10**30, float("nan"), float("inf"), -float("inf"), 1e300)

LIES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("dispatch", "client", "visit", "version"), (*NUMBERS, 10**6)),
    "kind": ("measure", "train", "both", None, 1),
    "recipe": ("", "0" * 64, None, 3, "r" * 50_000),
    "num_samples": (*NUMBERS, 10**6, 2**41),
    "steps": (*NUMBERS, 2**41),
    "samples": (*NUMBERS, 2**41),
    "forward_samples": (*NUMBERS, 2**41),
    "gradient_samples": (*NUMBERS, 2**41),
    "substitute": ("nothing", None, 1, "model"),
    "age": (*NUMBERS, 10**6),
    "rate": (*NUMBERS, 1e30, 1e-30),
    "travel": (*NUMBERS, 1e30, 1e-30),
    "pull": ("1", None, True, float("nan"), float("inf"), 1e300),
    "idle": (((0, 10**9),), ((-1, 4),), ((0, 1.5),), (1,), None, ((0, 1),) * 1000),
    "loss": (True, "1", float("nan"), float("inf"), 1e300, -1e300, 10**30),
    "extras": (None, {"nobody": {}}, {1: {}}, {"control_variates": {"change": 3}}, {"control_variates": {}}, {"x": 1}),
    "measures": (
        None,
        {"": 1.0},
        {"x" * 200: 1.0},
        {"a\n": 1.0},
        {"loss": "1"},
        {"loss": True},
        {1: 1.0},
        {"x": 1e300},
    ),
    "packed": (*NUMBERS[:4], 10**30, 10**9),
    "checksum": (-1, True, "1", 1.5, 10**30, 12345),
    "duration": (*NUMBERS[2:],),
    "time": (*NUMBERS[2:],),
}
"""What a node may say of each field of a report that cannot be."""

TENSORS: Mapping[str, Callable[[torch.Tensor], Any]] = {
    "int32": lambda t: t.to(torch.int32),
    "bool": lambda t: t.to(torch.bool),
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "uint8": lambda t: t.to(torch.uint8),
    "shorter": lambda t: t[1:],
    "longer": lambda t: torch.cat([t, t]),
    "empty": lambda t: t[:0],
    "square": lambda t: t.reshape(2, -1),
    "one number": lambda t: t[0],
    "nan": lambda t: torch.full_like(t, torch.nan),
    "infinite": lambda t: torch.full_like(t, -torch.inf),
    "endless": lambda t: torch.full_like(t, 3e38),
    "none": lambda t: None,
    "a number": lambda t: 1.0,
    "a list": lambda t: t.tolist(),
}
"""What an update may be instead."""


def assignment_in(order: list[Any]) -> list[Any]:
    """What an order, as JSON has it, assigns."""
    return next(field["Assignment"] for field in order if isinstance(field, dict) and "Assignment" in field)


def same(one: Parcel, other: Parcel) -> bool:
    """Whether two parcels say exactly the same."""
    try:
        texts = json.loads(one.text) == json.loads(other.text)
    except (ValueError, RecursionError):
        return False
    return texts and [a.tobytes() for a in one.arrays] == [a.tobytes() for a in other.arrays]


@final
@dataclass
class Mutator:
    """Spoils answers.

    Args:
        draws: what, and where.
        spans: of the model.
    """

    draws: Draws
    spans: Spans
    earlier: list[Parcel] = field(default_factory=list)

    def __call__(self, parcel: Parcel) -> tuple[str, Parcel]:
        """What was done to an answer, and what is left of it."""
        kinds = [self.letter, self.cut, self.twice, self.junk, self.missing, self.name_twice, self.deep, self.array]
        kinds += [self.other, self.lie, self.lie, self.tensor, self.tensor, self.header, self.elsewhere]
        how = kinds[int(self.draws.integers(len(kinds)))]
        spoiled = how(parcel)
        self.earlier = [*self.earlier[-20:], parcel]
        return how.__name__, spoiled

    def _one(self, of: Any) -> Any:
        return of[int(self.draws.integers(len(of)))]

    def letter(self, parcel: Parcel) -> Parcel:
        place = int(self.draws.integers(len(parcel.text)))
        return replace(parcel, text=parcel.text[:place] + chr(int(self.draws.integers(128))) + parcel.text[place + 1 :])

    def cut(self, parcel: Parcel) -> Parcel:
        return replace(parcel, text=parcel.text[: int(self.draws.integers(len(parcel.text)))])

    def twice(self, parcel: Parcel) -> Parcel:
        a, b = sorted(int(n) for n in self.draws.integers(len(parcel.text), size=2))
        return replace(parcel, text=parcel.text[:b] + parcel.text[a:])

    def junk(self, parcel: Parcel) -> Parcel:
        tree = json.loads(parcel.text)
        where, key = self._one(list(_places(tree)))
        where[key] = self._one(JUNK)
        return replace(parcel, text=json.dumps(tree))

    def missing(self, parcel: Parcel) -> Parcel:
        tree = json.loads(parcel.text)
        where, key = self._one(list(_places(tree)))
        del where[key]
        return replace(parcel, text=json.dumps(tree))

    def name_twice(self, parcel: Parcel) -> Parcel:
        name = self._one(["format", "tensors", "value", "sum", "more"])
        return replace(parcel, text=parcel.text[:-1] + f', "{name}": {self._one(["1", "[]", "null"])}}}')

    def deep(self, parcel: Parcel) -> Parcel:
        depth = 10 ** int(self.draws.integers(1, 6))
        tree = json.loads(parcel.text)
        where, key = self._one(list(_places(tree)))
        where[key] = "HERE"
        return replace(parcel, text=json.dumps(tree).replace('"HERE"', "[" * depth + "]" * depth, 1))

    def array(self, parcel: Parcel) -> Parcel:
        arrays = [a.copy() for a in parcel.arrays]
        if not arrays:
            return replace(parcel, arrays=(np.zeros(3, np.int32),))
        i = int(self.draws.integers(len(arrays)))
        how = self._one(["flip", "flip", "flip", "cut", "dtype", "square", "drop", "more", "swap", "other"])
        if how == "flip" and arrays[i].size:
            raw = arrays[i].view(np.uint8)
            raw[int(self.draws.integers(len(raw)))] ^= 1 << int(self.draws.integers(8))
        elif how == "cut":
            arrays[i] = arrays[i][:-1]
        elif how == "dtype":
            arrays[i] = arrays[i].view(np.uint8)
        elif how == "square":
            arrays[i] = arrays[i].reshape(1, -1)
        elif how == "drop":
            del arrays[i]
        elif how == "swap":
            arrays.reverse()
        elif how == "other" and self.earlier:
            arrays = list(self._one(self.earlier).arrays)
        else:
            arrays.append(arrays[i])
        return replace(parcel, arrays=tuple(arrays))

    def header(self, parcel: Parcel) -> Parcel:
        """Announces other tensors than have come."""
        tree = json.loads(parcel.text)
        rows = tree["tensors"] or [["float32", [], "plain", [1]]]
        row = rows[int(self.draws.integers(len(rows)))]
        place = int(self.draws.integers(4))
        choices: list[list[Any]] = [
            ["float64", "bool", "int64", "complex64", "object", None, 3],
            [[], [2**40], [2**70], [-1], [0, 2**62], [2, 2], [1] * 1000, "x", None, [True], [1.0]],
            ["sparse", "levels", "zip", None, []],
            [[2**40], [0], [], [-1], [1, 1], [1, 1, 1], [10**6] * 3, None, ["1"], [True]],
        ]
        row[place] = self._one(choices[place])
        tree["tensors"] = rows * self._one([1, 1, 2, 1000])
        return replace(parcel, text=json.dumps(tree))

    def other(self, parcel: Parcel) -> Parcel:
        """The answer of another visit, or of none."""
        nobody = [pack(Present(client=0, num_samples=1, engine="torch")), Parcel(text=""), Parcel(text="[" * 10**5)]
        refusal = Refusal(client=0, found="not a finite number\x1b[2J", expected="b", why="c", fix="d")
        return self._one([*self.earlier, *nobody, pack(refusal)])

    def elsewhere(self, parcel: Parcel) -> Parcel:
        answer = self._answer(parcel)
        return self._packed(replace(answer, run=self._one(["", "another", "../..", "r" * 20_000])))

    def lie(self, parcel: Parcel) -> Parcel:
        answer = self._answer(parcel)
        if self.draws.random() < 0.1:
            return self._packed(replace(answer, seconds=self._one([-1.0, float("nan"), 1e300, "1", None, True])))
        name = self._one(list(LIES))
        wrong = [value for value in LIES[name] if repr(value) != repr(getattr(answer.report, name))]
        return self._packed(replace(answer, report=replace(answer.report, **{name: self._one(wrong)})))

    def tensor(self, parcel: Parcel) -> Parcel:
        answer = self._answer(parcel)
        update = answer.report.update
        name = self._one(list(TENSORS))
        changed = torch.ones(4) if update is None else TENSORS[name](update)
        return self._packed(replace(answer, report=replace(answer.report, update=changed)))

    def _answer(self, parcel: Parcel) -> Answer:
        answer = unpack(parcel, Answer, Answer, spans=self.spans)
        assert isinstance(answer, Answer)
        return answer

    def _packed(self, answer: Answer) -> Parcel:
        return pack(answer, self.spans if answer.report.packed is not None else None)


def _places(tree: Any) -> Any:
    """Every place in a tree where something stands: what holds it, and by which key."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, inner in list(items):
        yield tree, key
        yield from _places(inner)
