"""Who may come in: requests are turned away here, before anything answers them, and every answer gets its headers.

Without a token anybody who reaches the port may look, which is meant for loopback. The pages of other sites in the
same browser may not: a name that leads here by their tricks (DNS rebinding) is refused by the `Host` header, and what
changes something by the `Origin` header.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Vega compiles the expressions of a chart by `Function`, which this forbids; pages have it interpret them instead.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<link rel="icon" href="data:,">{more}<title>Polyrhythm</title><p>{text}</p></html>'
)
_LET_IN = _PAGE.format(more='<meta http-equiv="refresh" content="0; url=/">', text='<a href="/">The dashboard</a>')
_KEPT_OUT = _PAGE.format(
    more="", text="This dashboard asks for its token: open the address that <code>polyrhythm ui</code> has printed."
)


@final
class Door:
    """Stands around the application.

    Args:
        app: what is behind it.
        names: hosts by which it may be called, beside `localhost` and addresses in numbers.
        token: what a visitor must bring; nobody is asked if None.
        cookie: the name under which a browser keeps it.
    """

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = (), token: str | None = None, cookie: str = "") -> None:
        self._app, self._token, self._cookie = app, token, cookie
        self._names = {"localhost", *(name.lower().rstrip(".") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Turns a request away, or lets it in."""
        if scope["type"] != "http":
            return
        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, _with_headers(send))

    def _answer(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not self._known(host):
            return _refusal(HTTPStatus.MISDIRECTED_REQUEST, f"this dashboard is not called {host!r}")
        if request.method not in ("GET", "HEAD") and not _from_here(request, host):
            return _refusal(HTTPStatus.FORBIDDEN, "this came from another site")
        if self._token is None:
            return None
        if request.url.path == "/" and (given := request.query_params.get("token")) is not None:
            return self._let_in() if self._is_token(given) else _keep_out(request)
        return None if self._is_token(request.cookies.get(self._cookie, "")) else _keep_out(request)

    def _known(self, host: str) -> bool:
        name = _name(host)
        return name in self._names or _is_address(name)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), (self._token or "").encode())

    def _let_in(self) -> Response:
        # A page and no redirect: whoever comes from a link of another page would be sent on without a strict cookie.
        response = HTMLResponse(_LET_IN)
        response.set_cookie(self._cookie, self._token or "", httponly=True, samesite="strict", path="/")
        return response


def own_names(host: str) -> list[str]:
    """What this machine may be called by those who come to it at a host that it listens on."""
    return [host, socket.gethostname()]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    """Whether it is an address in numbers, which nobody can make to lead elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _from_here(request: Request, host: str) -> bool:
    """Whether a page of this dashboard has sent it."""
    origin = request.headers.get("origin", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    return origin in (f"http://{host}", f"https://{host}") and site == "same-origin"


def _keep_out(request: Request) -> Response:
    if request.url.path.startswith("/api/"):
        return _refusal(HTTPStatus.UNAUTHORIZED, "this dashboard asks for its token")
    return HTMLResponse(_KEPT_OUT, status_code=HTTPStatus.UNAUTHORIZED)


def _refusal(status: HTTPStatus, found: str) -> Response:
    return JSONResponse({"error": {"found": found}}, status_code=status)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
