"""`polyrhythm ui`: the dashboard."""

from __future__ import annotations

from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.cli.output import Screen


def watch(folder: Path, *, host: str, port: int, control: bool, open_browser: bool) -> None:
    """Serves the dashboard until Ctrl-C.

    Raises:
        UserError: what it needs is not installed, or nobody can listen there.
    """
    try:
        from polyrhythm.dashboard.serving import serve
    except ModuleNotFoundError as missing:
        raise UserError(
            f"the package {missing.name} is not installed",
            expected="starlette and uvicorn",
            why="the dashboard is served by them",
            fix="pip install 'polyrhythm[ui]'",
        ) from missing
    screen = Screen()

    def told(address: str) -> None:
        screen.print(f"the runs of {folder}, until Ctrl-C:", markup=False, highlight=False)
        screen.print(address, markup=False, highlight=False, soft_wrap=True)

    serve(folder, host=host, port=port, control=control, told=told, open_browser=open_browser)
