"""`polyrhythm stop`: a run that is going on ends as if by Ctrl-C."""

from __future__ import annotations

import time

from polyrhythm.cli.named_runs import how_to_go_on
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.results import Run
from polyrhythm.runs.stop_request import ask_to_stop

_PAUSE = 0.1  # seconds between two looks


def stop_run(reference: str, out: str, *, wait: bool, as_json: bool) -> None:
    """Asks a run to stop and waits until it has, if wanted.

    Raises:
        UserError: there is no such run, or it is not going on.
    """
    screen, run = Screen(stderr=as_json), Run.open(reference, out)
    ask_to_stop(run)
    screen.print(f"{run.id} was asked to stop, and does when the visit in progress is over", highlight=False)
    while wait and run.status == "running":
        time.sleep(_PAUSE)
    if as_json:
        print_json({"run_id": run.id, "status": run.status, "reason": run.reason, **run.summary})
    elif wait:
        screen.print(f"{run.status}: {run.reason}", markup=False, highlight=False)
        screen.print(f"to go on: {how_to_go_on(run, out)}", markup=False, highlight=False, soft_wrap=True)
