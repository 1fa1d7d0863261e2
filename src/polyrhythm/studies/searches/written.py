"""A sweep as it is written: an experiment file with a table [sweep], which says what is tried."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from annotated_types import Ge, MinLen
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.config.configuration import configured
from polyrhythm.config.json_schema import Schema, schema, without_null
from polyrhythm.config.keys import OF_NO_NUMBER, TAKES, Configuration
from polyrhythm.config.layers import Said, layered, seeds_of
from polyrhythm.config.mistakes import explained
from polyrhythm.config.overrides import put
from polyrhythm.data import Collection
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.studies.searches.checking import check
from polyrhythm.studies.searches.definition import BATCH, Side, Sweep
from polyrhythm.studies.searches.space import Range, Setting

if TYPE_CHECKING:
    from polyrhythm.trackers import Tracking

Positive = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
_OF_RANGE = {"low", "high", "log"}
# What no trial may differ in: who computes and where it is kept, which decides no number; and what it is judged by.
_NOT_TRIED = {*OF_NO_NUMBER, "seed", "seeds", "validation"}


@final
class SweepSettings(BaseModel):
    """What the table [sweep] may say."""

    model_config = _STRICT
    search: Literal["grid", "random", "list", "tpe"] = "grid"
    trials: Positive | None = None
    seed: Whole = 0
    fresh: tuple[Whole, ...] = ()
    by: Literal["final", "best", "last20"] = "final"
    prune: Positive | None = None
    batch: Positive = BATCH
    space: dict[str, Any] = Field(default_factory=dict)
    settings: tuple[dict[str, Any], ...] = ()
    methods: dict[Annotated[str, MinLen(1)], dict[str, Any]] = Field(default_factory=dict)

    @field_validator("fresh", "settings", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, str):
            return seeds_of(value)
        return tuple(value) if isinstance(value, list) else value


OF_SWEEP = {
    "search": "grid, random, list or tpe",
    "trials": "a whole number, 1 or more",
    "seed": "a whole number, 0 or more",
    "fresh": "whole numbers, such as 10-14 or [10, 11]",
    "by": "final, best or last20",
    "prune": "versions: a whole number, 1 or more",
    "batch": "a whole number, 1 or more",
    "space": "keys of an experiment, each with a list of values or a range such as {low = 0.01, high = 1.0}",
    "settings": "tables [[sweep.settings]], each with keys of an experiment",
    "methods": "tables [sweep.methods.NAME], each with keys of an experiment, and a space or settings",
}


def file_schema() -> Schema:
    """A JSON Schema of experiment files, with or without a sweep. What lies in its space is looked at by `check`."""
    found: Schema = without_null(SweepSettings.model_json_schema())
    for key, entry in found["properties"].items():
        entry.pop("title", None)
        entry["description"] = OF_SWEEP[key]
    found["properties"]["fresh"] |= {"type": ["array", "string"]}
    return schema(sweep={key: value for key, value in found.items() if key not in ("title", "$defs")})


@final
@dataclass(frozen=True, kw_only=True)
class Written:
    """What a file says.

    Args:
        sweep: it.
        out: where runs are kept.
        tracking: who else is told.
        templates: the experiment of each side without its settings, as it is written.
    """

    sweep: Sweep
    out: str
    tracking: Tracking
    templates: Mapping[str, Mapping[str, Any]]


@final
@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes the experiments of one side. The data are loaded once in each process.

    Args:
        values: what is written for all trials of that side, by key.
        lines: where.
        file: of the lines.
        trust: the modules that the user has named; it goes along to other processes.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    file: Path | None = None
    trust: Trust = NOBODY

    def configuration(self, setting: Setting, seed: int) -> Configuration:
        """The experiment of a setting, as if it had been written.

        Raises:
            UserError: something in it is wrong.
        """
        wrong = Mistakes()
        values = copy.deepcopy(dict(self.values)) | {"seed": seed}
        for key, value in setting.items():
            with wrong.noted():
                put(values, key, tuple(value) if isinstance(value, list) else value)
        for key in ("method", "seeds"):
            if isinstance(values.get(key), list):
                values[key] = tuple(values[key])
        return configured(Said(values, self.file, self.lines, set()), wrong, self.trust)

    def __call__(self, setting: Setting, seed: int) -> tuple[Experiment, Execution]:
        from polyrhythm.config.assembly import assemble

        configuration = self.configuration(setting, seed)
        things = configuration.things
        vars(configuration)["things"] = replace(things, load=functools.partial(_loaded, configuration.data))
        (experiment,) = assemble(configuration)
        return experiment, configuration.execution


@functools.lru_cache(maxsize=2)
def _loaded(data: str) -> Collection:
    from polyrhythm.config import names

    return names.source(data)()


def written(
    file: Path,
    options: Mapping[str, Any] | None = None,
    settings: list[str] | None = None,
    trust: Trust = NOBODY,
) -> Written:
    """Reads a sweep, and looks at every trial that is known beforehand.

    Args:
        file: in TOML.
        options: keys of the experiment that win over it; None means not given.
        settings: `key=value` texts, which win over both.
        trust: the modules that the user has named.

    Raises:
        UserError: whatever can be known to be wrong before the first run; all of it at once.
    """
    wrong = Mistakes()
    said = layered(file, options or {}, settings or [], wrong, TAKES)
    told = _settings(said, file, wrong)
    base = {key: value for key, value in said.values.items() if key not in ("seed", "seeds")}
    made = _sides(told, base, said, wrong, trust)
    wrong.refuse()
    seeds = said.values.get("seeds") or (said.values.get("seed", 0),)
    any_maker: Maker = next(iter(made.values())).make  # type: ignore[assignment]
    plain = {key: base[key] for key in OF_NO_NUMBER if key in base}
    of_all = configured(Said(plain | {"seeds": seeds}, file, any_maker.lines, said.here), wrong, trust)
    with wrong.noted(said.where("sweep")):
        sweep = Sweep(
            name=of_all.name or file.stem,
            sides=made,
            seeds=tuple(seeds),
            **told.model_dump(exclude={"space", "settings", "methods"}),
        )
    wrong.refuse()
    check(sweep, functools.partial(_locate, said))
    templates = {name: side.about or {} for name, side in made.items()}
    return Written(sweep=sweep, out=of_all.out, tracking=of_all.tracking, templates=templates)


def _settings(said: Said, file: Path, wrong: Mistakes) -> SweepSettings:
    table = said.values.pop("sweep", None)
    if not isinstance(table, dict):
        raise UserError(
            f"{file} has no table [sweep]",
            expected='a table that says what is tried, such as [sweep.space] with "method.lr" = [0.01, 0.1]',
            why="a sweep is made of many experiments",
            fix="add it; `polyrhythm run` takes a file without one",
        )
    try:
        return SweepSettings.model_validate(table)
    except ValidationError as error:
        wrong.add(*explained(error, OF_SWEEP, lambda path: said.where(f"sweep.{path}")))
        wrong.refuse()
        raise


def _sides(told: SweepSettings, base: Mapping[str, Any], said: Said, wrong: Mistakes, trust: Trust) -> dict[str, Side]:
    found = {}
    for name, table in (told.methods or {"": {}}).items():
        inside = f"sweep.methods.{name}." if name else "sweep."
        own = {key: value for key, value in table.items() if key not in ("space", "settings")}
        values = {**base, **own}
        lines = {**said.lines, **{key: said.lines[f"{inside}{key}"] for key in own if f"{inside}{key}" in said.lines}}
        space = space_of(told.space, "sweep.space.", said, wrong)
        listed = list(told.settings)
        if name:
            with wrong.noted(said.where(inside.removesuffix("."))):
                _check_tables(table)
                space |= space_of(table.get("space", {}), f"{inside}space.", said, wrong)
                listed += table.get("settings", [])
        about = {key: _plain(value) for key, value in values.items() if key not in OF_NO_NUMBER}
        maker = Maker(values=values, lines=lines, file=said.file, trust=trust)
        settings = tuple(dict(leaves(setting)) for setting in listed)
        for setting in settings:
            for key in setting:
                with wrong.noted(said.where(f"{inside}settings")):
                    _check_key(key)
        found[name] = Side(make=maker, space=space, settings=settings, about=about)
    return found


def _check_tables(table: Mapping[str, Any]) -> None:
    for key, kind in (("space", dict), ("settings", list)):
        if not isinstance(table.get(key, kind()), kind):
            raise UserError(
                f"{key} = {table[key]!r}",
                expected=OF_SWEEP[key],
                why="it says what is tried",
                fix="write it as in the documentation of sweeps",
            )


def space_of(table: Mapping[str, Any], inside: str, said: Said, wrong: Mistakes) -> dict[str, Range | tuple[Any, ...]]:
    """The space of a table: keys with dots, and keys inside keys."""
    found: dict[str, Range | tuple[Any, ...]] = {}
    for key, value in leaves(table):
        with wrong.noted(said.where(f"{inside}{key}")):
            _check_key(key)
            found[key] = _values(key, value)
    return found


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a table, by their keys with dots."""
    for key, value in table.items():
        if isinstance(value, dict) and not ({"low", "high"} & {*value}):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check_key(key: str) -> None:
    if key.partition(".")[0] in _NOT_TRIED:
        raise UserError(
            f"{key} in the space of a sweep",
            expected="settings of the experiment",
            why="all trials are judged by the same data and run with all seeds, and the others decide no number",
            fix=f"set {key.partition('.')[0]} outside of [sweep], for all trials",
        )
    if key.partition(".")[0] not in TAKES:
        from polyrhythm.base.errors import unknown

        raise unknown("key", key.partition(".")[0], [k for k in TAKES if "." not in k])


def _values(key: str, value: Any) -> Range | tuple[Any, ...]:
    if isinstance(value, dict) and {"low", "high"} <= {*value} <= _OF_RANGE:
        return Range(**value)
    if isinstance(value, list) and value and len({json.dumps(_plain(v)) for v in value}) == len(value):
        return tuple(value)
    raise UserError(
        f"{key} = {value!r}",
        expected="a list of different values, or a range such as {low = 0.01, high = 1.0, log = true}",
        why="it says which values are tried",
        fix=f"for a single value set {key} outside of [sweep]",
    )


def _plain(value: Any) -> Any:
    return list(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _locate(said: Said, side: str, key: str, value: Any) -> str:
    """Where a value was written."""
    inside = f"sweep.methods.{side}" if side else "sweep"
    if not key:
        return side
    own = f"{inside}.space.{key}"
    path = own if own in said.lines else f"sweep.space.{key}"
    return f"{said.where(path)}: {key} = {json.dumps(_plain(value), ensure_ascii=False)}"
