"""What the dashboard answers: pages, the values that they show, and news as they come."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from polyrhythm.base.errors import PolyrhythmError, UserError
from polyrhythm.dashboard.access import Door
from polyrhythm.dashboard.asking import lens_of, whole
from polyrhythm.dashboard.drawing import Drawn, of_trials, offered_of_trials, script, set_of
from polyrhythm.dashboard.labelling import asked_for, only_looks
from polyrhythm.dashboard.listing import Listing
from polyrhythm.dashboard.live import live_of
from polyrhythm.dashboard.studies import StudyFiles, has_studies, studies
from polyrhythm.dashboard.views import MOST, Standings, compared, details, labelled, row_of
from polyrhythm.figures.page import FITTING
from polyrhythm.figures.trials import Trials
from polyrhythm.results import Run
from polyrhythm.runs.json_text import to_json
from polyrhythm.runs.labelling import label
from polyrhythm.runs.stop_request import ask_to_stop

_STATIC = Path(__file__).parent / "static"
_SERVED = frozenset((*(path.name for path in _STATIC.iterdir()), FITTING.name)) - {"page.html"}
_PAGES = {
    **{"/": ("runs", "Runs"), "/run": ("run", "Run"), "/compare": ("compare", "Comparison")},
    **{"/studies": ("studies", "Studies"), "/study": ("study", "Study")},
}
_LOOKS = '<link rel="stylesheet" href="/static/order.css">'
_AHEAD = '<link rel="modulepreload" href="/static/{}.js">'  # so that a page does not find out script by script
_DRAWING = ("figures", "exploring", "reading", "fitting", "vega")  # what pages with figures load
_LOOK = 1.0  # seconds between two looks
_SURELY = 3.0  # seconds after which is looked for killed runs, which write nothing
_SIGN = 15.0  # seconds after which a connection without news shows that it lives
_OURS = frozenset({"name", "against", "on", "theme", "width", "group_by", "baseline", "log"})
Answer = Callable[[Request], Awaitable[Any]]


def application(
    folder: Path,
    *,
    control: bool = False,
    names: tuple[str, ...] = (),
    token: str | None = None,
    cookie: str = "polyrhythm",
    closing: Callable[[], bool] = lambda: False,
) -> Starlette:
    """The dashboard of a folder.

    Args:
        folder: the output folder of runs; need not be there yet.
        control: whether runs may be stopped and labelled.
        names: hosts by which it may be called, beside `localhost` and addresses in numbers.
        token: what a visitor must bring; nobody is asked if None.
        cookie: the name under which a browser keeps it.
        closing: whether the server is about to end, so that no connection is held open any longer.
    """
    door = Middleware(Door, names=names, token=token, cookie=cookie)
    routes = _Dashboard(folder, control, closing).routes()
    return Starlette(routes=routes, middleware=[door, Middleware(GZipMiddleware, minimum_size=2000, compresslevel=5)])


@final
class _Dashboard:
    """The answers."""

    def __init__(self, folder: Path, control: bool, closing: Callable[[], bool]) -> None:
        self._folder, self._control, self._closing = folder, control, closing
        self._listing, self._standings, self._drawn = Listing(folder), Standings(folder), Drawn()
        self._reading, self._drawing = asyncio.Lock(), asyncio.Lock()  # one at a time: training needs the cores
        self._serial, self._runs, self._problem = 0, dict[str, dict[str, Any]](), ""
        self._stamp: Any = None
        self._looked = -1e9

    def routes(self) -> list[Route]:
        """Where each is found."""
        return [
            *(Route(path, _page) for path in _PAGES),
            Route("/static/{name}", _static),
            Route("/api/runs", _answered(self._all)),
            Route("/api/run", _answered(self._one)),
            Route("/api/live", _answered(self._live)),
            Route("/api/compare", _answered(self._compare)),
            Route("/api/studies", _answered(self._studies)),
            Route("/api/study", _answered(self._study)),
            Route("/api/figures", _answered(self._figures)),
            Route("/api/figure", _answered(self._figure)),
            Route("/api/news", self._news),
            Route("/api/stop", _answered(self._stop), methods=["POST"]),
            Route("/api/label", _answered(self._label), methods=["POST"]),
        ]

    async def _all(self, request: Request) -> dict[str, Any]:
        await self._look()
        runs = list(self._runs.values())
        about = {"folder": str(self._folder), "control": self._control}
        about["studies"] = await run_in_threadpool(has_studies, self._folder)
        return {"serial": self._serial, "problem": self._problem, "runs": runs, **about}

    async def _one(self, request: Request) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            row = row_of(self._folder, request.query_params.get("run", ""))
            return {**details(self._folder, row), **self._standings.of(row), **labelled(self._folder, row)}

        return {**await run_in_threadpool(read), "folder": str(self._folder), "control": self._control}

    async def _live(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        start = whole("from", query["from"], 0, 10**9) if "from" in query else None

        def read() -> dict[str, Any]:
            row = row_of(self._folder, query.get("run", ""))
            return live_of(self._folder, row["run_id"], going_on=row["status"] == "running", start=start)

        return await run_in_threadpool(read)

    async def _compare(self, request: Request) -> dict[str, Any]:
        asked = request.query_params
        on, rows = set_of(asked.get("on", "test")), {key: asked.get(key) for key in ("group_by", "baseline")}
        return await run_in_threadpool(lambda: compared(self._chosen(request), on, **rows))

    async def _studies(self, request: Request) -> dict[str, Any]:
        return {"studies": await run_in_threadpool(studies, self._folder), "folder": str(self._folder)}

    async def _study(self, request: Request) -> dict[str, Any]:
        place = request.query_params.get("study", "")
        found = await run_in_threadpool(lambda: StudyFiles(self._folder, place).details())
        return {**found, "folder": str(self._folder)}

    async def _figures(self, request: Request) -> list[dict[str, Any]] | Response:
        query = request.query_params

        def find() -> str:
            runs = self._chosen(request)
            return self._drawn.offered(runs, self._stamped(runs), query.get("group_by"))

        async with self._drawing:
            if "study" in query:
                return await run_in_threadpool(lambda: offered_of_trials(self._trials(query)))
            return Response(await run_in_threadpool(find), media_type="application/json")

    def _stamped(self, runs: Sequence[Run]) -> str:
        """What changes when one of some runs has gone on, or is called otherwise."""
        rows = [row_of(self._folder, run.id) for run in runs]
        return to_json([{**self._standings.of(row), **labelled(self._folder, row)} for row in rows])

    def _trials(self, query: Mapping[str, str]) -> Trials:
        return StudyFiles(self._folder, query.get("study", "")).trials(query.get("arm", ""))

    async def _figure(self, request: Request) -> Response:
        if "study" in request.query_params:
            query = request.query_params
            async with self._drawing:
                text = await run_in_threadpool(lambda: of_trials(self._trials(query), query))
                return Response(text, media_type="application/json")
        asked: dict[str, Any] = {key: value for key, value in request.query_params.items() if key in _OURS}
        if "width" in asked:
            asked["width"] = whole("width", asked["width"], 100, 4000)
        asked |= lens_of(request.query_params)

        def draw() -> str:
            runs = self._chosen(request)
            return self._drawn.figure(asked.pop("name", ""), runs, self._stamped(runs), asked)

        async with self._drawing:
            return Response(await run_in_threadpool(draw), media_type="application/json")

    async def _stop(self, request: Request) -> dict[str, Any]:
        if not self._control:
            raise only_looks("polyrhythm stop RUN")
        row = await run_in_threadpool(row_of, self._folder, request.query_params.get("run", ""))
        await run_in_threadpool(ask_to_stop, Run(self._folder, row))
        return {"asked": row["run_id"]}

    async def _label(self, request: Request) -> dict[str, Any]:
        if not self._control:
            raise only_looks("polyrhythm tag RUN --add TAG")
        ids, change = await asked_for(request)

        def write() -> None:
            known = {run["id"] for run in self._listing.runs()}
            for run_id in ids:
                if run_id not in known:
                    row_of(self._folder, run_id)  # says that there is none
            label(self._folder, ids, change)

        await run_in_threadpool(write)
        return {"labelled": ids}

    def _chosen(self, request: Request) -> list[Run]:
        ids = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 0 < len(ids) <= MOST:
            raise UserError(
                f"{len(ids)} runs",
                expected=f"1 to {MOST} runs",
                why="more lines than that cannot be told apart",
                fix="choose runs in the list",
            )
        return [Run(self._folder, row_of(self._folder, run_id)) for run_id in ids]

    async def _look(self) -> None:
        """Takes note of how all runs stand, if anything may have changed."""
        async with self._reading:
            stamp, now = self._listing.stamp(), time.monotonic()
            if stamp == self._stamp and not self._problem and now - self._looked < _SURELY:
                return
            try:
                found = {run["id"]: run for run in await run_in_threadpool(self._listing.runs)}
                problem = ""
            except UserError as error:  # what was known stays on the page
                found, problem = self._runs, f"{error.found}; {error.fix}"
            if (found, problem) != (self._runs, self._problem):
                self._serial += 1
            self._runs, self._problem, self._stamp, self._looked = found, problem, stamp, now

    def _news(self, request: Request) -> Response:
        run_id = request.query_params.get("run")
        given = request.query_params.get("serial", "")
        serial = int(given) if given.isdecimal() and len(given) < 10 else -1
        news = self._of_all(serial) if run_id is None else self._of_one(run_id)
        return StreamingResponse(self._lively(request, news), media_type="text/event-stream")

    async def _lively(self, request: Request, news: AsyncIterator[str]) -> AsyncIterator[str]:
        """News as they come; ends when nobody listens any more."""
        told = time.monotonic()
        yield "retry: 2000\n\n"
        async for text in news:
            now = time.monotonic()
            if text or now - told > _SIGN:
                told = now
                yield f"data: {text}\n\n" if text else ": still there\n\n"
            if self._closing() or await request.is_disconnected():
                return
            await asyncio.sleep(_LOOK)

    async def _of_all(self, serial: int) -> AsyncIterator[str]:
        """The runs that changed since the state that the listener knows; all of them if that is not the present one."""
        known = (self._runs, self._problem) if serial == self._serial else (dict[str, dict[str, Any]](), "")
        while True:
            await self._look()
            runs, problem = self._runs, self._problem
            changed = [run for run_id, run in runs.items() if known[0].get(run_id) != run]
            gone = [run_id for run_id in known[0] if run_id not in runs]
            same = not changed and not gone and problem == known[1]
            known = (runs, problem)
            yield "" if same else to_json({"runs": changed, "gone": gone, "problem": problem})

    async def _of_one(self, run_id: str) -> AsyncIterator[str]:
        """How a run stands, whenever that changes."""

        def look() -> Mapping[str, Any]:
            try:
                row = row_of(self._folder, run_id)
                return {**self._standings.of(row), **labelled(self._folder, row)}
            except UserError as error:
                return {"problem": f"{error.found}; {error.fix}"}

        stamp, looked, known = None, -1e9, ""
        while True:
            now, present = time.monotonic(), self._listing.stamp()
            if present != stamp or now - looked > _SURELY:
                stamp, looked = present, now
                text = to_json(await run_in_threadpool(look))
                yield "" if text == known else text
                known = text
            else:
                yield ""


def _page(request: Request) -> Response:
    module, title = _PAGES[request.url.path]
    page = (_STATIC / "page.html").read_text(encoding="utf-8")
    drawing = () if module in ("runs", "studies") else _DRAWING
    ahead = "".join(_AHEAD.format(name) for name in ("page", *drawing))
    return HTMLResponse(page.replace("{module}", module).replace("{title}", title).replace("{ahead}", _LOOKS + ahead))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name == "vega.js":
        text = await run_in_threadpool(script)
        return Response(text, media_type="text/javascript", headers={"Cache-Control": "private, max-age=86400"})
    if name not in _SERVED:
        return Response("not found", status_code=HTTPStatus.NOT_FOUND)
    return FileResponse(FITTING if name == FITTING.name else _STATIC / name, headers={"Cache-Control": "no-cache"})


def _answered(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """An answer as JSON, and what goes wrong in words: never a traceback."""

    async def respond(request: Request) -> Response:
        status = HTTPStatus.OK
        try:
            value = await answer(request)
        except UserError as error:
            parts = {"found": error.found, "expected": error.expected, "why": error.why, "fix": error.fix}
            value, status = {"error": parts}, HTTPStatus.BAD_REQUEST
        except PolyrhythmError as error:
            value, status = {"error": {"found": str(error)}}, HTTPStatus.INTERNAL_SERVER_ERROR
        except Exception:
            traceback.print_exc(file=sys.stderr)
            found = "something went wrong in the dashboard; its terminal says what"
            value, status = {"error": {"found": found}}, HTTPStatus.INTERNAL_SERVER_ERROR
        if isinstance(value, Response):
            return value
        return Response(to_json(value), status_code=status, media_type="application/json")

    return respond
