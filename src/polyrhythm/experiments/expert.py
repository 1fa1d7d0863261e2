"""Trains an expert: one model on all the training data, whose losses say how difficult each sample is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.base.output_file import check_output
from polyrhythm.base.streams import seeded_torch
from polyrhythm.data import Collection, Iid, federate
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.experiments.settings import Evaluation
from polyrhythm.methods.papers import centralised
from polyrhythm.models.building import build
from polyrhythm.models.catalogue import Builder
from polyrhythm.models.output_rate import folded, with_rate
from polyrhythm.models.representation import output_layer
from polyrhythm.models.tasks import task
from polyrhythm.runs.files import safetensors_bytes, write_whole
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, VersionRecord
from polyrhythm.runs.summary import model_digest


def train_expert(
    collection: Collection,
    model: str | Builder | nn.Module,
    path: Path | str,
    *,
    epochs: int = 10,
    batch: int = 64,
    lr: float = 0.1,
    smoothing: float = 0.0,
    last_layer_rate: float = 1.0,
    seed: int = 0,
    called: str = "",
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Trains a model centrally on all training samples, and saves it for `Experiment(expert=path)`.

    Plain SGD, the `centralised` recipe. The file names the data, the model and how it was trained. The expert sees all
    training samples, those held out for validation too; it never sees the test set.

    The paper's code trains with `smoothing=0.1` and `last_layer_rate=10`. By default both are off, exactly.

    Args:
        collection: the data.
        model: what to train; the topology of the model to be federated, in the paper.
        path: the safetensors file to write.
        epochs: passes over the data.
        batch: samples per step.
        lr: learning rate.
        smoothing: label smoothing, as in the task's settings, 0 <= smoothing < 1; only where a sample has one class. No
            loss that is reported or that scores samples has it.
        last_layer_rate: how many times that rate the output layer learns at, > 0: the last nn.Linear that runs.
        seed: decides every random draw.
        called: the model's name with its settings, kept in the file so that it can be built again.
        observers: whoever wants to know how it goes.

    Returns:
        The summary of the training, as of any run. If it was stopped by Ctrl-C, nothing is saved.

    Raises:
        UserError: something is wrong that can be known before the training.
        RunFailed: the training diverged, or the file cannot be written.

    Reference: Vahidian et al., "When Do Curricula Work in Federated Learning?", ICCV 2023, sections 4.3 and 4.4.
    """
    path, called = Path(path), called or (model if isinstance(model, str) else "")
    check_output(path, "the expert")
    aim = task(collection.task, **_smoothed(collection, smoothing))
    head = None
    if last_layer_rate != 1:
        model, head = _with_head(collection, model, last_layer_rate, seed)
    experiment = Experiment(
        federation=federate(collection, Iid(), 1, seed),
        model=model,
        task=aim,
        recipe=centralised(epochs=1, batch=batch, lr=lr),
        rounds=epochs,
        seed=seed,
        evaluation=Evaluation(every=max(1, epochs)),
    )
    keeper = _Keeper()
    summary = carry_out(prepare(experiment), [keeper, *observers])
    if summary["status"] != "finished" or keeper.model is None:
        return summary
    about = {
        "data": collection.name,
        "model": called,
        "seed": str(seed),
        "epochs": str(epochs),
        "batch": str(batch),
        "lr": str(lr),
        "smoothing": str(smoothing),
        "last_layer_rate": str(last_layer_rate),
        experiment.aim.headline: f"{summary['final_accuracy']:.4f}",
    }
    weights = keeper.model()
    if head is not None:
        weights = folded(weights, head, last_layer_rate)
    try:
        write_whole(path, safetensors_bytes(weights, about))
    except OSError as error:
        raise RunFailed(f"{path} cannot be written ({error.strerror or error})") from error
    return summary | {"digest": model_digest(weights)}


def _smoothed(collection: Collection, smoothing: float) -> dict[str, float]:
    """The setting of the task, where it has a meaning."""
    if not smoothing:
        return {}
    if collection.task not in ("classification", "next_character"):
        raise UserError(
            f"smoothing = {smoothing!r} for {collection.name}, whose task is {collection.task}",
            expected="no label smoothing, or samples with one class each",
            why="a share of a sample's label is given to all other classes, and here it has none, or several",
            fix="leave smoothing out",
        )
    return {"smoothing": smoothing}


def _with_head(
    collection: Collection, model: str | Builder | nn.Module, rate: float, seed: int
) -> tuple[nn.Module, str]:
    """The model, built as an experiment builds it, with an output layer that learns at such a rate; and its name."""
    if not 0 < rate < math.inf:
        raise UserError(
            f"last_layer_rate = {rate!r}",
            expected="a number of more than 0",
            why="the output layer learns at so many times the rate",
            fix="give 10, as the paper's code does, or leave it out",
        )
    if collection.structure is not None:
        raise UserError(
            f"last_layer_rate = {rate!r} for samples of several arrays",
            expected="no such rate, or samples of one array",
            why="the output layer is found by running the model on one array",
            fix="leave last_layer_rate out",
        )
    if not isinstance(model, nn.Module):
        with seeded_torch(seed, "init"):
            model = build(model, collection.train.shape, collection.outputs)
    few = collection.train.batch(torch.arange(min(2, len(collection.train))))[0]
    head = output_layer(model, few)
    return with_rate(model, head, rate), head


@final
class _Keeper(Observer):
    """The observer that keeps hold of the last model."""

    def __init__(self) -> None:
        self.model: ModelView | None = None

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Keeps hold of the model."""
        self.model = model
