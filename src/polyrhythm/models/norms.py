"""The choice of normalisation, which matters more in a federation than in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import nn

from polyrhythm.base.errors import UserError

Norm = Literal["group", "batch"]


def normaliser(norm: Norm, groups: int) -> Callable[[int], nn.Module]:
    """What makes a normalisation layer for a number of channels.

    Args:
        norm: "group" normalises each sample alone; "batch" normalises over the batch and keeps running statistics,
            buffers that differ between clients and are averaged apart from the weights.
        groups: number of groups for "group"; must divide the channels of every layer.

    Raises:
        UserError: when a layer is made, if the groups do not divide its channels.
    """

    def make(channels: int) -> nn.Module:
        if norm == "batch":
            return nn.BatchNorm2d(channels)
        if channels % groups:
            raise UserError(
                f"{groups} groups for a layer of {channels} channels",
                expected="a number of groups that divides the channels",
                why="group normalisation cuts the channels into groups of equal size",
                fix='choose groups among 1, 2, 4, 8, 16, 32, 64, or norm="batch"',
            )
        return nn.GroupNorm(groups, channels)

    return make
