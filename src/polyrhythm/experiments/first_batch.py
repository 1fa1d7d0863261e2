"""What a model, its task and the data say of a first batch, before a run: that they fit together, and have a loss."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from polyrhythm.data.federation import Federation
from polyrhythm.models.calling import reads
from polyrhythm.models.probing import first_outputs, probed
from polyrhythm.models.task import Task
from polyrhythm.models.task_checks import check_first_loss
from polyrhythm.models.task_parts import full_precision

_TENSORS = ("Tensor", "Parameter")
_MOST = 32  # samples that are looked at where a batch is all that a client holds


def checked_on_first_batch(
    module: nn.Module, aim: Task, federation: Federation, batch: int | None
) -> tuple[nn.Module, tuple[str, ...]]:
    """The model if it can be trained on data for a task, as far as a batch shows; and what must be said of it.

    Where the model gives more than its outputs, the one that is returned gives these alone.

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
    inputs = samples.batch(few)[0]
    outputs, kind = probed(module, inputs)
    shape, notes = tuple(outputs.shape), tuple[str, ...]()
    if kind not in _TENSORS:
        module, notes = reads(module), (f"the model gives a {kind}, of which its outputs are read",)
    aim.check(shape, samples.targets)
    aim.check(shape, federation.test.targets)
    if (loss := getattr(aim, "loss_function", None)) is not None:
        held = federation.indices(int(np.flatnonzero(federation.sizes)[0]))
        inputs, targets = samples.batch(held[: batch or _MOST] if len(held) else few)  # at nodes they are not here
        check_first_loss(loss, full_precision(first_outputs(module, inputs)), targets)
    return module, notes
