"""Networks with an exit behind each block: a perceptron, and DepthFL's ResNet-18."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, final

from annotated_types import MinLen
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.settings import Count
from polyrhythm.models.exits import WithExits
from polyrhythm.models.norms import Norm, normaliser
from polyrhythm.models.resnet import BasicBlock, residual_layer
from polyrhythm.models.shapes import image

_WIDTHS = (64, 128, 256, 512)


def mlp_exits(
    shape: tuple[int, ...], outputs: int, *, hidden: Annotated[tuple[Count, ...], MinLen(1)] = (200, 200, 200, 200)
) -> nn.Module:
    """Multi-layer perceptron with ReLU, and a linear exit behind each hidden layer (any shape).

    It gives the mean of what its exits give. 141,640 parameters with the default hidden layers on 8×8 digits with 10
    classes.

    Args:
        hidden: width of each hidden layer, of which each is a block.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017, for the perceptron; the exits are as in DepthFL, without attention and bottlenecks.
    """
    widths = (math.prod(shape), *hidden)
    blocks = [
        nn.Sequential(OrderedDict(flatten=nn.Flatten(), hidden=nn.Linear(before, width), relu=nn.ReLU()))
        for before, width in zip(widths, hidden, strict=False)
    ]
    return WithExits(blocks, [nn.Linear(width, outputs) for width in hidden])


def resnet18_exits(shape: tuple[int, ...], outputs: int, *, norm: Norm = "group", groups: Count = 16) -> nn.Module:
    """DepthFL's ResNet-18: four exits, each but the last behind attention and bottlenecks that give 512 channels.

    It gives the mean of what its exits give. The stem is that for small images, a 3×3 convolution. 12,098,664
    parameters on 3-channel images with 10 classes.

    Args:
        norm: "group" (default, no buffers to average) or "batch".
        groups: number of groups for norm="group"; divides 64.

    Reference: Kim et al., "DepthFL: Depthwise Federated Learning for Heterogeneous Clients", ICLR 2023, and the
    authors' program.
    """
    channels, make_norm = image("resnet18-exits", shape)[0], normaliser(norm, groups)
    stem = (nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False), make_norm(64), nn.ReLU())
    layers = [
        residual_layer(BasicBlock, before, width, 2, 1 if width == 64 else 2, make_norm)
        for before, width in zip((64, *_WIDTHS), _WIDTHS, strict=False)
    ]
    return WithExits([nn.Sequential(*stem, layers[0]), *layers[1:]], [Exit(w, outputs, make_norm) for w in _WIDTHS])


@final
class Exit(nn.Module):
    """Attention, bottlenecks that halve the image and double the channels until these are 512, mean, linear layer.

    Args:
        width: of the block before it.
        outputs: number of classes.
        make_norm: makes a normalisation.
    """

    def __init__(self, width: int, outputs: int, make_norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        wider = [w for w in _WIDTHS if w > width]
        self.attention = Attention(width, make_norm) if wider else nn.Identity()
        self.bottlenecks = nn.Sequential(*(bottleneck(w // 2, w, make_norm) for w in wider))
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.fc = nn.Linear(_WIDTHS[-1], outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.bottlenecks(self.attention(inputs))
        outputs: Tensor = self.fc(self.flatten(self.pool(hidden)))
        return outputs


@final
class Attention(nn.Module):
    """Multiplies each place by a number between 0 and 1, found at half the resolution."""

    def __init__(self, width: int, make_norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.looks, self.norm = bottleneck(width, width, make_norm), make_norm(width)

    def forward(self, inputs: Tensor) -> Tensor:
        seen = functional.relu(self.norm(self.looks(inputs)))
        full = functional.interpolate(seen, size=inputs.shape[-2:], mode="bilinear", align_corners=False)
        return inputs * full.sigmoid()


def bottleneck(inputs: int, outputs: int, make_norm: Callable[[int], nn.Module]) -> nn.Sequential:
    """Two separable 3×3 convolutions, the first of stride 2."""

    def separable(before: int, after: int, stride: int) -> tuple[nn.Module, ...]:
        each = nn.Conv2d(before, before, kernel_size=3, stride=stride, padding=1, groups=before, bias=False)
        return each, nn.Conv2d(before, after, kernel_size=1, bias=False), make_norm(after), nn.ReLU()

    return nn.Sequential(*separable(inputs, inputs, 2), *separable(inputs, outputs, 1))
