"""`polyrhythm verify`: does a recorded run come out again?"""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from polyrhythm.cli.guard import stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.resuming import experiment_of
from polyrhythm.runs import Run
from polyrhythm.verifying import Verdict, verify


def verify_run(
    reference: str, out: str, *, from_checkpoint: bool, versions: int | None, as_json: bool, **changes: Any
) -> None:
    """Runs a recorded run again and compares; ends with exit code 1 if something differs.

    Raises:
        UserError: there is no such run, or it cannot be run again.
        RunFailed: it could not go on.
        typer.Exit: something differs.
    """
    run = Run.open(reference, out)
    with stopped_by_sigterm():
        verdict = verify(run, experiment_of(run, **changes), from_checkpoint=from_checkpoint, versions=versions)
    tell(verdict, as_json=as_json)


def tell(verdict: Verdict, *, as_json: bool) -> None:
    """Prints a verdict.

    Raises:
        typer.Exit: something differs.
    """
    screen = Screen(stderr=as_json)
    for note in verdict.notes:
        screen.note(note)
    if as_json:
        print_json({**dataclasses.asdict(verdict), "equal": verdict.equal})
    else:
        screen.print(str(verdict), highlight=False, markup=False, soft_wrap=True)
    if not verdict.equal:
        raise typer.Exit(1)
