"""Experiments back in the language that they were written in: as the lines of a file, and from the record of a run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.config.configuration import fitting, made_of
from polyrhythm.config.keys import OF_EXECUTION, Configuration
from polyrhythm.config.layers import from_text
from polyrhythm.runs import RecordedRun


def as_toml(configuration: Configuration) -> Iterator[str]:
    """The lines of a file that says the same, with every default; what is not there has no value."""
    plain = configuration.written()
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
        changes: to how it is computed: settings of `Execution`, as text or as they are; None to leave them.

    Raises:
        UserError: it was made in Python, or the record says what no experiment can.
    """
    written = {key: value for key, value in run.config.items() if key != "resolved"}
    if "resolved" not in run.config:
        raise UserError(
            f"{run.id} was started from Python",
            expected="a run that `polyrhythm run` has started",
            why="its record describes its experiment, but cannot make its model and data",
            fix="use pr.resume(experiment, run), pr.verify or pr.replay, with the experiment that it was started with",
        )
    if rounds is not None:
        written["rounds"] = rounds
    carried = ("device", "stack", "checkpoint") if run.on_nodes else OF_EXECUTION
    written |= {key: run.machine[key] for key in carried if key in run.machine}
    # The engine that computed, whatever had been asked for and would be chosen today.
    written["engine"] = str(run.machine.get("computed_by", "auto")).partition(" ")[0]
    given = {key: from_text(key, value) if isinstance(value, str) else value for key, value in changes.items() if value}
    driver, engine = (given.get(key, written.get(key)) for key in ("driver", "engine"))
    if driver != written.get("driver"):
        written["workers"] = None
    if driver != "ray":
        written |= {"address": None, "gpus": None}
    if engine not in ("auto", "stacked"):
        written |= {"stack": None, "device": "auto"}
    wrong = Mistakes()

    def where(key: str) -> str:
        return "the command line" if key in given else f"the record of {run.id}"

    values = fitting({**written, **given, "out": str(run.folder), "name": run.first_name}, where, wrong)
    wrong.refuse()
    made = made_of(values, where, wrong)
    wrong.refuse()
    assert made is not None
    return dataclasses.replace(made, trust=trust)
