"""HTTP that waits for a request's headers no longer than anybody needs to send them."""

from __future__ import annotations

import asyncio
from typing import final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0
"""Seconds from a connection, or from the first byte of another request on it, until its headers are there."""


@final
class Impatient(H11Protocol):
    """Closes connections on which no request comes, which otherwise would be held for ever."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no longer."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Waits no longer once the headers are there."""
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(HEADERS, self._give_up)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()
