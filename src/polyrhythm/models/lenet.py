"""LeNet-5, and MOON's network, which is LeNet-5 with a projection head."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from polyrhythm.base.settings import Count, Positive
from polyrhythm.models.projection import with_projection
from polyrhythm.models.shapes import image


def lenet5(shape: tuple[int, ...], outputs: int, *, width: Positive = 1.0) -> nn.Module:
    """LeNet-5 with ReLU and max pooling: two 5×5 convolutions (6, 16), then 120, 84 and the outputs.

    No padding, so a 28×28 image leaves 16·4·4 = 256 features and a 32×32 image (or 28×28 padded by 2) 16·5·5 = 400.
    Parameters with 10 classes: 44,426 on 1×28×28, 61,706 on 1×32×32, 62,006 on 3×32×32. Any image of 16×16 or more.

    Args:
        width: channels and units times this, rounded up: of width 2 the part of ratio 1/2 is of width 1. 1 is LeNet-5;
            of width 1/16 it has 312 parameters on 1×28×28.

    Reference: LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998; in this form in
    NIID-Bench, MOON, the curriculum paper and CCFL.
    """
    channels, high, wide = image("lenet5", shape, at_least=16)
    first, second, third, last = (math.ceil(width * units) for units in (6, 16, 120, 84))
    features = second * _after_two_blocks(high) * _after_two_blocks(wide)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, first, kernel_size=5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(first, second, kernel_size=5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            hidden1=nn.Linear(features, third),
            relu3=nn.ReLU(),
            hidden2=nn.Linear(third, last),
            relu4=nn.ReLU(),
            output=nn.Linear(last, outputs),
        )
    )


def moon_cnn(shape: tuple[int, ...], outputs: int, *, size: Count = 256) -> nn.Module:
    """MOON's and ALT's network: LeNet-5's 84 features, a projection head 84–84–256, a linear classifier.

    92,626 parameters on 3×32×32 images with 10 classes. The classifier reads the projection, which has no ReLU of its
    own. Any image of 16×16 or more.

    Args:
        size: width of the projection, the representation that MOON and ALT compare.

    Reference: Li et al., "Model-Contrastive Federated Learning", CVPR 2021, and the authors' code.
    """
    image("moon-cnn", shape, at_least=16)
    return with_projection(lenet5, size=size)(shape, outputs)


def _after_two_blocks(pixels: int) -> int:
    """What two unpadded 5×5 convolutions, each followed by 2×2 pooling, leave of a height or width."""
    return ((pixels - 4) // 2 - 4) // 2
