"""What of a model nobody changes, in memory that this process and its workers have together.

Rules of this file:

- What moves is the storage itself: every copy of the model that lies in it moves along, those of the user included,
  and no value changes.
- Workers see it as pages of their own once they write into them, so that none can spoil it for the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from polyrhythm.base.threads import hand_back_freed_memory

SMALLEST = 2**16
"""Bytes of a parameter from which on it is worth a descriptor."""
MOST = 200
"""Descriptors that go along with one message, at most; the kernel takes 253."""
_PLACE = "/dev/shm"


def shared_base(module: nn.Module) -> list[torch.UntypedStorage]:
    """The storages of a module's frozen parameters, the largest ones, moved into memory that processes can share.

    None where the system has no such memory, or not room enough: then workers read a copy.

    Args:
        module: of which nobody is in a pass now.
    """
    found = {storage.data_ptr(): storage for storage in _frozen(module)}
    largest = sorted(found.values(), key=lambda storage: -storage.nbytes())[:MOST]
    new = sum(storage.nbytes() for storage in largest if not storage.is_shared())
    if not largest or (new and new > _room() // 2):
        return []
    for storage in largest:
        storage.share_memory_()
        hand_back_freed_memory()  # where it was; else that would stay with this process for later
    return largest


def _frozen(module: nn.Module) -> Iterator[torch.UntypedStorage]:
    for parameter in module.parameters():
        storage = parameter.untyped_storage()
        plain = type(parameter) is nn.Parameter and parameter.layout is torch.strided and parameter.is_contiguous()
        whole = plain and storage.nbytes() == parameter.numel() * parameter.element_size() >= SMALLEST
        if whole and not parameter.requires_grad and parameter.device.type == "cpu":
            yield storage


def number_of(storage: torch.UntypedStorage) -> int:
    """The file descriptor of such a storage, which stays the storage's own."""
    number: int = storage._share_fd_cpu_()[0]
    return number


def _room() -> int:
    """Bytes that are left in the memory that processes can share."""
    strategy: str = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    if strategy != "file_descriptor" or not Path(_PLACE).is_dir():
        return 0
    there = os.statvfs(_PLACE)
    return there.f_bavail * there.f_frsize
