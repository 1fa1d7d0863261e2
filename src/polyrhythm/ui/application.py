"""What the dashboard answers: pages, the values that they show, and the news as they come."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from polyrhythm.errors import PolyrhythmError, UserError
from polyrhythm.runs.costs import On
from polyrhythm.runs.plain import to_json
from polyrhythm.runs.stopping import ask_to_stop
from polyrhythm.ui import drawing
from polyrhythm.ui.door import Door
from polyrhythm.ui.listing import Listing
from polyrhythm.ui.looking import MOST, compared, details_of, opened, status_of

_STATIC = Path(__file__).parent / "static"
_PAGES = {"/": "runs", "/run": "run", "/compare": "compare"}
_LOOK = 0.5  # seconds between two looks at the database's files
_SIGN = 15.0  # seconds after which a connection without news shows that it lives
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@final
class Dashboard:
    """The answers.

    Args:
        folder: the output folder.
        control: whether runs may be stopped.
        closing: whether the server is about to end, so that no connection is held open any longer.
    """

    def __init__(self, folder: Path, *, control: bool, closing: Callable[[], bool]) -> None:
        self._listing, self._control, self._closing = Listing(folder), control, closing
        self._folder = folder
        self._reading = asyncio.Lock()
        self._known: tuple[Any, list[dict[str, Any]]] = (None, [])

    def routes(self) -> list[Route]:
        """Where each is found."""
        return [
            *(Route(path, functools.partial(_page, name)) for path, name in _PAGES.items()),
            Route("/static/vega.js", _answered(self._vega)),
            Route("/static/{name}", _static),
            Route("/api/runs", _answered(self._runs)),
            Route("/api/run", _answered(self._run)),
            Route("/api/compare", _answered(self._compare)),
            Route("/api/figures", _answered(self._figures)),
            Route("/api/figure", _answered(self._figure)),
            Route("/api/news", self._news),
            Route("/api/stop", _answered(self._stop), methods=["POST"]),
        ]
