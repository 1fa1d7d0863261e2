"""The trace of the Fisher information: squared norms of single samples' gradients."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from polyrhythm.tasks import Task
from polyrhythm.vectors import FlatModel


def fisher_sum(flat: FlatModel, task: Task, inputs: Tensor, targets: Tensor) -> float:
    """Sum over a batch of |gradient of the sample's own loss|^2, for a model in eval mode.

    All samples at once, which takes memory for one gradient per sample; one by one where a layer has no rule for that
    (recurrent ones, and what branches on its values).

    Args:
        flat: the model, loaded.
        task: its loss.
        inputs, targets: the samples; targets of the data give the empirical Fisher, those of the model the true one.
    """
    module = flat.module
    parameters = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}
    rest = {n: p.detach() for n, p in module.named_parameters() if not p.requires_grad} | dict(module.named_buffers())

    def loss(weights: dict[str, Tensor], one_input: Tensor, one_target: Tensor) -> Tensor:
        outputs = functional_call(module, weights | rest, (one_input[None],))
        return task.loss(outputs, one_target[None])

    if not any(isinstance(m, nn.RNNBase) for m in module.modules()):
        # Anybody's own layer may lack a rule too, or decide by what it sees; if it is broken, it says so below.
        with contextlib.suppress(RuntimeError):
            return _square(vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, targets))
    return sum(_square(grad(loss)(parameters, x, y)) for x, y in zip(inputs, targets, strict=True))


def _square(gradients: dict[str, Tensor]) -> float:
    return float(sum(torch.linalg.vector_norm(g, dtype=torch.float64).square() for g in gradients.values()))
