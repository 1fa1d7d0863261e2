"""Files that are either there and whole, or not there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def write_whole(path: Path, content: bytes | Iterable[bytes | memoryview], *, durable: bool = True) -> None:
    """Writes a file, whole or piece by piece: a crash at any moment leaves the old one or the new one, never a part.

    Args:
        path: the file.
        content: of it.
        durable: whether it must survive a power cut, too, from now on; that takes some milliseconds.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def safetensors_bytes(state: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """A state dict as a safetensors file. Names that share memory are written one by one, so each loads by its name."""
    from safetensors.torch import save

    return save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}, dict(about))


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    # The new name is on disk only when the folder is. Windows cannot open folders and does not need it.
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
