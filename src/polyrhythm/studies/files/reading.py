"""Reads a study: an experiment file with tables that say what is compared, what is tried, and what a paper has."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from pydantic import ValidationError

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import Mistakes, unknown
from polyrhythm.base.input_file import text_of
from polyrhythm.config.configuration import configured
from polyrhythm.config.keys import OF_NO_NUMBER, TAKES
from polyrhythm.config.layers import ConfigSource, layered, seeds_of
from polyrhythm.config.lines import check_keys
from polyrhythm.config.mistakes import explained
from polyrhythm.studies.claims import OF_CLIENTS, Claim, Number
from polyrhythm.studies.definition import PAPERS, SCALES, AtScale, ColumnSearch, Judge, Search, Study
from polyrhythm.studies.files import refused
from polyrhythm.studies.files.language import (
    OF_TABLES,
    SEARCH,
    TABLES,
    ExpertSettings,
    claims_of,
    takes,
)
from polyrhythm.studies.files.maker import Maker
from polyrhythm.studies.files.spaces import leaves, settings_of, space_of
from polyrhythm.studies.files.texts import filled
from polyrhythm.studies.planning import planned
from polyrhythm.studies.space import Setting

_TABLES = ("reproduces", "rows", "columns", "paper", "claims", "sweep", "tuning", "expert_training", "scales")
_OF_SEARCH = takes(SEARCH)
_CHECKED = ("reproduces", "claims", "expert_training")
NOT_OURS = ("name", "out", "seed", "seeds", "track", "tracking", "driver", "workers", "address", "gpus")
"""Keys of an experiment that a cell cannot set: they are of the whole study, or decide no number."""
_TRIED = ("space", "settings")
_PROGRAMS = Path(__file__).parents[1] / "programs"
_JUDGES: Mapping[str, Judge] = {
    "final": "final",
    "best": "best",
    "last10": "last20",
    "last20": "last20",
    **dict.fromkeys(OF_CLIENTS, "clients"),
}


def is_study(file: Path) -> bool:
    """Whether a file describes a study; one that cannot be read does not, nor does a pipe, which is read only once."""
    try:
        if not file.is_file():
            return False
        text = text_of(file)
        check_keys(text)
        return bool({"sweep", "rows", "reproduces"} & {*tomllib.loads(text)})
    except (OSError, ValueError, RecursionError):
        return False


def read(
    file: Path,
    name: str = "",
    options: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    trust: Trust = NOBODY,
) -> Study:
    """What a file says.

    Args:
        file: in TOML.
        name: what it is called; "" for the file's own.
        options: keys of the experiment that win over the file; None means not given.
        settings: `key=value` texts, which win over both.
        trust: the modules that the user has named.

    Raises:
        UserError: no such file, or whatever is wrong in it; all of it at once.
    """
    wrong = Mistakes()
    said = layered(file, options or {}, list(settings), wrong, [*TAKES, *_TABLES], filled)
    ours = {key: said.values.pop(key) for key in _TABLES if key in said.values}
    named = (options or {}).get("name")
    given = (*(("--name", str(named)) if named else ()), *(part for text in settings for part in ("--set", text)))
    return _Reading(file, said, ours, wrong).study(name, trust, given)


@final
@dataclass(frozen=True)
class _Reading:
    """A file that is being read."""

    file: Path
    said: ConfigSource
    ours: Mapping[str, Any]
    wrong: Mistakes

    def study(self, name: str, trust: Trust, given: tuple[str, ...] = ()) -> Study:
        """All of it."""
        told, said = self.told(), self.said
        rows, columns = (self.settings(self.ours.get(key, {}), key) for key in ("rows", "columns"))
        columns = columns or {"": {}}
        spelling = "sweep" if "sweep" in self.ours else "tuning"
        table = self.ours.get(spelling)
        if isinstance(table, dict):
            rows |= self.settings(table.get("methods", {}), f"{spelling}.methods", ("space", "settings"))
            rows = rows or {"": {}}
        scales = {key: self.scale(key, of) for key, of in self.table("scales").items()}
        seeds = said.values.get("seeds") or (said.values.get("seed", 0),)
        search, fresh = None, None
        if table is not None:
            change, over, fresh = self.search(table, spelling)
            own = {"seeds": seeds if spelling == "sweep" else (100,), "by": _JUDGES[told["reproduces"]["measure"]]}
            with self.wrong.noted(said.where(spelling)):
                search = Search(**{**own, **change}, over=over)
        self.check_names(told["reproduces"])
        numbers, claims = self.numbers(columns), tuple(self.claims(told["claims"]))
        of_all = {k: v for k, v in said.values.items() if k in (*OF_NO_NUMBER, "seed", "seeds") or k not in TAKES}
        whole = configured(ConfigSource(of_all, self.file, said.lines, said.here), self.wrong, trust)
        self.wrong.refuse()
        with self.wrong.noted(str(self.file)):
            found = Study(
                name=whole.name or name or self.file.stem,
                file=self.file,
                given=given,
                rows=rows,
                make=Maker(values=self.shared(), lines=said.lines, file=self.file, trust=trust),
                columns=columns,
                columns_are=told["reproduces"].pop("columns"),
                seeds=fresh if fresh is not None else () if spelling == "sweep" and search else tuple(seeds),
                search=search,
                numbers=numbers,
                claims=claims,
                expert_training=told["expert_training"],
                scales=scales,
                apart=bool({"rows", "reproduces", "scales"} & {*self.ours}),
                out=whole.out,
                tracking=whole.tracking,
                **told["reproduces"],
            )
        self.wrong.refuse()
        self.check_plans(found, spelling)
        return found

    def table(self, key: str) -> Mapping[str, Any]:
        """A table of this name at the top of the file; an empty one where there is something else."""
        found = self.ours.get(key, {})
        if isinstance(found, dict):
            return found
        of_paper = refused.no_paper(found, self.said.where(key)) if key == "paper" else None
        self.wrong.add(of_paper or refused.no_tables(key, self.said))
        return {}

    def shared(self) -> dict[str, Any]:
        """What is written for all cells."""
        return {key: value for key, value in self.said.values.items() if key not in NOT_OURS}

    def told(self) -> dict[str, Any]:
        if not {"reproduces", "rows", "sweep"} & {*self.ours}:
            raise refused.no_study(self.file)
        if {"sweep", "tuning"} <= {*self.ours}:
            raise refused.two_searches(self.file)
        try:
            return TABLES.model_validate({key: self.ours[key] for key in _CHECKED if key in self.ours}).model_dump()
        except ValidationError as error:
            self.wrong.add(*explained(error, OF_TABLES, self.said.where))
            self.wrong.refuse()
            raise

    def check_names(self, what: Mapping[str, Any]) -> None:
        """Names that are needed only when all runs are made."""
        from polyrhythm import figures

        if what["paper"] and what["paper"] not in PAPERS:
            self.wrong.add(unknown("paper", what["paper"], PAPERS, where=self.said.where("reproduces.paper")))
        for text in what["figures"]:
            name, _, against = text.partition(" against ")
            where = self.said.where("reproduces.figures")
            if name not in figures.CATALOGUE:
                self.wrong.add(unknown("figure", name, figures.CATALOGUE, where=where))
            if against and against not in figures.AXES:
                self.wrong.add(unknown("axis", against, figures.AXES, where=where))
        known = [path.stem for path in _PROGRAMS.glob("[a-z]*.py")]
        if what["program"] and what["program"] not in known:
            self.wrong.add(unknown("program", what["program"], known, where=self.said.where("reproduces.program")))

    def check_plans(self, study: Study, spelling: str) -> None:
        """Looks at what is tried at each scale."""
        for scale in ("paper", *study.scales) if not study.unknown else ():
            with self.wrong.noted(self.said.where(spelling if scale == "paper" else f"scales.{scale}.{spelling}")):
                planned(study, scale).check()
        self.wrong.refuse()

    def settings(self, table: Any, inside: str, skip: Sequence[str] = ()) -> dict[str, Setting]:
        """Rows or columns: the keys of each, without what is tried for it."""
        if not isinstance(table, dict) or not all(isinstance(own, dict) for own in table.values()):
            self.wrong.add(refused.no_tables(inside, self.said))
            return {}
        own = {name: {key: value for key, value in of.items() if key not in skip} for name, of in table.items()}
        return {name: self.keys(of, f"{inside}.{name}") for name, of in own.items()}

    def keys(self, table: Mapping[str, Any], inside: str, more: Iterable[str] = ()) -> Setting:
        """Keys of the experiment, with dots for what lies inside.

        Args:
            table: of them.
            inside: where it is.
            more: what else might have been meant.
        """
        found = {}
        for key, value in leaves(table):
            if key.partition(".")[0] not in TAKES or key in NOT_OURS:
                known = [name for name in TAKES if "." not in name and name not in NOT_OURS]
                where = self.said.where(f"{inside}.{key}")
                self.wrong.add(unknown("key", key.partition(".")[0], [*known, *more], where=where))
            found[key] = value
        return found

    def scale(self, name: str, table: Any) -> AtScale:
        inside = f"scales.{name}"
        if name not in SCALES[:-1]:
            self.wrong.add(unknown("scale", name, SCALES[:-1], where=self.said.where(inside)))
            return AtScale()
        if not isinstance(table, dict):
            self.wrong.add(refused.no_tables(inside, self.said))
            return AtScale()
        ours = ("rows", "columns", "seeds", "why", "tuning", "sweep", "expert_training")
        own = {key: table[key] for key in ours if key in table}
        spelling = "sweep" if "sweep" in own else "tuning"
        search, search_over, fresh = self.search(own.get(spelling, {}), f"{inside}.{spelling}")
        seeds = self.seeds(own["seeds"], f"{inside}.seeds") if "seeds" in own else ()
        return AtScale(
            over=self.keys({key: value for key, value in table.items() if key not in own}, inside),
            rows=self.names(own.get("rows", []), f"{inside}.rows"),
            columns=self.names(own.get("columns", []), f"{inside}.columns"),
            seeds=fresh or seeds,
            search=search,
            search_over=search_over,
            expert_training=self.expert(own.get("expert_training", {}), inside),
            why=str(own.get("why", "")),
        )

    def names(self, listed: Any, inside: str) -> tuple[str, ...]:
        """Rows or columns that a scale has."""
        if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
            return tuple(listed)
        self.wrong.add(refused.no_names(self.said.where(inside), listed))
        return ()

    def expert(self, change: Mapping[str, Any], inside: str) -> dict[str, Any]:
        """What a scale changes in the training of the expert."""
        if not isinstance(change, dict):
            self.wrong.add(refused.no_tables(f"{inside}.expert_training", self.said))
            return {}
        try:
            return ExpertSettings.model_validate(change).model_dump(include=set(change))
        except ValidationError as error:
            place = f"{inside}.expert_training"
            self.wrong.add(*explained(error, takes(ExpertSettings), lambda path: self.said.where(f"{place}.{path}")))
            return {}

    def search(self, table: Any, inside: str) -> tuple[dict[str, Any], Setting, tuple[int, ...] | None]:
        """What a table says of the search, by the names of `Search`; the keys that hold meanwhile; the fresh seeds."""
        said, wrong = self.said, self.wrong
        if not isinstance(table, dict):
            wrong.add(refused.no_tables(inside, said))
            return {}, {}, None
        own = {key: table[key] for key in SEARCH.model_fields if key in table}
        over = self.keys({k: v for k, v in table.items() if k not in own}, inside, SEARCH.model_fields)
        try:
            told = SEARCH.model_validate(own).model_dump(include={*own})
        except ValidationError as error:
            wrong.add(*explained(error, _OF_SEARCH, lambda path: said.where(f"{inside}.{path}")))
            return {}, over, None
        named = [(kind, row, of) for kind in ("rows", "methods") for row, of in told.pop(kind, {}).items()]
        found = {"kind" if key == "search" else key: value for key, value in told.items() if key != "fresh"}
        if "seeds" in own:
            found["seeds"] = self.seeds(own["seeds"], f"{inside}.seeds")
        if "space" in own:
            found["space"] = space_of(told["space"], f"{inside}.space", said, wrong)
        if "settings" in own:
            found["settings"] = settings_of(told["settings"], f"{inside}.settings", said, wrong)
        rows = [row for _, row, _ in named]
        wrong.add(*(refused.two_ways(row, said.where(inside)) for row in dict.fromkeys(rows) if rows.count(row) > 1))
        if named:
            found["rows"] = {
                row: self.tried(of, f"{inside}.{kind}.{row}", alone=kind == "rows") for kind, row, of in named
            }
        if "columns" in own:
            found["columns"] = {c: self.in_column(of, f"{inside}.columns.{c}") for c, of in told["columns"].items()}
        return found, over, self.seeds(own["fresh"], f"{inside}.fresh") if "fresh" in own else None

    def in_column(self, table: Mapping[str, Any], inside: str) -> ColumnSearch:
        """What is tried otherwise in one column, and the keys that hold meanwhile."""
        space, rows = table.get("space", {}), table.get("rows", {})
        over = self.keys({key: value for key, value in table.items() if key not in ("space", "rows")}, inside)
        for key, of in (("space", space), ("rows", rows)):
            if not isinstance(of, dict) or (key == "rows" and not all(isinstance(own, dict) for own in of.values())):
                self.wrong.add(refused.no_tables(f"{inside}.{key}", self.said))
                return ColumnSearch()
        tried = {row: self.tried(of, f"{inside}.rows.{row}", alone=True) for row, of in rows.items()}
        return ColumnSearch(space=space_of(space, f"{inside}.space", self.said, self.wrong), rows=tried, over=over)

    def tried(self, table: Mapping[str, Any], inside: str, *, alone: bool) -> Mapping[str, Any] | tuple[Setting, ...]:
        """The space or the settings of one row.

        Args:
            table: them.
            inside: where it is.
            alone: whether nothing else may be in the table, as of a method.
        """
        space, settings = table.get("space", {}), table.get("settings", [])
        for key in table if alone else ():
            if key not in _TRIED:
                self.wrong.add(unknown("key", key, _TRIED, where=self.said.where(f"{inside}.{key}")))
        if space and settings:
            self.wrong.add(refused.two_ways(inside.rpartition(".")[2], self.said.where(inside)))
        if not isinstance(space, dict) or not isinstance(settings, list):
            key, value = ("space", space) if not isinstance(space, dict) else ("settings", settings)
            self.wrong.add(refused.nothing_tried(f"{self.said.where(inside)}: {key} = {value!r}", _OF_SEARCH[key]))
            return {}
        listed = settings_of(settings, f"{inside}.settings", self.said, self.wrong)
        return listed or space_of(space, f"{inside}.space", self.said, self.wrong)

    def seeds(self, value: Any, path: str) -> tuple[int, ...]:
        with self.wrong.noted(self.said.where(path)):
            if isinstance(value, str):
                return seeds_of(value)
            if type(value) is int and value >= 0:
                return (value,)
            if isinstance(value, list) and all(type(seed) is int and seed >= 0 for seed in value):
                return tuple(value)
            raise refused.no_seeds(value)
        return ()

    def numbers(self, columns: Mapping[str, Any]) -> dict[tuple[str, str], Number]:
        found = {}
        for row, texts in self.table("paper").items():
            where = self.said.where(f"paper.{row}")
            if not isinstance(texts, list) or len(texts) != len(columns):
                self.wrong.add(refused.not_as_many(row, columns, where))
                continue
            for column, text in zip(columns, texts, strict=True):
                try:
                    number = Number.read(text)
                except (ValueError, AttributeError):
                    self.wrong.add(refused.no_number(row, text, where))
                    continue
                if number is not None:
                    found[row, column] = number
        return found

    def claims(self, told: Iterable[Mapping[str, Any]]) -> Iterator[Claim]:
        for table in told:
            with self.wrong.noted(self.said.where("claims")):
                yield from claims_of(table)
