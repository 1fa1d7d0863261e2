"""Runs a copy of a model on a few samples, so that a model that does not fit its data is refused before a run."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from polyrhythm.errors import UserError
from polyrhythm.streams import seeded_torch


def output_shape(model: nn.Module, inputs: Tensor) -> tuple[int, ...]:
    """The shape of what a model gives for a batch; the model itself and all generators stay as they were.

    Args:
        model: any module; a copy of it runs, in eval mode.
        inputs: a small batch of samples, as training would give it. [B, *shape]

    Raises:
        UserError: the model cannot be run on these samples, or gives something other than one tensor with a row per
            sample.
    """
    kind = type(model).__name__
    replica = copy.deepcopy(model).eval()
    try:
        with torch.no_grad(), seeded_torch(0, "init", "probe"):
            outputs = replica(inputs)
    except UserError:
        raise
    except Exception as error:  # whatever a user's own forward raises, said in our words
        raise UserError(
            f"{kind} could not be run on {len(inputs)} samples of shape {tuple(inputs.shape[1:])} and type "
            f"{str(inputs.dtype).removeprefix('torch.')}: {type(error).__name__}: {error}",
            expected="a model that takes a batch of these samples",
            why="every client would fail in its first step",
            fix="choose a model for such samples, or change the data's transforms (padding, flattening, normalising)",
        ) from error
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"{kind} gives a {type(outputs).__name__}, not a tensor",
            expected="one tensor of outputs, a row per sample",
            why="loss and metrics are computed from that tensor",
            fix="return only the outputs; a representation is read from inside the model, by its submodule's name",
        )
    if outputs.dim() == 0 or len(outputs) != len(inputs):
        raise UserError(
            f"{kind} gives outputs of shape {tuple(outputs.shape)} for {len(inputs)} samples",
            expected=f"{len(inputs)} rows, one per sample",
            why="losses and metrics are counted per sample",
            fix="keep the batch as the first axis in forward",
        )
    return tuple(outputs.shape)
