"""A study as it is defined: what is compared, what is tried for it, and what is said of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, final

from polyrhythm.base.errors import Mistakes, UserError, check_kind, unknown
from polyrhythm.base.settings import Count, Settings, Takes, Whole
from polyrhythm.experiments.prepared import Planned
from polyrhythm.studies.claims import MEASURES, Claim, Measure, Number, Text
from polyrhythm.studies.names import unknown_names, wrong_names
from polyrhythm.studies.space import Range, Setting, Space
from polyrhythm.trackers import Tracking

PAPERS: Mapping[str, str] = {
    "fedcl": "FedCL: critical learning periods (CriticalFL, KDD 2023)",
    "alt": "ALT: adaptive local training (2025)",
    "client-centric": "Client-centric federated adaptive optimisation (arXiv 2501.09946)",
    "curriculum": "When do curricula work in federated learning? (ICCV 2023)",
    "ccfl": "CCFL: computationally customised federated learning (CC-FedAvg, IEEE IoT-J)",
    "personal": "Personalised methods beside each other",
    "privacy": "Accuracy against privacy",
    "combinations": "Combinations that no paper tried",
    "heterogeneity": "Methods beside each other, as no paper compares them",
    "adapters": "Low-rank adapters of pretrained models",
}
SHORT: Mapping[str, str] = {
    "fedcl": "FedCL",
    "alt": "ALT",
    "client-centric": "Client-centric",
    "curriculum": "Curricula",
    "ccfl": "CCFL",
    "personal": "Personalised",
    "privacy": "Privacy",
    "combinations": "Combinations",
    "heterogeneity": "Heterogeneity",
    "adapters": "Adapters",
}
"""The papers, as they are called in tables."""

_OF_OURS = ("personal", "privacy", "combinations", "heterogeneity", "adapters")
SCALES = ("smoke", "quick", "paper")
Scale = Literal["smoke", "quick", "paper"]
Spread = Literal["seeds", "rounds of one run", "not said", "none"]
Kind = Literal["grid", "random", "list", "tpe"]
Judge = Literal["final", "best", "last20", "clients"]
Make = Callable[[Setting, int], Planned]
"""Makes the experiment of a setting and a seed."""
BATCH = 4


@final
@dataclass(frozen=True, kw_only=True)
class ColumnSearch:
    """Search in one column: what is otherwise there than in the others.

    Args:
        space: what keys may be, over the space of all columns.
        rows: a space, or a list of settings, of one row, in place of what it has in all columns.
        over: keys of the experiment that hold meanwhile, over those of all columns.
    """

    space: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Any] = field(default_factory=dict)
    over: Setting = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "space", _values(self.space))
        object.__setattr__(self, "rows", _of_rows(self.rows))


@final
@dataclass(frozen=True, kw_only=True)
class Search(Settings):
    """Search: what is tried for each row, and how it is judged on the validation data.

    Args:
        kind: "grid", every setting; "random", `trials` drawn ones; "list", those that are listed; "tpe", `trials`
            chosen by Optuna's tree of Parzen estimators from what the trials before gave.
        space: what each key may be, for all rows.
        settings: those of a list, for all rows.
        rows: a space, or a list of settings, of one row, over those of all.
        trials: how many, for each row; of a grid or a list, as many as there are.
        seeds: each setting is run with each of them, and judged by the mean.
        seed: decides all draws.
        by: the number that judges a run, of the headline metric on the validation data: "final", of its last version;
            "best", of its best one; "last20", the mean of its last 20 evaluated ones; or "clients", of the model that
            each client uses in the end, on its own test, the mean over clients: of draws of the federation that no
            compared run has.
        prune: versions after which a run may be stopped that is behind the median of the trials before; None for never.
        batch: how many trials are chosen at a time, from what all before them gave. It decides what "tpe" and `prune`
            know, and so results; the number of workers does not.
        column: where it is done for all columns; "" for in each.
        columns: what is otherwise in one column, by its name.
        over: keys of the experiment that hold meanwhile.

    Raises:
        UserError: trials of a grid or a list, or none of the others; or no seeds.
    """

    kind: Kind = "grid"
    trials: Annotated[Count, Takes("of random and tpe, for each row: a whole number, 1 or more")] | None = None
    seed: Annotated[Whole, Takes("of all draws: a whole number, 0 or more")] = 0
    seeds: tuple[int, ...] = (0,)
    by: Judge = "final"
    prune: Annotated[Count, Takes("versions: a whole number, 1 or more")] | None = None
    batch: Count = BATCH
    column: Annotated[str, Takes("the column in which settings are chosen for all")] = ""
    space: Annotated[
        Mapping[str, Any],
        Takes("keys of an experiment, each with a list of values or a range such as {low = 0.01, high = 1.0}"),
    ] = field(default_factory=dict)
    settings: Annotated[tuple[Setting, ...], Takes("of a list: tables, each with keys of an experiment")] = ()
    rows: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    over: Setting = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "space", _values(self.space))
        object.__setattr__(self, "rows", _of_rows(self.rows))
        for column, own in self.columns.items():
            check_kind(f"columns[{column!r}]", own, ColumnSearch, "pr.studies.ColumnSearch(space={…})")
        if (self.trials is None) != (self.kind in ("grid", "list")):
            raise UserError(
                f'search = "{self.kind}" ' + ("without trials" if self.trials is None else f"and {self.trials} trials"),
                expected="a number of trials" if self.trials is None else "no number of trials",
                why="random and tpe could go on for ever; a grid and a list have as many as there are",
                fix="add trials = 20" if self.trials is None else 'leave trials out, or use search = "random"',
            )
        if self.by == "clients" and self.prune is not None:
            raise UserError(
                f'by = "clients" with prune = {self.prune}',
                expected="no prune",
                why="what clients use in the end is measured of the last version alone",
                fix="leave prune out, or judge by final",
            )
        if not self.seeds:
            raise UserError(
                "a search without seeds",
                expected="one or more",
                why="there would be nothing to run",
                fix="leave seeds out: each setting is then run with seed 0",
            )

    @property
    def adaptive(self) -> bool:
        """Whether trials depend on what those before them gave."""
        return self.kind == "tpe" or self.prune is not None

    def tried(self, row: str) -> tuple[Space, tuple[Setting, ...]]:
        """The space and the listed settings of a row."""
        own = self.rows.get(row, {})
        if isinstance(own, Mapping):
            return {**self.space, **own}, self.settings
        return self.space, (*self.settings, *own)

    def at(self, scale: AtScale) -> Search:
        """The same with what a scale changes; what it sets wins over what a column sets."""
        changed = replace(self, **scale.search, over=laid_over(self.over, scale.search_over))
        columns = {c: replace(own, over=laid_over(own.over, scale.search_over)) for c, own in changed.columns.items()}
        return replace(changed, columns=columns)

    def in_column(self, column: str) -> Search:
        """The search as it is done in a column."""
        own = self.columns.get(column)
        if own is None:
            return self
        over, rows = laid_over(self.over, own.over), {**self.rows, **own.rows}
        return replace(self, space={**self.space, **own.space}, rows=rows, over=over, columns={})

    def plain(self) -> dict[str, Any]:
        """What decides trials and results, as plain data. More trials of the same kind are the same search."""
        batch = {"batch": self.batch} if self.adaptive else {}
        kept = {"search": self.kind, "seeds": list(self.seeds), "seed": self.seed, "by": self.by, "prune": self.prune}
        return {**kept, **batch}


def _values(space: Mapping[str, Any]) -> Space:
    """A space whose values are listed in tuples.

    Raises:
        UserError: something else than values or a range.
    """
    found: dict[str, Any] = {}
    for key, values in space.items():
        values = values.tolist() if hasattr(values, "tolist") else values
        found[key] = tuple(values) if isinstance(values, list) else values
        check_kind(f"space[{key!r}]", found[key], (tuple, Range), "[0.1, 0.2], or pr.studies.Range(low=0.01, high=1.0)")
    return found


def _of_rows(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The spaces of rows, with their values in tuples, and lists of settings as they are."""
    return {row: _values(own) if isinstance(own, Mapping) else own for row, own in rows.items()}


@final
@dataclass(frozen=True, kw_only=True)
class AtScale:
    """Scale: what it changes of a study.

    Args:
        over: keys of the experiment that win over all others.
        rows, columns: which of them; empty for all.
        seeds: of the runs; empty for the study's.
        search: what it says of the search, by the names of `Search`.
        search_over: keys of the experiment over those that hold in the search.
        expert_training: over the settings of the expert's training.
        why: what was scaled, in words.
    """

    over: Setting = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    search_over: Setting = field(default_factory=dict)
    expert_training: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """Study: many runs under one definition. Rows are methods, columns conditions; each cell is run over the seeds.

        Study(name="rates", rows={"": made}, search=Search(space={"lr": (0.01, 0.1, 1.0)}), seeds=(10, 11))

    Args:
        name: what it is called. Its runs are called `name/row/column/3` by their trial, or `…/best` with what was
            chosen; without a search `name/row/column`.
        rows: the methods that are compared, by name; one alone may be called "". Each is a function that makes the
            experiment of a setting and a seed (with several workers something that another process can import, such as
            a function at the top of a module), or the keys that it sets for `make`.
        make: makes the experiments of rows that are keys.
        columns: the conditions, by name, with the keys that they set.
        seeds: of the runs that are compared. With a search, those of the chosen settings, which no trial may use; none
            then compares the trials' own runs.
        search: what is tried for each row, and chosen by the validation data; None compares them as they are.
        claims: what is looked at.
        measure: which number is the result of a run.
        title, source, says, columns_are, notes: words for its page.
        figures: names of figures, perhaps with " against " and an axis.
        paper: one of `PAPERS`, or "".
        items: the tables and figures of the paper that it covers, such as "Figure 22".
        shown_by: items that are only shown where one of these rows or columns is run; the others are by any.
        numbers: the paper's, by row and column.
        spread: what the paper's ± is.
        program: the function that does it, for what is no training.
        unknown: why there is nothing to do, for what the text of a paper does not give.
        expert_training: settings of `train_expert`, if it asks for an expert.
        scales: what smaller scales change.
        file: where it is written.
        given: options of the command line that say otherwise than the file, for the command on its page.
        apart: whether its runs have a folder of their own, and are called by their cells alone.
        out: the folder of all records.
        tracking: trackers that are told of every run.

    Raises:
        UserError: no rows, a name that no run can have or two cells share, or an unknown measure.
    """

    name: str
    rows: Mapping[str, Any]
    make: Any = None
    columns: Mapping[str, Setting] = field(default_factory=lambda: {"": {}})
    seeds: tuple[int, ...] = ()
    search: Search | None = None
    claims: tuple[Claim, ...] = ()
    measure: Annotated[Measure, Takes(f"one of {', '.join(MEASURES)}")] = "final"
    title: Annotated[str, Takes("a few words")] = ""
    source: Annotated[str, Takes("where in the paper")] = ""
    says: Annotated[str, Takes("what the paper says, or the question")] = ""
    columns_are: Annotated[str, Takes("what columns differ in, in words")] = ""
    notes: Annotated[tuple[Text, ...], Takes("a list of sentences")] = ()
    figures: Annotated[tuple[Text, ...], Takes('names of figures, such as ["accuracy", "cohort"]')] = ()
    paper: Annotated[str, Takes(f"one of {', '.join(PAPERS)}")] = ""
    items: Annotated[tuple[Text, ...], Takes('tables and figures, such as ["Table 2"]')] = ()
    shown_by: Annotated[
        Mapping[str, tuple[Text, ...]], Takes("items, each with the rows or columns one of which must be run for it")
    ] = field(default_factory=dict)
    numbers: Mapping[tuple[str, str], Number] = field(default_factory=dict)
    spread: Annotated[Spread, Takes('what the paper\'s ± is: "seeds", "rounds of one run", "not said" or "none"')] = (
        "none"
    )
    program: Annotated[str, Takes("the name of a program")] = ""
    unknown: Annotated[str, Takes("why there is nothing to do")] = ""
    expert_training: Mapping[str, Any] | None = None
    scales: Mapping[str, AtScale] = field(default_factory=dict)
    file: Path | None = None
    given: tuple[str, ...] = ()
    apart: bool = False
    out: str = "runs"
    tracking: Tracking = field(default_factory=Tracking)

    def __post_init__(self) -> None:
        check_kind("rows", self.rows, Mapping, '{"FedAvg": made}')
        check_kind("columns", self.columns, Mapping, '{"α = 0.1": {}}')
        check_kind("seeds", self.seeds, (tuple, list, range), "(0, 1, 2)")
        wrong = Mistakes()
        wrong.add(*_wrong_rows(self), *wrong_names(self), *unknown_names(self), *_same_clients(self))
        wrong.refuse()

    @property
    def compared(self) -> tuple[int, ...]:
        """The seeds of the runs that are compared; without a search there is at least one."""
        return self.seeds or (() if self.search else (0,))

    @property
    def of_paper(self) -> bool:
        """Whether it repeats what a paper has done."""
        return self.paper not in ("", *_OF_OURS)

    @property
    def own_scale(self) -> Scale:
        """The scale that is meant if nobody says: the one for two cores, if there is any."""
        return "quick" if "quick" in self.scales else "paper"

    def check_there(self, kind: str, asked: Sequence[str]) -> None:
        """Goes on if it has all of these rows or columns.

        Raises:
            UserError: it has not.
        """
        known = self.rows if kind == "row" else self.columns
        for name in asked:
            if name not in known:
                raise unknown(kind, name, known)


def _wrong_rows(study: Study) -> Iterator[UserError]:
    """Rows that are none, and names that no run can have."""
    if not study.columns or (not study.rows and not study.program and not study.unknown):
        yield UserError(
            f"{study.name} has no {'rows' if study.columns else 'columns'}",
            expected="one for each method that is compared" if study.columns else "one or more, or leave them out",
            why="there would be nothing to run",
            fix='give at least one, in a file [rows.FedAvg] and under it method = "fedavg"',
        )
    for row, own in study.rows.items():
        if not callable(own) and not (isinstance(own, Mapping) and callable(study.make)):
            yield UserError(
                f"the row {row!r} is {own!r}",
                expected="a function that makes the experiment of a setting and a seed; or keys, with make=",
                why="experiments are made of rows",
                fix="give a function",
            )


def _same_clients(study: Study) -> Iterator[UserError]:
    """A search that is judged by the clients' tests that would then be its result."""
    if study.search is not None and study.search.by == "clients" and not study.seeds:
        yield UserError(
            f'{study.name}: by = "clients" with no seeds but the trials\'',
            expected="other seeds for what is compared",
            why="settings would be chosen by the tests that are then the result",
            fix='fresh = "10-12" in [sweep]; in Python seeds=(10, 11, 12) beside those of the search',
        )


def laid_over(below: Setting, above: Setting) -> dict[str, Any]:
    """Settings over others: those that win are put last, since a whole text undoes what was put into it before."""
    kept = {key: value for key, value in below.items() if key not in above}
    return {**kept, **above}
