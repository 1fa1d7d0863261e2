"""Reading pickles that came from elsewhere: numbers, text, lists, dicts and arrays, and nothing that runs code."""

from __future__ import annotations

import io
import pickle
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


# How NumPy rebuilds an array, wherever this version of NumPy keeps it.
_RECONSTRUCT: Any = np.empty(0).__reduce__()[0]
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
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

    Python 2 text comes as bytes.

    Raises:
        UserError: it is damaged, or asks for anything else (such a file could run any command).
    """
    try:
        return _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises almost anything
        raise corrupt(
            path, f"cannot be read as a data pickle ({error})", "a pickle of arrays, lists and text"
        ) from None
