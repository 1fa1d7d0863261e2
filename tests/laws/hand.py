"""Local training written out by hand with torch.optim and autograd, to hold the client core against."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.methods.local.optimisers import LocalAdam, LocalOptimiser, LocalSgd
from polyrhythm.methods.mechanism import Model

from .world import Federation, Shard

Term = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""A scalar from the module, a batch of inputs, and the outputs that the task's loss was computed from."""


def loaded(federation: Federation, layout: Layout, model: Model) -> nn.Module:
    """A copy of the federation's module with a model's weights and buffers, in training mode."""
    module = copy.deepcopy(federation.module())
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    with torch.no_grad():
        for name, part in layout.named(model.weights).items():
            parameters[name].copy_(part)
        for slot, value in zip(layout.buffers, model.buffers, strict=True):
            buffers[slot.name].copy_(value)
    return module.train()


def flat(module: nn.Module, layout: Layout) -> Tensor:
    """A module's parameters as one vector [P], padding zero."""
    vector = layout.zeros()
    parameters = dict(module.named_parameters())
    for name, part in layout.named(vector).items():
        part.copy_(parameters[name].detach())
    return vector


def flat_gradient(module: nn.Module, layout: Layout, loss: Tensor) -> Tensor:
    """The gradient of a loss as one vector [P], padding zero."""
    vector, parameters = layout.zeros(), dict(module.named_parameters())
    for name, part in layout.named(vector).items():
        part.copy_(torch.autograd.grad(loss, parameters[name], retain_graph=True)[0])
    return vector


def buffers_of(module: nn.Module, layout: Layout) -> Buffers:
    """A module's travelling buffers, in layout order."""
    return tuple(dict(module.named_buffers())[slot.name] for slot in layout.buffers)


def optimiser_of(local: LocalOptimiser, module: nn.Module) -> torch.optim.Optimizer:
    """The torch optimiser of the same settings."""
    if isinstance(local, LocalSgd):
        return torch.optim.SGD(
            module.parameters(), local.lr, local.momentum, weight_decay=local.weight_decay, nesterov=local.nesterov
        )
    assert isinstance(local, LocalAdam)
    kind = torch.optim.AdamW if local.decoupled else torch.optim.Adam
    return kind(
        module.parameters(), local.lr, (local.beta1, local.beta2), local.epsilon, weight_decay=local.weight_decay
    )


def train(
    module: nn.Module,
    layout: Layout,
    shard: Shard,
    batches: Sequence[Sequence[int]],
    optimiser: torch.optim.Optimizer,
    *,
    clip: float | None = None,
    shift: Tensor | None = None,
    term: Term | None = None,
    factor: float = 1.0,
) -> None:
    """Trains a module in place on batches of positions.

    Args:
        module: what to train.
        layout: names the parts of `shift`.
        shard: the samples.
        batches: positions of each step.
        optimiser: over the module's parameters.
        clip: largest norm of the task's gradient; only without `term`.
        shift: a vector [P] added to every gradient, after clipping.
        term: added to the loss.
        factor: of every gradient, after clipping and before what is added.
    """
    assert clip is None or term is None
    parameters = dict(module.named_parameters())
    for positions in batches:
        inputs, targets = shard.inputs[list(positions)], shard.targets[list(positions)]
        optimiser.zero_grad()
        outputs = module(inputs)
        loss = functional.cross_entropy(outputs, targets)
        if term is not None:
            loss = loss + term(module, inputs, outputs)
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        for parameter in module.parameters() if factor != 1.0 else ():
            assert parameter.grad is not None
            parameter.grad.mul_(factor)
        if shift is not None:
            for name, part in layout.named(shift).items():
                gradient = parameters[name].grad
                assert gradient is not None
                gradient.add_(part)
        optimiser.step()
