"""A value in a file of its own: safetensors, so that any tool can look into it, and a checksum over all of it.

The tensors have numbers for names; one more, `tree`, is the JSON that says where they belong. Tensors are written from
where they are and read to where torch wants them, so that neither takes memory beside the value itself.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from polyrhythm.base.input_file import check_file
from polyrhythm.base.vectors import content_of
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.files import write_whole

FORMAT = "polyrhythm 1"
_TREE = "tree"
_TYPES = {
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"},
    **{torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.bool: "BOOL"},
}
_NAMED = {name: dtype for dtype, name in _TYPES.items()}
_LARGEST_HEADER = 100_000_000  # what safetensors allows


class Damaged(Exception):
    """A file that is not what was written, or was never one of ours; says what is wrong with it."""


def store(path: Path, codec: Codec, value: object, about: Mapping[str, str], *, durable: bool = True) -> int:
    """Writes a value, whole or not at all; gives the bytes that it takes.

    Args:
        path: the file.
        codec: knows the classes in it.
        value: of such classes.
        about: what is to be said of it, in the file's metadata.
        durable: whether it must survive a power cut, too.
    """
    tree, tensors = codec.encode(value)
    text = torch.frombuffer(bytearray(json.dumps(tree, separators=(",", ":")).encode()), dtype=torch.uint8)
    named = {_TREE: text} | {str(i): t.detach().cpu().contiguous() for i, t in enumerate(tensors)}
    table, end = dict[str, Any](), 0
    for name, tensor in named.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        table[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    checksum = _checksum(table, about)
    for tensor in named.values():
        checksum.update(content_of(tensor))
    metadata = {**about, "format": FORMAT, "sha256": checksum.hexdigest()}
    header = json.dumps({"__metadata__": metadata, **table}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    write_whole(path, _pieces(header, named.values()), durable=durable)
    return 8 + len(header) + end


def load(path: Path, codec: Codec) -> tuple[Any, dict[str, str]]:
    """The value in a file, and what was said of it.

    Raises:
        Damaged: it is torn, changed or something else.
        UserError: it was written by another version.
    """
    try:
        check_file(path)
        with path.open("rb") as file:
            about, tensors = _read(file)
        tree = json.loads(bytes(content_of(tensors[_TREE])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RuntimeError) as error:
        raise Damaged(str(error) or type(error).__name__) from error
    return codec.decode(tree, lambda number: tensors[str(number)]), about


def _read(file: IO[bytes]) -> tuple[dict[str, str], dict[str, Tensor]]:
    (size,) = struct.unpack("<Q", file.read(8))
    if size > _LARGEST_HEADER:
        raise ValueError("it has no header")
    table = json.loads(file.read(size))
    about = table.pop("__metadata__")
    if about.pop("format") != FORMAT:
        raise ValueError("it has another format")
    wanted, tensors = about.pop("sha256"), {}
    checksum = _checksum(table, about)
    for name, entry in table.items():
        # Torch's own memory begins where kernels want it, which in the file it need not.
        tensor = torch.empty(entry["shape"], dtype=_NAMED[entry["dtype"]])
        place = content_of(tensor)
        if file.readinto(place) != len(place):  # type: ignore[attr-defined]
            raise ValueError("it ends too early")
        checksum.update(place)
        tensors[name] = tensor
    if file.read(1) or checksum.hexdigest() != wanted:
        raise ValueError("its checksum is another one")
    return about, tensors


def _checksum(table: Mapping[str, Any], about: Mapping[str, str]) -> Any:
    return hashlib.sha256(json.dumps([dict(about), table], sort_keys=True).encode())


def _pieces(header: bytes, tensors: Iterable[Tensor]) -> Iterator[bytes | memoryview]:
    yield struct.pack("<Q", len(header))
    yield header
    yield from map(content_of, tensors)
