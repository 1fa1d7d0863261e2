"""The small AlexNets of FedCL."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from torch import nn

from polyrhythm.base.settings import Count, Fraction
from polyrhythm.models.shapes import image


def alexnet(
    shape: tuple[int, ...],
    outputs: int,
    *,
    head: Count = 128,
    dropout: Fraction = 0.05,
    form: Literal["auto", "cifar", "fmnist"] = "auto",
) -> nn.Module:
    """FedCL's AlexNet: five convolutions (64, 192, 384, 256, 256), two hidden layers, CIFAR or Fashion-MNIST form.

    Both forms share the last three 3×3 convolutions and pool 2×2 after the first, second and fifth. They differ at the
    entrance: "cifar" has 3×3 stride 2 and 3×3, for 15×15 images or more; "fmnist" has 11×11 stride 4 padding 5 and 5×5,
    for 29×29 or more (the authors resize Fashion-MNIST to 32×32). On 32×32 they leave 1,024 and 256 features.
    Parameters with 10 classes: 2,400,586 (cifar, 3 channels), 2,504,906 (fmnist, 1 channel); with head=4096 23,272,266
    and 20,329,162.

    The paper's Table 2 lists biases that do not match its layers' sizes (32, 64, 128, 128 and 512); here every layer
    has the biases it must have.

    Args:
        head: width of the two hidden layers: 128 in the authors' code, 4096 in the paper.
        dropout: probability before each hidden layer, 0 … 1; 0 puts no dropout in the network.
        form: the entrance; "auto" is "fmnist" for one channel and else "cifar".

    Reference: FedCL (CriticalFL), KDD 2023, Table 2, and the authors' code.
    """
    channels = image("alexnet", shape)[0]
    fmnist = form == "fmnist" or (form == "auto" and channels == 1)
    _, height, width = image("alexnet", shape, at_least=29 if fmnist else 15)
    if fmnist:
        first = nn.Conv2d(channels, 64, kernel_size=11, stride=4, padding=5)
        second = nn.Conv2d(64, 192, kernel_size=5, padding=2)
    else:
        first = nn.Conv2d(channels, 64, kernel_size=3, stride=2, padding=1)
        second = nn.Conv2d(64, 192, kernel_size=3, padding=1)
    stride = 4 if fmnist else 2
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=first,
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=second,
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        conv3=nn.Conv2d(192, 384, kernel_size=3, padding=1),
        relu3=nn.ReLU(),
        conv4=nn.Conv2d(384, 256, kernel_size=3, padding=1),
        relu4=nn.ReLU(),
        conv5=nn.Conv2d(256, 256, kernel_size=3, padding=1),
        relu5=nn.ReLU(),
        pool3=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
    )
    features = 256 * _left(height, stride) * _left(width, stride)
    for number in (1, 2):
        if dropout:
            layers[f"dropout{number}"] = nn.Dropout(dropout)
        layers[f"hidden{number}"] = nn.Linear(features, head)
        layers[f"relu{number + 5}"] = nn.ReLU()
        features = head
    layers["output"] = nn.Linear(head, outputs)
    return nn.Sequential(layers)


def _left(pixels: int, stride: int) -> int:
    """What the strided convolution (padded by half its kernel) and three 2×2 poolings leave of a height or width."""
    return ((pixels - 1) // stride + 1) // 8
