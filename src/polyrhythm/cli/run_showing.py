"""`polyrhythm show`: one run of a folder."""

from __future__ import annotations

from polyrhythm.base.errors import UserError
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.rows import print_privacy
from polyrhythm.cli.run_words import draw_scores, line_of
from polyrhythm.results import Run
from polyrhythm.runs.costs import CostToGoal, On
from polyrhythm.runs.labelling import labels_of


def show_run(reference: str | None, out: str, *, to: float | None = None, on: On = "test", as_json: bool) -> None:
    """One run of a folder, the newest if none is named; with `to`, also what it took to get there on that set.

    Raises:
        UserError: there is no such run, or none at all.
    """
    run = _newest(out) if reference is None else Run.open(reference, out)
    took = None if to is None else run.costs_to(to, on=on)
    if as_json:
        goal = (
            {} if to is None else {"to": {"goal": to, "on": on, **(took or dict.fromkeys(CostToGoal.__annotations__))}}
        )
        print_json({**line_of(run), **labels_of(run.folder, run.id).plain(), **goal})
        return
    screen = Screen()
    screen.print(run)
    if to is not None:
        from polyrhythm.cli.comparing import goal_lines

        for label, text in goal_lines(to, took).items():
            screen.print(f"{label}: {text}", highlight=False)
    for notice in run.notices:
        screen.note(notice)
    if statement := run.summary.get("privacy"):
        print_privacy(screen, statement)
    draw_scores(screen, run)


def _newest(out: str) -> Run:
    if not (found := Run.all(out)):
        raise UserError(
            f"no run in {out}",
            expected="one at least",
            why="there is nothing to show",
            fix="polyrhythm run, or give the output folder of your runs (--out FOLDER)",
        )
    return found[-1]
