"""How difficult is each sample? Its loss under an expert, a model that was trained before on all the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.threads import one_thread
from polyrhythm.data.collection import Collection
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.models.building import build
from polyrhythm.models.calling import calls, outputs_in
from polyrhythm.models.catalogue import Builder
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import task
from polyrhythm.models.weights import load_weights

BATCH = 1000


def sample_difficulty(collection: Collection, model: str | Builder, path: Path | str) -> np.ndarray:
    """How difficult each training sample of a data set is: its loss under an expert.

    Give it to a data set as a column, `collection.with_column("difficulty", losses)`, for the partition `Difficulty`;
    and to an experiment, `Experiment(expert=losses)`, for curricula.

    Args:
        collection: the data.
        model: the expert's, by name or as a builder.
        path: the expert's weights, as `train_expert` saved them.

    Returns:
        float64 [n].

    Raises:
        UserError: the file is not there or not readable, is of another model, or gives losses that are no numbers.
    """
    with seeded_torch(0, "init"):  # what is drawn is overwritten by the file
        module = build(model, collection.shape, collection.outputs)
    module = module if collection.structure is None else calls(module, collection.structure)
    return expert_losses(Path(path), module, collection.train, task(collection.task))


def expert_losses(path: Path, module: nn.Module, samples: Samples, aim: Task) -> np.ndarray:
    """The loss of each sample under an expert, in eval mode and without augmentation.

    Args:
        path: the expert's weights, a safetensors file such as `polyrhythm expert` makes.
        module: of the expert's architecture; not changed.
        samples: what to score.
        aim: the task, which gives the loss.

    Returns:
        float64 [n].

    Raises:
        UserError: the file is not there or not readable, is of another model, or gives losses that are no numbers.
    """
    try:
        expert = load_weights(module, path).eval()
    except UserError as error:
        raise UserError(
            f"expert: {error.found}",
            expected=error.expected,
            why="samples are scored by their loss under the expert",
            fix=f"train one with the same data and model: polyrhythm expert -o {path}",
        ) from error
    holding = Holding(samples)
    pieces = []
    # By no run's seed: how difficult a sample is, is the same for all of them.
    with one_thread(), torch.no_grad(), seeded_torch(0, "measure", "expert"):
        for i in range(0, len(samples), BATCH):
            inputs, targets = holding.batch(np.arange(i, min(i + BATCH, len(samples))), None)
            pieces.append(aim.losses(outputs_in(expert(inputs)), targets).double())
    losses: np.ndarray = torch.cat(pieces).numpy()
    return checked(losses, len(samples), str(path))


def checked(losses: np.ndarray, samples: int, where: str) -> np.ndarray:
    """The losses, if there is a finite one for each sample.

    Raises:
        UserError: there is not.
    """
    if losses.shape != (samples,) or not np.issubdtype(losses.dtype, np.number) or not np.isfinite(losses).all():
        raise UserError(
            f"expert {where}: {losses.dtype} of shape {losses.shape}, {_not_finite(losses)} of them not finite",
            expected=f"one finite number for each of {samples:,} training samples",
            why="samples are ordered by them",
            fix="score all training samples, with an expert whose training did not diverge",
        )
    return losses.astype(np.float64)


def expert_about(path: Path | str) -> dict[str, str]:
    """What `polyrhythm expert` wrote about an expert: data, model, accuracy and more; {} for any other file."""
    from safetensors import SafetensorError, safe_open

    try:
        check_file(path)
        with safe_open(path, framework="pt") as file:
            about: dict[str, str] | None = file.metadata()
    except (OSError, SafetensorError):
        return {}  # whoever reads the weights says what is wrong with the file
    return about or {}


def foreign(path: Path | str, data: str) -> tuple[str, ...]:
    """A note if an expert was trained on other data than these; () if it was not, or does not say."""
    trained_on = expert_about(path).get("data", data)
    return () if trained_on == data else (f"the expert was trained on {trained_on}, the data are {data}",)


def _not_finite(losses: np.ndarray) -> int:
    return int((~np.isfinite(losses)).sum()) if np.issubdtype(losses.dtype, np.number) else 0
