"""Trains an expert: one model on all the training data, whose losses say how difficult each sample is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from torch import nn

from polyrhythm.data import Collection, Iid, federate
from polyrhythm.errors import RunFailed, UserError
from polyrhythm.experiment import Evaluation, Experiment
from polyrhythm.models.catalogue import Builder
from polyrhythm.papers import centralised
from polyrhythm.runs.files import safetensors_bytes, write_whole
from polyrhythm.runs.records import ModelView, Observer, Plan, RunStatus, VersionRecord, VisitRecord
from polyrhythm.session import carry_out


def train_expert(
    collection: Collection,
    model: str | Builder | nn.Module,
    path: Path | str,
    *,
    epochs: int = 10,
    batch: int = 64,
    lr: float = 0.1,
    seed: int = 0,
    called: str = "",
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Trains a model centrally on all training samples, and saves it for `Experiment(expert=path)`.

    Plain SGD, the `centralised` recipe. The file names the data, the model and how it was trained. The expert sees all
    training samples, those held out for validation too; it never sees the test set.

    Departures: the paper's code adds label smoothing and a tenfold rate on the last layer.

    Args:
        collection: the data.
        model: what to train; the topology of the model to be federated, in the paper.
        path: the safetensors file to write.
        epochs: passes over the data.
        batch: samples per step.
        lr: learning rate.
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
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(
            f"{path}: {'a folder' if path.is_dir() else f'there is no folder {path.parent}'}",
            expected="the path of a file in a folder that exists",
            why="the expert is written there once it is trained",
            fix="choose another file, or make the folder first",
        )
    experiment = Experiment(
        federation=federate(collection, Iid(), 1, seed),
        model=model,
        recipe=centralised(epochs=1, batch=batch, lr=lr),
        rounds=epochs,
        seed=seed,
        evaluation=Evaluation(every=max(1, epochs)),
    )
    keeper = _Keeper()
    summary = carry_out(experiment, [keeper, *observers])
    if summary["status"] != "finished" or keeper.model is None:
        return summary
    about = {
        "data": collection.name,
        "model": called or (model if isinstance(model, str) else ""),
        "seed": str(seed),
        "epochs": str(epochs),
        "batch": str(batch),
        "lr": str(lr),
        experiment.aim.headline: f"{summary['final_accuracy']:.4f}",
    }
    try:
        write_whole(path, safetensors_bytes(keeper.model(), about))
    except OSError as error:
        raise RunFailed(f"{path} cannot be written ({error.strerror or error})") from error
    return summary


@final
class _Keeper:
    """The observer that keeps hold of the last model."""

    def __init__(self) -> None:
        self.model: ModelView | None = None

    def begin(self, plan: Plan) -> None:
        """Nothing is to be prepared."""

    def visit(self, record: VisitRecord) -> None:
        """Visits do not matter."""

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Keeps hold of the model."""
        self.model = model

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """The model is read once the run is over."""
