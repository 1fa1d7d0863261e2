"""A run's model after the run: the module itself, what it says of new rows, and how well it does on labelled ones."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import json_of
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.threads import one_thread
from polyrhythm.data.collection import Collection
from polyrhythm.data.given import as_inputs
from polyrhythm.data.labels import ClassLabels, as_text
from polyrhythm.data.preprocessing import Preprocessing, frozen
from polyrhythm.data.sources.several import rows_of
from polyrhythm.data.structured import Structure
from polyrhythm.data.targets import as_targets, column, is_one_hot, padded_rows
from polyrhythm.data.text_reading import TextReading, is_text
from polyrhythm.models.building import build
from polyrhythm.models.calling import call
from polyrhythm.models.catalogue import Builder, find
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import task
from polyrhythm.runs.files import write_whole

USE = "model.json"
BATCH = 250
Made = Callable[[], nn.Module]


class Given(NamedTuple):
    """What a model is to read of some rows, [n, ...], and what each consists of where that is several arrays."""

    inputs: Tensor
    structure: Structure | None


@final
@dataclass(frozen=True, kw_only=True)
class Use:
    """What is needed to use a run's weights.

    Args:
        model: its name or import path, None for one that has none.
        settings: of the model.
        shape: of what it reads, for one sample.
        outputs: how many numbers it gives.
        task: what it was trained for; of its losses and metrics those that have names.
        texts: how texts became samples; None of samples that were made of none.
        own: names of those that are functions of the user's own, which a record does not have.
        classes: as text, in the order of class numbers.
        labels: the classes as they were given; None where a label is its text.
        structure: of samples of several arrays, which are held as rows of bytes; None of one array.
        preprocessing: what becomes of raw rows; None if they are read as they come.
    """

    model: str | None
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    outputs: int
    task: Task
    classes: tuple[str, ...]
    preprocessing: Preprocessing | None
    labels: ClassLabels | None = None
    structure: Structure | None = None
    texts: TextReading | None = None
    own: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Writes it into a run's folder."""
        named = self.task.without_own()
        own = [name for name in self.task.metrics_read if name not in named.metrics_read]
        own += ["loss"] if self._has_own_loss else []
        plain = {
            **{"model": self.model, "settings": dict(self.settings), "shape": self.shape, "outputs": self.outputs},
            **{"task": {**named.describe(), "name": named.name}, "classes": self.classes, "own": own},
            "preprocessing": None if self.preprocessing is None else self.preprocessing.plain(),
            "structure": None if self.structure is None else self.structure.plain(),
            "texts": None if self.texts is None else self.texts.plain(),
            "labels": None if self.labels is None else dataclasses.asdict(self.labels),
        }
        write_whole(folder / USE, [json.dumps(plain, default=str).encode()], durable=False)

    @property
    def _has_own_loss(self) -> bool:
        return getattr(self.task, "loss_function", None) is not None

    @classmethod
    def read(cls, folder: Path) -> Use:
        """It, from a run's folder.

        Raises:
            UserError: it is not there, or damaged.
        """
        try:
            found = json_of(folder / USE)
            about, done, texts = dict(frozen(found["task"])), found["preprocessing"], found.get("texts")
            return cls(
                **{key: found[key] for key in ("model", "settings", "outputs")},
                shape=tuple(found["shape"]),
                classes=tuple(found["classes"]),
                own=tuple(found["own"]),
                task=task(about.pop("name"), **about),
                preprocessing=None if done is None else Preprocessing.of(done),
                structure=None if found["structure"] is None else Structure.of(found["structure"]),
                texts=None if texts is None else TextReading.of(texts),
                labels=None if found["labels"] is None else ClassLabels(**frozen(found["labels"])),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{folder / USE}: {'does not exist' if isinstance(error, FileNotFoundError) else f'damaged ({error})'}",
                expected="what a run writes down of its model and data when it begins",
                why="without it nobody knows how rows become what the model reads",
                fix="run it again; weights alone are in run.weights()",
            ) from None

    def made(self, given: nn.Module | Builder | None, trust: Trust) -> nn.Module:
        """The module, with any weights.

        Raises:
            UserError: it was made in Python and is not given, or its code may not be imported.
        """
        if isinstance(given, nn.Module):
            return given
        if given is None and self.model is None:
            raise UserError(
                "this run's model was made in Python and has no name",
                expected="the model, or what builds it",
                why="the record has its weights, and not its code",
                fix="give it: run.model(model=Net()), run.predict(rows, model=Net())",
            )
        if given is None and self.model is not None:
            find(self.model, trust)
        with seeded_torch(0, "init"):  # what is drawn is overwritten by the weights
            shape = self.shape if self.structure is None else self.structure.shapes
            return build(given or self.model or "", shape, self.outputs, **({} if given else self.settings))


def outputs_of(use: Use, module: nn.Module, given: Given) -> Tensor:
    """What a model in evaluation gives for rows. [n, ...]"""
    inputs, structure = given
    module.eval()
    with one_thread(), torch.no_grad(), seeded_torch(0, "measure", "predict"):
        try:
            batches = (inputs[i : i + BATCH] for i in range(0, len(inputs), BATCH))
            found = [call(module, batch, structure) for batch in batches]
            if use.task.name == "next_token":  # of which each batch has the places of its longest text
                most = max(outputs.shape[1] for outputs in found)
                found = [functional.pad(outputs, (0, 0, 0, most - outputs.shape[1])) for outputs in found]
            return torch.cat(found)
        except RuntimeError as error:
            what = f"inputs of {inputs.dtype}" if structure is None else ", ".join(structure.words)
            raise UserError(
                f"{what}, which the model fails on ({str(error)[:120]})",
                expected="what it has learned from",
                why="a model reads inputs of one type, and of the shapes that it was made for",
                fix="prepare them as the training data were",
            ) from None


def read(use: Use, rows: Any) -> Given:
    """What the model reads of rows.

    Raises:
        UserError: rows that the model does not read, or none.
    """
    structure = use.structure
    if use.texts is not None and use.texts.fits(rows):
        rows = use.texts.inputs(rows)
        rows = {structure.fields[0].name: rows} if structure is not None and structure.keyed else rows
    elif (structure is not None or not (use.preprocessing and use.preprocessing.features)) and is_text(rows):
        raise _no_reading()
    if structure is not None:
        inputs, structure = rows_of(rows, structure)
    elif use.preprocessing is not None:
        inputs = use.preprocessing.apply(rows)
    else:
        inputs = torch.from_numpy(as_inputs(rows))
        inputs = inputs.float() if inputs.dtype in (torch.float16, torch.float64) else inputs
    shape = use.shape if structure is None else (structure.width,)
    if tuple(inputs.shape[1:]) != shape or not len(inputs):
        raise UserError(
            f"inputs of shape {tuple(inputs.shape)}",
            expected=f"[n, {', '.join(map(str, shape))}], n of 1 or more",
            why="the model has learned from samples of that shape",
            fix="reshape them; a single sample needs an axis in front",
        )
    return Given(inputs, structure)


def _no_reading() -> UserError:
    return UserError(
        "texts",
        expected="what the model reads: numbers, such as tokens",
        why="this run's record does not say how texts became numbers, as its data were made of them by other code",
        fix="make tokens of them as you did for training, and call run.predict(tokens) in Python; data by text(…), "
        "roles(…), sites(…) and stackoverflow-tags(…) are read as texts",
    )


def predictions(use: Use, outputs: Tensor, *, probabilities: bool) -> np.ndarray:
    """What outputs mean, in the user's own labels."""
    kind = use.task.name
    outputs = outputs.double() if outputs.is_floating_point() else outputs
    if kind in ("regression", "survival"):
        if probabilities:
            raise UserError(
                f"probabilities of a {kind}",
                expected="a task with classes",
                why="a number is predicted, not a choice",
                fix="leave probabilities out",
            )
        numbers: np.ndarray = outputs.float().numpy()
        return numbers[:, 0] if numbers.shape[1:] == (1,) else numbers
    if not probabilities and (odd := int(outputs.isnan().flatten(1).any(dim=1).sum())):
        raise UserError(
            f"NaN from the model for {odd:,} of {len(outputs):,} rows",
            expected="numbers to choose a label by",
            why="NaN is never the largest, and any label would be made up",
            fix="look at the weights, and at rows with numbers far from those of the training data",
        )
    if kind == "multilabel":
        shares = outputs.sigmoid()
        return shares.float().numpy() if probabilities else (shares > 0.5).numpy()
    if kind == "next_token":  # at every place of a text
        return (outputs.softmax(dim=2) if probabilities else outputs.argmax(dim=2)).numpy()
    outputs = outputs[:, -1] if outputs.dim() == 3 else outputs
    if probabilities:
        return outputs.softmax(dim=1).float().numpy()[:, : len(use.classes)]
    labels = np.asarray(use.classes) if use.labels is None else use.labels.as_array()
    found: np.ndarray = labels[
        outputs[:, : len(labels)].argmax(dim=1).numpy()
    ]  # a model may give more, for what no class is
    return found


def metrics(use: Use, module: nn.Module, data: Any) -> dict[str, float]:
    """The task's metrics on labelled data, but for functions of the user's own, which is told."""
    if use.own:
        warnings.warn(
            f"{', '.join(use.own)}: functions of your own, which a record does not have, and are left out; "
            "run.model() and your data give them",
            stacklevel=3,
        )
    total = Tally()
    for given, targets in _batches(use, data):
        total = total + use.task.tally(outputs_of(use, module, given), targets)
    return {name: value for name, value in use.task.read(total).items() if name not in use.own}


def _batches(use: Use, data: Any) -> Iterator[tuple[Given, Tensor]]:
    if isinstance(data, Collection):
        _check_same(use, data)
        # Its scaling may be fitted to its own training samples.
        anew = _anew(use.preprocessing, data.preprocessing)
        for i in range(0, len(data.test), BATCH):
            inputs, targets = data.test.batch(torch.arange(i, min(i + BATCH, len(data.test))))
            yield Given(anew(inputs), use.structure), targets
        return
    target = "" if use.preprocessing is None else use.preprocessing.target
    if target and hasattr(data, "columns") and target in data.columns:
        assert use.preprocessing is not None
        data = data, _target(data[target], use.preprocessing.threshold)
    if not isinstance(data, (tuple, list)) or len(data) != 2 or not _of_one_length(use, *data):
        raise UserError(
            f"a {type(data).__name__} to evaluate on",
            expected="(inputs, targets) with a target for each row, a table with the target column, or a Collection",
            why="a prediction is judged by what it should have been",
            fix="run.evaluate((inputs, targets))",
        )
    yield read(use, data[0]), _targets(use, data[1])


def _of_one_length(use: Use, inputs: Any, targets: Any) -> bool:
    """Whether there is a target for each row; of several arrays others look at that."""
    return use.structure is not None or len(inputs) == len(targets)


def _anew(ours: Preprocessing | None, theirs: Preprocessing | None) -> Callable[[Tensor], Tensor]:
    """What prepares a collection's inputs as those of the run were, as far as it is known how each was prepared."""
    return (lambda inputs: inputs) if ours is None or theirs is None else ours.prepared_by(theirs)


def _check_same(use: Use, data: Collection) -> None:
    """Refuses a collection whose samples or targets mean something else."""
    both = (use.preprocessing, data.preprocessing)
    features = [() if of is None else tuple(f.text for f in of.features) for of in both]
    differs = {
        "shape": (use.shape, tuple(data.train.shape)),
        "arrays": tuple(() if of is None else of.words for of in (use.structure, data.structure)),
        "classes": (use.classes, tuple(data.classes)),
        "features": tuple(features) if all(features) else ((), ()),
        "threshold": tuple(() if of is None or of.threshold is None else (of.threshold,) for of in both),
    }
    for what, (known, given) in differs.items():
        if known != given:
            raise UserError(
                f"a collection with other {what}: {', '.join(map(str, given[:20])) or 'none'}",
                expected=", ".join(map(str, known[:20])) or "none",
                why="the model knows samples and targets by their place, and another order means something else",
                fix="make the collection as the training data were made",
            )


def _target(cells: Any, threshold: float | None) -> Any:
    """The target column of a table, of which a threshold makes two classes."""
    values = as_targets(np.asarray(cells))
    if threshold is None:
        return values
    return (_amounts(values) > threshold).astype(np.int64)


def _amounts(values: np.ndarray) -> np.ndarray:
    try:
        amounts: np.ndarray = values.astype(np.float64)
    except ValueError:
        raise UserError(
            f"targets that are text, {str(values.flat[0])[:40]!r} for instance",
            expected="numbers",
            why="the model predicts numbers",
            fix="write them as numbers",
        ) from None
    return amounts


def _targets(use: Use, targets: Any) -> Tensor:
    if use.task.name == "next_token":
        return torch.from_numpy(padded_rows(targets)[0]).long()
    given = as_targets(targets)
    if not use.classes or use.task.name == "multilabel":
        return torch.as_tensor(_amounts(given).astype(np.float32))
    given = column(given)
    if given.shape[1:] == (len(use.classes),) and given.dtype.kind in "buif" and is_one_hot(given):
        return torch.from_numpy(given.argmax(axis=1))
    places = {label: number for number, label in enumerate(use.classes)}
    numbers = [places.get(as_text(label), -1) for label in given]
    if -1 in numbers:
        raise UserError(
            f"label {as_text(given[numbers.index(-1)])!r} in {numbers.count(-1):,} rows",
            expected=f"one of {', '.join(use.classes[:20])}",
            why="the model knows no other classes",
            fix="leave these rows out, or train with them",
        )
    return torch.tensor(numbers)
