"""What the exits of a model are trained on: each on the task, and each on what the others say."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyrhythm.models.task import Task
from polyrhythm.models.task_parts import full_precision, last_position


def sum_of_exits(task: Task, exits: Sequence[Tensor], targets: Tensor, weight: float) -> Tensor:
    """sum_i CE(z_i, y) + w / (M − 1) · sum_i sum_{j≠i} KL(softmax z_j ‖ softmax z_i), means over the batch. Scalar.

    Nothing flows back into z_j, which is learned from.

    Args:
        task: says what CE is.
        exits: z, the logits that each exit gives. M times [B, C] or [B, T, C]
        targets: y. [B]
        weight: w.
    """
    total = torch.stack([task.objective(task.loss(z, targets), z, targets) for z in exits]).sum()
    if not weight or len(exits) == 1:
        return total
    logs = [full_precision(last_position(z)).log_softmax(1) for z in exits]
    fixed = [log.detach() for log in logs]
    pairs = [(i, j) for i in range(len(exits)) for j in range(len(exits)) if i != j]
    apart = [(fixed[j].exp() * (fixed[j] - logs[i])).sum(1).mean() for i, j in pairs]
    return total + weight / (len(exits) - 1) * torch.stack(apart).sum()
