"""The VGG-11 of FedCL, for images of 32×32."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from polyrhythm.base.settings import Count, Fraction
from polyrhythm.models.shapes import image

_WIDTHS = (64, 128, 256, 256, 512, 512, 512, 512)
_POOLED = {1, 2, 4, 6, 8}  # convolutions, counted from 1, that a 2×2 pooling follows


def vgg11(shape: tuple[int, ...], outputs: int, *, head: Count = 512, dropout: Fraction = 0.05) -> nn.Module:
    """VGG-11 without normalisation: eight 3×3 convolutions, five poolings, 512 features, two hidden layers of 512.

    9,750,922 parameters on 3×32×32 images with 10 classes. Images of 32×32 or more. Convolution weights are drawn from
    a normal distribution of variance 2/(9·output channels) with biases 0, as in the authors' code: under torch's
    default the signal fades over the eight layers.

    The paper's Table 1 gives the first hidden layer 4,096 inputs, which fits no 32×32 image; the authors' code has
    512.

    Args:
        head: width of the two hidden layers.
        dropout: probability before each hidden layer, 0 … 1: 0.05 in the authors' code for CIFAR, 0.5 for
            Fashion-MNIST; the paper says 0.2. 0 puts no dropout in the network.

    Reference: FedCL (CriticalFL), KDD 2023, Table 1, and the authors' code.
    """
    channels, height, width = image("vgg11", shape, at_least=32)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, size in enumerate(_WIDTHS, start=1):
        conv = nn.Conv2d(channels, size, kernel_size=3, padding=1)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]  # there is a bias: only a setting could leave it out
        layers[f"conv{number}"], layers[f"relu{number}"] = conv, nn.ReLU()
        if number in _POOLED:
            layers[f"pool{number}"] = nn.MaxPool2d(2)
        channels = size
    layers["flatten"] = nn.Flatten()
    features = 512 * (height // 32) * (width // 32)
    for number in (1, 2):
        if dropout:
            layers[f"dropout{number}"] = nn.Dropout(dropout)
        layers[f"hidden{number}"] = nn.Linear(features, head)
        layers[f"relu{number + 8}"] = nn.ReLU()
        features = head
    layers["output"] = nn.Linear(head, outputs)
    return nn.Sequential(layers)
