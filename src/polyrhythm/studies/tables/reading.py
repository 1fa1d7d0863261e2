"""Reads a reproduction: an experiment file with tables that say what is compared, and what the paper has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.config.keys import TAKES
from polyrhythm.config.layers import Said, layered, seeds_of
from polyrhythm.config.mistakes import explained
from polyrhythm.studies.searches.space import Setting
from polyrhythm.studies.searches.written import Maker, leaves, space_of
from polyrhythm.studies.tables.definition import (
    BUDGETS,
    COSTS,
    MEASURES,
    PAPERS,
    SCALES,
    AtScale,
    Claim,
    Number,
    Reproduction,
    Tuning,
)
from polyrhythm.studies.tables.tables import (
    OF_EXPERT,
    OF_TABLES,
    ClaimSettings,
    ExpertSettings,
    ReproducesSettings,
    Tables,
)
from polyrhythm.studies.tables.texts import filled

_TABLES = ("reproduces", "rows", "columns", "paper", "claims", "tuning", "expert_training", "scales")
_CHECKED = ("reproduces", "claims", "expert_training")
_NOT_OURS = ("name", "out", "seed", "seeds", "driver", "workers", "address", "gpus")
_PROGRAMS = Path(__file__).parent / "programs"


def read(file: Path, name: str = "") -> Reproduction:
    """What a file says.

    Args:
        file: in TOML.
        name: what it is called; "" for the file's own.

    Raises:
        UserError: no such file, or whatever is wrong in it; all of it at once.
    """
    wrong = Mistakes()
    said = layered(file, {}, [], wrong, [*TAKES, *_TABLES], filled)
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
    tuning = None
    if "tuning" in ours:
        tuning = Tuning(**{"space": {}, **_tuning(ours["tuning"], "tuning", rows, columns, said, wrong)})
        _check_budgets(tuning, rows, said.where("tuning"), wrong)
        for key, scale in scales.items():
            where = said.where(f"scales.{key}.tuning")
            _check_budgets(tuning.at(scale), scale.rows or rows, where, wrong)
    _check_names(what, said, wrong)
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
        tuning=tuning,
        expert_training=told.expert_training.model_dump() if told.expert_training else None,
        scales=scales,
        **what.model_dump(exclude={"columns"}),
    )
    wrong.refuse()
    return found


def _told(ours: Mapping[str, Any], said: Said, file: Path, wrong: Mistakes) -> Tables:
    if not isinstance(ours.get("reproduces"), dict):
        raise UserError(
            f"{file} has no table [reproduces]",
            expected="a table that says which tables and figures of which paper are reproduced",
            why="without it the file is an ordinary experiment",
            fix="add it, or use `polyrhythm run` or `polyrhythm sweep`",
        )
    try:
        return Tables.model_validate({key: ours[key] for key in _CHECKED if key in ours})
    except ValidationError as error:
        wrong.add(*explained(error, OF_TABLES, said.where))
        wrong.refuse()
        raise


def _check_names(what: ReproducesSettings, said: Said, wrong: Mistakes) -> None:
    """Names that are needed only when all runs are made."""
    from polyrhythm import figures

    for text in what.figures:
        name, _, against = text.partition(" against ")
        where = said.where("reproduces.figures")
        if name not in figures.CATALOGUE:
            wrong.add(unknown("figure", name, figures.CATALOGUE, where=where))
        if against and against not in figures.AXES:
            wrong.add(unknown("axis", against, figures.AXES, where=where))
    known = [path.stem for path in _PROGRAMS.glob("[a-z]*.py")]
    if what.program and what.program not in known:
        wrong.add(unknown("program", what.program, known, where=said.where("reproduces.program")))


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
    over = {key: value for key, value in table.items() if key not in own}
    return AtScale(
        over=_keys(over, inside, said, wrong),
        rows=tuple(own.get("rows", ())),
        columns=tuple(own.get("columns", ())),
        seeds=_seeds(own["seeds"], said.where(f"{inside}.seeds"), wrong) if "seeds" in own else (),
        tuning=_tuning(own.get("tuning", {}), f"{inside}.tuning", rows, columns, said, wrong),
        expert_training=_expert(own.get("expert_training", {}), inside, said, wrong),
        why=str(own.get("why", "")),
    )


def _expert(change: Mapping[str, Any], inside: str, said: Said, wrong: Mistakes) -> dict[str, Any]:
    """What a scale changes in the training of the expert."""
    try:
        return ExpertSettings.model_validate(change).model_dump(include=set(change))
    except ValidationError as error:
        wrong.add(*explained(error, OF_EXPERT, lambda path: said.where(f"{inside}.expert_training.{path}")))
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
        for column in (*claim.columns, *claim.grows_over):
            if column not in columns:
                wrong.add(unknown("column", column, columns, where=where))
        measures = [*MEASURES, *COSTS, ""]
        for key, value, known in (("measure", claim.measure, measures), ("budget", claim.at, [*BUDGETS, ""])):
            if value not in known:
                wrong.add(unknown(key, value, [k for k in known if k], where=where))
        if not of or (claim.against or claim.between or claim.rising or claim.falling) in ("", None):
            wrong.add(_no_claim(where))
        if claim.grows_over and not claim.can_grow:
            wrong.add(_no_growth(claim.grows_over, where))
        plain = claim.model_dump(exclude={"of", "rising", "falling", "pairs"})
        yield Claim(of=of, rising=bool(claim.rising), falling=bool(claim.falling), **plain)


def _no_claim(where: str) -> UserError:
    return UserError(
        f"{where} compares nothing",
        expected='of = "ROW" with against = "ROW" or between = [low, high], or pairs, or rising or falling = "ROW"',
        why="a claim is looked at by comparing numbers",
        fix="say what is compared",
    )


def _no_growth(columns: Iterable[str], where: str) -> UserError:
    return UserError(
        f"{where} has nothing that could grow over {', '.join(columns)}",
        expected="two or more columns, each once; of and against, or pairs; and no ratio, range, trend or columns",
        why="the difference of two rows in the last of the columns is compared with that in the first",
        fix="say which difference grows, or make two claims of it",
    )


def _tuning(
    table: Mapping[str, Any],
    inside: str,
    rows: Mapping[str, Any],
    columns: Mapping[str, Any],
    said: Said,
    wrong: Mistakes,
) -> dict[str, Any]:
    """What a table says of the tuning, by the names of `Tuning`; the file's own, or what a scale changes."""
    own = {key: table[key] for key in ("space", "rows", "seeds", "column") if key in table}
    found: dict[str, Any] = {}
    if "space" in own:
        found["space"] = space_of(own["space"], f"{inside}.space.", said, wrong)
    if "rows" in own:
        for row in own["rows"]:
            if row not in rows:
                wrong.add(unknown("row", row, rows, where=said.where(f"{inside}.rows.{row}")))
        found["rows"] = {
            row: space_of(of.get("space", {}), f"{inside}.rows.{row}.space.", said, wrong)
            for row, of in own["rows"].items()
        }
    if "seeds" in own:
        found["seeds"] = _seeds(own["seeds"], said.where(f"{inside}.seeds"), wrong)
    if "column" in own:
        if own["column"] not in columns:
            wrong.add(unknown("column", own["column"], columns, where=said.where(f"{inside}.column")))
        found["column"] = own["column"]
    over = {key: value for key, value in table.items() if key not in own}
    return {**found, "over": _keys(over, inside, said, wrong)}


def _check_budgets(plan: Tuning, rows: Iterable[str], where: str, wrong: Mistakes) -> None:
    many = plan.many(rows)
    if len({*many.values()}) > 1:
        wrong.add(_unequal(many, where))


def _unequal(many: Mapping[str, int], where: str) -> UserError:
    return UserError(
        f"{where}: {', '.join(f'{n} settings of {row}' for row, n in many.items())}",
        expected="as many for each row",
        why="a method that was tuned harder looks better for that",
        fix="list as many values for each",
    )
