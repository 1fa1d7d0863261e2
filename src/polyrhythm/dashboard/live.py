"""How a run goes at this moment: what it has written into its folder, as far as it can be believed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file, json_of
from polyrhythm.runs.live import LOG, NOW, SHOWN, samples_in
from polyrhythm.runs.view import names_a_folder

MOST = 64_000
"""Bytes of a log that are read at once: the last ones first, then what has come since."""


def live_of(folder: Path, run_id: str, *, going_on: bool, start: int | None) -> dict[str, Any]:
    """Who is at work now, the load so far, and a piece of the log.

    Args:
        folder: the output folder.
        run_id: of the run.
        going_on: whether it is; else nobody is at work, whatever a file says that was left.
        start: where the log was read to, in bytes; None for its end.

    Raises:
        UserError: the id would lead elsewhere.
    """
    if not names_a_folder(run_id):
        raise UserError(
            f"a run with the id {run_id!r}",
            expected="the name of a folder among the runs",
            why="its files would be looked for elsewhere",
            fix="use a record that you trust",
        )
    told = None
    with contextlib.suppress(OSError, ValueError):
        told = json_of(_own(folder, run_id, NOW))
    log, end = "", start or 0
    with contextlib.suppress(OSError, ValueError):
        log, end = _piece(_own(folder, run_id, LOG), start)
    return {"now": _now(told) if going_on else None, "load": list(samples_in(told)), "log": log, "next": end}


def _own(folder: Path, run_id: str, name: str) -> Path:
    """A file of a run's own folder.

    Raises:
        OSError: a link leads elsewhere, or it is no file.
    """
    path = folder / run_id / name
    if Path(os.path.realpath(path)) != Path(os.path.realpath(folder)) / run_id / name:
        raise OSError(f"{path} leads elsewhere")
    check_file(path)
    return path


def _piece(path: Path, start: int | None) -> tuple[str, int]:
    """Whole lines of a text from some byte on, or the last ones; and where they end."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = max(0, size - MOST) if start is None or start > size else start
        file.seek(at)
        raw = file.read(MOST)
    cut = raw.rfind(b"\n") + 1
    raw = raw[:cut] if cut or len(raw) < MOST else raw  # a line that is as long is no line of ours
    begin = raw.find(b"\n") + 1 if at and start is None else 0
    return raw[begin:].decode("utf-8", errors="replace"), at + len(raw)


def _now(told: Any) -> dict[str, Any] | None:
    """Who is at work; None where nobody knows."""
    if not isinstance(told, dict) or not isinstance(told.get("clients"), list):
        return None
    clients = [
        {"client": visit[0], "version": visit[2], "since": visit[3]}
        for visit in told["clients"][:SHOWN]
        if isinstance(visit, list) and len(visit) == 4 and all(isinstance(one, (int, float)) for one in visit)
    ]
    time, many, wall = (v if isinstance(v := told.get(k), (int, float)) else None for k in ("time", "many", "wall"))
    others = int(many) if many is not None and 0 <= many <= 1e9 else 0
    return {"clients": clients, "many": max(len(clients), others), "time": time, "wall": wall}
