"""A sweep: what is tried, for whom, and how it is judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.base.settings import Count, Settings
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Planned
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.searches.space import Range, Setting, Space, drawn, grid, size

Search = Literal["grid", "random", "list", "tpe"]
Judge = Literal["final", "best", "last20"]
Make = Callable[[Setting, int], Planned]
"""Makes the experiment of a setting and a seed."""
BATCH = 4


@final
@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the methods that are tuned.

    Args:
        make: makes the experiment of a setting and a seed. With several workers it must be something that another
            process can import, such as a function at the top of a module.
        space: what each key may be.
        settings: those of the search "list", which has no space.
        about: what else distinguishes it from a side of the same name, as plain data; of `make` the name, if None.
    """

    make: Make
    space: Space = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    about: Mapping[str, Any] | None = None

    def describe(self) -> dict[str, Any]:
        """As plain data."""
        spaces = {k: v.describe() if isinstance(v, Range) else v for k, v in self.space.items()}
        make = f"{getattr(self.make, '__module__', '?')}:{getattr(self.make, '__qualname__', type(self.make))}"
        told = make if self.about is None else self.about
        plain: dict[str, Any] = json.loads(to_json({"make": told, "space": spaces, "settings": self.settings}))
        return plain


@final
@dataclass(frozen=True, kw_only=True)
class Sweep(Settings):
    """What is tried, and how it is judged.

    Args:
        name: what it is called; its runs are called `name/3`, or `name/side/3`, by their trial.
        sides: the methods that are tuned, by name; one alone may be called "".
        search: "grid", every setting; "random", `trials` drawn ones; "list", those that are listed; "tpe", `trials`
            chosen by Optuna's tree of Parzen estimators from what the trials before gave.
        trials: how many, for each side; of a grid or a list, as many as there are.
        seeds: each setting is run with each of them, and judged by the mean.
        fresh: seeds for the chosen settings alone, to be compared on the test set.
        seed: decides all draws.
        by: the number that judges a run, of the headline metric on the validation data: "final", of its last version;
            "best", of its best one; "last20", the mean of its last 20 evaluated ones.
        prune: versions after which a run may be stopped that is behind the median of the trials before; None for never.
        batch: how many trials are chosen at a time, from what all before them gave. It decides what "tpe" and `prune`
            know, and so results; the number of workers does not.

    Raises:
        UserError: settings that contradict each other, all of them.
    """

    name: str
    sides: Mapping[str, Any]
    search: Search = "grid"
    trials: Count | None = None
    seeds: tuple[int, ...] = (0,)
    fresh: tuple[int, ...] = ()
    seed: int = 0
    by: Judge = "final"
    prune: Count | None = None
    batch: Count = BATCH

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = Mistakes()
        for check in (_check_name, _check_trials, _check_seeds):
            with wrong.noted():
                check(self)
        for name, side in self.sides.items():
            with wrong.noted(name):
                _check_side(self.search, self.trials, side)
        wrong.refuse()
        _check_budgets(self)

    @property
    def adaptive(self) -> bool:
        """Whether trials depend on what those before them gave."""
        return self.search == "tpe" or self.prune is not None

    def known(self, side: str) -> list[Setting] | None:
        """All settings of a side; None if they depend on results."""
        own: Side = self.sides[side]
        if self.search == "tpe":
            return None
        if self.search == "list":
            return list(own.settings)
        if self.search == "random":
            return drawn(own.space, self.trials or 0, self.seed)
        return list(grid(own.space))

    def many(self, side: str) -> int:
        """How many trials a side has."""
        known = self.known(side)
        return (self.trials or 0) if known is None else len(known)

    def describe(self) -> dict[str, Any]:
        """As plain data: what decides trials and results. More trials of the same kind, or other seeds for the chosen,
        are the same sweep."""
        kept = {"search": self.search, "seeds": list(self.seeds), "seed": self.seed, "by": self.by, "prune": self.prune}
        batch = {"batch": self.batch} if self.adaptive else {}
        return {**kept, **batch, "sides": {name: side.describe() for name, side in self.sides.items()}}


def called(sweep: str, side: str, what: int | str) -> str:
    """The name of the runs of a trial, or of the chosen setting ("best")."""
    return "/".join(part for part in (sweep, side, str(what)) if part)


def in_words(setting: Setting) -> str:
    """A setting on one line."""
    return ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in setting.items())


def _check_name(sweep: Sweep) -> None:
    if not sweep.sides or not sweep.seeds:
        raise UserError(
            f"a sweep with {len(sweep.sides)} methods and {len(sweep.seeds)} seeds",
            expected="at least one of both",
            why="there would be nothing to run",
            fix="give both, or leave seeds out",
        )
    for name in (sweep.name, *(side for side in sweep.sides if side or len(sweep.sides) > 1)):
        if not name or any(sign in name for sign in "/\\\0") or name.startswith(".") or name == "best":
            raise UserError(
                f"the name {name!r}",
                expected="a name without slashes, that does not begin with a dot, and is not best",
                why="runs are called by sweep, method and trial, with slashes between",
                fix="give another name",
            )


def _check_trials(sweep: Sweep) -> None:
    if (sweep.trials is None) != (sweep.search in ("grid", "list")):
        raise UserError(
            f'search = "{sweep.search}" '
            + ("without trials" if sweep.trials is None else f"and {sweep.trials} trials"),
            expected="a number of trials" if sweep.trials is None else "no number of trials",
            why="random and tpe could go on for ever; a grid and a list have as many as there are",
            fix="add trials = 20" if sweep.trials is None else 'leave trials out, or use search = "random"',
        )


def _check_seeds(sweep: Sweep) -> None:
    if both := sorted({*sweep.seeds} & {*sweep.fresh}):
        raise UserError(
            f"fresh = {list(sweep.fresh)} has seeds that the trials use: {both}",
            expected="seeds that no trial has seen",
            why="the chosen setting is the best one on the seeds of the trials, partly by luck",
            fix=f"use others, such as {[max(sweep.seeds) + 1 + i for i in range(len(sweep.fresh))]}",
        )


def _check_side(search: Search, trials: int | None, side: Side) -> None:
    ranges = [key for key, values in side.space.items() if isinstance(values, Range)]
    many = size(side.space)
    if (search == "list") != bool(side.settings) or (search == "list") == bool(side.space):
        raise UserError(
            f'search = "{search}" with {len(side.settings)} listed settings and {len(side.space)} keys in the space',
            expected="settings and no space for a list, a space and no settings for everything else",
            why="they say what is tried",
            fix='write [sweep.space] with lines such as method.lr = [0.01, 0.1], or search = "list"',
        )
    if search == "grid" and ranges:
        raise UserError(
            f"{ranges[0]} is a range in a grid",
            expected="a list of values for each key",
            why="a grid has every combination, and of a range there are too many",
            fix='list the values that you mean, or use search = "random" or "tpe"',
        )
    if search == "random" and many is not None and trials is not None and trials > many:
        raise UserError(
            f"{trials} trials of a space with {many} settings",
            expected=f"at most {many}",
            why="nothing is tried twice",
            fix='use search = "grid", or ranges instead of lists',
        )


def _check_budgets(sweep: Sweep) -> None:
    many = {name: sweep.many(name) for name in sweep.sides}
    if len({*many.values()}) > 1:
        raise UserError(
            " and ".join(f"{count} trials for {name}" for name, count in many.items()),
            expected="as many for each method",
            why="the one that is tuned harder looks better than it is",
            fix='list as many values for each, or use search = "random" or "tpe" with trials',
        )


def check_validation(experiment: Experiment) -> None:
    """Goes on if there is something to judge by.

    Raises:
        UserError: nothing is held out of training.
    """
    if experiment.federation.validation is None:
        raise UserError(
            "a sweep without validation data (validation = 0)",
            expected="a share of the training data that is held out to choose by",
            why="a setting chosen on the test set looks better there than it is, and nothing would be left to tell",
            fix="set validation = 0.1 (in Python federate(..., validation=0.1))",
        )


def plain(settings: Sequence[Setting]) -> list[str]:
    """Settings as texts that are equal if they are."""
    return [to_json(dict(setting)) for setting in settings]
