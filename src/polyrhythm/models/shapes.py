"""What a network demands of one sample's shape, said before the network is built."""

from __future__ import annotations

from polyrhythm.base.errors import UserError


def image(model: str, shape: tuple[int, ...], *, at_least: int = 1) -> tuple[int, int, int]:
    """Channels, height and width of an image sample.

    Raises:
        UserError: not channels first, or smaller than `at_least` pixels in height or width.
    """
    if len(shape) != 3:
        raise UserError(
            f"{model} was given samples of shape {shape}",
            expected="images as (channels, height, width)",
            why=f"{model} is a network of convolutions",
            fix="add the channel axis, e.g. (1, 28, 28), or use mlp or logistic, which take any shape",
        )
    channels, height, width = shape
    if min(height, width) < at_least:
        raise UserError(
            f"{model} was given images of {height}×{width} pixels, {channels} channel(s)",
            expected=f"at least {at_least}×{at_least} pixels",
            why=f"the convolutions and poolings of {model} would leave nothing of a smaller image",
            fix=f"pad or resize the images to {at_least}×{at_least} or more, or use mlp, logistic or resnet18, "
            "which take any size",
        )
    return channels, height, width


def sequence(model: str, shape: tuple[int, ...]) -> int:
    """The length of a sample that is a sequence of tokens.

    Raises:
        UserError: a shape other than (length,).
    """
    if len(shape) != 1 or shape[0] < 1:
        raise UserError(
            f"{model} was given samples of shape {shape}",
            expected="token numbers as (length,), e.g. (80,)",
            why=f"{model} reads one token after the other",
            fix="use a text data set, or a model for such samples (mlp and logistic take any shape)",
        )
    return shape[0]
