"""What a model, its task and the data say of a first batch, before a run: that they fit together, and have a loss."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from polyrhythm.data.federation import Federation
from polyrhythm.models.probing import first_outputs, output_shape
from polyrhythm.models.task import Task
from polyrhythm.models.task_checks import check_first_loss
from polyrhythm.models.task_parts import full_precision

_MOST = 32  # samples that are looked at where a batch is all that a client holds


def check_first_batch(module: nn.Module, aim: Task, federation: Federation, batch: int | None) -> None:
    """Goes on if a model can be trained on data for a task, as far as a batch shows.

    Args:
        module: the initial model; not changed.
        aim: the task.
        federation: the data.
        batch: samples in a batch; None for all of a client's.

    Raises:
        UserError: the model does not read the samples, its outputs or the targets are not those of the task, or a loss
            of the user's own is no number for the first samples of the first client who holds any.
    """
    samples = federation.train
    few = torch.arange(min(2, len(samples)))
    shape = output_shape(module, samples.batch(few)[0])
    aim.check(shape, samples.targets)
    aim.check(shape, federation.test.targets)
    if (loss := getattr(aim, "loss_function", None)) is not None:
        held = federation.indices(int(np.flatnonzero(federation.sizes)[0]))
        inputs, targets = samples.batch(held[: batch or _MOST] if len(held) else few)  # at nodes they are not here
        check_first_loss(loss, full_precision(first_outputs(module, inputs)), targets)
