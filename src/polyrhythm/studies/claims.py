"""Claims, and numbers of a paper: what is looked at once the runs of a study are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, final

from annotated_types import MinLen

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.base.settings import Settings, Takes

Measure = Literal["final", "best", "last10", "last20", "clients", "worst_tenth", "unseen"]
MEASURES: Mapping[str, str] = {
    "final": "of the last evaluated version",
    "best": "of the best version, as the test set has it",
    "last10": "mean of the last 10 evaluated versions",
    "last20": "mean of the last 20 evaluated versions",
    "clients": "of the model that each client uses in the end, mean over clients",
    "worst_tenth": "of the model that each client uses in the end, mean over the worst tenth of clients",
    "unseen": "of the model that each client uses which never trained, mean over these",
}
"""What is read from a run as its result, in words."""

OF_CLIENTS: Mapping[str, str] = {"clients": "{}_mean", "worst_tenth": "{}_worst_decile", "unseen": "unseen_{}_mean"}
"""Those that are on clients' own tests, and what they are called in `VersionRecord.spread`: of the models of clients'
own, and where they have none of the global one."""

SERVED: Mapping[str, str] = {
    "clients": "mean over clients",
    "worst_tenth": "mean over the worst tenth of clients",
    "rarest_quarter": "mean over the quarter of clients that was there least",
}
"""Results of the last evaluated version on clients' own tests, in words."""

COSTS: Mapping[str, str] = {
    "cohort": "clients a round, mean",
    "client_updates": "client updates",
    "epochs": "epochs a visit, mean",
    "local_steps": "local steps",
    "samples": "samples trained on",
    "flops": "FLOPs",
    "bytes": "bytes both ways",
    "virtual_seconds": "virtual seconds",
    "joules": "joules",
    "rounds_to": "rounds to the goal",
    "updates_to": "client updates to the goal",
    "cohort_to": "clients a round until the goal, mean",
    "critical_rounds": "rounds found critical",
    "critical_until": "last round found critical",
}
"""What else claims can be about, in words."""

BUDGETS = ("client_updates", "samples", "flops", "bytes", "virtual_seconds", "joules")
"""What two methods can have spent as much of."""

Text = Annotated[str, MinLen(1)]
Row = Annotated[str, Takes("a row")]
Columns = Annotated[tuple[Text, ...], Takes("names of columns")]
Bound = Annotated[float | int, Takes("a number")]


@final
@dataclass(frozen=True, kw_only=True)
class Number:
    """Number of a paper, in percent.

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
        found = cls(mean=float(mean), sd=float(sd) if sign else None)
        if not (math.isfinite(found.mean) and (found.sd is None or 0 <= found.sd < math.inf)):
            raise ValueError(f"{text!r} is no number with a spread")
        return found


@final
@dataclass(frozen=True, kw_only=True)
class Claim(Settings):
    """Claim: something that a paper says, or you expect, as a comparison of numbers.

    Args:
        says: in words.
        of: a row.
        against: another row, or "" for none.
        measure: what is compared; "" for the study's.
        more_than: of `of` minus `against`, the mean over seeds in each column is more; in points of percent.
        ratio_below, ratio_above: of the measure, for costs.
        between: of the measure of `of` itself.
        rising, falling: whether `of` rises or falls from column to column.
        grows_over: columns; `of` minus `against` is by `more_than` more in the last of them than in the first.
        columns: where; empty for all.
        at: a cost; accuracies are then compared where both have spent as much of it.
        goal_of: the row whose result is the goal, for what it takes to reach one.
        ours: whether a study of a paper adds it to what the paper claims; it is then counted apart.

    Raises:
        UserError: it compares nothing, or something that cannot be compared so.
    """

    says: str
    of: Row
    against: Annotated[str, Takes("another row")] = ""
    measure: Annotated[str, Takes(f"one of {', '.join([*dict.fromkeys((*MEASURES, *SERVED, *COSTS))])}")] = ""
    more_than: Annotated[float | int, Takes("points of percent: a number")] = 0.0
    ratio_below: Bound | None = None
    ratio_above: Bound | None = None
    between: Annotated[tuple[float | int, float | int], Takes("two numbers: [low, high]")] | None = None
    rising: bool = False
    falling: bool = False
    grows_over: Annotated[tuple[Text, ...], Takes("names of columns, in the order in which the difference grows")] = ()
    columns: Columns = ()
    at: Annotated[str, Takes(f"one of {', '.join(BUDGETS)}")] = ""
    goal_of: Row = ""
    ours: Annotated[bool, Takes("true of a claim that is not the paper's")] = False

    def __post_init__(self) -> None:
        told = Mistakes()
        with told.noted(f"the claim {self.says!r}"):
            super().__post_init__()
            self._check()
        told.refuse()

    def _check(self) -> None:
        wrong = Mistakes()
        for kind, name, known in (
            ("measure", self.measure, [*dict.fromkeys((*MEASURES, *SERVED, *COSTS))]),
            ("budget", self.at, BUDGETS),
        ):
            if name and name not in known:
                wrong.add(unknown(kind, name, known))
        trend = self.rising or self.falling
        if not self.of or not (self.against or self.between or trend):
            wrong.add(_nothing())
        others = (self.ratio_below, self.ratio_above, self.between)
        plain = not trend and not self.columns and all(other is None for other in others)
        if self.grows_over and not (len({*self.grows_over}) == len(self.grows_over) > 1 and self.against and plain):
            wrong.add(_no_growth(self.grows_over))
        wrong.add(*map(_at_odds, self._odds()))
        wrong.refuse()

    def _odds(self) -> Iterator[str]:
        """Settings of which only some could be looked at, in words."""
        of_range = [f"between = {[*self.between]}"] if self.between is not None else []
        ratios = {"ratio_above": self.ratio_above, "ratio_below": self.ratio_below}
        of_ratio = [f"{key} = {value}" for key, value in ratios.items() if value is not None]
        of_trend = [key for key in ("rising", "falling") if getattr(self, key)]
        kinds = [*of_range, *of_ratio[:1], *of_trend]
        if len(kinds) > 1:
            yield " and ".join(kinds)
        elif kinds and self.more_than:
            yield f"{kinds[0]} and more_than = {self.more_than}"
        if self.against and (of_range or of_trend):
            yield f"{kinds[0]}, which is about one row, and against = {self.against!r}"
        if self.against and self.against == self.of:
            yield f"{self.of!r} against itself"
        if self.at and (of_range or of_trend):
            yield f"{kinds[0]} and at = {self.at!r}, which compares two rows"
        if self.at and self.measure and self.measure not in MEASURES:
            yield f"at = {self.at!r}, which compares results, and measure = {self.measure!r}"
        if bool(self.goal_of) != self.measure.endswith("_to"):
            yield f"measure = {self.measure!r} and " + (f"goal_of = {self.goal_of!r}" if self.goal_of else "no goal_of")
        above, below = self.ratio_above, self.ratio_below
        low, high = self.between or (0, 0)
        if low > high or (above is not None and below is not None and above >= below):
            yield " and ".join([*of_range, *of_ratio]) + ", between which nothing lies"

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows that it is about."""
        return tuple(filter(None, (self.of, self.against, self.goal_of)))


def _nothing() -> UserError:
    return UserError(
        "nothing is compared",
        expected='of = "ROW" with against = "ROW" or between = [low, high], or pairs, or rising or falling = "ROW"',
        why="a claim is looked at by comparing numbers",
        fix="say what is compared",
    )


def _at_odds(found: str) -> UserError:
    return UserError(
        found,
        expected="settings that go together",
        why="one of them would be looked at, and the other would not",
        fix="leave one out, or make two claims of it",
    )


def _no_growth(columns: tuple[str, ...]) -> UserError:
    return UserError(
        f"nothing could grow over {', '.join(columns)}",
        expected="two or more columns, each once; of and against, or pairs; and no ratio, range, trend or columns",
        why="the difference of two rows in the last of the columns is compared with that in the first",
        fix="say which difference grows, or make two claims of it",
    )
