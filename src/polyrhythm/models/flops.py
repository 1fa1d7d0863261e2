"""What a pass through a model costs, in floating-point operations per sample.

A multiply and an add are two operations. Matrix products, convolutions, attention and recurrent layers count, as
torch's own counter counts them; element-wise work, lookups and reductions do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.vectors import CPU


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

    The model keeps its weights, buffers, gradients, mode and device; all generators stay as they were. Takes about as
    long as training on the batch: keep the answer.

    Args:
        model: any module whose cost grows in proportion to the batch.
        inputs: a small batch, 2 samples or more if the model normalises over the batch. [B, *shape]
        loss: from the model's outputs to a scalar, e.g. `lambda outputs: task.loss(outputs, targets)`.
    """
    replica = copy_of(model, one_base=CPU).to(CPU).train()
    batch = inputs.detach().to("cpu")
    with seeded_torch(0, "init", "flops"):
        with torch.no_grad(), _Counter() as forward:
            replica(batch)
        with torch.enable_grad(), _Counter() as training:
            value = loss(replica(batch))
            if value.requires_grad:  # False if all parameters are frozen
                value.backward()  # type: ignore[no-untyped-call]
    samples = len(batch)
    # Rounded up: a product of weights alone, done once per batch, need not divide by the samples.
    return Cost(-(-forward.total // samples), -(-training.total // samples))


@final
class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__
    """Adds up what torch's own formulas say of each operation inside it.

    `torch.utils.flop_counter.FlopCounterMode` does the same, but imports all of torch.compile at its first operation:
    0.7 s, half as long as torch itself, at the start of every run.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, so there is no compiler to be told to keep out

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with self:
            made_of = func.decompose(*args, **(kwargs or {}))
        if made_of is not NotImplemented:
            return made_of
        out = func(*args, **(kwargs or {}))
        formula = _FORMULAS.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def _recurrent_layer(inputs: Tensor, input_weights: Tensor, hidden_weights: Tensor, *_: Any, **__: Any) -> int:
    """One direction of one layer: every position of every sample meets every weight of both matrices once."""
    positions = math.prod(inputs.shape[:-1])
    return 2 * positions * (input_weights.numel() + hidden_weights.numel())


def _recurrent_layer_backward(*tensors: Any, **_: Any) -> int:
    """Gradients of the inputs and of the weights, each as much work as the forward pass."""
    return 2 * _recurrent_layer(*tensors)


# On a CPU torch runs an LSTM as one fused operation, for which it has no formula. GRUs and plain RNNs, and LSTMs where
# the fused operation does not apply, are made of matrix products.
_FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    torch.ops.aten.mkldnn_rnn_layer: _recurrent_layer,
    torch.ops.aten.mkldnn_rnn_layer_backward: _recurrent_layer_backward,
}
