"""The commands that keep order among runs: tags, notes, names, the archive, the baseline."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from polyrhythm.base.errors import UserError
from polyrhythm.results import Run
from polyrhythm.runs.deleting import delete, size_of
from polyrhythm.runs.labelling import label, labels_of, read_labels
from polyrhythm.runs.labels import Change


def tag_runs(references: Sequence[str], out: str, add: Sequence[str], remove: Sequence[str]) -> None:
    """Adds tags to runs and removes some; without any, says which they have.

    Raises:
        UserError: no such run, a tag that is none, or a record that may only be read.
    """
    runs = _named(references, out)
    if add or remove:
        label(Path(out), [run.id for run in runs], Change(add=add, remove=remove))
    known = read_labels(Path(out))
    for run in runs:
        tags = known[run.id].tags if run.id in known else ()
        typer.echo(f"{_called(run)}: {', '.join(tags) or 'no tags'}")


def note_run(reference: str, text: str | None, out: str) -> None:
    """Keeps a note beside a run; without a text, prints the one that is there.

    Raises:
        UserError: no such run, or a record that may only be read.
    """
    run = Run.open(reference, out)
    if text is not None:
        run.note = text
        typer.echo(f"{_called(run)}: {'noted' if text else 'no note any more'}")
    else:
        typer.echo(labels_of(run.folder, run.id).note or f"{_called(run)}: no note")


def rename_run(reference: str, name: str, out: str) -> None:
    """Gives a run another name.

    Raises:
        UserError: no such run, a name that is none, or a record that may only be read.
    """
    run = Run.open(reference, out)
    before = run.name
    run.rename(name)
    typer.echo(f"{run.id} is called {run.name!r}" + (f", and was {before!r}" if before else ""))


def archive_runs(references: Sequence[str], out: str, *, undo: bool) -> None:
    """Has lists leave runs out, or no longer; nothing is deleted.

    Raises:
        UserError: no such run, or a record that may only be read.
    """
    runs = _named(references, out)
    label(Path(out), [run.id for run in runs], Change(archived=not undo))
    for run in runs:
        typer.echo(f"{_called(run)} is {'back in the lists' if undo else 'in the archive'}")


def delete_runs(references: Sequence[str], out: str, *, sure: bool) -> None:
    """Removes runs for good, after asking.

    Raises:
        UserError: no such run, one goes on, nobody can be asked, or a record that may only be read.
    """
    runs = _named(references, out)
    names = ", ".join(_called(run) for run in runs[:5]) + (f" and {len(runs) - 5} more" if len(runs) > 5 else "")
    files = sum(size_of(run.folder / run.id) for run in runs)
    what = (
        f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, {files / 1e6:,.1f} MB of files beside the record: {names}"
    )
    if not sure:
        if not sys.stdin.isatty():
            raise UserError(
                f"nobody can be asked whether to delete {what}",
                expected="--yes, or a terminal",
                why="what is deleted cannot be had back",
                fix=f"polyrhythm delete {shlex.join(references)} --yes; `polyrhythm archive` only hides runs",
            )
        if not typer.confirm(f"Delete {what}?"):
            typer.echo("nothing was deleted")
            return
    delete(Path(out), [run.id for run in runs])
    typer.echo(f"deleted {what}")


def pin_run(reference: str, out: str, *, undo: bool) -> None:
    """Makes a run the baseline of its folder, or no longer.

    Raises:
        UserError: no such run, it is not the baseline, or a record that may only be read.
    """
    run = Run.open(reference, out)
    if undo and not run.is_pinned:
        raise UserError(
            f"{_called(run)} is not pinned",
            expected="the baseline of the folder",
            why="there is nothing to undo",
            fix="`polyrhythm runs --columns run,name,baseline` shows which run is",
        )
    run.pin(undo=undo)
    typer.echo(f"{_called(run)} is {'no longer ' if undo else ''}the baseline of {out}")


def _named(references: Sequence[str], out: str) -> list[Run]:
    """The runs that are named, each once."""
    return list({run.id: run for reference in references for run in Run.find(reference, out)}.values())


def _called(run: Run) -> str:
    return f"{run.id} {run.name}".strip()
