"""The trace of the Fisher information: squared norms of single samples' gradients.

The gradient of a linear layer's weights by one sample is a product, of what goes in (a) and the gradient of what comes
out (d), and so its norm is known without it: |d a'|^2 = |a|^2 |d|^2. A layer that is used at several places l (a
convolution at every pixel, of whose inputs a_l is a window) adds up d_l a_l', whose norm is that of the sum, or the sum
of (a_l · a_m) (d_l · d_m) over pairs of places, whichever is less work. One pass forward and one back give every
sample's a and d. What is not made of such layers, or does not treat samples each on its own, takes a gradient for each
sample. Which of the two is decided by the module alone: it is tried out with made-up weights and samples, so that every
worker decides alike.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.streams import seeded_torch, stream, torch_generator
from polyrhythm.models.task import Task

Layer = nn.Linear | nn.Conv2d
FEW = 3  # samples on which the layers' norms are held to whole gradients
CLOSE = 1e-3  # how far the two may lie apart, as a share


@final
class Squares:
    """Sums over batches of |gradient of the sample's own loss|^2, for one model in eval mode.

    Args:
        flat: the model; loaded before each call.
        task: its loss.
    """

    def __init__(self, flat: FlatModel, task: Task) -> None:
        self._flat, self._module, self._task = flat, flat.module, task
        self._layers: Sequence[Layer] | None = None  # not tried out yet

    def __call__(self, inputs: Tensor, targets: Tensor) -> float:
        """The sum over a batch. Targets of the data give the empirical Fisher, those of the model the true one."""
        if self._layers is None:
            self._layers = _layers(self._module)
            with seeded_torch(0, "network", "tried out"):  # by every worker alike, wherever it stands in its draws
                if self._layers and not self._holds(inputs):
                    self._layers = ()
        found = self._by_layers(inputs, targets) if self._layers else None
        return self._one_by_one(inputs, targets) if found is None else found

    def _holds(self, inputs: Tensor) -> bool:
        """Whether both ways find the same for made-up weights and samples like these."""
        if not inputs.is_floating_point():
            return False
        generator, weights = torch_generator(0, "network", "tried out"), self._flat.weights
        loaded = weights.clone()
        weights.copy_(torch.randn(len(weights), generator=generator) / 20)
        self._flat.refresh()
        try:
            few = torch.randn(FEW, *inputs.shape[1:], generator=generator).to(inputs)
            with torch.no_grad():
                targets = self._task.draw(self._module(few).cpu(), stream(0, "labels", "tried out")).to(few.device)
            found, wanted = self._by_layers(few, targets), self._one_by_one(few, targets)
        except Exception:  # whatever a user's own forward makes of such samples
            return False
        finally:
            weights.copy_(loaded)
            self._flat.refresh()
        return found is not None and abs(found - wanted) <= CLOSE * wanted

    def _by_layers(self, inputs: Tensor, targets: Tensor) -> float | None:
        """From what goes into the layers and the gradients of what comes out; None where that does not say it all."""
        seen: list[tuple[Layer, Tensor, GradientEdge]] = []

        def look(layer: Any, given: tuple[Tensor, ...], outputs: Tensor) -> None:
            # The edge, since a layer behind may change the outputs in place.
            seen.append((layer, given[0].detach(), get_gradient_edge(outputs)))

        with contextlib.ExitStack() as hooks, contextlib.suppress(RuntimeError), torch.enable_grad():
            layers = self._layers or ()
            for layer in layers:
                hooks.callback(layer.register_forward_hook(look).remove)
            losses = self._task.losses(self._module(inputs), targets)
            if len(seen) == len(layers) == len({id(layer) for layer, _, _ in seen}):
                slopes = torch.autograd.grad(losses.sum(), [edge for _, _, edge in seen])
                squares = [_squares(layer, a, d) for (layer, a, _), d in zip(seen, slopes, strict=True)]
                return float(torch.stack(squares).double().sum())
        return None

    def _one_by_one(self, inputs: Tensor, targets: Tensor) -> float:
        """From whole gradients: of all samples at once, which takes memory for one each, where layers have a rule."""
        if not any(isinstance(m, nn.RNNBase) for m in self._module.modules()):
            # Anybody's own layer may lack a rule too, or decide by what it sees; if it is broken, it says so below.
            with contextlib.suppress(RuntimeError):
                return _square(vmap(self._gradient, in_dims=(None, 0, 0))(self._weights, inputs, targets))
        return sum(_square(self._gradient(self._weights, x, y)) for x, y in zip(inputs, targets, strict=True))

    @functools.cached_property
    def _weights(self) -> dict[str, Tensor]:
        return {n: p.detach() for n, p in self._module.named_parameters() if p.requires_grad}

    def _gradient(self, weights: dict[str, Tensor], one_input: Tensor, one_target: Tensor) -> Mapping[str, Tensor]:
        rest = {n: p.detach() for n, p in self._module.named_parameters() if not p.requires_grad}
        rest |= dict(self._module.named_buffers())

        def loss(weights: dict[str, Tensor]) -> Tensor:
            return self._task.loss(functional_call(self._module, weights | rest, (one_input[None],)), one_target[None])

        found: Mapping[str, Tensor] = grad(loss)(weights)
        return found


def _layers(module: nn.Module) -> Sequence[Layer]:
    """The layers that hold every trainable parameter, each its own; none where some lie elsewhere."""
    layers, held = list[Layer](), list[nn.Parameter]()
    for part in module.modules():
        own = [p for p in part.parameters(recurse=False) if p.requires_grad]
        if own and not _known(part):
            return ()
        if own:
            layers.append(part)  # type: ignore[arg-type]
            held += own
    return layers if len({id(p) for p in held}) == len(held) else ()


def _known(part: nn.Module) -> bool:
    if type(part) is nn.Conv2d:
        return part.groups == 1 and part.padding_mode == "zeros" and not isinstance(part.padding, str)
    return type(part) is nn.Linear


def _squares(layer: Layer, a: Tensor, d: Tensor) -> Tensor:
    """|gradient of the layer's parameters|^2 for each sample. [B]

    Args:
        layer: one of `_known`.
        a: what went in, [B, ...].
        d: the gradient of what came out.
    """
    if isinstance(layer, nn.Conv2d):
        assert not isinstance(layer.padding, str)
        a = functional.unfold(a, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # [B, K, L]
        d = d.flatten(2)  # [B, O, L]
    else:
        a, d = (t.reshape(len(t), -1, t.shape[-1]).transpose(1, 2) for t in (a, d))  # [B, K, L], [B, O, L]
    total = d.new_zeros(len(d))
    if layer.weight.requires_grad:
        total = total + _square_of_sum(a, d)
    if layer.bias is not None and layer.bias.requires_grad:
        total = total + d.sum(dim=2).square().sum(dim=1)
    return total


def _square_of_sum(a: Tensor, d: Tensor) -> Tensor:
    """|sum over places l of d_l a_l'|^2. [B]"""
    (_, taps, places), rows = a.shape, d.shape[1]
    if places == 1:
        return a.square().sum(dim=(1, 2)) * d.square().sum(dim=(1, 2))
    if places * (taps + rows) < taps * rows:
        return ((a.transpose(1, 2) @ a) * (d.transpose(1, 2) @ d)).sum(dim=(1, 2))
    return (d @ a.transpose(1, 2)).square().sum(dim=(1, 2))


def _square(gradients: Mapping[str, Tensor]) -> float:
    return float(sum(torch.linalg.vector_norm(g, dtype=torch.float64).square() for g in gradients.values()))
