"""Low-rank adapters (LoRA) on any module, and what methods do to the layers that have one.

Rules of this file:

- An adapted layer is found by the names of its factors, which are those of peft, so a module of peft is one as well.
- W is frozen and stays where it is, so that all copies of a model share it; R, where a method changes what lies under
  the adapters, is a parameter that no gradient reaches.
"""

from __future__ import annotations

import fnmatch
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.adapters import Factor, part_of_adapter
from polyrhythm.base.errors import UserError
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.settings import Count, Decay, Positive
from polyrhythm.base.vectors import CPU, RESIDUAL

RANK = 8
"""Of adapters that are given none."""


@final
class LowRank(nn.Module):
    """A layer under a low-rank adapter: it computes with W + R + s B A in place of W.

    A is [r, k], drawn uniformly from ±1/√k by torch's generator, and B [d, r] zero. Rows of A beyond those that B has
    columns for count for nothing.

    Args:
        base: nn.Linear, nn.Conv2d without groups, nn.Embedding, or Conv1D of transformers; frozen.
        rank: r.
        scale: s.
        dropout: share of the inputs that the adapter does not see in training.
    """

    def __init__(self, base: nn.Module, rank: int, scale: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.base, self.scale, self.dropout = base.requires_grad_(False), scale, dropout
        outputs, inputs = _sizes(base)
        self.lora_A = nn.Linear(inputs, rank, bias=False).weight  # which is how torch draws it
        self.lora_B = nn.Parameter(torch.zeros(outputs, rank))
        self.register_parameter(RESIDUAL, None)

    def forward(self, inputs: Tensor) -> Tensor:
        base, b = self.base, self.lora_B
        a = self.lora_A if b.shape[1] == self.lora_A.shape[0] else self.lora_A[: b.shape[1]]
        outputs: Tensor = base(inputs)
        residual = getattr(self, RESIDUAL)
        if residual is not None:
            outputs = outputs + _through(base, residual.detach(), inputs)
        if isinstance(base, nn.Embedding):
            return outputs + self.scale * functional.linear(functional.embedding(inputs, a.t()), b)
        seen = functional.dropout(inputs, self.dropout, self.training) if self.dropout else inputs
        if isinstance(base, nn.Conv2d):
            low = base._conv_forward(seen, a.view(-1, *base.weight.shape[1:]), None)
            return outputs + self.scale * functional.conv2d(low, b[:, :, None, None])
        return outputs + self.scale * functional.linear(functional.linear(seen, a), b)


@final
class Served(nn.Linear):
    """A frozen linear layer of which the server changes what it computes with: W + R."""

    def forward(self, input: Tensor) -> Tensor:  # as torch calls it
        outputs: Tensor = super().forward(input)
        residual: Tensor = getattr(self, RESIDUAL)
        moved: Tensor = outputs + functional.linear(input, residual.detach())
        return moved


def _through(base: nn.Module, weight: Tensor, inputs: Tensor) -> Tensor:
    """What a layer gives with other weights, as [d, k], and without a bias."""
    if isinstance(base, nn.Embedding):
        rows: Tensor = functional.embedding(inputs, weight.t())
        return rows
    if isinstance(base, nn.Conv2d):
        maps: Tensor = base._conv_forward(inputs, weight.view(base.weight.shape), None)
        return maps
    outputs: Tensor = functional.linear(inputs, weight)
    return outputs


def _sizes(layer: nn.Module) -> tuple[int, int]:
    """d and k: the shape of what is added to a layer's weights, as a matrix."""
    weight: Any = layer.weight
    if isinstance(layer, nn.Embedding) or _transposed(layer):
        return weight.shape[1], weight.shape[0]
    return weight.shape[0], math.prod(weight.shape[1:])


def _transposed(layer: nn.Module) -> bool:
    """Whether it is Conv1D of transformers: a linear layer whose weights are [inputs, outputs]."""
    return type(layer).__name__ == "Conv1D" and type(layer).__module__.startswith("transformers.")


def _adaptable(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1
    return isinstance(layer, (nn.Linear, nn.Embedding)) or _transposed(layer)


def with_lora(
    builder: Callable[..., nn.Module],
    *,
    rank: Count = RANK,
    alpha: Positive | None = None,
    targets: tuple[str, ...] | str = "all-linear",
    dropout: Decay = 0.0,
    freeze: Literal["none", "A"] = "none",
    head: bool = True,
) -> Callable[..., nn.Module]:
    """A builder of the same network with a low-rank adapter on some of its layers, and all else frozen.

    A layer computes with W + s B A in place of its weights W, with s = alpha / rank; A and B alone learn, travel and
    are remembered, and the head where it is trained whole. B begins as zero, so the first model is the network as it
    was, to the last bit. Needs no library beside torch.

    Args:
        builder: of any network.
        rank: r, of A [r, k] and B [d, r].
        alpha: the adapter counts alpha / rank times; None is twice the rank.
        targets: the layers that have one, by their names, the ends of these, or patterns, such as ("q_proj", "*.fc1");
            "all-linear" for all linear layers but the head. Embeddings and convolutions can be named as well.
        dropout: share of an adapted layer's inputs that the adapter does not see in training, 0 ≤ share < 1.
        freeze: "A" leaves every A as it was drawn.
        head: whether the last linear layer learns whole, as that of new classes has to.

    Raises:
        UserError: when it builds, if nothing in the network is called so, or cannot have an adapter.

    Reference: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1.
    """

    @functools.wraps(builder)
    def build(*given: Any, **settings: Any) -> nn.Module:  # shape and outputs, or what the builder takes of them
        network = builder(*given, **settings)
        return adapted(network, rank, alpha, targets, dropout, freeze, head=head)

    return build


def adapted(
    module: nn.Module,
    rank: int,
    alpha: float | None = None,
    targets: tuple[str, ...] | str = "all-linear",
    dropout: float = 0.0,
    freeze: Literal["none", "A"] = "none",
    *,
    head: bool = True,
) -> nn.Module:
    """A module with adapters, changed in place; arguments as for `with_lora`.

    Raises:
        UserError: nothing in it is called so, or what is called so cannot have an adapter.
    """
    able = {name: part for name, part in module.named_modules() if name and _adaptable(part)}
    last = next((name for name in reversed(able) if isinstance(able[name], nn.Linear)), "")
    if isinstance(targets, str):
        targets = (targets,)
    chosen = [name for name, part in able.items() if _named(name, part, targets, last)]
    if not chosen:
        raise UserError(
            f"targets = {list(targets)!r} in {type(module).__name__}",
            expected=f"layers that can have an adapter: {', '.join(list(able)[:20]) or 'it has none'}",
            why="an adapter is put on linear layers, embeddings, and convolutions without groups",
            fix="name some of these, by the ends of their names or by patterns",
        )
    module.requires_grad_(False)
    for name in chosen:
        scale = (2 * rank if alpha is None else alpha) / rank
        module.set_submodule(name, LowRank(able[name], rank, scale, dropout))
    if head and last and last not in chosen:
        able[last].requires_grad_()
    if freeze == "A":
        freeze_factor(module, "A")
    return module


def _named(name: str, part: nn.Module, targets: tuple[str, ...], last: str) -> bool:
    """Whether a layer is meant by some of the words that name layers."""
    linear = isinstance(part, nn.Linear) or _transposed(part)
    return any(
        (linear and name != last)
        if word == "all-linear"
        else name == word or name.endswith(f".{word}") or fnmatch.fnmatchcase(name, word)
        for word in targets
    )


def freeze_factor(module: nn.Module, factor: Factor) -> nn.Module:
    """Leaves a factor of all of a module's adapters as it is, in place."""
    for name, parameter in module.named_parameters():
        if (part := part_of_adapter(name)) is not None and part[1] == factor:
            parameter.requires_grad_(False)
    return module


def scales_of(module: nn.Module) -> dict[str, float]:
    """s of each adapted layer, by its name."""
    found = dict[str, float]()
    for name, part in _adapted_layers(module):
        scale: Any = part.scale if isinstance(part, LowRank) else getattr(part, "scaling", 1.0)
        found[name] = float(scale["default"] if isinstance(scale, dict) else scale)
    return found


def has_adapters(module: nn.Module) -> bool:
    """Whether a module has layers under adapters."""
    return next(_adapted_layers(module), None) is not None


def _adapted_layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, part in module.named_modules():
        own = [*part._parameters, *part._modules]
        if any((known := part_of_adapter(n)) is not None and known[1] in "AB" for n in own):
            yield name, part


def fitted(module: nn.Module, part: str, *, moves_base: bool = False, frozen: Factor | None = None) -> nn.Module:
    """A module as a method of adapters needs it; a copy, if it is not so already.

    Args:
        module: it; not changed, and the copy shares its frozen parameters.
        part: of the method, for words.
        moves_base: whether the server changes what lies under the adapters.
        frozen: the factor that stays as it is.

    Raises:
        UserError: it has no adapters, or adapters on layers of another kind.
    """
    if not has_adapters(module):
        raise UserError(
            f"{part} with {type(module).__name__}, which has no adapters",
            expected="a model with low-rank adapters: with_lora(mlp, rank=8), or hf(path=…, rank=8)",
            why=f"{part} is about their factors A and B",
            fix=f"put adapters on the model, or leave {part} out",
        )
    if not moves_base and frozen is None:
        return module
    made = copy_of(module, one_base=CPU)
    if frozen is not None:
        freeze_factor(made, frozen)
    return hold_residuals(made, part) if moves_base else made


def for_weights(module: nn.Module, weights: Iterable[str]) -> nn.Module:
    """A module that weights of some names can go into: a copy with R, where they have it."""
    held = any(name.rpartition(".")[2] == RESIDUAL for name in weights)
    return hold_residuals(copy_of(module)) if held and has_adapters(module) else module


def hold_residuals(module: nn.Module, part: str = "") -> nn.Module:
    """A module whose adapted layers have an R, zero at first; changed in place."""
    for name, layer in list(_adapted_layers(module)):
        if isinstance(layer, LowRank):
            if getattr(layer, RESIDUAL) is None:
                setattr(layer, RESIDUAL, nn.Parameter(layer.lora_A.new_zeros(_sizes(layer.base))))
            continue
        base: Any = getattr(layer, "base_layer", None)
        if isinstance(base, Served):
            continue
        if type(base) is not nn.Linear:
            raise UserError(
                f"{part} and an adapter of peft on {name}, which is a {type(base).__name__}",
                expected="adapters of peft on linear layers",
                why="what lies under them changes, and is computed with",
                fix="name other targets, or put the adapters on with with_lora(…)",
            )
        served = Served(base.in_features, base.out_features, device="meta")
        served.weight, served.bias = base.weight, base.bias
        setattr(served, RESIDUAL, nn.Parameter(torch.zeros(base.weight.shape)))
        layer.base_layer = served
    return module
