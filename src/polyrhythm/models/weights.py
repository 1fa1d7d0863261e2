"""Puts weights from a file into a model, all of them or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.tensor_names import fill, plain, state_of


def load_weights(module: nn.Module, path: Path) -> nn.Module:
    """A copy of a module with the weights and buffers of a safetensors file.

    Of a tensor with several names (tied weights) one is enough, and names may be those of the compiled or the parallel
    model.

    Args:
        module: not changed.
        path: a file with the module's state dict by name.

    Raises:
        UserError: no such file, a damaged one, names, shapes or types that are not the module's, or several values
            under the names of one tensor.
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
    filled = copy_of(module)
    own = state_of(filled)
    loaded = {plain(name, own): tensor for name, tensor in loaded.items()}
    for name in loaded:
        if name not in own:
            raise unknown("weight", name, own, where=str(path))
    for names in _of_one_tensor(own):
        here = [name for name in names if name in loaded] or names[:1]
        for name in here:
            _check(path, name, own[name], loaded.get(name))
        _refuse_several(path, here, loaded)
        loaded |= dict.fromkeys(names, loaded[here[0]])
    fill(filled, loaded)
    return filled


def _of_one_tensor(own: Mapping[str, Tensor]) -> Iterable[list[str]]:
    """The names of each tensor."""
    names = dict[object, list[str]]()
    for name, tensor in own.items():
        where = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else name
        names.setdefault(where, []).append(name)
    return names.values()


def _check(path: Path, name: str, tensor: Tensor, there: Tensor | None) -> None:
    if there is None or there.shape != tensor.shape or there.dtype != tensor.dtype:
        found = "is missing" if there is None else f"has shape {tuple(there.shape)} and type {there.dtype}"
        raise UserError(
            f"{path}: {name} {found}",
            expected=f"shape {tuple(tensor.shape)} and type {tensor.dtype}",
            why="these are not weights of this model",
            fix="choose the model that the file was made with, or another file",
        )


def _refuse_several(path: Path, names: Sequence[str], loaded: Mapping[str, Tensor]) -> None:
    for other in names[1:]:
        if not torch.equal(loaded[names[0]], loaded[other]):
            raise UserError(
                f"{path}: {names[0]} and {other} have other values",
                expected="the same values, or only one of them",
                why="they are one tensor of this model (tied weights), which can have one value",
                fix="leave one of them out of the file, or choose a model in which they are not tied",
            )
