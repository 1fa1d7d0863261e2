"""What a pass through a model costs, in floating-point operations per sample.

A multiply and an add are two operations. Matrix products, convolutions, attention and recurrent layers count, as
torch's own counter counts them; element-wise work, lookups and reductions do not.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from polyrhythm.streams import seeded_torch


@final
@dataclass(frozen=True)
class Cost:
    """Floating-point operations per sample.

    Args:
        forward: one pass.
        training: one pass and the gradient of every trainable parameter; the optimiser's own step is left out.
    """

    forward: int
    training: int

    @property
    def backward(self) -> int:
        """The gradient of every trainable parameter alone."""
        return self.training - self.forward


def count(model: nn.Module, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> Cost:
    """Counts what one sample costs, by running a copy of the model on a small batch on the CPU.

    The model keeps its weights, buffers, gradients, mode and device; all generators stay as they were. Takes about a
    second the first time, then about as long as training on the batch: keep the answer.

    Args:
        model: any module whose cost grows in proportion to the batch.
        inputs: a small batch, 2 samples or more if the model normalises over the batch. [B, *shape]
        loss: from the model's outputs to a scalar, e.g. `lambda outputs: task.loss(outputs, targets)`.
    """
    replica = copy.deepcopy(model).to("cpu").train()
    batch = inputs.detach().to("cpu")
    with seeded_torch(0, "init", "flops"):
        with torch.no_grad(), _counter() as forward:
            replica(batch)
        with torch.enable_grad(), _counter() as training:
            value = loss(replica(batch))
            if value.requires_grad:  # False if all parameters are frozen
                value.backward()  # type: ignore[no-untyped-call]
    samples = len(batch)
    # Rounded up: a product of weights alone, done once per batch, need not divide by the samples.
    return Cost(-(-forward.get_total_flops() // samples), -(-training.get_total_flops() // samples))


def _counter() -> FlopCounterMode:
    return FlopCounterMode(display=False, custom_mapping=dict(_RECURRENT))


def _recurrent_layer(
    inputs: tuple[int, ...],
    input_weights: tuple[int, ...],
    hidden_weights: tuple[int, ...],
    *_: Any,
    **__: Any,
) -> int:
    """One direction of one layer: every position of every sample meets every weight of both matrices once."""
    positions = math.prod(inputs[:-1])
    return 2 * positions * (math.prod(input_weights) + math.prod(hidden_weights))


def _recurrent_layer_backward(*shapes: Any, **_: Any) -> int:
    """Gradients of the inputs and of the weights, each as much work as the forward pass."""
    return 2 * _recurrent_layer(*shapes)


# On a CPU torch runs an LSTM as one fused operation, which its own counter does not know. GRUs and plain RNNs, and
# LSTMs where the fused operation does not apply, are made of matrix products that it does see.
_RECURRENT: Mapping[Any, Callable[..., int]] = {
    torch.ops.aten.mkldnn_rnn_layer: _recurrent_layer,
    torch.ops.aten.mkldnn_rnn_layer_backward: _recurrent_layer_backward,
}
