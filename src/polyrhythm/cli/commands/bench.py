"""The command that measures how long rounds take."""

from __future__ import annotations

from typing import Annotated

import typer

from polyrhythm.cli.commands.arguments import Json
from polyrhythm.cli.guard import guarded

app = typer.Typer(rich_markup_mode=None)


@app.command()
@guarded
def bench(
    work: Annotated[
        list[str] | None,
        typer.Option("--work", metavar="WORK", help="What to measure; may be repeated.  [default: all works]"),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help='"bare": the same work by hand in plain PyTorch, in turn with ours.')
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="What computes our local steps.")] = "auto",
    workers: Annotated[int, typer.Option("--workers", min=1, help="How many visits run at once, in both.")] = 2,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds that are measured.")] = 5,
    json: Json = False,
) -> None:
    """Measure how long rounds take, on made-up data, and compare with a plain PyTorch loop."""
    from polyrhythm.cli.benching import measure

    measure(work or [], against, repeats, workers, engine, as_json=json)
