"""A data set as a whole: training and test samples, before they are split over clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import torch

from polyrhythm.base import html
from polyrhythm.base.errors import UserError
from polyrhythm.base.plain import plain
from polyrhythm.data.keys import Columns, Keys
from polyrhythm.data.labels import ClassLabels
from polyrhythm.data.preprocessing import Preprocessing
from polyrhythm.data.samples import Samples
from polyrhythm.data.structured import Shape, Structure
from polyrhythm.data.text_reading import TextReading

Task = Literal["classification", "multilabel", "next_character", "next_token", "regression", "survival"]


@final
@dataclass(frozen=True, kw_only=True)
class Collection:
    """A data set: train and test samples, what their targets mean, and keys that may define natural clients.

    Args:
        name: short name, shown in plans and figures.
        task: "classification", "multilabel", "next_character", "next_token", "regression" or "survival".
        classes: the original labels as text, in order of class number; () for regression.
        train: what clients learn from.
        test: what the global model is tested on; never trained or chosen on.
        columns: keys of the training samples, e.g. {"writer": Keys.of(writers)}, each [n].
        test_columns: the same keys of the test samples, where they are known.
        ordered_by: name of a column within which samples follow one another in time (windows over a text, which
            overlap). Hold-outs then take the end of each of its groups instead of samples at random, or they would
            share text with the training samples. "" if samples are independent.
        reference: who made the data.
        notes: what the loader did that a reader of the results should know.
        features: names of the inputs in order: columns, values of text columns, words; () where they have none. A real
            federation compares them between the server and its nodes.
        target: what is predicted, where the source says so; compared likewise.
        preprocessing: how raw rows became these inputs, for new ones; None if the inputs are read as they come.
        labels: the classes as they were given; None where a label is its text.
        structure: of inputs that are several arrays, which are held as rows of bytes; None of one array.
        texts: how texts became these inputs, for new ones; None if they are made of none.

    Raises:
        UserError: the parts do not go together, e.g. a label without a class.
    """

    name: str
    task: Task
    classes: tuple[str, ...]
    train: Samples
    test: Samples
    columns: Columns = field(default_factory=dict)
    test_columns: Columns = field(default_factory=dict)
    ordered_by: str = ""
    reference: str = ""
    notes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    target: str = ""
    preprocessing: Preprocessing | None = None
    labels: ClassLabels | None = None
    structure: Structure | None = None
    texts: TextReading | None = None

    def __post_init__(self) -> None:
        if self.train.shape != self.test.shape:
            raise self._mismatch(
                f"training inputs of shape {self.train.shape}, test inputs of shape {self.test.shape}", "one shape"
            )
        for part, samples, columns in (
            ("train", self.train, self.columns),
            ("test", self.test, self.test_columns),
        ):
            self._check_targets(part, samples)
            for name, values in columns.items():
                if len(values) != len(samples):
                    raise self._mismatch(
                        f"column {name!r} with {len(values):,} values for {len(samples):,} {part} samples",
                        "one value for each sample",
                    )

    def with_column(self, name: str, values: Any) -> Collection:
        """The same data with one more key of the training samples, [n], such as how difficult each is."""
        return replace(self, columns={**self.columns, name: Keys.of(values)})

    @property
    def shape(self) -> Shape:
        """Of what a model is given for a sample; of several arrays the shapes of all, by name or in order."""
        return tuple(self.train.shape) if self.structure is None else self.structure.shapes

    @property
    def outputs(self) -> int:
        """How many numbers a model of this data must give for a sample."""
        if self.classes:
            return len(self.classes)
        targets = self.train.targets
        if self.task == "next_token":
            return size_of_vocabulary((self.train, self.test), self.features, self.structure)
        if self.task == "survival":
            return 1
        return 1 if targets.dim() == 1 else int(targets.shape[1])

    def __repr__(self) -> str:
        sizes = f"{len(self.train):,} training samples, {len(self.test):,} test samples"
        return plain(f"<Collection {self.name}: {sizes}, {self._of_inputs}, {self._of_targets}>")

    def _repr_html_(self) -> str:
        lines = {
            "training samples": f"{len(self.train):,}",
            "test samples": f"{len(self.test):,}",
            "inputs": self._of_inputs,
            "task": f"{self.task}, {self._of_targets}",
            "classes": shortened(self.classes),
            "features": shortened(self.features),
            "columns": shortened(self.columns),
            "notes": "; ".join(self.notes),
            "reference": self.reference,
        }
        return html.framed(html.facts(self.name, {label: text for label, text in lines.items() if text}))

    @property
    def _of_inputs(self) -> str:
        if self.structure is not None:
            return f"inputs of {'; '.join(self.structure.words)}"
        return f"inputs of shape {list(self.train.shape)}"

    @property
    def _of_targets(self) -> str:
        return counted_targets(self.task, self.outputs)

    def _check_targets(self, part: str, samples: Samples) -> None:
        targets = samples.targets
        if self.task in ("classification", "next_character"):
            low, high = (int(targets.min()), int(targets.max())) if len(targets) else (0, 0)
            if targets.dim() != 1 or targets.dtype != torch.int64 or low < 0 or high >= len(self.classes):
                raise self._mismatch(
                    f"{part} targets {low} to {high} of {targets.dtype} and shape {tuple(targets.shape)}",
                    f"class numbers 0 to {len(self.classes) - 1}, int64, one a sample",
                )
        elif self.task == "multilabel":
            if targets.shape != (len(samples), len(self.classes)) or targets.dtype != torch.float32:
                raise self._mismatch(
                    f"{part} targets of {targets.dtype} and shape {tuple(targets.shape)}",
                    f"float32 [{len(samples)}, {len(self.classes)}], 1 for each tag that a sample has",
                )
        elif self.task == "next_token":
            if targets.dim() != 2 or targets.dtype != torch.int64:
                raise self._mismatch(
                    f"{part} targets of {targets.dtype} and shape {tuple(targets.shape)}",
                    f"int64 tokens [{len(samples)}, places]",
                )
        elif self.task == "survival" and targets.shape[1:] != (2,):
            raise self._mismatch(
                f"{part} targets of shape {tuple(targets.shape)}", "a time and an event of each sample"
            )
        elif targets.dtype != torch.float32 or not bool(torch.isfinite(targets).all()):
            raise self._mismatch(f"{part} targets of {targets.dtype} with missing values", "finite float32 numbers")

    def _mismatch(self, found: str, expected: str) -> UserError:
        return UserError(
            f"{self.name}: {found}",
            expected=expected,
            why="the model, the loss and the metrics are built from these",
            fix="correct the data, or give a `dataset(..., adapt=...)` that does",
        )


def size_of_vocabulary(parts: Iterable[Samples], features: tuple[str, ...], structure: Structure | None) -> int:
    """How many tokens there are: those that are named, or as many as targets need where none or fewer are."""
    named = len(features) - (0 if structure is None else len(structure.words))
    return max(named, *(1 + int(part.targets.max()) for part in parts if part.targets.numel()))


def counted_targets(task: Task, outputs: int) -> str:
    """How many there are of what a model is asked for: "10 classes"."""
    one, many = _ASKED_FOR.get(task, ("number to predict", "numbers to predict"))
    return f"{outputs:,} {one if outputs == 1 else many}"


_ASKED_FOR = {
    "classification": ("class", "classes"),
    "next_character": ("character", "characters"),
    "multilabel": ("label", "labels"),
    "next_token": ("token", "tokens"),
    "survival": ("risk", "risks"),
}
_MOST_NAMES = 12


def shortened(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - _MOST_NAMES:,} more" if len(known) > _MOST_NAMES else ""
    return ", ".join(known[:_MOST_NAMES]) + more
