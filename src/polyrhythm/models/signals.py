"""A small convolutional network over time."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count


def signal_cnn(shape: tuple[int, ...], outputs: int, *, width: Count = 32, kernel: Count = 5) -> nn.Module:
    """Two convolutions over time with ReLU and pooling, their mean over time, and a linear layer.

    For windows of several signals, [channels, times]: of readings by the second, or of measurements by the hour. 11,686
    parameters for 6 channels and 6 classes. Not on the native engine.

    Args:
        width: filters of the first convolution; the second one has twice as many.
        kernel: times that a filter sees, an odd number; windows are padded, so any length will do.

    Reference: in kind, Yang et al., "Deep Convolutional Neural Networks on Multichannel Time Series for Human Activity
    Recognition", IJCAI 2015.
    """
    if len(shape) != 2 or shape[1] < 2:
        raise UserError(
            f"signal-cnn was given samples of shape {shape}",
            expected="windows as (channels, times), e.g. (6, 128), of 2 times or more",
            why="signal-cnn is a network of convolutions over time",
            fix="give windows of signals, or use mlp or logistic, which take any shape",
        )
    if kernel % 2 == 0:
        raise UserError(
            f"signal-cnn: kernel = {kernel}",
            expected="an odd number",
            why="a filter has a middle, and as much before it as after it",
            fix=f"kernel={kernel + 1}",
        )
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv1d(shape[0], width, kernel, padding=kernel // 2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool1d(2),
            conv2=nn.Conv1d(width, 2 * width, kernel, padding=kernel // 2),
            relu2=nn.ReLU(),
            mean=Mean(),
            output=nn.Linear(2 * width, outputs),
        )
    )


class Mean(nn.Module):
    """[B, C, T] → [B, C], the mean over time."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(dim=2)
