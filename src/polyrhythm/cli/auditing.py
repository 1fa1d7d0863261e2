"""`polyrhythm audit`: what an attack on a recipe's noise proves, beside what is claimed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import typer

from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.rows import print_rows
from polyrhythm.config.assembly import assemble
from polyrhythm.config.keys import Configuration
from polyrhythm.experiments.audit import Audit, audit


def audit_one(configure: Callable[[], Configuration], *, canaries: int, versions: int, as_json: bool) -> None:
    """Audits an experiment; with several seeds, the first. Nothing is written.

    Raises:
        UserError: something is wrong with it, or nobody is hidden.
        typer.Exit: with 1, if the claim was refuted.
    """
    configuration = configure()
    experiment = next(iter(assemble(configuration)))
    found = audit(experiment, canaries=canaries, versions=versions, execution=configuration.execution)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        screen = Screen()
        print_rows(screen, _rows(found))
        screen.print(_verdict(found), markup=False, highlight=False)
    if not found.holds:
        raise typer.Exit(1)


def _rows(found: Audit) -> dict[str, str]:
    noise = "any amount" if found.noise_at_most is None else f"{found.noise_at_most:.4g}"
    return {
        "claimed": f"epsilon {found.epsilon:.4g} at delta {found.delta:g}, for {found.versions:,} versions "
        f"({found.law})",
        "proved": f"epsilon {found.at_least:.4g} at least, by 95 % confidence",
        "noise": f"{found.noise:.4g} clips claimed; {noise} at most",
        "attack": f"{found.canaries:,} canaries: found {found.true_positives:.1%} of those that were there, and "
        f"{found.false_positives:.1%} of those that were not",
    }


def _verdict(found: Audit) -> str:
    if found.holds:
        return "The claim is not refuted. That proves no guarantee: an attack that knows more may yet do so."
    return "The claim is refuted: clients are hidden less than it says."
