"""What a fuzzer of inputs tries: something to read, and what must come out of it, said by whoever drew it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch

from polyrhythm.data import Collection, Samples

Draw = random.Random


@final
@dataclass(frozen=True)
class Case:
    """One input.

    Args:
        told: what it is, for a reader.
        read: reads it.
        judge: what is not right of what was read; empty if it is exactly what was drawn.
        must: "refuse" or "take" where only that is right; "" where a refusal in words is as good.
        say: what notes must say if it is taken.
        runs: whether an experiment is run, which may take its time.
    """

    told: str
    read: Callable[[], Any]
    judge: Callable[[Any], str]
    must: Literal["", "refuse", "take"] = ""
    say: tuple[str, ...] = ()
    runs: bool = False


@final
@dataclass(frozen=True)
class Rows:
    """The rows that must come out.

    Args:
        inputs: [n, ...].
        labels: [n], texts for classes, numbers for amounts, rows of them for several.
        clients: [n], the names; None for none.
    """

    inputs: np.ndarray
    labels: Sequence[Any]
    clients: Sequence[str] | None = None


def rows_of(found: Collection, part: Literal["train", "test"], client: str = "") -> Rows:
    """The rows of a collection, as a run reads them."""
    samples: Samples = getattr(found, part)
    inputs, targets = samples.batch(torch.arange(len(samples)))
    labels: list[Any] = targets.tolist()
    if found.task == "classification":
        labels = [found.classes[number] for number in labels]
    keys = (found.columns if part == "train" else found.test_columns).get(client)
    clients = None if keys is None else [str(v) for v in keys.values[keys.codes].tolist()]
    return Rows(inputs.numpy(), labels, clients)


def apart(found: Rows, right: Rows, close: float = 0.0) -> str:
    """What differs between rows in the same order; empty if nothing does."""
    if found.inputs.shape != right.inputs.shape:
        return f"inputs of shape {found.inputs.shape}, not {right.inputs.shape}"
    if not np.allclose(found.inputs, right.inputs, rtol=close, atol=close):
        row = int(np.argmax((found.inputs != right.inputs).reshape(len(found.inputs), -1).any(axis=1)))
        return f"row {row}: inputs {found.inputs[row].tolist()!r:.300}, not {right.inputs[row].tolist()!r:.300}"
    for what in ("labels", "clients"):
        ours, theirs = getattr(found, what), getattr(right, what)
        if (ours is None) != (theirs is None) or (ours is not None and list(ours) != list(theirs)):
            pairs = [(a, b) for a, b in zip(ours or [], theirs or [], strict=False) if a != b]
            return f"{what} {pairs[:3]!r:.300} of {len(ours or [])} and {len(theirs or [])}"
    return ""


def apart_in_any_order(found: Sequence[Rows], right: Rows) -> str:
    """The same for rows that were dealt to several parts."""

    def plain(rows: Rows) -> list[tuple[Any, ...]]:
        clients = rows.clients if rows.clients is not None else [""] * len(rows.labels)
        inputs = np.asarray(rows.inputs, dtype=np.float32).reshape(len(rows.labels), -1) + np.float32(0)
        together = zip(inputs.tolist(), rows.labels, clients, strict=True)
        return sorted((tuple(row), repr(label), client) for row, label, client in together)

    ours = sorted(row for rows in found for row in plain(rows))
    theirs = plain(right)
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, not {len(theirs)}"
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    return f"{len(pairs)} rows differ: {pairs[0][0]!r:.400}, not {pairs[0][1]!r:.400}" if pairs else ""
