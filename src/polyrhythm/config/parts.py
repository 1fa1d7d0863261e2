"""What the names of a configuration stand for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import Mistakes
from polyrhythm.config import data_names, names
from polyrhythm.config.expressions import Pipe
from polyrhythm.data import Collection, Partition
from polyrhythm.fleet import Fleet
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.catalogue import Builder
from polyrhythm.models.task import Task


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedParts:
    """All of them. Only the data are not loaded yet.

    Args:
        recipe: of `method`.
        fleet: of `fleet` and `faults`.
        partition: of the key of this name.
        model: the builder.
        task: None if it follows from the data.
        load: loads the data.
    """

    recipe: Recipe
    fleet: Fleet
    partition: Partition
    model: Builder
    task: Task | None
    load: Callable[[], Collection]


def resolve(values: Mapping[str, Any], wrong: Mistakes, place: Callable[[str], str], trust: Trust) -> ResolvedParts:
    """Makes them.

    Args:
        values: the names, by key, as text or as what was read of it. A task and faults may be None.
        wrong: takes note of what cannot be made; then the result is of no use.
        place: where a key was written, in words.
        trust: the modules that the user has named.
    """
    made: dict[str, Any] = dict.fromkeys(ResolvedParts.__dataclass_fields__)
    makers = {key: (field, functools.partial(make, trust=trust)) for key, (field, make) in _MAKERS.items()}
    for key, (field, make) in makers.items():
        if values[key] is not None:
            with wrong.noted(place(key)):
                made[field] = make(values[key])
    if values["faults"] is not None:
        with wrong.noted(place("faults")):
            made["fleet"] = names.with_faults(made["fleet"] or Fleet(), values["faults"])
    before, pieces = len(wrong), list[Any]()
    for number, call in enumerate(Pipe.of(values["method"]).calls):
        with wrong.noted(place(f"method{call.place}")):
            pieces.append(names.piece(call, values["method"], trust, begins=number == 0))
    if len(wrong) == before:
        with wrong.noted(place("method")):
            made["recipe"] = names.piped(pieces)
    return ResolvedParts(**made)


_MAKERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "data": ("load", data_names.source),
    "partition": ("partition", data_names.partition),
    "model": ("model", names.model),
    "task": ("task", names.task),
    "fleet": ("fleet", names.fleet),
}
