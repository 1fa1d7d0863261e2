"""Listens, says where, and ends on Ctrl-C."""

from __future__ import annotations

import contextlib
import secrets
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import uvicorn

from polyrhythm.base.errors import UserError
from polyrhythm.dashboard.access import is_loopback, own_names
from polyrhythm.dashboard.application import application
from polyrhythm.dashboard.drawing import warm_up
from polyrhythm.dashboard.impatient import Impatient


def serve(
    folder: Path, *, host: str, port: int, control: bool, told: Callable[[str], None], open_browser: bool = False
) -> None:
    """Serves the dashboard of a folder until Ctrl-C.

    Args:
        folder: the output folder of runs; need not be there yet.
        host: where to listen. Anywhere but on loopback a visitor needs the token, as wherever runs may be stopped.
        port: 0 for any that is free.
        control: whether runs may be stopped.
        told: is given the address, with the token, when somebody listens there.
        open_browser: whether to open it.

    Raises:
        UserError: nobody can listen there.
    """
    token = secrets.token_urlsafe(32) if control or not is_loopback(host) else None
    names = () if is_loopback(host) else tuple(own_names(host))
    # Cookies are shared by all ports of a host, and each dashboard has a token of its own.
    cookie = f"polyrhythm_{secrets.token_hex(4)}"

    def ready(at: int) -> None:
        called = f"[{host}]" if ":" in host else {"0.0.0.0": "127.0.0.1"}.get(host, host)
        address = f"http://{called}:{at}/" + ("" if token is None else f"?token={token}")
        told(address)
        if open_browser:
            webbrowser.open(address)

    app = application(
        folder, control=control, names=names, token=token, cookie=cookie, closing=lambda: server.should_exit
    )
    # No log of requests: the first of them has the token in its address.
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Impatient,
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    server = _Server(config, ready)
    threading.Thread(target=warm_up, daemon=True).start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
    except SystemExit as end:
        raise _not_listening(host, port, end.__context__) from None


@final
class _Server(uvicorn.Server):
    """Says when it listens, and at which port."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        """Starts to listen."""
        await super().startup(sockets)
        if self.started:
            self._ready(int(self.servers[0].sockets[0].getsockname()[1]))


def _not_listening(host: str, port: int, reason: BaseException | None) -> UserError:
    words = reason.strerror if isinstance(reason, OSError) else reason
    return UserError(
        f"nobody can listen at {host}:{port}: {words}",
        expected="an address of this machine, and a port that is free",
        why="the dashboard has to be reached there",
        fix="give another port (--port 0 takes any), or end what listens there",
    )
