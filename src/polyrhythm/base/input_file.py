"""Whether what lies at a path is a file with an end, asked before it is opened: a pipe may keep a reader for ever."""

from __future__ import annotations

import codecs
import errno
import json
import stat
from pathlib import Path
from typing import Any

LONGEST = 2**26
"""Bytes of a small file, such as a description of a model, at most."""
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_file(path: Path | str, *, pipes: bool = False) -> None:
    """Goes on if a file may be read from its beginning to its end; a folder is left to whoever opens it.

    Args:
        path: of the file, links followed.
        pipes: whether it may be a pipe, such as `<(…)` of a shell.

    Raises:
        OSError: it is not there, or something else.
    """
    found = stat.S_IFMT(Path(path).stat().st_mode)
    if found in _KINDS and not (pipes and found == stat.S_IFIFO):
        raise OSError(errno.EINVAL, f"it is {_KINDS[found]}, and no file", str(path))


def text_of(path: Path, *, pipes: bool = False) -> str:
    """The text of a small file, in UTF-8, with a byte-order mark or without.

    Raises:
        OSError: it cannot be read, or is no file.
        ValueError: it is too large, or is no text.
    """
    check_file(path, pipes=pipes)
    with path.open("rb") as file:
        raw = file.read(LONGEST + 1)
    if len(raw) > LONGEST:
        raise ValueError(f"it has more than {LONGEST:,} bytes")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError("it is in UTF-16; save it in UTF-8")
    return raw.decode("utf-8-sig").replace("\r\n", "\n")


def json_of(path: Path) -> Any:
    """What a small JSON file says.

    Raises:
        OSError: it cannot be read, or is no file.
        ValueError: it is too large, or no JSON.
    """
    try:
        return json.loads(text_of(path))
    except RecursionError as error:
        raise ValueError("brackets in brackets without end") from error
