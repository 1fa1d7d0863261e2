"""Weights and losses that an experiment is given in memory, and what stands for them in the record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.tensor_names import state_of
from polyrhythm.models.adapter_files import is_adapter, load_adapter
from polyrhythm.models.weights import Source, load_weights
from polyrhythm.results import Run

Initial = Path | str | Mapping[str, Tensor] | nn.Module | Run
"""What initial weights are read from: a file or folder, a state, a module, or a run, of which it is the final ones."""


def losses_told(expert: Path | str | np.ndarray | None) -> str | None:
    """An expert as plain data; losses by their digest."""
    if isinstance(expert, np.ndarray):
        return f"losses:{hashlib.sha256(np.ascontiguousarray(expert).tobytes()).hexdigest()[:16]}"
    return None if expert is None else str(expert)


def source_of(initial: Initial) -> Source:
    """What the initial weights are read from: of a run, the final ones."""
    return initial.weights() if isinstance(initial, Run) else initial


def begun_with(module: nn.Module, initial: Initial | None, skip: tuple[str, ...]) -> nn.Module:
    """The module with its initial weights: those of another, but for the names to skip, or its own."""
    if is_adapter(initial):
        return load_adapter(module, Path(str(initial)))
    return module if initial is None else load_weights(module, source_of(initial), skip)


def weights_told(initial: Initial) -> str:
    """Initial weights as plain data; those in memory by their digest."""
    if isinstance(initial, (Path, str)):
        return str(initial)
    if isinstance(initial, Run):
        return f"run:{initial.id}"
    state = state_of(initial) if isinstance(initial, nn.Module) else initial
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        digest.update(name.encode() + value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"weights:{digest.hexdigest()[:16]}"
