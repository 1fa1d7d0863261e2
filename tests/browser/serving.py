"""A dashboard in a thread of this process: a process of its own would import everything once more for each."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyrhythm.dashboard import serving


@contextlib.contextmanager
def dashboard(folder: Path, *, control: bool = False) -> Iterator[str]:
    """The address of a dashboard of a folder. It listens until the block ends, which raises what went wrong."""
    servers, heard, made = list[Any](), queue.Queue[Any](), serving._Server

    def keeping(*given: Any) -> Any:
        servers.append(made(*given))
        return servers[-1]

    def listen() -> None:
        try:
            serving.serve(folder, host="127.0.0.1", port=0, control=control, told=heard.put)
        except BaseException as error:
            heard.put(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "_Server", keeping)
        thread = threading.Thread(target=listen)
        thread.start()
        address = heard.get(timeout=120)
    if isinstance(address, BaseException):
        raise address
    try:
        yield address
    finally:
        servers[0].should_exit = True
        thread.join(60)
        assert not thread.is_alive()
    assert heard.empty(), heard.get()
