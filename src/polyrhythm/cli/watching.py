"""`polyrhythm ui`: the dashboard."""

from __future__ import annotations

import os
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.cli.output import Screen


def watch(folder: Path, *, named: bool, host: str, port: int, control: bool, open_browser: bool) -> None:
    """Serves the dashboard until Ctrl-C.

    Args:
        folder: the output folder of runs.
        named: whether the user has named it; the default one need not be there yet.
        host, port, control, open_browser: as `serve` takes them.

    Raises:
        UserError: the folder that was named is not there, what it needs is not installed, or nobody can listen there.
    """
    exists = os.path.exists(folder)  # also of a name that is too long
    if not os.path.isdir(folder) and (named or exists):
        raise UserError(
            f"{folder} is {'a file' if exists else 'not there'}",
            expected="the output folder of your runs, as it was given to --out",
            why="there would be nothing to watch",
            fix="give that folder; without one, the dashboard is that of runs, also before the first run",
        )
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
