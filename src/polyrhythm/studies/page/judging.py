"""Judges what came out beside what is claimed: number by number, order by order, claim by claim."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, final

from polyrhythm.base.metric_names import in_words
from polyrhythm.results import Run
from polyrhythm.results.tables import signed
from polyrhythm.runs.costs import Row
from polyrhythm.runs.paired import Difference, difference, mean_and_spread
from polyrhythm.studies.claims import COSTS, MEASURES, SERVED, Claim, Number
from polyrhythm.studies.page import measures
from polyrhythm.studies.page.findings import Outcome, Verdict, holding
from polyrhythm.studies.planning import Plan
from polyrhythm.studies.result import StudyResult

Agreement = Literal["within spread", "differs", ""]
Key = tuple[str, str]


@final
@dataclass(frozen=True, kw_only=True)
class Results:
    """Results: the runs of a study that are compared, with their versions, read once.

    Args:
        plan: what was run.
        runs: by row and column, then by seed.
        versions: of each, likewise.
        ends: the version as far as the runs of a column are read, where one of them is not over; they are then
            compared at equal rounds.
        reached: the version that each run had come to.
    """

    plan: Plan
    runs: Mapping[Key, Mapping[int, Run]]
    versions: Mapping[Key, Mapping[int, Sequence[Row]]]
    ends: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[Key, Mapping[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, found: StudyResult, *, so_far: bool = False) -> Results:
        """What came of the runs; with `so_far` of those, too, that are not over."""
        runs = {(c.row, c.column): {run.seed: run for run in found.runs(c.name)} for c in plan.cells}
        runs = {key: of for key, of in runs.items() if of}
        versions = {key: {seed: run.versions for seed, run in of.items()} for key, of in runs.items()}
        ends = {}
        for column in {column for _, column in runs} if so_far else ():
            own = [
                (run, versions[key][run.seed]) for key, of in runs.items() if key[1] == column for run in of.values()
            ]
            if not all(run.status == "finished" for run, _ in own):
                ends[column] = min(rows[-1]["version"] for _, rows in own)
        cut = {
            key: {
                seed: [row for row in rows if row["version"] <= ends.get(key[1], row["version"])]
                for seed, rows in of.items()
            }
            for key, of in versions.items()
        }
        reached = {
            key: {seed: rows[-1]["version"] for seed, rows in of.items() if rows} for key, of in versions.items()
        }
        return cls(plan=plan, runs=runs, versions=cut, ends=ends, reached=reached)

    @property
    def headlines(self) -> str:
        """The metric that is the result, in words; where columns differ in it, all of them."""
        found = dict.fromkeys(in_words(run.headline) for runs in self.runs.values() for run in runs.values())
        return " or ".join(found) or "accuracy"

    @property
    def so_far(self) -> tuple[str, ...]:
        """How far the columns are read that have a run which is not over, in words."""
        found = []
        for column, end in self.ends.items():
            whole = max(
                run.config["rounds"] or 0 for key, of in self.runs.items() if key[1] == column for run in of.values()
            )
            found.append(f"{_in(column)}{end:,}" + (f" of {whole:,} rounds" if whole else " rounds"))
        return tuple(found)

    def values(self, key: Key, measure: str = "", goal: float | None = None) -> dict[int, float]:
        """A number of each seed of a cell that has one; results in percent.

        Args:
            key: row and column.
            measure: one of `MEASURES`, `SERVED` or `COSTS`; "" for the file's.
            goal: for what it takes to reach one.
        """
        measure = measure or self.plan.of.measure
        factor = 100.0 if measure in (*MEASURES, *SERVED) else 1.0
        found = {
            seed: measures.value(run, self.versions[key][seed], measure, goal, self.ends.get(key[1]))
            for seed, run in self.runs.get(key, {}).items()
        }
        return {seed: factor * value for seed, value in found.items() if value is not None}

    def at_budget(self, key: Key, cost: str, budgets: Mapping[int, float], measure: str = "") -> dict[int, float]:
        """The results of a cell's seeds, in percent, when each had spent a budget."""
        measure = measure or self.plan.of.measure
        found = {
            seed: measures.result_at(rows, self.runs[key][seed].headline, measure, cost, budgets[seed])
            for seed, rows in self.versions.get(key, {}).items()
            if seed in budgets
        }
        return {seed: 100.0 * value for seed, value in found.items() if value is not None}

    def least(self, rows: Sequence[str], column: str, cost: str) -> dict[int, float]:
        """The smallest total of a cost over some rows, for each seed that all of them have."""
        totals = [
            {
                seed: measures.total(versions, cost) or 0.0
                for seed, versions in self.versions.get((row, column), {}).items()
            }
            for row in rows
        ]
        seeds = set.intersection(*(set(of) for of in totals)) if totals else set()
        return {seed: min(of[seed] for of in totals) for seed in seeds}


def agreement(paper: Number, ours: Mapping[int, float]) -> Agreement:
    """Whether a number lies within the paper's spread and ours of the paper's; "" where that cannot be said."""
    if not ours or paper.sd is None:
        return ""
    mean, sd = mean_and_spread(list(ours.values()))
    return "within spread" if abs(mean - paper.mean) <= paper.sd + (sd or 0.0) else "differs"


def ordered(results: Results, column: str) -> tuple[int, int]:
    """How many pairs of rows the paper puts in an order, and how many of them come out in it."""
    numbers, agreed, many = results.plan.of.numbers, 0, 0
    for one, other in itertools.combinations(results.plan.rows, 2):
        papers = numbers.get((one, column)), numbers.get((other, column))
        ours = results.values((one, column)), results.values((other, column))
        if papers[0] is None or papers[1] is None or papers[0].mean == papers[1].mean or not all(ours):
            continue
        many += 1
        means = [math.fsum(of.values()) / len(of) for of in ours]
        agreed += (means[0] - means[1]) * (papers[0].mean - papers[1].mean) > 0
    return agreed, many


def verdict(results: Results, outcomes: Sequence[Outcome]) -> str:
    """In a few words: of the numbers if the paper has any, and of the claims."""
    parts = []
    cells = [key for key in results.plan.of.numbers if key in results.runs]
    found = [agreement(results.plan.of.numbers[key], results.values(key)) for key in cells]
    orders = [ordered(results, column) for column in results.plan.columns]
    agreed, many = sum(a for a, _ in orders), sum(m for _, m in orders)
    if cells:
        within = found.count("within spread")
        judged = len([f for f in found if f])
        if judged and within == judged:
            parts.append("within spread")
        elif many and agreed == many:
            parts.append("same order")
        else:
            parts.append("differs" if judged or many else "no number can be judged")
        told = [f"{within} of {judged} numbers within spread"] if judged else []
        told += [f"{agreed} of {many} pairs in the paper's order"] if many else []
        parts[-1] += f" ({', '.join(told)})" if told else ""
    if outcomes:
        parts.append(holding(outcomes))
    return "; ".join(parts)


def outcomes(results: Results) -> Iterator[Outcome]:
    """What came of each claim; where not all runs are over, of those about whose rows there is something."""
    begun = {row for row, _ in results.runs}
    for claim in results.plan.claims():
        if results.ends and not {*claim.rows} <= begun:
            continue
        columns = [c for c in results.plan.columns if not claim.columns or c in claim.columns]
        yield replace(_outcome(results, claim, columns), ours=claim.ours)


def _outcome(results: Results, claim: Claim, columns: Sequence[str]) -> Outcome:
    if claim.rising or claim.falling:
        return _trend(results, claim, columns)
    if claim.grows_over:
        return _growth(results, claim, [c for c in claim.grows_over if c in columns])
    if claim.between is not None:
        return _range(results, claim, columns)
    if claim.ratio_below is not None or claim.ratio_above is not None:
        return _ratio(results, claim, columns)
    return _more(results, claim, columns)


def _goals(results: Results, claim: Claim, column: str) -> float | None:
    """The goal of what it takes to reach one: the result of a row, as a share."""
    if not claim.goal_of:
        return None
    values = results.values((claim.goal_of, column))
    return math.fsum(values.values()) / len(values) / 100.0 if values else None


def _values(results: Results, claim: Claim, row: str, column: str) -> dict[int, float]:
    return results.values((row, column), claim.measure, _goals(results, claim, column))


def _pairs(results: Results, claim: Claim, column: str) -> tuple[dict[int, float], dict[int, float]]:
    if claim.at:
        budgets = results.least((claim.of, claim.against), column, claim.at)
        of, against = (
            results.at_budget((row, column), claim.at, budgets, claim.measure) for row in (claim.of, claim.against)
        )
        return of, against
    return _values(results, claim, claim.of, column), _values(results, claim, claim.against, column)


def _more(results: Results, claim: Claim, columns: Sequence[str]) -> Outcome:
    """Paired by seed: more than a limit in every column, and whether chance alone could have made it."""
    verdicts: list[Verdict] = []
    told = []
    unit = _unit(results, claim)
    for column in columns:
        found = difference([*_differences(results, claim, column).values()])
        if found.mean is None:
            verdicts.append("not decided")
            continue
        verdicts.append(_by_survivors(_decided(found, claim.more_than), results, column, found.n))
        some = survived(results, column, found.n)
        told.append(f"{_in(column)}{signed(found.mean, digits=2)}{unit}{_interval(found)}{some}")
    return Outcome(says=claim.says, verdict=_all(verdicts), evidence="; ".join(told))


def _differences(results: Results, claim: Claim, column: str) -> dict[int, float]:
    """What one row has more than the other, for each seed that both have."""
    of, against = _pairs(results, claim, column)
    return {seed: of[seed] - against[seed] for seed in sorted({*of} & {*against})}


def _unit(results: Results, claim: Claim) -> str:
    return " points" if (claim.measure or results.plan.of.measure) in (*MEASURES, *SERVED) else ""


def _interval(found: Difference) -> str:
    if (ends := _ends(found)) is None:
        return ""
    return f" [{signed(ends[0], digits=2)}, {signed(ends[1], digits=2)}]"


def _ends(found: Difference) -> tuple[float, float] | None:
    """Of the interval; both at the mean where several seeds differ by the same; None for one seed."""
    if found.low is None or found.high is None:
        return (found.mean, found.mean) if found.n > 1 and found.mean is not None else None
    return found.low, found.high


def _decided(found: Difference, limit: float) -> Verdict:
    """Whether a mean is above a limit, and whether chance alone could have brought it there."""
    assert found.mean is not None
    above = found.mean > limit
    if (ends := _ends(found)) is None:
        return "holds, one seed" if above else "differs, one seed"
    if ends[0] <= limit <= ends[1]:
        return "holds on average" if above else "not decided"
    return "holds" if above else "differs"


def survived(results: Results, column: str, seeds: int) -> str:
    """How many seeds a number is of, where not all have one, as of runs that failed or never reached a goal."""
    lacks = column not in results.ends and 0 < seeds < len(results.plan.seeds)
    return f" ({seeds} of {len(results.plan.seeds)} seeds)" if lacks else ""


def _by_survivors(verdict: Verdict, results: Results, column: str, seeds: int) -> Verdict:
    """A verdict by some of the seeds: what holds for them alone is not decided, as the others may be the worst ones."""
    return "not decided" if verdict.startswith("holds") and survived(results, column, seeds) else verdict


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    """Of all columns: as weak as the weakest."""
    return next((verdict for verdict in _WEAKEST_FIRST if verdict in verdicts), "not decided")


_WEAKEST_FIRST: tuple[Verdict, ...] = (
    *("differs", "differs, one seed", "not decided"),
    *("holds, one seed", "holds on average", "holds"),
)


def _ratio(results: Results, claim: Claim, columns: Sequence[str]) -> Outcome:
    """Of costs, which chance moves little: judged by the mean over seeds."""
    low = -math.inf if claim.ratio_above is None else claim.ratio_above
    high = math.inf if claim.ratio_below is None else claim.ratio_below

    def ratios(column: str) -> list[float]:
        of, against = _pairs(results, claim, column)
        seeds = sorted({*of} & {*against})
        return [of[seed] / against[seed] for seed in seeds] if all(against[seed] for seed in seeds) else []

    return _by_means(results, claim, {c: ratios(c) for c in columns}, lambda mean: low < mean < high, "{:.3g} ×")


def _range(results: Results, claim: Claim, columns: Sequence[str]) -> Outcome:
    """Likewise."""
    low, high = claim.between or (-math.inf, math.inf)
    values = {c: [*_values(results, claim, claim.of, c).values()] for c in columns}
    return _by_means(results, claim, values, lambda mean: low <= mean <= high, "{:.4g}")


def _by_means(
    results: Results,
    claim: Claim,
    columns: Mapping[str, Sequence[float]],
    holds: Callable[[float], bool],
    words: str,
) -> Outcome:
    means = {column: math.fsum(values) / len(values) for column, values in columns.items() if values}
    many = {column: len(columns[column]) for column in means}
    verdicts: list[Verdict] = [
        _by_survivors(_of_so_many("holds" if holds(mean) else "differs", many[column]), results, column, many[column])
        for column, mean in means.items()
    ]
    verdicts += ["not decided"] * (len(columns) - len(means))
    told = [f"{_in(c)}{words.format(mean)}{survived(results, c, many[c])}" for c, mean in means.items()]
    return Outcome(says=claim.says, verdict=_all(verdicts), evidence=_of_what(claim, told))


def _of_so_many(verdict: Literal["holds", "differs"], seeds: int) -> Verdict:
    """A verdict by a mean, which says where it is of one seed."""
    if seeds > 1:
        return verdict
    return "holds, one seed" if verdict == "holds" else "differs, one seed"


def _trend(results: Results, claim: Claim, columns: Sequence[str]) -> Outcome:
    """From column to column, paired by seed."""
    values = [_values(results, claim, claim.of, column) for column in columns]
    sign = 1.0 if claim.rising else -1.0
    steps = [
        difference([sign * (there[seed] - here[seed]) for seed in sorted({*here} & {*there})])
        for here, there in itertools.pairwise(values)
    ]
    verdicts: list[Verdict] = [
        "not decided" if step.mean is None else _by_survivors(_decided(step, 0.0), results, column, step.n)
        for step, column in zip(steps, columns, strict=False)
    ]
    told = [
        f"{_in(column)}{math.fsum(of.values()) / len(of):.4g}{survived(results, column, len(of))}"
        for column, of in zip(columns, values, strict=True)
        if of
    ]
    return Outcome(says=claim.says, verdict=_all(verdicts), evidence=_of_what(claim, told))


def _growth(results: Results, claim: Claim, columns: Sequence[str]) -> Outcome:
    """The difference of two rows in the last column over that in the first, paired by seed."""
    differences = {column: _differences(results, claim, column) for column in columns}
    first, last = differences[columns[0]], differences[columns[-1]]
    found = difference([last[seed] - first[seed] for seed in sorted({*first} & {*last})])
    if found.mean is None:
        return Outcome(says=claim.says, verdict="not decided", evidence="")
    means = {column: math.fsum(of.values()) / len(of) for column, of in differences.items() if of}
    steady = all(here < there for here, there in itertools.pairwise(means.values()))
    told = [
        f"{_in(column)}{signed(mean, digits=2)}{survived(results, column, len(differences[column]))}"
        for column, mean in means.items()
    ]
    told.append(f"growth {signed(found.mean, digits=2)}{_unit(results, claim)}{_interval(found)}")
    if len(means) > 2:
        told[-1] += ", at every step" if steady else ", not at every step"
    verdict = _by_survivors(_decided(found, claim.more_than), results, columns[0], found.n)
    return Outcome(says=claim.says, verdict=verdict, evidence="; ".join(told))


def _of_what(claim: Claim, told: Sequence[str]) -> str:
    what = f" ({COSTS[claim.measure]})" if claim.measure in COSTS else ""
    return "; ".join(told) + (what if told else "")


def _in(column: str) -> str:
    return f"{column}: " if column else ""
