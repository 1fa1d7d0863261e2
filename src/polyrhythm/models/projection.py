"""A projection head for any network: what MOON and ALT compare between models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, final

from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count


@final
class Projected(nn.Module):
    """A network whose output layer was replaced by a projection head and a linear classifier.

    outputs = classifier(projection(encoder(inputs)))
    """

    def __init__(self, encoder: nn.Module, features: int, hidden: int, size: int, outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.projection = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, size))
        self.classifier = nn.Linear(size, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.classifier(self.projection(self.encoder(inputs)))
        return outputs


def with_projection(
    builder: Callable[..., nn.Module], *, hidden: Count | None = None, size: Count = 256
) -> Callable[..., nn.Module]:
    """A builder of the same network with MOON's projection head before a new output layer.

    The network's output layer (the last nn.Linear it holds) is taken out. Its F inputs go through
    F → hidden → ReLU → size, the attribute `projection`, and a linear classifier size → outputs. That takes
    F·hidden + hidden + hidden·size + size + size·outputs + outputs parameters in place of F·outputs + outputs.

    Args:
        builder: any builder whose network ends in an nn.Linear with `outputs` outputs.
        hidden: width of the head's hidden layer; None is F, as in MOON.
        size: width of the projection.

    Raises:
        UserError: when it builds, if the network does not end in such a layer.

    Reference: Li et al., "Model-Contrastive Federated Learning", CVPR 2021, section 3.3.
    """

    @functools.wraps(builder)
    def build(*given: Any, **settings: Any) -> nn.Module:  # shape and outputs, or what the builder takes of them
        network = builder(*given, **settings)
        outputs = inspect.signature(builder).bind(*given, **settings).arguments.get("outputs")
        linears = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
        last = network.get_submodule(linears[-1]) if linears else None
        # The name is empty if the network is itself one nn.Linear: then there is no layer left to be an encoder.
        if not isinstance(last, nn.Linear) or not linears[-1] or outputs not in (None, last.out_features):
            raise UserError(
                f"{type(network).__name__} does not hold an output layer that a projection head could replace",
                expected=f"a network whose last nn.Linear gives its {'' if outputs is None else f'{outputs} '}outputs",
                why="the head is put in the place of the output layer",
                fix="end the network in an nn.Linear, or give it its own attribute `projection`",
            )
        if len(getattr(network, "exits", ())) > 1:
            raise UserError(
                f"{type(network).__name__} has {len(network.exits)} exits",  # type: ignore[arg-type]
                expected="a network with one output layer",
                why="the head is put in the place of the output layer",
                fix="take a network without exits",
            )
        network.set_submodule(linears[-1], nn.Identity())
        return Projected(network, last.in_features, hidden or last.in_features, size, last.out_features)

    return build
