"""A study's plan: the trials and the runs that are made of it, at a scale."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.experiments.prepared import Planned
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.claims import Claim
from polyrhythm.studies.definition import SCALES, AtScale, Make, Scale, Search, Study, laid_over
from polyrhythm.studies.names import named
from polyrhythm.studies.space import Range, Setting, Space, drawn, grid, size

FOLDER = "studies"


@final
@dataclass(frozen=True, kw_only=True)
class CellMaker:
    """Maker of the experiments of a cell.

    Args:
        make: of all cells, or of its row.
        fixed: what the row, the column and the scale say, in the order in which it is put.
    """

    make: Make
    fixed: Setting = field(default_factory=dict)

    def __call__(self, setting: Setting, seed: int) -> Planned:
        """The experiment of a seed, with tried values over all others."""
        return self.make(laid_over(self.fixed, setting), seed)

    def written(self) -> Mapping[str, Any] | None:
        """The experiment file that this is, as plain data; None if a function makes the experiments."""
        values: Any = getattr(self.make, "written", None)
        found: Mapping[str, Any] | None = None if values is None else values(self.fixed)
        return found

    def place(self, row: str, key: str) -> str:
        """Where the values are written that are tried for a key of a row; "" if nobody knows."""
        place: Any = getattr(self.make, "place", None)
        return "" if place is None else str(place(row, key))

    def describe(self) -> Any:
        """What distinguishes it, as plain data: what is written, or the name of the function."""
        values: Any = getattr(self.make, "own", None)
        if values is not None:
            return {**values, **self.fixed}
        name = f"{getattr(self.make, '__module__', '?')}:{getattr(self.make, '__qualname__', type(self.make))}"
        return {"made by": name, **self.fixed} if self.fixed else name


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """Cell: a row in a column.

    Args:
        row, column: their names.
        called: what its runs are called.
        make: makes its experiments.
        arm: the name of the arm that chooses for it; None if nothing is chosen.
    """

    row: str
    column: str
    called: str
    make: CellMaker
    arm: str | None = None

    @property
    def name(self) -> str:
        """In words."""
        return named(self.row, self.column)


@final
@dataclass(frozen=True, kw_only=True)
class Arm:
    """Arm: a cell for which settings are tried.

    Args:
        row: of the cell.
        name: of the cell, in words.
        called: what the names of its runs begin with.
        make: makes the experiments of its trials.
        search: how settings come about.
        space: what each key may be.
        settings: those of a list.
    """

    row: str
    name: str
    called: str
    make: CellMaker
    search: Search
    space: Space
    settings: tuple[Setting, ...] = ()

    def known(self) -> list[Setting] | None:
        """All its settings; None if they depend on results."""
        if self.search.kind == "tpe":
            return None
        if self.search.kind == "list":
            return list(self.settings)
        if self.search.kind == "random":
            return drawn(self.space, self.search.trials or 0, self.search.seed)
        return list(grid(self.space))

    @property
    def many(self) -> int:
        """How many trials it has."""
        known = self.known()
        return (self.search.trials or 0) if known is None else len(known)

    def trial(self, number: int | str) -> str:
        """What the runs of a trial are called."""
        return "/".join(part for part in (self.called, str(number)) if part)

    def plain(self) -> dict[str, Any]:
        """What is tried, as plain data."""
        spaces = {k: v.describe() if isinstance(v, Range) else v for k, v in self.space.items()}
        plain: dict[str, Any] = json.loads(
            to_json({"make": self.make.describe(), "space": spaces, "settings": self.settings})
        )
        return plain

    def describe(self) -> dict[str, Any]:
        """What decides its trials and their results, as plain data. More trials are the same arm."""
        return {**self.search.plain(), **self.plain()}

    def check(self) -> None:
        """Goes on if there is what the search needs.

        Raises:
            UserError: there is not.
        """
        kind, trials = self.search.kind, self.search.trials
        ranges = [key for key, values in self.space.items() if isinstance(values, Range)]
        many = size(self.space)
        if (kind == "list") != bool(self.settings) or (kind == "list") == bool(self.space):
            raise UserError(
                f'search = "{kind}" with {len(self.settings)} listed settings and {len(self.space)} keys in the space',
                expected="settings and no space for a list, a space and no settings for everything else",
                why="they say what is tried",
                fix='write a space with lines such as method.lr = [0.01, 0.1], or search = "list"',
            )
        if kind == "grid" and ranges:
            raise UserError(
                f"{ranges[0]} is a range in a grid",
                expected="a list of values for each key",
                why="a grid has every combination, and of a range there are too many",
                fix='list the values that you mean, or use search = "random" or "tpe"',
            )
        if kind == "random" and many is not None and trials is not None and trials > many:
            raise UserError(
                f"{trials} trials of a space with {many} settings",
                expected=f"at most {many}",
                why="nothing is tried twice",
                fix='use search = "grid", or ranges instead of lists',
            )


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan: what is run of a study at a scale.

    Args:
        of: the whole of it.
        scale: which.
        seeds: of the runs that are compared.
        rows, columns: those that are run.
        over: keys of the experiment that win over all others: the scale's, and those that were asked for.
        asked: the latter alone.
    """

    of: Study
    scale: Scale
    seeds: tuple[int, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    over: Setting = field(default_factory=dict)
    asked: Setting = field(default_factory=dict)

    @property
    def cells(self) -> list[Cell]:
        """All of them, row by row in each column."""
        return [self.cell(row, column) for column in self.columns for row in self.rows]

    def cell(self, row: str, column: str) -> Cell:
        """One of them."""
        search, arm = self.search, None
        if search is not None and any(search.in_column(search.column or column).tried(row)):
            arm = named(row, search.column or column)
        best = "" if arm is None else "best"
        called = named(row, column) if self.of.apart else _joined(self.of.name, row, column, best)
        return Cell(row=row, column=column, called=called, make=self._maker(row, column), arm=arm)

    @property
    def search(self) -> Search | None:
        """How settings are chosen at this scale."""
        plan = None if self.of.search is None else self.of.search.at(self._own)
        return plan if plan is None or plan.column in self.columns else replace(plan, column="")

    @property
    def arms(self) -> dict[str, Arm]:
        """Those for which settings are tried, by name: of all cells, or of those in the search's column."""
        search = self.search
        if search is None:
            return {}
        return {arm.name: arm for column in self._searched for arm in self._arms_of(search.in_column(column), column)}

    @property
    def _searched(self) -> tuple[str, ...]:
        """The columns in which settings are chosen."""
        return (self.search.column,) if self.search is not None and self.search.column else self.columns

    def _arms_of(self, search: Search, column: str) -> list[Arm]:
        return [self._arm(search, row, column) for row in self.rows if any(search.tried(row))]

    def _arm(self, search: Search, row: str, column: str) -> Arm:
        space, settings = search.tried(row)
        cell = self._maker(row, column)
        make = replace(cell, fixed=laid_over(cell.fixed, search.over))
        called = _joined(self.of.name, row, column)
        name = named(row, column)
        arm = Arm(row=row, name=name, called=called, make=make, search=search, space=space, settings=settings)
        if not self.of.apart:
            return arm
        # A file that was changed tries other things, which need another name.
        what = hashlib.sha256(to_json([arm.plain(), search.seeds, self.of.measure]).encode()).hexdigest()
        return replace(arm, called=f"{arm.name.replace('/', '|')} {what[:6]}")

    def _maker(self, row: str, column: str) -> CellMaker:
        own, column_sets = self.of.rows[row], self.of.columns[column]
        if callable(own):
            return CellMaker(make=own, fixed=laid_over(column_sets, self.over))
        return CellMaker(make=self.of.make, fixed=laid_over(laid_over(own, column_sets), self.over))

    @property
    def _own(self) -> AtScale:
        return self.of.scales.get(self.scale, AtScale())

    @property
    def expert_training(self) -> Mapping[str, Any] | None:
        """How an expert is trained at this scale; None if the study asks for none."""
        plan = self.of.expert_training
        return None if plan is None else {**plan, **self._own.expert_training}

    @property
    def items(self) -> tuple[str, ...]:
        """The tables and figures of the paper that the rows and columns show which are run."""
        run = {*self.rows, *self.columns}
        return tuple(item for item in self.of.items if run & {*self.of.shown_by.get(item, run)})

    def claims(self) -> Iterator[Claim]:
        """Those whose rows and columns are there."""
        for claim in self.of.claims:
            trend = claim.rising or claim.falling
            over = claim.columns if trend else claim.grows_over
            ends = {*over[:1], *over[-1:]}
            somewhere = not claim.columns or {*claim.columns} & {*self.columns}
            if trend and len(self.columns) < 2:
                continue
            if somewhere and {*claim.rows} <= {*self.rows} and ends <= {*self.columns}:
                yield claim

    def folder(self, out: Path | str) -> Path:
        """Where its page and its record lie."""
        return Path(out) / FOLDER / self.of.name / (self.scale if self.of.apart else "")

    def runs_folder(self, out: Path | str) -> Path:
        """Where the runs lie that are compared."""
        return self.folder(out) if self.of.apart else Path(out)

    def trials_folder(self, out: Path | str) -> Path:
        """Where the runs of trials lie."""
        return self.folder(out) / "tuning" if self.of.apart else Path(out)

    def _fixed_and_tried(self, arm: Arm) -> Iterator[UserError]:
        """Keys that were asked for in all runs and are tried: what is tried would win, and the page would say both."""
        tried = {*arm.space, *(key for setting in arm.settings for key in setting)}
        for key in sorted(tried & {*self.asked}):
            yield UserError(
                f"{key} = {self.asked[key]!r} was asked for, and {key} is tried",
                expected="one of them",
                why="each run has one value",
                fix=f"leave {key} out here, or out of what is tried",
            )

    def check(self) -> None:
        """Goes on if there is something to try for each arm, as much for all, and by other seeds than are compared.

        Raises:
            UserError: whatever is wrong, all of it.
        """
        wrong = Mistakes()
        for arm in self.arms.values():
            with wrong.noted(arm.name):
                arm.check()
            wrong.add(*self._fixed_and_tried(arm))
        wrong.refuse()
        search = self.search
        if search is None:
            return
        for column in self._searched:
            many = {arm.name: arm.many for arm in self._arms_of(search.in_column(column), column)}
            if len({*many.values()}) < 2:
                continue
            raise UserError(
                " and ".join(f"{count} trials for {name}" for name, count in many.items()),
                expected="as many for each row",
                why="the one that is tuned harder looks better than it is",
                fix='list as many values for each, or use search = "random" or "tpe" with trials',
            )
        if not any(any(search.in_column(column).tried(row)) for column in self._searched for row in self.of.rows):
            raise UserError(
                f"{self.of.name} searches, and has nothing to try",
                expected="a space or settings, of all rows or of one",
                why="they say what is tried",
                fix="write a space with lines such as method.lr = [0.01, 0.1], or leave the search out",
            )
        if both := sorted({*search.seeds} & {*self.seeds}):
            raise UserError(
                f"{self.of.name}: seeds {both} are tried and compared",
                expected="other seeds for the comparison than for the trials",
                why="the chosen settings are the best ones on the seeds that they were tried with, partly by luck",
                fix="--seeds with others",
            )


def planned(
    study: Study,
    scale: str = "",
    *,
    seeds: Sequence[int] = (),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    settings: Setting | None = None,
) -> Plan:
    """A study at a scale.

    Args:
        study: what.
        scale: "paper" is the study as it stands; "" for the one for two cores, if it has one.
        seeds: instead of those of the scale.
        rows, columns: only these, of all that it has.
        settings: keys of the experiment that win over everything.

    Raises:
        UserError: no such scale, row or column, or there is nothing to do.
    """
    if study.unknown:
        raise UserError(
            f"{study.name} cannot be reproduced: {study.unknown}",
            expected="an item whose content the paper's text gives",
            why="there is no experiment of it",
            fix="`polyrhythm study list` shows the others",
        )
    chosen: Any = scale or study.own_scale
    if chosen not in SCALES or (chosen != "paper" and chosen not in study.scales):
        raise UserError(
            f"{study.name} at scale {chosen!r}",
            expected=f"one of {', '.join([*study.scales, 'paper'])}",
            why="the study says what each of them is",
            fix="--scale paper",
        )
    own = study.scales.get(chosen, AtScale())
    study.check_there("row", rows)
    study.check_there("column", columns)
    return Plan(
        of=study,
        scale=chosen,
        seeds=tuple(dict.fromkeys(seeds or own.seeds or study.compared)),
        rows=tuple(dict.fromkeys(rows or own.rows or study.rows)),
        columns=tuple(dict.fromkeys(columns or own.columns or study.columns)),
        over=laid_over(own.over, settings or {}),
        asked=settings or {},
    )


def in_words(setting: Setting) -> str:
    """A setting on one line."""
    return ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in setting.items())


def _joined(*parts: str) -> str:
    return "/".join(part for part in parts if part)
