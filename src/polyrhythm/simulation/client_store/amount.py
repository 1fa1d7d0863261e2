"""An amount of memory in words. Imports no torch."""

from __future__ import annotations

import re

from polyrhythm.base.errors import UserError

ALL = "all"
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def budget(memory: object) -> int | None:
    """Bytes of a text such as "1 GiB"; None for "all".

    >>> budget("1.5 GiB")
    1610612736

    Raises:
        UserError: it is no such text.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]i?B|B)", memory) if isinstance(memory, str) else None
    if match is not None:
        return int(float(match[1]) * _UNITS[match[2]])
    if memory != ALL:
        raise UserError(
            f"client_memory = {memory!r}",
            expected='an amount of memory with its unit, such as "1 GiB" or "500 MB", or "all"',
            why="so much of what clients remember is kept in memory, and the rest in files",
            fix='client_memory="1 GiB"',
        )
    return None
