"""`polyrhythm bench`: seconds per round, beside those of a plain PyTorch loop."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from polyrhythm.base.errors import unknown
from polyrhythm.bench.bare import WORKS
from polyrhythm.bench.duel import duel
from polyrhythm.cli.output import print_json
from polyrhythm.experiments.execution import Execution


def measure(
    works: Sequence[str], against: str | None, repeats: int, workers: int, engine: str, *, as_json: bool
) -> None:
    """Measures works, all of them if none is named.

    Raises:
        UserError: no such work or engine, or nothing of that name to compare with.
        RunFailed: a program failed, or the two did not do the same work.
    """
    for work in works:
        if work not in WORKS:
            raise unknown("work", work, WORKS)
    if against not in (None, "bare"):
        raise unknown("rival", against, ["bare"])
    Execution.check_value("engine", engine)
    for work in works or WORKS:
        found = duel(work, against=against, repeats=repeats, workers=workers, engine=engine)
        if as_json:
            print_json(found)
            continue
        line = f"{work}: {found['ours']['median']:.4f} s a round ({found['engine']})"
        if against is not None:
            line += f", {found['bare']['median']:.4f} s by hand: {found['ratio']:.2f} times as fast"
            line += f", meant to be {found['asked']:g} at least" if found["asked"] else ""
        typer.echo(line)
