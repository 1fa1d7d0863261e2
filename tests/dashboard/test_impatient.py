"""A connection on which no request comes is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from polyrhythm.dashboard import impatient


async def _answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def _asked(sent: list[bytes]) -> bytes:
    config = uvicorn.Config(_answers, port=0, http=impatient.Impatient, lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname()[:2])
    answer = b""
    for part in sent:
        writer.write(part)
        if part.endswith(b"\r\n\r\n"):
            answer += await reader.readuntil(b"ok")
    answer += await asyncio.wait_for(reader.read(), 20)  # until the other end closes
    writer.close()
    server.should_exit = True
    await serving
    return answer


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        ([], 0),
        ([b"GET / HTTP/1.1\r\nHost:"], 0),
        ([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HT"], 1),
    ],
)
def test_headers_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch, sent: list[bytes], answers: int) -> None:
    monkeypatch.setattr(impatient, "HEADERS", 0.05)
    assert asyncio.run(_asked(sent)).count(b"200 OK") == answers
