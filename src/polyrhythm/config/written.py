"""Experiments back in the language that they were written in: as the lines of a file, and from the record of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.config.configuration import OF_THE_MACHINE, TAKES, Configuration
from polyrhythm.config.mistakes import explained
from polyrhythm.runs import RecordedRun

_NOT_CONFIGURED = {"resolved", "computed_by"}  # which follows from the rest


def as_toml(configuration: Configuration) -> Iterator[str]:
    """The lines of a file that says the same, with every default; what is not there has no value."""
    plain = configuration.model_dump(mode="json")
    if plain["seeds"] is not None:
        del plain["seed"]
    return toml_lines(plain)


def toml_lines(plain: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a file with these keys, and tables one deep."""
    tables = {key: value for key, value in plain.items() if isinstance(value, Mapping)}
    for key, value in plain.items():
        if value is not None and key not in tables:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for name, table in tables.items():
        if any(value is not None for value in table.values()):
            yield f"[{name}]"
            yield from (f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None)


def configuration_of(
    run: RecordedRun, *, rounds: int | None = None, trust: Trust = NOBODY, **changes: Any
) -> Configuration:
    """A run's experiment as it was written, with the engine and the driver that it had.

    Args:
        run: the run.
        rounds: how many; None for as many as it was started with.
        trust: the modules that the user has named; the record cannot.
        changes: to what decides no number: driver, workers, address and gpus; None to leave it.

    Raises:
        UserError: it was made in Python, or the record says what no experiment can.
    """
    written = {key: value for key, value in run.config.items() if key not in _NOT_CONFIGURED}
    if "resolved" not in run.config:
        raise UserError(
            f"{run.id} was started from Python",
            expected="a run that `polyrhythm run` has started",
            why="its record describes its experiment, but cannot make its model and data",
            fix="use pr.resume(experiment, run), pr.verify or pr.replay, with the experiment that it was started with",
        )
    if rounds is not None:
        written["rounds"] = rounds
    # The engine that computed, whatever had been asked for and would be chosen today.
    written["engine"] = str(run.config["computed_by"]).partition(" ")[0]
    carried = ("checkpoint",) if run.on_nodes else (*OF_THE_MACHINE, "checkpoint")
    written |= {key: run.machine[key] for key in carried if key in run.machine}
    given = {key: value for key, value in changes.items() if value is not None}
    if (driver := given.get("driver", written.get("driver"))) != written.get("driver"):
        written["workers"] = None
    if driver != "ray":
        written |= {"address": None, "gpus": None}
    written |= given
    try:
        made = Configuration.model_validate({**written, "out": str(run.folder), "name": run.name})
    except ValidationError as error:
        wrong = Mistakes()
        wrong.add(*explained(error, TAKES, lambda key: f"the record of {run.id}"))
        wrong.refuse()
        raise
    return made.trusting(trust)
