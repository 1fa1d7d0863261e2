"""Files that are either there and whole, or not there."""

from __future__ import annotations

import json
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
    return b"".join(safetensors_pieces(state, about))


def safetensors_pieces(state: Mapping[str, Tensor], about: Mapping[str, str]) -> list[bytes | memoryview]:
    """The same in pieces, which are the tensors' own memory as far as it can be: a large model is not copied.

    The library makes three copies of a state dict to write it, so the file's head is made here.
    """
    from polyrhythm.base.vectors import content_of

    tensors = {name: tensor.detach().cpu() for name, tensor in state.items()}
    kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    if not kinds.keys() or not _KINDS.keys() >= set(kinds.values()):
        from safetensors.torch import save

        return [save({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, dict(about))]
    # Widest numbers first, so that each tensor begins where such a number may.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    head: dict[str, object] = {"__metadata__": dict(about)} if about else {}
    end = 0
    for name in order:
        begin, end = end, end + tensors[name].numel() * tensors[name].element_size()
        shape = list(tensors[name].shape)
        head[name] = {"dtype": _KINDS[kinds[name]], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(content_of(tensors[name]) for name in order)]


_KINDS = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"},
    **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"},
}
"""What a safetensors file calls torch's types."""


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    # The new name is on disk only when the folder is. Windows cannot open folders and does not need it.
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
