"""An experiment as it is written: defaults, under a TOML file, under the command line, under `--set`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from polyrhythm.base.consent import NOBODY, Trust, check_cluster
from polyrhythm.base.errors import Mistakes, UserError, placed
from polyrhythm.base.settings import validated
from polyrhythm.config.data_paths import refuse_path
from polyrhythm.config.expressions import Call, Pipe
from polyrhythm.config.keys import KEYS, OF_EXECUTION, TAKES, Configuration, Key, named
from polyrhythm.config.layers import ConfigSource, layered
from polyrhythm.config.mistakes import misfit, unknown_key
from polyrhythm.config.model_calls import folded
from polyrhythm.config.paths import check_inside
from polyrhythm.experiments.execution import Execution
from polyrhythm.trackers.base import Tracking

OF_STUDIES = ("sweep", "tuning", "rows", "columns", "claims", "scales", "reproduces", "paper", "let", "expert_training")
Where = Callable[[str], str]
"""Where a key was written, in words."""


def configure(
    file: Path | None, options: Mapping[str, Any], settings: list[str], trust: Trust = NOBODY
) -> Configuration:
    """Puts an experiment together.

    Args:
        file: a TOML file, or None.
        options: from the command line, by key; None means not given.
        settings: `key=value` texts, with dots for keys inside keys; they win over everything else.
        trust: the modules that the user has named.

    Raises:
        UserError: no such file, not TOML, unknown keys, wrong types, names that nobody knows, settings that do not fit;
            all of them at once, each with its place.
    """
    wrong = Mistakes()
    said = layered(file, options, settings, wrong, TAKES)
    if tables := [key for key in OF_STUDIES if key in said.values]:
        wrong.add(_a_study(f"{said.where(tables[0])}: [{tables[0]}]"))
        for key in tables:
            del said.values[key]
    return configured(said, wrong, trust)


def configured(said: ConfigSource, wrong: Mistakes, trust: Trust) -> Configuration:
    """Puts together what was said.

    Args:
        said: it.
        wrong: what was noted as wrong before.
        trust: the modules that the user has named.

    Raises:
        UserError: unknown keys, wrong types and so on, and what was noted as wrong before.
    """
    from polyrhythm.config.parts import resolve

    before = len(wrong)
    values = fitting(said.values, said.where, wrong)
    made = made_of(values, said.where, wrong) if len(wrong) == before else None
    if made is not None:
        for key, folder in (("out", made.out), ("tracking.directory", made.tracking.directory)):
            if folder is not None and said.in_file(key):
                with wrong.noted(said.where(key)):
                    check_inside(key, folder)
        if "address" not in said.here:
            with wrong.noted():
                check_cluster(made.execution.address, trust, said.where("address"))
    found = resolve(named(values), wrong, said.what, trust)
    wrong.refuse()
    assert made is not None
    whole = dataclasses.replace(made, trust=trust).resolved()
    vars(whole)["resolved_parts"] = found  # they need not be made a second time
    return whole


def fitting(values: Mapping[str, Any], where: Where, wrong: Mistakes, inside: str = "") -> dict[str, Any]:
    """The values that fit their keys: those of a table as a mapping, texts that name things as what was read.

    Args:
        values: by key.
        where: where a key was written, in words.
        wrong: takes note of all others.
        inside: the table that the keys lie in, with its dot.
    """
    fit: dict[str, Any] = {}
    order = {path: place for place, path in enumerate(KEYS)}  # that of keys, whichever layer they come from
    for name, value in sorted(values.items(), key=lambda item: order.get(f"{inside}{item[0]}", len(order))):
        path = f"{inside}{name}"
        key = KEYS.get(path)
        with wrong.noted():
            if key is None:
                raise unknown_key(path, TAKES, where(path))
            if key.table is not None and isinstance(value, Mapping):
                fit[name] = fitting(value, where, wrong, f"{path}.")
            elif key.names is not None and _is_text(key, value):
                fit[name] = _read(key, value, where, wrong)
            else:
                fit[name] = _checked(key, value, where)
    return fit


def _is_text(key: Key, value: Any) -> bool:
    several = key.names is not None and key.names.pipes and isinstance(value, (list, tuple)) and len(value) > 0
    return isinstance(value, str) or (several and all(isinstance(text, str) for text in value))


def _read(key: Key, value: Any, where: Where, wrong: Mistakes) -> Pipe:
    """The calls of a text, or of several that are a pipe together; of several, each has its own place."""
    assert key.names is not None
    read = Pipe.of if key.names.pipes else Pipe.one
    if key.name == "data":
        with placed(f"{where(key.name)}: {key.name}"):
            refuse_path(str(value))
    if isinstance(value, str):
        with placed(f"{where(key.name)}: {key.name}"):
            if key.name == "model":
                return Pipe([folded(Pipe.of(value).calls)])
            return Pipe.one(value, "faults") if key.name == "faults" else read(value)
    calls = list[Call]()
    for number, text in enumerate(value):
        place = f"{where(f'{key.name}.{number}')}: {key.name}"
        # Without its first text, the second one would be taken for the beginning.
        with placed(place) if number == 0 else wrong.noted(place):
            calls += (dataclasses.replace(call, place=f".{number}") for call in read(text).calls)
    return Pipe(calls)


def _checked(key: Key, value: Any, where: Where) -> Any:
    """A value that fits."""
    value = _plain(value)
    if key.several and isinstance(value, str):
        value = (value,)
    try:
        validated(key.owner, key.name.rpartition(".")[2], value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([key.name, *(str(part) for part in first["loc"] if isinstance(part, int))])
        raise misfit(key.name, first["input"], TAKES[key.name], where(place)) from None
    return value


def made_of(values: Mapping[str, Any], where: Where, wrong: Mistakes) -> Configuration | None:
    """The configuration of values that fit; what they contradict each other in is noted."""
    own, before = dict[str, Any](), len(wrong)
    for name, value in values.items():
        table = KEYS[name].table
        with wrong.noted(where(name)):
            own[name] = table(**value) if table is not None and isinstance(value, Mapping) else value
    with wrong.noted():
        execution = Execution(**{name: own.pop(name) for name in OF_EXECUTION if name in own})
    if len(wrong) > before:
        return None
    tracking = dataclasses.replace(own.pop("tracking", Tracking()), track=own.pop("track", ()))
    return Configuration(execution=execution, tracking=tracking, **own)


def _plain(value: Any) -> Any:
    """A list as a tuple, and in it a word without quotes as a text."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value.name if isinstance(value, Call) and value == Call(value.name, (), {}) else value


def _a_study(found: str) -> UserError:
    return UserError(
        found,
        expected="an experiment",
        why="many runs with other settings are no single one",
        fix="polyrhythm study FILE, or polyrhythm check FILE",
    )
