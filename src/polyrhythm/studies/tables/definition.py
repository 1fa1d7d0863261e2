"""A table or figure of a paper as experiments: rows are methods, columns conditions, each cell a run for each seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, final

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.experiments.prepared import Planned
from polyrhythm.studies.searches.space import Setting, Space, size
from polyrhythm.studies.searches.written import Maker

PAPERS: Mapping[str, str] = {
    "fedcl": "FedCL: critical learning periods (CriticalFL, KDD 2023)",
    "alt": "ALT: adaptive local training (2025)",
    "client-centric": "Client-centric federated adaptive optimisation (arXiv 2501.09946)",
    "curriculum": "When do curricula work in federated learning? (ICCV 2023)",
    "ccfl": "CCFL: computationally customised federated learning (CC-FedAvg, IEEE IoT-J)",
    "combinations": "Combinations that no paper tried",
}
SHORT: Mapping[str, str] = {
    "fedcl": "FedCL",
    "alt": "ALT",
    "client-centric": "Client-centric",
    "curriculum": "Curricula",
    "ccfl": "CCFL",
    "combinations": "Combinations",
}
"""The papers, as they are called in tables."""

SCALES = ("smoke", "quick", "paper")
Scale = Literal["smoke", "quick", "paper"]
Spread = Literal["seeds", "rounds of one run", "not said", "none"]
MEASURES: Mapping[str, str] = {
    "final": "of the last evaluated version",
    "best": "of the best version, as the test set has it",
    "last10": "mean of the last 10 evaluated versions",
    "last20": "mean of the last 20 evaluated versions",
}
"""What is read from a run as its result, in words."""

COSTS: Mapping[str, str] = {
    "cohort": "clients a round, mean",
    "client_updates": "client updates",
    "epochs": "epochs a visit, mean",
    "local_steps": "local steps",
    "samples": "samples trained on",
    "flops": "FLOPs",
    "bytes": "bytes both ways",
    "rounds_to": "rounds to the goal",
    "updates_to": "client updates to the goal",
    "cohort_to": "clients a round until the goal, mean",
    "critical_rounds": "rounds found critical",
    "critical_until": "last round found critical",
}
"""What else claims can be about, in words."""

BUDGETS = ("client_updates", "samples", "flops", "bytes")
"""What two methods can have spent as much of."""


@final
@dataclass(frozen=True, kw_only=True)
class Number:
    """A number of a paper, in percent.

    Args:
        mean: it.
        sd: what stands behind ±; None if nothing does.
    """

    mean: float
    sd: float | None = None

    @classmethod
    def read(cls, text: str) -> Number | None:
        """Of a text such as "78.76 ± 2.62"; None of an empty one.

        Raises:
            ValueError: it is neither.
        """
        mean, sign, sd = (part.strip() for part in text.partition("±"))
        if not text.strip():
            return None
        return cls(mean=float(mean), sd=float(sd) if sign else None)


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """Something that a paper says, as a comparison of numbers.

    Args:
        says: in words.
        of: a row.
        against: another row, or "" for none.
        measure: what is compared; "" for the file's.
        more_than: of `of` minus `against`, the mean over seeds in each column is more; in points of percent.
        ratio_below, ratio_above: of the measure, for costs.
        between: of the measure of `of` itself.
        rising, falling: whether `of` rises or falls from column to column.
        grows_over: columns; `of` minus `against` is by `more_than` more in the last of them than in the first.
        columns: where; empty for all.
        at: a cost; accuracies are then compared where both have spent as much of it.
        goal_of: the row whose result is the goal, for what it takes to reach one.
    """

    says: str
    of: str
    against: str = ""
    measure: str = ""
    more_than: float = 0.0
    ratio_below: float | None = None
    ratio_above: float | None = None
    between: tuple[float, float] | None = None
    rising: bool = False
    falling: bool = False
    grows_over: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    at: str = ""
    goal_of: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How rates are chosen: a grid for each row, judged on validation data.

    Args:
        space: of all rows.
        rows: over it, of one row.
        seeds: of the trials.
        column: where it is done for all columns; "" for in each.
        over: keys of the experiment that hold meanwhile.
    """

    space: Space
    rows: Mapping[str, Space] = field(default_factory=dict)
    seeds: tuple[int, ...] = (100,)
    column: str = ""
    over: Setting = field(default_factory=dict)

    def at(self, scale: AtScale) -> Tuning:
        """The same with what a scale changes."""
        return replace(self, **{**scale.tuning, "over": laid_over(self.over, scale.tuning.get("over", {}))})

    def many(self, rows: Iterable[str]) -> dict[str, int]:
        """How many settings each row has to choose from, of those that have a choice."""
        spaces = {row: {**self.space, **self.rows.get(row, {})} for row in rows}
        return {row: many for row, space in spaces.items() if (many := size(space) or 0) > 1}


@final
@dataclass(frozen=True, kw_only=True)
class AtScale:
    """What a scale changes.

    Args:
        over: keys of the experiment that win over all others.
        rows, columns: which of them; empty for all.
        seeds: of the runs; empty for the file's.
        tuning: what it says of the tuning, by the names of `Tuning`.
        expert_training: over the settings of the expert's training.
        why: what was scaled, in words.
    """

    over: Setting = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    tuning: Mapping[str, Any] = field(default_factory=dict)
    expert_training: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class CellMaker:
    """Makes the experiments of a cell.

    Args:
        maker: of all cells.
        fixed: what the row, the column and the scale say, in the order in which it is put.
    """

    maker: Maker
    fixed: Setting

    def __call__(self, setting: Setting, seed: int) -> Planned:
        """The experiment of a seed, with tuned values over all others."""
        return self.maker(laid_over(self.fixed, setting), seed)


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row in a column.

    Args:
        row, column: their names.
        make: makes its experiments.
    """

    row: str
    column: str
    make: CellMaker

    @property
    def name(self) -> str:
        """What its runs are called."""
        return named(self.row, self.column)


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Everything that a file says.

    Args:
        name: the paper and the file, such as "ccfl/table-2".
        file: its path.
        paper: one of `PAPERS`.
        items: the tables and figures that it covers, such as "Figure 22".
        title: what it is, in a few words.
        source: where in the paper.
        says: what the paper says.
        measure: one of `MEASURES`.
        spread: what the paper's ± is.
        columns_are: what columns differ in.
        figures: names of figures, perhaps with " against " and an axis.
        notes: what the paper leaves open, and what was done.
        program: the function that does it, for what is no training.
        unknown: why there is nothing to do, for what the text does not give.
        maker: makes experiments of all that cells share.
        seeds: of the runs.
        rows, columns: names, and the keys that they set.
        numbers: the paper's, by row and column.
        claims: what is looked at.
        tuning: if rates are tuned.
        expert_training: settings of `train_expert`, if the file asks for an expert.
        scales: what the smaller scales change.
    """

    name: str
    file: Path
    paper: str
    items: tuple[str, ...]
    title: str
    source: str = ""
    says: str = ""
    measure: str = "final"
    spread: Spread = "none"
    columns_are: str = ""
    figures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    program: str = ""
    unknown: str = ""
    maker: Maker
    seeds: tuple[int, ...] = (0,)
    rows: Mapping[str, Setting]
    columns: Mapping[str, Setting]
    numbers: Mapping[tuple[str, str], Number] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    tuning: Tuning | None = None
    expert_training: Mapping[str, Any] | None = None
    scales: Mapping[str, AtScale] = field(default_factory=dict)

    def at(
        self,
        scale: Scale,
        *,
        seeds: Sequence[int] = (),
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        settings: Setting | None = None,
    ) -> Scaled:
        """The same at a scale.

        Args:
            scale: "paper" is the file as it stands.
            seeds: instead of those of the scale.
            rows, columns: only these, of all that the file has.
            settings: keys of the experiment that win over everything.

        Raises:
            UserError: no such scale, row or column, or there is nothing to do.
        """
        if self.unknown:
            raise UserError(
                f"{self.name} cannot be reproduced: {self.unknown}",
                expected="an item whose content the paper's text gives",
                why="there is no experiment of it",
                fix="`polyrhythm reproduce list` shows the others",
            )
        if scale not in SCALES or (scale != "paper" and scale not in self.scales):
            raise UserError(
                f"{self.name} at scale {scale!r}",
                expected=f"one of {', '.join([*self.scales, 'paper'])}",
                why="the file says what each of them is",
                fix="--scale paper",
            )
        own = self.scales.get(scale, AtScale())
        for kind, asked, known in (("row", rows, self.rows), ("column", columns, self.columns)):
            for name in asked:
                if name not in known:
                    raise unknown(kind, name, known)
        return Scaled(
            of=self,
            scale=scale,
            seeds=tuple(seeds) or own.seeds or self.seeds,
            rows=tuple(rows) or own.rows or tuple(self.rows),
            columns=tuple(columns) or own.columns or tuple(self.columns),
            over=laid_over(own.over, settings or {}),
            asked=settings or {},
        )


@final
@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A reproduction at a scale: what is run.

    Args:
        of: the whole of it.
        scale: which.
        seeds: of the runs.
        rows, columns: those that are run.
        over: keys of the experiment that win over all others: the scale's, and those that were asked for.
        asked: the latter alone.
    """

    of: Reproduction
    scale: Scale
    seeds: tuple[int, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    over: Setting
    asked: Setting = field(default_factory=dict)

    @property
    def cells(self) -> list[Cell]:
        """All of them, row by row in each column."""
        return [self.cell(row, column) for column in self.columns for row in self.rows]

    def cell(self, row: str, column: str) -> Cell:
        """One of them."""
        fixed = laid_over(laid_over(self.of.rows[row], self.of.columns[column]), self.over)
        return Cell(row=row, column=column, make=CellMaker(maker=self.of.maker, fixed=fixed))

    @property
    def tuning(self) -> Tuning | None:
        """How rates are chosen at this scale."""
        plan = None if self.of.tuning is None else self.of.tuning.at(self.of.scales.get(self.scale, AtScale()))
        if plan is None or plan.column in self.columns:
            return plan
        return replace(plan, column="")

    @property
    def expert_training(self) -> Mapping[str, Any] | None:
        """How an expert is trained at this scale; None if the file asks for none."""
        plan, change = self.of.expert_training, self.of.scales.get(self.scale, AtScale()).expert_training
        return None if plan is None else {**plan, **change}

    def claims(self) -> Iterator[Claim]:
        """Those whose rows and columns are there."""
        for claim in self.of.claims:
            named = [row for row in (claim.of, claim.against, claim.goal_of) if row]
            ends = {*claim.grows_over[:1], *claim.grows_over[-1:]}
            somewhere = not claim.columns or {*claim.columns} & {*self.columns}
            if somewhere and {*named} <= {*self.rows} and ends <= {*self.columns}:
                yield claim


def named(row: str, column: str) -> str:
    """A cell, in words."""
    return f"{row}, {column}" if column else row


def laid_over(below: Setting, above: Setting) -> dict[str, Any]:
    """Settings over others: those that win are put last, since a whole text undoes what was put into it before."""
    kept = {key: value for key, value in below.items() if key not in above}
    return {**kept, **above}
