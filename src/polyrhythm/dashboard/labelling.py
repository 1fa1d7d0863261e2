"""What is said of runs in the dashboard: a request as a change of labels, however it was spoilt on its way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from polyrhythm.base.errors import UserError
from polyrhythm.runs.labels import LONGEST_NOTE, Change

MOST = 1000
"""Runs that are labelled at once, at most."""
_LARGEST = 8 * LONGEST_NOTE  # bytes of a request
_KINDS: Mapping[str, type] = {
    **{"runs": list, "add": list, "remove": list},
    **{"name": str, "note": str, "archived": bool, "pinned": bool},
}


def only_looks(instead: str) -> UserError:
    """The error for whoever would change something in a dashboard that only looks."""
    return UserError(
        "this dashboard only looks",
        expected="one that was started with --control",
        why="whoever may look should not be able to end a run, or to say something of it",
        fix=f"start it with --control, or use `{instead}`",
    )


async def asked_for(request: Request) -> tuple[list[str], Change]:
    """The runs that are meant, by id, and the change that is asked for.

    Raises:
        UserError: it is too large, no JSON, or something else than runs and labels.
    """
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _LARGEST:
            raise _no_change(f"more than {_LARGEST:,} bytes")
    try:
        told = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _no_change(f"no JSON ({error})") from None
    if not isinstance(told, dict):
        raise _no_change(f"{told!r:.60}")
    for key, value in told.items():
        if not isinstance(value, _KINDS.get(key, ())):
            raise _no_change(f"{key} = {value!r:.60}")
    ids: list[Any] = told.pop("runs", [])
    if not all(isinstance(one, str) for one in ids) or not 0 < len(ids) <= MOST:
        raise _no_change(f"{len(ids):,} runs")
    return ids, Change(**told)


def _no_change(found: str) -> UserError:
    return UserError(
        f"labels of runs are asked for, with {found}",
        expected=f"1 to {MOST:,} ids in runs, and some of {', '.join(key for key in _KINDS if key != 'runs')}",
        why="nothing else can be said of runs",
        fix="reload the page",
    )
