"""Standard output and error that can write any text, whatever their encoding."""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata

_SPELT = {"±": "+/-", "×": "x", "–": "-", "−": "-", "…": "...", "→": "->", "µ": "u"} | {
    bar: str(eighths) for eighths, bar in enumerate("▁▂▃▄▅▆▇█", start=1)
}


def open_what_is_closed() -> None:
    """Gives a process whose standard streams were closed (`polyrhythm run >&-`) ones that lead nowhere.

    First of all, since the first file to be opened would otherwise get the number of a closed stream, and with it
    whatever is printed there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def write_in_any_encoding() -> None:
    """Makes both streams spell out what their encoding lacks: `±` as `+/-`, `é` as `e`."""
    codecs.register_error("polyrhythm.plain", plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="polyrhythm.plain")


def plainly(error: UnicodeError) -> tuple[str, int]:
    """An error handler as `codecs.register_error` takes it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_spelt, error.object[error.start : error.end])), error.end


def _spelt(character: str) -> str:
    without_accents = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return _SPELT.get(character) or without_accents or "?"
