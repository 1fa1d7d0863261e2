"""The tables that answer: what was run, where, what should a reader know, and how is it made again?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.config.written import as_toml, configuration_of
from polyrhythm.results import Comparison, Run, tables
from polyrhythm.results.tables import NONE, Table
from polyrhythm.runs.grouping import by_method
from polyrhythm.runs.result_rule import read
from polyrhythm.runs.settings_apart import settings as settings_of
from polyrhythm.runs.settings_apart import shared

_PLACES = {"driver", "workers", "gpus", "checkpoint", "engine"}


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the runs of a method are made again.

    Args:
        method: its name.
        words: what to do.
        text: the file that is needed for it, or what is known of the experiment.
        language: of the text.
        commands: what to type, if the text is a file.
    """

    method: str
    words: str
    text: str
    language: str
    commands: tuple[str, ...] = ()


def common(found: Comparison) -> Table:
    """The settings that all methods share; of one method all that it has."""
    of, apart = [settings_of(run.config) for run in every(found)], found.settings
    keys = [key for key in dict.fromkeys(key for one in of for key in one) if key not in apart]
    lines = [(key, shared([one.get(key) for one in of]) or '""') for key in keys]
    return Table(
        name="common",
        caption="What all of them share." if len(found.methods) > 1 else "The configuration, with every default.",
        head=("setting", "value"),
        rows=tables.rows(lines),
        numbers=False,
        code=True,
    )


def notices(found: Comparison) -> tuple[str, ...]:
    """What a reader should know first: runs that did not end as planned, what runs announced, where they differ."""
    runs = every(found)
    told = list(found.notes)
    told += [f"{run.id} (seed {run.seed}): {run.reason}" for run in runs if run.status != "finished" and run.reason]
    told += _announced(found)
    for what, where in (("libraries", [run.libraries for run in runs]), ("machine", [_machine(run) for run in runs])):
        keys = dict.fromkeys(key for one in where for key in one)
        for key in keys:
            values = list(dict.fromkeys(str(one.get(key, NONE)) for one in where))
            if len(values) > 1:
                told.append(f"not all runs had the same {what}: {key} {', '.join(values)}")
    return tuple(told)


def _announced(found: Comparison) -> Iterable[str]:
    """The runs' own notices, each once, and by whom where not by all."""
    by: dict[str, dict[str, None]] = {}
    for name, members in found.methods.items():
        for run in members:
            for notice in run.notices:
                by.setdefault(notice, {})[name] = None
    everybody = len(found.methods)
    return [text if len(who) == everybody else f"{', '.join(who)}: {text}" for text, who in by.items()]


def every(found: Comparison) -> list[Run]:
    """The runs that count, method by method."""
    return [run for members in found.methods.values() for run in members]


def runs(found: Comparison) -> Table:
    """Every run, with the digests by which it is known again."""
    lines = []
    for name, members in found.methods.items():
        for run, rows in zip(members, found.versions[name], strict=True):
            lines.append(
                (
                    *(run.id, name, str(run.seed), run.view.standing, f"{rows[-1]['version'] if rows else 0:,}"),
                    tables.score(read(rows, found.headline, "final")),
                    *(text[:12] or NONE for text in (run.config_digest, str(run.summary.get("digest") or ""))),
                )
            )
    return Table(
        name="runs",
        caption="Every run. Final: on the test set. Digests, of the configuration and of the final model, by their "
        "first 12 digits.",
        head=("run", "method", "seed", "status", "rounds", "final", "configuration", "model"),
        rows=tables.rows(lines),
        numbers=False,
    )


def machines(found: Comparison) -> Table:
    """Where the runs ran: a column for each different place."""
    places: dict[str, tuple[dict[str, str], list[Run]]] = {}
    for run in every(found):
        what = {**run.libraries, **_machine(run)}
        places.setdefault(json.dumps(what, sort_keys=True), (what, []))[1].append(run)
    columns = [what for what, _ in places.values()]
    keys = dict.fromkeys(key for what in columns for key in what)
    head = "all runs" if len(columns) == 1 else ""
    return Table(
        name="machines",
        caption="Where they ran, and with what.",
        head=("", *(head or f"{len(members)} runs, from {members[0].id}" for _, members in places.values())),
        rows=tables.rows([(key, *(str(what.get(key, NONE)) for what in columns)) for key in keys]),
        numbers=False,
    )


def _machine(run: Run) -> dict[str, str]:
    return {key: str(value) for key, value in run.machine.items() if key not in _PLACES}


def recipes(found: Comparison) -> tuple[Recipe, ...]:
    """How each method is run again, also where rows are values of a setting."""
    of = found.methods if found.group_by is None else by_method(every(found))
    return tuple(_recipe(name, members, place) for place, (name, members) in enumerate(of.items(), 1))


def _recipe(name: str, members: Sequence[Run], place: int) -> Recipe:
    check = f"polyrhythm verify {members[0].id} --out FOLDER"
    try:
        written = configuration_of(members[0])
    except (UserError, ValueError, KeyError):  # from Python, or a record that this version cannot read as a file
        return Recipe(
            method=name,
            words="Not from an experiment file of this version, but from Python or by another one. This is what is "
            "known of it; pr.verify, given the experiment, runs it again and compares every version.",
            text=json.dumps(_described(members[0].config), indent=2, ensure_ascii=False),
            language="json",
        )
    seeds = tuple(run.seed for run in members)
    written = dataclasses.replace(written, seeds=seeds, out="runs")
    file = f"method-{place}.toml"
    return Recipe(
        method=name,
        words=f"Save the experiment file as {file}. "
        "The second command runs a recorded run again and compares every version, bit for bit.",
        text="\n".join(as_toml(written)),
        language="toml",
        commands=(f"polyrhythm run {file}", check),
    )


def _described(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "resolved"}
