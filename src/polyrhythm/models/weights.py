"""Puts weights from a file or another model into a model: all of them but those that are left out by name, or none."""

from __future__ import annotations

import fnmatch
import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.input_file import check_file
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.tensor_names import fill, plain, state_of

Source = Path | str | Mapping[str, Tensor] | nn.Module
"""Where weights come from."""


def load_weights(module: nn.Module, source: Source, skip: Sequence[str] = ()) -> nn.Module:
    """A copy of a module with other weights and buffers.

    Of a tensor with several names (tied weights) one is enough, and names may be those of the compiled or the parallel
    model.

    Args:
        module: not changed.
        source: a safetensors file, a file of `torch.save` (.pt, .pth, .bin, .ckpt) with tensors in it and nothing else,
            a state dict, or a module with the same names.
        skip: patterns of names, such as "head.*", that keep what they have in `module`.

    Raises:
        UserError: no such file, a damaged one, names, shapes or types that are not the module's, several values under
            the names of one tensor, or parameters that are no finite numbers.
    """
    where = source if isinstance(source, Path) else Path(source) if isinstance(source, str) else _NAMELESS
    filled = copy_of(module)
    own = state_of(filled)
    left = {name for name in own if skipped(name, skip)}
    loaded = {plain(name, own): tensor for name, tensor in read_weights(source).items()}
    loaded = {name: tensor for name, tensor in loaded.items() if not skipped(name, skip)}
    for pattern in skip:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in own):
            raise unknown("weight", pattern, own, where="the model")
    for name in loaded:
        if name not in own:
            raise unknown("weight", name, own, where=str(where))
    wrong = [
        name
        for names in _of_one_tensor(own)
        if not left.intersection(names)
        for name in [n for n in names if n in loaded] or names[:1]
        if not _fits(own[name], loaded.get(name))
    ]
    if wrong:
        raise _misfits(where, wrong, own, loaded)
    for names in _of_one_tensor(own):
        if left.intersection(names):
            loaded |= {name: own[name] for name in names}
            continue
        here = [name for name in names if name in loaded]
        _refuse_several(where, here, loaded)
        loaded |= dict.fromkeys(names, loaded[here[0]])
    check_finite({name: loaded[name] for name, _ in filled.named_parameters() if name in loaded}, str(where))
    fill(filled, loaded)
    return filled


_NAMELESS = Path("the given weights")


def skipped(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of those that keep what they have."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def check_finite(parameters: Mapping[str, Tensor], where: str) -> None:
    """Goes on if all parameters are finite numbers.

    Raises:
        UserError: some are not, with their names.
    """
    held = {n: p for n, p in parameters.items() if p.is_floating_point() and not p.is_meta}
    odd = [n for n, p in held.items() if not is_lazy(p) and not bool(torch.isfinite(p).all())]
    if odd:
        raise UserError(
            f"{where}: {_some(odd)} {'has' if len(odd) == 1 else 'have'} values that are NaN or infinite",
            expected="finite numbers in every parameter",
            why="every loss and every update would be NaN from the first step on",
            fix="take weights of before they became so, or initialise these parameters anew",
        )


def _named_in(error: Exception) -> str:
    """What a file asks for beside tensors, in words; torch's own words advise to let it run."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f" ({found[1][:80]})" if found else ""


def read_weights(source: Source) -> Mapping[str, Tensor]:
    """Weights by name, as a source has them.

    Args:
        source: as in `load_weights`.

    Raises:
        UserError: no such file, a damaged one, or one that holds more than tensors.
    """
    if isinstance(source, nn.Module):
        return state_of(source)
    if isinstance(source, Mapping):
        return _tensors(source, _NAMELESS)
    path = Path(source)
    try:
        check_file(path)
        if path.suffix in _TORCHS:
            return _tensors(torch.load(path, map_location="cpu", weights_only=True), path)
        from safetensors.torch import load_file

        # Cloned, since what safetensors maps need not lie on the borders that fast kernels expect.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: holds more than tensors{_named_in(error)}",
            expected="a state dict: torch.save(model.state_dict(), path)",
            why="anything else in such a file is code that would run when it is read",
            fix="load it yourself if you trust it, and give its state dict: initial=model.state_dict()",
        ) from None
    except Exception as error:  # readers of damaged files raise many kinds
        raise UserError(
            f"{path}: {'no such file' if isinstance(error, FileNotFoundError) else f'not readable ({error})'}",
            expected="a safetensors file, or a state dict of torch.save (.pt, .pth), with a model's weights by name",
            why="the run would start from other weights than you meant",
            fix="check the path; `final.safetensors` in a run's folder is such a file",
        ) from error


_TORCHS = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_INSIDE = ("state_dict", "model_state_dict", "model")


def _tensors(found: Any, where: Path) -> Mapping[str, Tensor]:
    """A state dict, perhaps inside of a checkpoint."""
    inside = [found[key] for key in _INSIDE if isinstance(found, Mapping) and isinstance(found.get(key), Mapping)]
    state = inside[0] if len(inside) == 1 else found
    if isinstance(state, Mapping) and state and all(isinstance(n, str) for n in state):
        tensors = {n: t for n, t in state.items() if not n.endswith("_extra_state")}
        if all(isinstance(t, Tensor) for t in tensors.values()):
            return {n: t.detach().to("cpu").clone() for n, t in tensors.items()}
    keys = f" with {_some(list(map(str, state)))}" if isinstance(state, Mapping) else ""
    raise UserError(
        f"{where}: a {type(state).__name__}{keys}",
        expected="a state dict: tensors by name",
        why="weights go into the model by their names",
        fix="save model.state_dict(), or give the part of this that holds it",
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _of_one_tensor(own: Mapping[str, Tensor]) -> Iterable[list[str]]:
    """The names of each tensor."""
    names = dict[object, list[str]]()
    for name, tensor in own.items():
        where = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else name
        names.setdefault(where, []).append(name)
    return names.values()


def _fits(tensor: Tensor, there: Tensor | None) -> bool:
    return there is not None and there.shape == tensor.shape and there.dtype == tensor.dtype


def _misfits(path: Path, names: list[str], own: Mapping[str, Tensor], loaded: Mapping[str, Tensor]) -> UserError:
    told = [f"{n} {_told(loaded[n]) if n in loaded else 'is missing'}" for n in names]
    expected = [f"{n}: {_told(own[n]).removeprefix('has ')}" for n in names]
    tops = dict.fromkeys(f"{n.rpartition('.')[0]}.*" if "." in n else n for n in names)
    return UserError(
        f"{path}: {_some(told)}",
        expected=_some(expected),
        why="these are not weights of this model",
        fix="choose the model that the file was made with, or another file; or let these begin as the model makes "
        f"them: initial_skip=({', '.join(map(repr, list(tops)[:6]))},), init_skip in files",
    )


def _told(tensor: Tensor) -> str:
    return f"has shape {tuple(tensor.shape)} and type {tensor.dtype}"


def _refuse_several(path: Path, names: Sequence[str], loaded: Mapping[str, Tensor]) -> None:
    for other in names[1:]:
        if not torch.equal(loaded[names[0]], loaded[other]):
            raise UserError(
                f"{path}: {names[0]} and {other} have other values",
                expected="the same values, or only one of them",
                why="they are one tensor of this model (tied weights), which can have one value",
                fix="leave one of them out of the file, or choose a model in which they are not tied",
            )
