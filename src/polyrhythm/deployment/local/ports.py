"""Whether ports are free, before anything is started that would listen there."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping

from polyrhythm.base.errors import UserError

_LAST = 65_535


def check_free(ports: Mapping[str, int]) -> None:
    """Refuses ports of this machine at which nobody else can listen.

    Args:
        ports: by the program that is to listen there.

    Raises:
        UserError: one is taken, may not be used, or does not exist.
    """
    for name, port in ports.items():
        if trouble := _trouble(port):
            first, last = min(ports.values()), max(ports.values())
            raise UserError(
                f"port {port} on 127.0.0.1, for the {name}, cannot be used: {trouble}",
                expected=f"free ports from {first} to {last}: the SuperLink's, and after it one for each node",
                why="every program of the federation listens at a port of its own",
                fix="give another first one with --port, or end what listens there; what an earlier `polyrhythm flower "
                "up --keep` has left is ended by `polyrhythm flower down`",
            )


def _trouble(port: int) -> str:
    if port > _LAST:
        return f"the last port is {_LAST}"
    with socket.socket() as tried:
        # As servers do, so that connections which are about to end do not count.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            return "address in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
    return ""
