"""Commands that keep order among recorded runs: labels stand beside the record, and never change it."""

from __future__ import annotations

from typing import Annotated

import typer

from polyrhythm.cli.commands.arguments import Out, Run
from polyrhythm.cli.guard import guarded

app = typer.Typer(rich_markup_mode=None)
Runs = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Ids, their beginnings, or names; all of a name count.")
]
Undo = Annotated[bool, typer.Option("--undo", help="Take it back.")]


@app.command("tag")
@guarded
def tag(
    references: Runs,
    add: Annotated[
        list[str] | None, typer.Option("--add", "-a", metavar="TAG", help="A tag to add. May be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="A tag to remove. May be repeated.")
    ] = None,
    out: Out = None,
) -> None:
    """Add tags to runs and remove some, to find them by: polyrhythm tag night --add paper. Without any, print them."""
    from polyrhythm.cli.labelling import tag_runs

    tag_runs(references, out or "runs", add or (), remove or ())


@app.command("note")
@guarded
def note(
    reference: Run,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help='What is to be known of it; "" for nothing.')
    ] = None,
    out: Out = None,
) -> None:
    """Keep a note beside a run; without TEXT, print the one that is there."""
    from polyrhythm.cli.labelling import note_run

    note_run(reference, text, out or "runs")


@app.command("rename")
@guarded
def rename(
    reference: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help='The new name; "" for the one that it began with.')],
    out: Out = None,
) -> None:
    """Give a run another name. Its record stays as it is."""
    from polyrhythm.cli.labelling import rename_run

    rename_run(reference, name, out or "runs")


@app.command("archive")
@guarded
def archive(references: Runs, undo: Undo = False, out: Out = None) -> None:
    """Leave runs out of lists, comparisons and reports of a whole folder. Nothing is deleted."""
    from polyrhythm.cli.labelling import archive_runs

    archive_runs(references, out or "runs", undo=undo)


@app.command("delete")
@guarded
def delete(
    references: Runs,
    sure: Annotated[bool, typer.Option("--yes", "-y", help="Without asking.")] = False,
    out: Out = None,
) -> None:
    """Remove runs for good, with their weights and checkpoints. Asks first; `polyrhythm archive` only hides them."""
    from polyrhythm.cli.labelling import delete_runs

    delete_runs(references, out or "runs", sure=sure)


@app.command("pin")
@guarded
def pin(reference: Run, undo: Undo = False, out: Out = None) -> None:
    """Make a run the baseline of its folder: comparisons and reports begin with its method."""
    from polyrhythm.cli.labelling import pin_run

    pin_run(reference, out or "runs", undo=undo)
