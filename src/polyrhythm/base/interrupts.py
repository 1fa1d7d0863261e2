"""Ctrl-C: the first time it is a wish, the second time an end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import final

_HEARD = b"\nstopping at the next step, with a checkpoint; Ctrl-C once more ends it at once\n"


@final
class Wish:
    """What somebody wants of a run that goes on.

    Attributes:
        to_end: why it should end at its next step; empty if nobody wants that.
    """

    def __init__(self) -> None:
        self.to_end = ""


@contextlib.contextmanager
def wishes() -> Iterator[Wish]:
    """Hears Ctrl-C, and what was made to act like it, as a wish; a second one ends the block like any other.

    Only in the main thread, and only where Ctrl-C does what it does by default.
    """
    wish = Wish()
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield wish
        return

    def heard(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        wish.to_end = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(2, _HEARD)  # a handler may come in the middle of other output

    signal.signal(signal.SIGINT, heard)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
