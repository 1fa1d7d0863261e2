"""Turns what goes wrong in a command into words and an exit code: 2 for the user to mend, 1 for a run that failed."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ParamSpec

import typer

from polyrhythm.base.errors import RunFailed, UserError

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
        except BrokenPipeError:  # whoever read our output has had enough
            silence()
            raise typer.Exit(0) from None
        except OSError as error:
            # Files are explained where they are used; what is left is standard output on a full disk.
            if error.errno != errno.ENOSPC:
                raise
            silence()
            typer.echo(f"failed: the output cannot be written ({error.strerror})", err=True)
            raise typer.Exit(1) from None

    return wrapped


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does at that moment, since batch systems send it some time before they kill."""

    def stop(number: int, frame: FrameType | None) -> None:
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(as_ctrl_c) or as_ctrl_c is signal.default_int_handler:
            raise KeyboardInterrupt("SIGTERM")
        as_ctrl_c(number, frame)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def silence() -> None:
    """Sends standard output nowhere from now on, so that not even the exit fails to write what is left of it."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
