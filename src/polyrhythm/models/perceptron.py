"""Fully connected networks."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from polyrhythm.base.settings import Count, Fraction


def mlp(
    shape: tuple[int, ...], outputs: int, *, hidden: tuple[Count, ...] = (200, 200), dropout: Fraction = 0.0
) -> nn.Module:
    """Multi-layer perceptron with ReLU on the flattened sample (any shape).

    199,210 parameters with the default hidden layers on 28×28 images with 10 classes (the "2NN" of FedAvg), 55,210 on
    8×8 digits.

    Args:
        hidden: width of each hidden layer; none at all gives `logistic`.
        dropout: probability of dropping a hidden activation, 0 … 1; 0 puts no dropout in the network.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = math.prod(shape)
    for number, size in enumerate(hidden, start=1):
        layers[f"hidden{number}"] = nn.Linear(width, size)
        layers[f"relu{number}"] = nn.ReLU()
        if dropout:
            layers[f"dropout{number}"] = nn.Dropout(dropout)
        width = size
    layers["output"] = nn.Linear(width, outputs)
    return nn.Sequential(layers)


def ccfl_mlp(shape: tuple[int, ...], outputs: int, *, hidden: Count = 50, dropout: Fraction = 0.5) -> nn.Module:
    """The perceptron of CCFL (CC-FedAvg): one hidden layer of 50, dropout before its ReLU.

    39,760 parameters on 28×28 images with 10 classes. The paper calls it a "3-layer MLP"; the size of the first update
    in the authors' logs fits 784–50–10. The authors drop hidden *pre-activations*, kept here: as ReLU(0) = 0 and ReLU
    is homogeneous, it is the same function as dropout after the ReLU. Inputs are expected as (x − 0.5)/0.5.

    Args:
        hidden: width of the hidden layer.
        dropout: probability of dropping a hidden pre-activation, 0 … 1; 0 puts no dropout in the network.

    Reference: CC-FedAvg (CCFL), IEEE Internet of Things Journal, Tables 2–4, and the authors' code.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten(), hidden=nn.Linear(math.prod(shape), hidden))
    if dropout:
        layers["dropout"] = nn.Dropout(dropout)
    layers["relu"] = nn.ReLU()
    layers["output"] = nn.Linear(hidden, outputs)
    return nn.Sequential(layers)
