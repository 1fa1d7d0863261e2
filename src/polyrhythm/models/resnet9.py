"""The nine-layer residual network of the curriculum paper."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import final

from torch import Tensor, nn

from polyrhythm.base.settings import Count
from polyrhythm.models.norms import Norm, normaliser
from polyrhythm.models.shapes import image

Normaliser = Callable[[int], nn.Module]


@final
class Residual(nn.Module):
    """Adds what some layers give to what they were given."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs + self.layers(inputs)
        return outputs


def resnet9(shape: tuple[int, ...], outputs: int, *, norm: Norm = "group", groups: Count = 16) -> nn.Module:
    """ResNet-9: 64, 128 and a residual block, 256, 512 and a residual block, pooling, a linear layer.

    6,575,370 parameters on 3×32×32 images with 10 classes, with either normalisation. Images of 32×32 or more. The
    paper has batch normalisation: norm="batch".

    Args:
        norm: "group" (default, no buffers to average) or "batch".
        groups: number of groups for norm="group"; divides 64.

    Reference: "When Do Curricula Work in Federated Learning?", ICCV 2023, supplement, and the authors' code.
    """
    channels, height, width = image("resnet9", shape, at_least=32)
    make_norm = normaliser(norm, groups)
    return nn.Sequential(
        OrderedDict(
            conv1=_convolution(channels, 64, make_norm),
            conv2=_convolution(64, 128, make_norm, pool=True),
            residual1=_residual(128, make_norm),
            conv3=_convolution(128, 256, make_norm, pool=True),
            conv4=_convolution(256, 512, make_norm, pool=True),
            residual2=_residual(512, make_norm),
            pool=nn.MaxPool2d(4),
            flatten=nn.Flatten(),
            output=nn.Linear(512 * (height // 32) * (width // 32), outputs),
        )
    )


def _convolution(inputs: int, outputs: int, make_norm: Normaliser, *, pool: bool = False) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), norm=make_norm(outputs), relu=nn.ReLU()
    )
    if pool:
        layers["pool"] = nn.MaxPool2d(2)
    return nn.Sequential(layers)


def _residual(channels: int, make_norm: Normaliser) -> Residual:
    return Residual(
        nn.Sequential(_convolution(channels, channels, make_norm), _convolution(channels, channels, make_norm))
    )
