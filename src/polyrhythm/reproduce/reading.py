"""Reads a reproduction: an experiment file with tables that say what is compared, and what the paper has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, final

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from polyrhythm.cli.configuration import TAKES
from polyrhythm.cli.layers import Said, layered, seeds_of
from polyrhythm.cli.mistakes import explained
from polyrhythm.cli.sweeping.written import Maker, leaves, space_of
from polyrhythm.errors import Mistakes, UserError, unknown
from polyrhythm.reproduce.definition import (
    BUDGETS,
    COSTS,
    MEASURES,
    PAPERS,
    SCALES,
    AtScale,
    Claim,
    Number,
    Reproduction,
    Spread,
    Tuning,
)
from polyrhythm.sweeps.space import Setting, size

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
_TABLES = ("reproduces", "rows", "columns", "paper", "claims", "tuning", "expert_training", "scales")
_CHECKED = ("reproduces", "claims", "expert_training")
_NOT_OURS = ("name", "out", "seed", "seeds", "driver", "workers")
Text = Annotated[str, MinLen(1)]


@final
class ReproducesSettings(BaseModel):
    """What the table [reproduces] may say."""

    model_config = _STRICT
    paper: Text
    items: Annotated[tuple[Text, ...], MinLen(1)]
    title: Text
    source: str = ""
    says: str = ""
    measure: Literal["final", "best", "last10", "last20"] = "final"
    spread: Spread = "none"
    columns: str = ""
    figures: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()
    program: str = ""
    unknown: str = ""

    @field_validator("items", "figures", "notes", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


@final
class ClaimSettings(BaseModel):
    """What a table [[claims]] may say."""

    model_config = _STRICT
    says: Text
    of: str = ""
    against: str = ""
    pairs: tuple[tuple[Text, Text], ...] = ()
    measure: str = ""
    more_than: float | int = 0.0
    ratio_below: float | int | None = None
    ratio_above: float | int | None = None
    between: tuple[float | int, float | int] | None = None
    rising: str = ""
    falling: str = ""
    columns: tuple[Text, ...] = ()
    at: str = ""
    goal_of: str = ""

    @field_validator("columns", "between", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("pairs", mode="before")
    @classmethod
    def _several_pairs(cls, value: Any) -> Any:
        return tuple(map(tuple, value)) if isinstance(value, list) and all(map(_is_list, value)) else value

    def each(self) -> Iterator[ClaimSettings]:
        """The claim for each of its pairs of rows, which stand in its words as {of} and {against}."""
        if not self.pairs:
            yield self
        for of, against in self.pairs:
            says = self.says.replace("{of}", of).replace("{against}", against)
            goal = self.goal_of.replace("{against}", against)
            yield self.model_copy(update={"says": says, "of": of, "against": against, "goal_of": goal, "pairs": ()})


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


@final
class ExpertSettings(BaseModel):
    """What the table [expert_training] may say: settings of `train_expert`."""

    model_config = _STRICT
    epochs: Annotated[int, Ge(1)] = 10
    batch: Annotated[int, Ge(1)] = 64
    lr: Annotated[float, Gt(0)] = 0.1
    smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    last_layer_rate: Annotated[float, Gt(0)] = 1.0
    seed: Annotated[int, Ge(0)] = 0


@final
class _Claims(BaseModel):
    model_config = _STRICT
    reproduces: ReproducesSettings
    claims: tuple[ClaimSettings, ...] = ()
    expert_training: ExpertSettings | None = None

    @field_validator("claims", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


_OF_US = {
    "reproduces": "a table that says what is reproduced",
    "reproduces.paper": "one of " + ", ".join(PAPERS),
    "reproduces.items": 'tables and figures, such as ["Table 2"]',
    "reproduces.title": "a few words",
    "reproduces.source": "where in the paper",
    "reproduces.says": "what the paper says",
    "reproduces.measure": "one of " + ", ".join(MEASURES),
    "reproduces.spread": 'what the paper\'s ± is: "seeds", "rounds of one run", "not said" or "none"',
    "reproduces.columns": "what columns differ in, in words",
    "reproduces.figures": 'names of figures, such as ["accuracy", "cohort"]',
    "reproduces.notes": "a list of sentences",
    "reproduces.program": "the name of a program",
    "reproduces.unknown": "why there is nothing to do",
    "claims": "tables [[claims]]",
    "expert_training": "a table of settings of `polyrhythm expert`",
    **{f"claims.{key}": "see the documentation of reproductions" for key in ClaimSettings.model_fields},
    **{f"expert_training.{key}": "as for `polyrhythm expert`" for key in ExpertSettings.model_fields},
}
_EXPERT = dict.fromkeys(ExpertSettings.model_fields, "as for `polyrhythm expert`")


def read(file: Path, name: str = "") -> Reproduction:
    """What a file says.

    Args:
        file: in TOML.
        name: what it is called; "" for the file's own.

    Raises:
        UserError: no such file, or whatever is wrong in it; all of it at once.
    """
    wrong = Mistakes()
    said = layered(file, {}, [], wrong, [*TAKES, *_TABLES])
    ours = {key: said.values.pop(key) for key in _TABLES if key in said.values}
    told = _told(ours, said, file, wrong)
    what = told.reproduces
    if what.paper not in PAPERS:
        wrong.add(unknown("paper", what.paper, PAPERS, where=said.where("reproduces.paper")))
    rows = _settings(ours.get("rows", {}), "rows", said, wrong)
    columns = _settings(ours.get("columns", {}), "columns", said, wrong) or {"": {}}
    if not rows and not what.program and not what.unknown:
        wrong.add(_no_rows(file))
    scales = {key: _scale(key, table, rows, columns, said, wrong) for key, table in ours.get("scales", {}).items()}
    values = {key: value for key, value in said.values.items() if key not in _NOT_OURS}
    seeds = said.values.get("seeds") or (said.values.get("seed", 0),)
    found = Reproduction(
        name=name or file.stem,
        file=file,
        columns_are=what.columns,
        maker=Maker(values=values, lines=said.lines, file=file),
        seeds=tuple(seeds),
        rows=rows,
        columns=columns,
        numbers=_numbers(ours.get("paper", {}), rows, columns, said, wrong),
        claims=tuple(_claims(told.claims, rows, columns, said, wrong)),
        tuning=_tuning(ours.get("tuning"), rows, said, wrong),
        expert_training=told.expert_training.model_dump() if told.expert_training else None,
        scales=scales,
        **what.model_dump(exclude={"columns"}),
    )
    wrong.refuse()
    return found


def _told(ours: Mapping[str, Any], said: Said, file: Path, wrong: Mistakes) -> _Claims:
    if not isinstance(ours.get("reproduces"), dict):
        raise UserError(
            f"{file} has no table [reproduces]",
            expected="a table that says which tables and figures of which paper are reproduced",
            why="without it the file is an ordinary experiment",
            fix="add it, or use `polyrhythm run` or `polyrhythm sweep`",
        )
    try:
        return _Claims.model_validate({key: ours[key] for key in _CHECKED if key in ours})
    except ValidationError as error:
        wrong.add(*explained(error, _OF_US, said.where))
        wrong.refuse()
        raise


def _no_rows(file: Path) -> UserError:
    return UserError(
        f"{file} has no table [rows.NAME]",
        expected="one for each method that is compared",
        why="there would be nothing to run",
        fix='write [rows.FedAvg] and under it method = "fedavg"',
    )


def _settings(table: Any, inside: str, said: Said, wrong: Mistakes) -> dict[str, Setting]:
    """Rows or columns: the keys of each."""
    if not isinstance(table, dict) or not all(isinstance(own, dict) for own in table.values()):
        wrong.add(_no_tables(inside, said))
        return {}
    return {name: _keys(own, f"{inside}.{name}", said, wrong) for name, own in table.items()}


def _no_tables(inside: str, said: Said) -> UserError:
    return UserError(
        f"{said.where(inside)}: {inside} that are no tables",
        expected=f"tables [{inside}.NAME]",
        why="each has keys of the experiment",
        fix=f"write [{inside}.NAME] and the keys below it",
    )


def _keys(table: Mapping[str, Any], inside: str, said: Said, wrong: Mistakes) -> Setting:
    """Keys of the experiment, with dots for what lies inside."""
    found = {}
    for key, value in leaves(table):
        if key.partition(".")[0] not in TAKES or key in _NOT_OURS:
            known = [name for name in TAKES if "." not in name and name not in _NOT_OURS]
            wrong.add(unknown("key", key.partition(".")[0], known, where=said.where(f"{inside}.{key}")))
        found[key] = value
    return found


def _scale(
    name: str, table: Any, rows: Mapping[str, Any], columns: Mapping[str, Any], said: Said, wrong: Mistakes
) -> AtScale:
    inside = f"scales.{name}"
    if name not in SCALES[:-1] or not isinstance(table, dict):
        wrong.add(unknown("scale", name, SCALES[:-1], where=said.where(inside)))
        return AtScale()
    own = {key: table[key] for key in ("rows", "columns", "seeds", "why", "tuning", "expert_training") if key in table}
    for kind, known in (("rows", rows), ("columns", columns)):
        for one in own.get(kind, []):
            if one not in known:
                wrong.add(unknown(kind.removesuffix("s"), one, known, where=said.where(f"{inside}.{kind}")))
    change = own.get("tuning", {})
    tuning: dict[str, Any] = {key: change[key] for key in ("column",) if key in change}
    if "seeds" in change:
        tuning["seeds"] = _seeds(change["seeds"], said.where(f"{inside}.tuning.seeds"), wrong)
    if "space" in change:
        tuning["space"] = space_of(change["space"], f"{inside}.tuning.space.", said, wrong)
    if "rows" in change:
        tuning["rows"] = {
            row: space_of(of.get("space", {}), f"{inside}.tuning.rows.{row}.space.", said, wrong)
            for row, of in change["rows"].items()
        }
    rest = {key: value for key, value in change.items() if key not in ("seeds", "column", "space", "rows")}
    tuning |= _keys(rest, f"{inside}.tuning", said, wrong)
    over = {key: value for key, value in table.items() if key not in own}
    return AtScale(
        over=_keys(over, inside, said, wrong),
        rows=tuple(own.get("rows", ())),
        columns=tuple(own.get("columns", ())),
        seeds=_seeds(own["seeds"], said.where(f"{inside}.seeds"), wrong) if "seeds" in own else (),
        tuning=tuning,
        expert_training=_expert(own.get("expert_training", {}), inside, said, wrong),
        why=str(own.get("why", "")),
    )


def _expert(change: Mapping[str, Any], inside: str, said: Said, wrong: Mistakes) -> dict[str, Any]:
    """What a scale changes in the training of the expert."""
    try:
        return ExpertSettings.model_validate(change).model_dump(include=set(change))
    except ValidationError as error:
        wrong.add(*explained(error, _EXPERT, lambda path: said.where(f"{inside}.expert_training.{path}")))
        return {}


def _seeds(value: Any, where: str, wrong: Mistakes) -> tuple[int, ...]:
    with wrong.noted(where):
        if isinstance(value, str):
            return seeds_of(value)
        if isinstance(value, int) and value >= 0:
            return (value,)
        if isinstance(value, list) and value and all(type(seed) is int and seed >= 0 for seed in value):
            return tuple(value)
        raise UserError(
            f"seeds = {value!r}",
            expected='whole numbers, such as "0-2" or [0, 1, 2]',
            why="one run is made for each",
            fix='seeds = "0-2"',
        )
    return ()


def _numbers(
    table: Mapping[str, Any], rows: Mapping[str, Any], columns: Mapping[str, Any], said: Said, wrong: Mistakes
) -> dict[tuple[str, str], Number]:
    found = {}
    for row, texts in table.items():
        where = said.where(f"paper.{row}")
        if row not in rows:
            wrong.add(unknown("row", row, rows, where=where))
        if not isinstance(texts, list) or len(texts) != len(columns):
            wrong.add(_not_as_many(row, columns, where))
            continue
        for column, text in zip(columns, texts, strict=True):
            try:
                number = Number.read(text)
            except (ValueError, AttributeError):
                wrong.add(_no_number(row, text, where))
                continue
            if number is not None:
                found[row, column] = number
    return found


def _not_as_many(row: str, columns: Mapping[str, Any], where: str) -> UserError:
    return UserError(
        f"{where}: other than {len(columns)} numbers for {row}",
        expected=f"a text for each column: {', '.join(columns) or 'one'}",
        why="they stand beside ours",
        fix='give one for each, "" where the paper has none',
    )


def _no_number(row: str, text: Any, where: str) -> UserError:
    return UserError(
        f"{where}: {row} has {text!r}",
        expected='a text such as "78.76 ± 2.62", in percent',
        why="it is compared with ours",
        fix='write it so, or "" for none',
    )


def _claims(
    told: tuple[ClaimSettings, ...], rows: Mapping[str, Any], columns: Mapping[str, Any], said: Said, wrong: Mistakes
) -> Iterator[Claim]:
    for claim in (one for several in told for one in several.each()):
        where = f"{said.where('claims')}: {claim.says!r}"
        of = claim.of or claim.rising or claim.falling
        for row in (of, claim.against, claim.goal_of):
            if row and row not in rows:
                wrong.add(unknown("row", row, rows, where=where))
        for column in claim.columns:
            if column not in columns:
                wrong.add(unknown("column", column, columns, where=where))
        measures = [*MEASURES, *COSTS, ""]
        for key, value, known in (("measure", claim.measure, measures), ("budget", claim.at, [*BUDGETS, ""])):
            if value not in known:
                wrong.add(unknown(key, value, [k for k in known if k], where=where))
        if not of or (claim.against or claim.between or claim.rising or claim.falling) in ("", None):
            wrong.add(_no_claim(where))
        plain = claim.model_dump(exclude={"of", "rising", "falling", "pairs"})
        yield Claim(of=of, rising=bool(claim.rising), falling=bool(claim.falling), **plain)


def _no_claim(where: str) -> UserError:
    return UserError(
        f"{where} compares nothing",
        expected='of = "ROW" with against = "ROW" or between = [low, high], or pairs, or rising or falling = "ROW"',
        why="a claim is looked at by comparing numbers",
        fix="say what is compared",
    )


def _tuning(table: Any, rows: Mapping[str, Any], said: Said, wrong: Mistakes) -> Tuning | None:
    if table is None:
        return None
    own = {key: table.get(key) for key in ("space", "rows", "seeds", "column")}
    over = {key: value for key, value in table.items() if key not in own}
    space = space_of(own["space"] or {}, "tuning.space.", said, wrong)
    spaces = {}
    for row, of in (own["rows"] or {}).items():
        if row not in rows:
            wrong.add(unknown("row", row, rows, where=said.where(f"tuning.rows.{row}")))
        spaces[row] = space_of(of.get("space", {}), f"tuning.rows.{row}.space.", said, wrong)
    many = {row: size({**space, **spaces.get(row, {})}) or 0 for row in rows}
    several = {row: n for row, n in many.items() if n > 1}
    if len({*several.values()}) > 1:
        wrong.add(_unequal(several, said.where("tuning")))
    seeds = _seeds(own["seeds"], said.where("tuning.seeds"), wrong) if own["seeds"] is not None else (100,)
    return Tuning(
        space=space,
        rows=spaces,
        seeds=seeds,
        column=own["column"] or "",
        over=_keys(over, "tuning", said, wrong),
    )


def _unequal(many: Mapping[str, int], where: str) -> UserError:
    return UserError(
        f"{where}: {', '.join(f'{n} settings of {row}' for row, n in many.items())}",
        expected="as many for each row",
        why="a method that was tuned harder looks better for that",
        fix="list as many values for each",
    )
