"""Reading pickles that came from elsewhere: numbers, text, lists, dicts and arrays, and nothing that runs code."""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any, final

import numpy as np

from polyrhythm.data.sources.files import corrupt


@final
class _Latin1:
    """Stands for codecs.encode, as which Python 3 writes bytes in old pickles; other codecs could unpack a bomb.

    Not a function, since a pickle could set a function's attributes.
    """

    __slots__ = ()

    def __call__(self, text: str, encoding: str = "latin1") -> bytes:
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"codec {encoding!r} is not admitted")
        return text.encode("latin1")


@final
class _Dtype:
    """Stands for numpy.dtype, of numbers alone; a pickle could give NumPy's own one a state that it does not check."""

    __slots__ = ("dtype",)

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.dtype = np.dtype(name.decode() if isinstance(name, bytes) else name)
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"an array of {self.dtype} is not admitted")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


@final
class _Array:
    """Stands for numpy.ndarray: NumPy's own one takes the memory of a shape before it looks for what fills it."""

    __slots__ = ("array",)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, made, by_columns, raw = state
        if math.prod(shape) * made.dtype.itemsize != len(raw):
            raise pickle.UnpicklingError(f"{len(raw):,} bytes for an array of shape {shape}")
        flat = np.frombuffer(raw, dtype=made.dtype).copy()
        self.array = flat.reshape(shape, order="F" if by_columns else "C")


@final
class _Reconstruct:
    """Stands for how NumPy begins an array, wherever this version of NumPy keeps it."""

    __slots__ = ()

    def __call__(self, *_: object) -> _Array:
        return _Array()


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy", "ndarray"): None,  # which the one above is given, and nothing else is done with
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Latin1(),
}


@final
class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not admitted")
        return _ADMITTED[module, name]


def unpickled(raw: bytes, path: Path) -> Any:
    """Reads a pickle that may hold arrays, text, bytes, numbers, lists, tuples and dicts only.

    Python 2 text comes as bytes. Arrays are those among the values of the outermost dict.

    Raises:
        UserError: it is damaged, or asks for anything else (such a file could run any command).
    """
    try:
        _check_steps(raw)
        found = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
        if isinstance(found, dict):
            found = {key: value.array if isinstance(value, _Array) else value for key, value in found.items()}
        return found
    except Exception as error:  # a damaged pickle raises almost anything
        raise corrupt(
            path, f"cannot be read as a data pickle ({error})", "a pickle of arrays, lists and text"
        ) from None


_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "POP", "POP_MARK"}  # what lies under a popped thing may be one
_NEVER = {"DUP", "EMPTY_SET", "FROZENSET"}


def _check_steps(raw: bytes) -> None:
    """Refuses steps that a few bytes would make endless work of.

    A remembered thing with the number 2³¹ makes a list of as many places, and a tuple that holds one tuple twice, and
    so on thirty times, is asked a billion questions when it becomes a key.
    """
    remembered, tuples, before = 0, set[int](), ""
    for step, (operation, argument, _) in enumerate(pickletools.genops(raw)):
        name = operation.name
        if name in _PUTS:
            place = remembered if name == "MEMOIZE" else int(argument or 0)
            if place > step:
                raise pickle.UnpicklingError(f"it remembers thing {place:,} after {step:,} steps")
            if before in _TUPLES:
                tuples.add(place)
            else:
                tuples.discard(place)
            remembered += 1
        elif name in _NEVER or (name in _GETS and int(argument or 0) in tuples):
            raise pickle.UnpicklingError("it holds a tuple twice, or a set")
        elif name not in ("PROTO", "FRAME"):
            before = name
