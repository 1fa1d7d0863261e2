"""Turns what goes wrong in a command into words and an exit code: 2 for the user to mend, 1 for a run that failed."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from polyrhythm.errors import RunFailed, UserError

P = ParamSpec("P")

INTERRUPTED = 130


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """A command that never ends in a bare traceback for a mistake of its user's."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except UserError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None
        except RunFailed as error:
            typer.echo(f"failed: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has had enough. Nothing more can be said, not even at exit.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            raise typer.Exit(0) from None

    return wrapped
