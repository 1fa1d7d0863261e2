"""Linear models: one layer from a sample's numbers to its outputs."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn


def logistic(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer on the flattened sample (any shape).

    D · C + C parameters for D inputs and C outputs: 7,850 on 28×28 images with 10 classes. Gives logits.

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, section 5.
    """
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=nn.Linear(math.prod(shape), outputs)))


def multilabel_logistic(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """One logistic regression per label, with Glorot initialisation (Stack Overflow tag prediction).

    D · C + C parameters: 5,000,500 for a vocabulary of 10,000 words and 500 tags. Weights are Glorot uniform, biases
    0. Gives logits: the sigmoid is part of the loss.

    Reference: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Stack Overflow tag prediction.
    """
    output = nn.Linear(math.prod(shape), outputs)
    nn.init.xavier_uniform_(output.weight)
    nn.init.zeros_(output.bias)
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=output))
