"""ResNet-18 and ResNet-50.

Modules are named as in torchvision (conv1, bn1, layer1.0.conv1, downsample.0, fc), also where "bn" is a group
normalisation: with norm="batch" and stem="large", weights published for torchvision's models load by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, final

from torch import Tensor, nn

from polyrhythm.base.settings import Count
from polyrhythm.models.norms import Norm, normaliser
from polyrhythm.models.shapes import image

Normaliser = Callable[[int], nn.Module]
Stem = Literal["small", "large"]


def resnet18(
    shape: tuple[int, ...], outputs: int, *, norm: Norm = "group", groups: Count = 16, stem: Stem = "small"
) -> nn.Module:
    """ResNet-18 with group or batch normalisation, with a stem for small or large images (any size).

    11,173,962 parameters on 3-channel images with 10 classes and the small stem; 11,689,512 with 1,000 classes and the
    large one. CCFL trains it on CIFAR with 16 groups; its authors' code keeps batch normalisation in the shortcuts,
    here all layers have the same.

    Args:
        norm: "group" (default, no buffers to average) or "batch".
        groups: number of groups for norm="group"; divides 64.
        stem: "small" is a 3×3 convolution (CIFAR); "large" a 7×7 one of stride 2 and a pooling (ImageNet).

    Reference: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; used by CC-FedAvg, IEEE Internet of
    Things Journal.
    """
    channels = image("resnet18", shape)[0]
    return ResNet(BasicBlock, (2, 2, 2, 2), channels, outputs, normaliser(norm, groups), stem)


def resnet50(
    shape: tuple[int, ...], outputs: int, *, norm: Norm = "group", groups: Count = 16, stem: Stem = "small"
) -> nn.Module:
    """ResNet-50 with group or batch normalisation, with a stem for small or large images (any size).

    23,520,842 parameters on 3-channel images with 10 classes and the small stem; 25,557,032 with 1,000 classes and the
    large one. MOON and ALT train it on CIFAR-100 and Tiny-ImageNet with the small stem, norm="batch" and MOON's head
    (`with_projection(resnet50)`).

    Args:
        norm: "group" (default, no buffers to average) or "batch".
        groups: number of groups for norm="group"; divides 64.
        stem: "small" is a 3×3 convolution (CIFAR); "large" a 7×7 one of stride 2 and a pooling (ImageNet).

    Reference: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; used by MOON, CVPR 2021, and ALT.
    """
    channels = image("resnet50", shape)[0]
    return ResNet(Bottleneck, (3, 4, 6, 3), channels, outputs, normaliser(norm, groups), stem)


@final
class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, make_norm: Normaliser) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = make_norm(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False)
        self.bn2 = make_norm(width)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(inputs, width * self.expansion, stride, make_norm)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(inputs)))
        outputs: Tensor = self.relu(self.bn2(self.conv2(hidden)) + self.downsample(inputs))
        return outputs


@final
class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside a shortcut; the 3×3 one has the stride."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, make_norm: Normaliser) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, kernel_size=1, bias=False)
        self.bn1 = make_norm(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = make_norm(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, kernel_size=1, bias=False)
        self.bn3 = make_norm(width * self.expansion)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(inputs, width * self.expansion, stride, make_norm)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(inputs)))
        hidden = self.relu(self.bn2(self.conv2(hidden)))
        outputs: Tensor = self.relu(self.bn3(self.conv3(hidden)) + self.downsample(inputs))
        return outputs


@final
class ResNet(nn.Module):
    """Four layers of residual blocks, averaged over the image, and a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        channels: int,
        outputs: int,
        make_norm: Normaliser,
        stem: Stem,
    ) -> None:
        super().__init__()
        if stem == "large":
            self.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
            self.maxpool: nn.Module = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        else:
            self.conv1 = nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False)
            self.maxpool = nn.Identity()
        self.bn1 = make_norm(64)
        self.relu = nn.ReLU()
        self.layer1 = residual_layer(block, 64, 64, depths[0], 1, make_norm)
        self.layer2 = residual_layer(block, 64 * block.expansion, 128, depths[1], 2, make_norm)
        self.layer3 = residual_layer(block, 128 * block.expansion, 256, depths[2], 2, make_norm)
        self.layer4 = residual_layer(block, 256 * block.expansion, 512, depths[3], 2, make_norm)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(512 * block.expansion, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.maxpool(self.relu(self.bn1(self.conv1(inputs))))
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        outputs: Tensor = self.fc(self.flatten(self.avgpool(hidden)))
        return outputs


def residual_layer(
    block: type[BasicBlock] | type[Bottleneck],
    inputs: int,
    width: int,
    depth: int,
    stride: int,
    make_norm: Normaliser,
) -> nn.Sequential:
    """Residual blocks one after the other, of which the first may halve the image."""
    first = block(inputs, width, stride, make_norm)
    return nn.Sequential(first, *(block(width * block.expansion, width, 1, make_norm) for _ in range(depth - 1)))


def _shortcut(inputs: int, outputs: int, stride: int, make_norm: Normaliser) -> nn.Module:
    """The input itself where it has the output's shape, else a 1×1 convolution that gives it that shape."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False),
        make_norm(outputs),
    )
