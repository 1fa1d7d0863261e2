"""What the versions of a real federation have cost in privacy, on the disk before each of them leaves its server.

A server that is killed goes on from a checkpoint, and makes versions again that some nodes have seen: of other noise,
so that nobody can take one from the other, and so at a cost of their own. No checkpoint knows of them; this does.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import final

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.input_file import check_file

_FILE = "charges.jsonl"
_TORN = re.compile(rb"(\[(\d{1,9}, )*(\d{1,9})?[\],]?)?")


@final
class Charges:
    """Charges of a run: who was in each version, one line for each, in the order in which they were made.

    Args:
        folder: gives the run's.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder

    @property
    def _path(self) -> Path:
        return self._folder() / _FILE

    def add(self, clients: Collection[int]) -> None:
        """Writes down a version, and comes back when the disk has it."""
        with self._path.open("ab") as file:
            file.write(f"{json.dumps(sorted(clients))}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def all(self) -> list[list[int]]:
        """Who was in each version; a line that was never written to its end is taken away: its version has not left.

        Raises:
            RunFailed: they cannot be read.
        """
        try:
            check_file(self._path)
            with self._path.open("rb+") as file:
                whole = file.read()
                end = whole.rfind(b"\n") + 1
                if _TORN.fullmatch(whole, end) is None:
                    raise ValueError("it ends in what is no beginning of a line")
                if end < len(whole):
                    file.truncate(end)
            found = [json.loads(line) for line in whole[:end].splitlines()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError) as error:
            raise RunFailed(f"{self._path} cannot be read, so nobody knows what was spent: {error}") from error
        if not all(isinstance(some, list) and all(type(c) is int for c in some) for some in found):
            raise RunFailed(f"{self._path} is no list of clients, so nobody knows what was spent")
        return found
