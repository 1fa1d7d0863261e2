"""What wins when: the best row by each yardstick, which rows are above or below the first, and whom they serve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from polyrhythm.results import tables
from polyrhythm.results.tables import NONE, Table, signed
from polyrhythm.runs.comparison import spread
from polyrhythm.runs.paired import Difference, corrected, difference
from polyrhythm.studies.claims import BUDGETS, OF_CLIENTS, SERVED
from polyrhythm.studies.names import named
from polyrhythm.studies.page.judging import Results
from polyrhythm.studies.page.numbers import HEADS, percent

FEWEST = 3
"""Rows of which one can be said to win."""


def standings(results: Results) -> Table | None:
    """The best row by each yardstick, and how sure that is; None with two rows or fewer, or of a paper's own table."""
    plan = results.plan
    if len(plan.rows) < FEWEST or plan.of.of_paper or not plan.of.paper:
        return None
    first = plan.rows[0]
    lines = []
    for column in plan.columns:
        for words, of in _yardsticks(results, column).items():
            seeds = max(map(len, of.values()), default=0)
            known = {row: values for row, values in of.items() if values and len(values) == seeds}
            if len(known) < FEWEST or first not in known:
                continue
            order = sorted(known, key=lambda row: (-_mean(known[row]), plan.rows.index(row)))
            ahead = _paired(known[order[0]], known[order[1]])
            gains = corrected({row: _paired(known[row], known[first]) for row in known if row != first})
            lines.append(
                (
                    named(words, column),
                    f"{order[0]}: {percent(known[order[0]])}",
                    f"{order[1]}: {_told(ahead)}",
                    _apart(gains, 1),
                    _apart(gains, -1),
                )
            )
    return Table(
        name="standings",
        caption="What wins by which yardstick, in percent: the highest mean over seeds, by how many points it is "
        f"before the second, and the rows that are above or below {first}, paired by seed, where the 95 % interval "
        f"(Student's t) leaves out 0. {tables.HOLDS_ZERO} The interval holds 0. * Also after Holm's correction for the "
        "rows of the line. At equal costs, each row had spent as much as the cheapest of its column in all. A row of "
        "which fewer seeds have a result than of others is left out.",
        head=("", "highest", "before", f"above {first}", f"below {first}"),
        rows=tables.rows(lines),
        numbers=False,
    )


def _yardsticks(results: Results, column: str) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    """What rows can be judged by, in words: the result of each seed of each row."""
    rows = [row for row in results.plan.rows if results.runs.get((row, column))]
    found = {"in the end": {row: results.values((row, column)) for row in rows}}
    for cost in BUDGETS:
        budgets = results.least(rows, column, cost)
        if any(budgets.values()):
            found[f"at equal {HEADS[cost]}"] = {row: results.at_budget((row, column), cost, budgets) for row in rows}
    for measure, words in SERVED.items():
        if measure == "rarest_quarter" and _of_own(results):
            continue  # which is of the global model
        found[words] = {row: results.values((row, column), measure) for row in rows}
    return found


def _of_own(results: Results) -> bool:
    """Whether rows are judged by the models of clients' own; what is known of clients by presence is of the global."""
    return results.plan.of.measure in OF_CLIENTS


def served(results: Results) -> Table | None:
    """Who is heard and served, row by row; None where clients have no tests of their own."""
    lines = []
    for cell in results.plan.cells:
        key = (cell.row, cell.column)
        worst = results.values(key, "worst_tenth")
        if not worst:
            continue
        bias = [run.bias for run in results.runs[key].values()]
        shares = [[None if one[name] is None else 100.0 * one[name] for one in bias] for name in _SHARES]  # type: ignore[operator]
        lines.append(
            (
                named(*key),
                percent(results.values(key, "clients")),
                percent(worst),
                *(percent(dict(enumerate(v for v in values if v is not None))) for values in shares),
                tables.scores(spread([one["loss_by_availability"] for one in bias]), len(bias)),
            )
        )
    if not lines:
        return None
    word = results.headlines
    if _of_own(results):
        return Table(
            name="served",
            caption=f"Who is served: {word} of the models that clients use in the end, on their own tests, in percent.",
            head=("", "mean over clients", "worst tenth"),
            rows=tables.rows([line[:3] for line in lines]),
        )
    return Table(
        name="served",
        caption=f"Who is heard and served: {word} of the last evaluated version on clients' own tests, in percent, of "
        "the rarest and the commonest quarter of clients by the time they were there (by how often they were heard, "
        "where that is the same for all); the share of clients that were never heard; and Spearman's rank correlation "
        "of a client's loss with how long it was there, below 0 where the rare are served worse.",
        head=(
            "",
            "mean over clients",
            "worst tenth",
            "rarest quarter",
            "commonest quarter",
            "never heard",
            "loss with being there",
        ),
        rows=tables.rows(lines),
    )


_SHARES = ("score_rare", "score_common", "never_heard")


def _mean(values: Mapping[int, float]) -> float:
    return math.fsum(values.values()) / len(values)


def _paired(of: Mapping[int, float], against: Mapping[int, float]) -> Difference:
    return difference([of[seed] - against[seed] for seed in sorted({*of} & {*against})])


def _told(found: Difference) -> str:
    if found.mean is None:
        return NONE
    interval = ""
    if found.low is not None and found.high is not None:
        holds = tables.HOLDS_ZERO if found.holds_zero else ""
        interval = f" [{signed(found.low, digits=2)}, {signed(found.high, digits=2)}]{holds}"
    return f"{signed(found.mean, digits=2)}{interval}"


def _apart(gains: Mapping[str, Difference], sign: int) -> str:
    """The rows that are shown to be on one side of the first, the farthest first."""
    apart = [
        (row, one)
        for row, one in gains.items()
        if one.mean is not None and one.mean * sign > 0 and one.holds_zero is False
    ]
    apart.sort(key=lambda pair: -abs(pair[1].mean or 0.0))
    return ", ".join(f"{row} {signed(one.mean or 0.0, digits=2)}{'*' * one.shown}" for row, one in apart) or NONE


def tables_of(results: Results) -> Sequence[Table]:
    """Both, where there is something to say."""
    return [one for one in (standings(results), served(results)) if one is not None]
