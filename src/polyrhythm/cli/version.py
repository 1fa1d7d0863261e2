"""`polyrhythm --version`: what is installed, as a report of a bug needs it."""

from __future__ import annotations

from polyrhythm import __version__
from polyrhythm.base.compiled import extension
from polyrhythm.base.origin import commit

NOT_BUILT = "not built, so that PyTorch computes, slower: install it anew where there is a C++ compiler"


def version() -> str:
    """Version, native engine with its instruction set, and commit, a line each."""
    native = extension()
    lines = {
        "polyrhythm": __version__,
        "native engine": NOT_BUILT if native is None else native.kernels()[0],
        "commit": commit() or "unknown",
    }
    return "\n".join(f"{name} {value}" for name, value in lines.items())
