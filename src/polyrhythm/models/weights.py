"""Puts weights from a file into a model, all of them or none."""

from __future__ import annotations

import copy
from pathlib import Path

from torch import nn

from polyrhythm.errors import UserError, unknown


def load_weights(module: nn.Module, path: Path) -> nn.Module:
    """A copy of a module with the weights and buffers of a safetensors file.

    Args:
        module: not changed.
        path: a file with the module's state dict by name.

    Raises:
        UserError: no such file, a damaged one, or names, shapes or types that are not the module's.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        # Cloned, since what safetensors maps need not lie on the borders that fast kernels expect.
        loaded = {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path}: {'no such file' if isinstance(error, FileNotFoundError) else f'not readable ({error})'}",
            expected="a safetensors file with a model's weights by name",
            why="the run would start from other weights than you meant",
            fix="check the path; `final.safetensors` in a run's folder is such a file",
        ) from error
    own = module.state_dict()
    for name in loaded:
        if name not in own:
            raise unknown("weight", name, own, where=str(path))
    for name, tensor in own.items():
        there = loaded.get(name)
        found = "is missing" if there is None else f"has shape {tuple(there.shape)} and type {there.dtype}"
        if there is None or there.shape != tensor.shape or there.dtype != tensor.dtype:
            raise UserError(
                f"{path}: {name} {found}",
                expected=f"shape {tuple(tensor.shape)} and type {tensor.dtype}",
                why="these are not weights of this model",
                fix="choose the model that the file was made with, or another file",
            )
    filled = copy.deepcopy(module)
    filled.load_state_dict(loaded)
    return filled
