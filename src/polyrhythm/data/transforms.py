"""Named transforms: deterministic ones that fix what a model sees, and random ones for training only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

import torch
from annotated_types import Ge
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Fraction, Positive, Settings

Pixels = Annotated[int, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class Transform(Settings):
    """A deterministic change of a batch of inputs, the same in training and in tests."""

    @abstractmethod
    def __call__(self, inputs: Tensor) -> Tensor:
        """Returns the changed batch; inputs [B, ...] stay as they are."""


@dataclass(frozen=True, kw_only=True)
class Augmentation(Settings):
    """A random change of a batch of inputs, drawn afresh at each access, in training only."""

    @abstractmethod
    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Returns the changed batch; every sample has its own draw."""


@final
@dataclass(frozen=True, kw_only=True)
class ToFloat(Transform):
    """Turns stored numbers into float32 and divides them.

    Args:
        scale: what the largest stored number stands for: 255 for bytes, 16 for the digits, 1 for no change.
    """

    scale: Positive = 255.0

    def __call__(self, inputs: Tensor) -> Tensor:
        # Division, not multiplication by the inverse: 255 / 255 must be exactly 1.
        return inputs.to(torch.float32) / self.scale


@final
@dataclass(frozen=True, kw_only=True)
class Pad(Transform):
    """Adds a border of zeros around images, e.g. 28 x 28 to 32 x 32 with amount 2.

    Args:
        amount: pixels on each of the four sides; 0 is exactly no change.
    """

    amount: Pixels = 2

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.nn.functional.pad(inputs, [self.amount] * 4)


@final
@dataclass(frozen=True, kw_only=True)
class Normalise(Transform):
    """Subtracts a mean and divides by a standard deviation, one of each per channel or feature.

    Args:
        mean: one number for each entry of axis 1 (channel of images, feature of tables), or a single one for all.
        std: likewise; must not be 0.
        fitted: whether they were computed from the training samples, in place of which a node of a real federation
            takes the server's.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    fitted: bool = False

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if len(self.mean) != len(self.std) or not self.mean or any(s <= 0 for s in self.std):
            raise UserError(
                f"normalise: mean {self.mean}, std {self.std}",
                expected="as many means as standard deviations, and each of those above 0",
                why="a feature that never changes has std 0, and dividing by it gives NaN",
                fix="give std 1 for a constant feature",
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        mean, std = self.along(inputs, torch.float32)
        return (inputs.to(torch.float32) - mean) / std

    def along(self, inputs: Tensor, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, to be spread over a batch."""
        shape = (1, -1, *[1] * (inputs.dim() - 2))
        return torch.tensor(self.mean, dtype=dtype).reshape(shape), torch.tensor(self.std, dtype=dtype).reshape(shape)


@final
@dataclass(frozen=True, kw_only=True)
class RandomCrop(Augmentation):
    """Shifts each image by up to `padding` pixels along both axes, as padding and cropping to the old size does.

    Args:
        padding: largest shift; 0 is exactly no change.
        border: what comes in from outside: zeros, or the image reflected at its edge.
    """

    padding: Pixels = 4
    border: Literal["zeros", "reflect"] = "zeros"

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = inputs.shape
        shifts = torch.randint(-self.padding, self.padding + 1, (2, batch), generator=generator)
        rows, rows_inside = self._places(shifts[0], height)
        columns, columns_inside = self._places(shifts[1], width)
        # Two gathers, no padded copy of the batch.
        out = inputs.gather(2, rows[:, None, :, None].expand_as(inputs))
        out = out.gather(3, columns[:, None, None, :].expand_as(inputs))
        if self.border == "zeros":
            out.mul_((rows_inside[:, None, :, None] & columns_inside[:, None, None, :]).to(out.dtype))
        return out

    def _places(self, shift: Tensor, size: int) -> tuple[Tensor, Tensor]:
        wanted = torch.arange(size) + shift[:, None]  # [B, size], may lie outside
        inside = (wanted >= 0) & (wanted < size)
        if self.border == "reflect":
            wanted = (size - 1) - (size - 1 - wanted.abs()).abs()
        return wanted.clamp(0, size - 1), inside


@final
@dataclass(frozen=True, kw_only=True)
class RandomFlip(Augmentation):
    """Mirrors images left to right.

    Args:
        probability: chance of each image; 0 is exactly no change.
    """

    probability: Fraction = 0.5

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        flipped = torch.rand(len(inputs), generator=generator) < self.probability
        return torch.where(flipped[:, None, None, None], inputs.flip(3), inputs)


def apply(transforms: Iterable[Transform], inputs: Tensor) -> Tensor:
    """Applies deterministic transforms in order."""
    for transform in transforms:
        inputs = transform(inputs)
    return inputs
