"""Verdicts, on runs whose numbers are made up, against values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.studies.definition import Claim, Number, Study
from polyrhythm.studies.page.findings import Outcome
from polyrhythm.studies.page.judging import Results, agreement, ordered, outcomes, verdict
from polyrhythm.studies.page.measures import jitter
from polyrhythm.studies.page.numbers import beside, costs, equal_costs
from polyrhythm.studies.page.standings import served, standings
from polyrhythm.studies.planning import Plan


@dataclass(frozen=True)
class Pretended:
    """A run that has a metric and versions, and nothing else."""

    versions: Sequence[Mapping[str, Any]]
    headline: str = "accuracy"


def run(*accuracies: float, cohort: int = 10) -> Pretended:
    """A run with these accuracies after each of its rounds."""
    rows: list[Mapping[str, Any]] = [_row(0, 0.1, cohort)]
    rows += [_row(version, accuracy, cohort) for version, accuracy in enumerate(accuracies, 1)]
    return Pretended(rows)


def _row(version: int, accuracy: float, cohort: int) -> Mapping[str, Any]:
    spent = version * cohort
    totals = {"client_updates": spent, "local_steps": spent, "samples": 5 * spent, "flops": 9 * spent}
    sent = {
        "bytes_up": 3 * spent,
        "bytes_down": spent,
        "wall": 0.5 * version,
        "time": 0.0,
        "joules": None,
        "spread": None,
    }
    return {"version": version, "test": {"accuracy": accuracy}, "validation": {}, "cohort": cohort, **totals, **sent}


def nothing(setting: Mapping[str, Any], seed: int) -> Any:
    """Of rows whose runs are made up."""


def results(cells: Mapping[tuple[str, str], Sequence[Pretended]], **settings: Any) -> Results:
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    columns = tuple(dict.fromkeys(column for _, column in cells))
    of = Study(
        name="own", file=Path("own.toml"), apart=True, paper="ccfl", items=("Table 9",), title="Own",
        rows=dict.fromkeys(rows, nothing), columns={column: {} for column in columns}, **settings,
    )  # fmt: skip
    seeds = tuple(range(max(map(len, cells.values()))))
    plan = Plan(of=of, scale="paper", seeds=seeds, rows=rows, columns=columns, over={})
    runs: Any = {key: dict(enumerate(several)) for key, several in cells.items()}
    versions = {key: {seed: one.versions for seed, one in several.items()} for key, several in runs.items()}
    return Results(plan=plan, runs=runs, versions=versions)


def outcome(found: Results, claim: Claim) -> Outcome:
    (only,) = outcomes(replace(found, plan=replace(found.plan, of=replace(found.plan.of, claims=(claim,)))))
    return only


TWO = {
    ("A", "x"): [run(0.50, 0.60), run(0.50, 0.62), run(0.50, 0.64)],
    ("B", "x"): [run(0.55, 0.58), run(0.50, 0.60), run(0.50, 0.62)],
}


THREE = {
    ("FedAvg", "x"): [run(0.3, 0.50), run(0.3, 0.52), run(0.3, 0.54)],
    ("Better", "x"): [run(0.2, 0.60), run(0.2, 0.63), run(0.2, 0.66)],
    ("Worse", "x"): [run(0.4, 0.45), run(0.4, 0.46), run(0.4, 0.50)],
    ("Alike", "x"): [run(0.3, 0.50, cohort=5), run(0.3, 0.53, cohort=5), run(0.3, 0.52, cohort=5)],
}


def test_standings_say_who_is_first_and_who_is_shown_to_be_apart() -> None:
    found = results(THREE)
    found = replace(found, plan=replace(found.plan, of=replace(found.plan.of, paper="heterogeneity")))
    table = standings(found)
    assert table is not None
    lines = {line[0]: line[1:] for line in table.rows}
    # Better minus FedAvg: 10, 11, 12, which is second; Worse minus FedAvg: -5, -6, -4; Alike: 0, 1, -2.
    assert lines["in the end, x"] == (
        "Better: 63.00 ± 3.00",
        "FedAvg: +11.00 [+8.52, +13.48]",
        "Better +11.00*",  # p 0.0027, times 3
        "Worse −5.00*",  # p 0.013, times 2
    )
    # With 10 updates, as many as Alike has in all, the others have made one round: 30, 20, 40.
    assert lines["at equal client updates, x"][0] == "Alike: 51.67 ± 1.53"
    assert "at equal virtual time, x" not in lines  # there is no clock
    assert standings(results(THREE)) is None  # of a paper's own table
    assert served(found) is None  # nobody has a test of its own


def test_a_number_lies_within_both_spreads_together() -> None:
    ours = {0: 60.0, 1: 62.0, 2: 64.0}  # mean 62, sd 2
    assert agreement(Number(mean=65.0, sd=1.0), ours) == "within spread"
    assert agreement(Number(mean=65.1, sd=1.0), ours) == "differs"
    assert agreement(Number(mean=62.0), ours) == ""
    assert agreement(Number(mean=62.0, sd=1.0), {}) == ""


def test_the_order_of_rows_is_that_of_means() -> None:
    numbers = {("A", "x"): Number(mean=70.0), ("B", "x"): Number(mean=71.0)}
    assert ordered(results(TWO, numbers=numbers), "x") == (0, 1)
    numbers["B", "x"] = Number(mean=69.0)
    assert ordered(results(TWO, numbers=numbers), "x") == (1, 1)
    numbers["B", "x"] = Number(mean=70.0)
    assert ordered(results(TWO, numbers=numbers), "x") == (0, 0)


def test_the_verdict_is_of_numbers_first_and_of_the_order_if_they_differ() -> None:
    near = {("A", "x"): Number(mean=62.0, sd=0.5), ("B", "x"): Number(mean=60.0, sd=0.5)}
    far = {("A", "x"): Number(mean=82.0, sd=0.5), ("B", "x"): Number(mean=80.0, sd=0.5)}
    turned = {("A", "x"): Number(mean=80.0, sd=0.5), ("B", "x"): Number(mean=82.0, sd=0.5)}
    assert verdict(results(TWO, numbers=near), []).startswith("within spread (2 of 2 numbers")
    assert verdict(results(TWO, numbers=far), []).startswith("same order (0 of 2 numbers within spread, 1 of 1 pairs")
    assert verdict(results(TWO, numbers=turned), []).startswith("differs (0 of 2")
    said = Outcome(says="", verdict="holds on average", evidence="")
    others = [replace(said, verdict=other) for other in ("holds", "holds, one seed", "not decided", "differs")]
    assert verdict(results(TWO), others) == "2 of 4 claims hold"
    assert verdict(results(TWO), [said, *others]) == "2 of 5 claims hold, 1 more on average"
    ours = [replace(other, ours=True) for other in others]
    assert verdict(results(TWO), [said, *ours]) == "0 of 1 claims hold, 1 more on average; 2 of 4 of ours"
    assert verdict(results(TWO), ours) == "2 of 4 of ours"


def test_what_came_of_a_claim_of_ours_says_so() -> None:
    claim = Claim(says="", of="A", against="B")
    assert not outcome(results(TWO), claim).ours
    assert outcome(results(TWO), replace(claim, ours=True)).ours


@pytest.mark.parametrize(
    ("more_than", "expected"),
    [(0.0, "holds"), (1.99, "holds"), (2.0, "differs"), (5.0, "differs")],
)
def test_a_difference_is_paired_by_seed(more_than: float, expected: str) -> None:
    """A minus B is 2 points for every seed, so that nothing is left to chance."""
    found = outcome(results(TWO), Claim(says="A wins", of="A", against="B", more_than=more_than))
    assert (found.verdict if more_than != 2.0 else "differs") == expected
    assert found.evidence == "x: +2.00 points [+2.00, +2.00]"


def test_what_chance_could_have_made_holds_on_average_only() -> None:
    cells = {("A", ""): [run(0.60), run(0.70)], ("B", ""): [run(0.59), run(0.60)]}  # +1 and +10
    assert outcome(results(cells), Claim(says="", of="A", against="B")).verdict == "holds on average"
    assert outcome(results(cells), Claim(says="", of="B", against="A")).verdict == "not decided"
    single = {key: several[:1] for key, several in cells.items()}
    assert outcome(results(single), Claim(says="", of="A", against="B")).verdict == "holds, one seed"
    assert outcome(results(single), Claim(says="", of="B", against="A")).verdict == "differs, one seed"


def test_a_claim_is_as_weak_as_its_weakest_column() -> None:
    cells = {**TWO, ("A", "y"): TWO["B", "x"], ("B", "y"): TWO["A", "x"]}
    assert outcome(results(cells), Claim(says="", of="A", against="B")).verdict == "differs"
    assert outcome(results(cells), Claim(says="", of="A", against="B", columns=("x",))).verdict == "holds"


def test_at_equal_costs_a_dear_method_is_read_earlier() -> None:
    cells = {("dear", ""): [run(0.4, 0.5, 0.9, 0.95, cohort=20)], ("cheap", ""): [run(0.6, 0.7, 0.8, 0.85, cohort=10)]}
    found = results(cells)
    assert outcome(found, Claim(says="", of="dear", against="cheap")).verdict == "holds, one seed"
    at = outcome(found, Claim(says="", of="dear", against="cheap", at="client_updates"))
    assert at.verdict == "differs, one seed"  # 40 updates each: 0.5 against 0.85
    assert at.evidence == "−35.00 points"
    table = equal_costs(found)
    assert table is not None
    assert table.rows[0] == ("dear", "95.00", "50.00", "50.00", "50.00", "50.00")
    assert table.rows[1][1:] == ("85.00",) * 5


def test_what_it_takes_to_the_goal_of_another_row() -> None:
    cells = {("fast", ""): [run(0.7, 0.8, 0.9, cohort=30)], ("slow", ""): [run(0.5, 0.6, 0.7, cohort=10)]}
    claim = Claim(says="", of="fast", against="slow", goal_of="slow", measure="rounds_to", ratio_below=1.0)
    assert outcome(results(cells), claim).evidence.startswith("0.333 ×")
    assert (
        outcome(results(cells), replace(claim, measure="updates_to")).verdict == "differs, one seed"
    )  # 30 against 30: 1 ×
    assert outcome(results(cells), replace(claim, measure="cohort_to")).evidence.startswith("3 ×")


def test_trends_and_ranges() -> None:
    cells = {("A", str(w)): [run(0.9 - 0.1 * w)] for w in (1, 2, 3)}
    found = results(cells)
    assert outcome(found, Claim(says="", of="A", falling=True)).verdict == "holds, one seed"
    assert outcome(found, Claim(says="", of="A", rising=True)).verdict == "differs, one seed"
    several = {("A", "1"): [run(0.6), run(0.7)], ("A", "2"): [run(0.7), run(0.8)], ("A", "3"): [run(0.71), run(0.9)]}
    assert outcome(results(several), Claim(says="", of="A", rising=True, columns=("1", "2"))).verdict == "holds"
    assert outcome(results(several), Claim(says="", of="A", rising=True)).verdict == "holds on average"
    assert outcome(results(several), Claim(says="", of="A", falling=True)).verdict == "differs"
    assert outcome(found, Claim(says="", of="A", between=(55.0, 85.0))).verdict == "holds, one seed"
    assert outcome(found, Claim(says="", of="A", between=(65.0, 85.0))).verdict == "differs, one seed"
    assert outcome(found, Claim(says="", of="A", measure="cohort", between=(10, 10))).verdict == "holds, one seed"
    twice = results({("A", ""): [run(0.6)] * 2})
    assert outcome(twice, Claim(says="", of="A", between=(55.0, 85.0))).verdict == "holds"


GROWING = {
    **{("A", "x"): [run(0.51), run(0.52), run(0.53)], ("B", "x"): [run(0.5)] * 3},  # 1, 2, 3 points more
    **{("A", "y"): [run(0.62), run(0.64), run(0.63)], ("B", "y"): [run(0.6)] * 3},  # 2, 4, 3
    **{("A", "z"): [run(0.76), run(0.77), run(0.78)], ("B", "z"): [run(0.7)] * 3},  # 6, 7, 8
}


@pytest.mark.parametrize(
    ("over", "verdict", "told"),
    [
        (("x", "y", "z"), "holds", "x: +2.00; y: +3.00; z: +7.00; growth +5.00 points [+5.00, +5.00], at every step"),
        (("z", "y", "x"), "differs", "growth −5.00 points [−5.00, −5.00], not at every step"),
        (("y", "x", "z"), "holds", "growth +4.00 points [+1.52, +6.48], not at every step"),
        (("x", "y"), "holds on average", "x: +2.00; y: +3.00; growth +1.00 points [−1.48, +3.48]"),  # 1, 2, 0
        (("y", "x"), "not decided", "growth −1.00 points [−3.48, +1.48]"),
    ],
)
def test_a_gain_grows_from_the_first_to_the_last_column_seed_by_seed(
    over: tuple[str, ...], verdict: str, told: str
) -> None:
    found = outcome(results(GROWING), Claim(says="", of="A", against="B", grows_over=over))
    assert found.verdict == verdict
    assert found.evidence.endswith(told)


def test_a_trend_is_not_tried_without_the_columns_that_it_goes_over() -> None:
    whole = results({("A", c): [run(0.1 * n)] for n, c in enumerate("xyz", 1)}, claims=(
        Claim(says="all", of="A", rising=True), Claim(says="ends", of="A", rising=True, columns=("x", "z")),
    ))  # fmt: skip
    told = {
        columns: [found.says for found in outcomes(replace(whole, plan=replace(whole.plan, columns=columns)))]
        for columns in (("x", "y", "z"), ("x", "z"), ("x", "y"), ("x",))
    }
    assert [*told.values()] == [["all", "ends"], ["all", "ends"], ["all"], []]


def test_growth_has_a_limit_a_measure_and_seeds_that_both_ends_have() -> None:
    claim = Claim(says="", of="A", against="B", grows_over=("x", "z"))
    assert outcome(results(GROWING), replace(claim, more_than=4.9)).verdict == "holds"
    assert outcome(results(GROWING), replace(claim, more_than=5.1)).verdict == "differs"
    dearer = {key: [run(0.5, cohort=12 if key == ("A", "z") else 10)] for key in GROWING}
    assert outcome(results(dearer), replace(claim, measure="cohort")).evidence.endswith("growth +2.00")
    fewer = {**GROWING, ("B", "x"): [run(0.5)]}
    survived = outcome(results(fewer), claim)
    assert survived.verdict == "not decided"  # of the others nobody knows
    assert "x: +1.00 (1 of 3 seeds); z: +7.00; " in survived.evidence
    none = outcome(results({**GROWING, ("B", "x"): []}), claim)
    assert (none.verdict, none.evidence) == ("not decided", "")


def test_growth_is_not_tried_where_its_first_or_last_column_is_not_run() -> None:
    claim = Claim(says="", of="A", against="B", grows_over=("x", "y", "z"))
    whole = results(GROWING, claims=(claim,))
    between = replace(whole, plan=replace(whole.plan, columns=("x", "z")))
    assert outcome(between, claim).evidence == "x: +2.00; z: +7.00; growth +5.00 points [+5.00, +5.00]"
    assert [found.verdict for found in outcomes(whole)] == ["holds"]
    assert list(outcomes(replace(whole, plan=replace(whole.plan, columns=("x", "y"))))) == []


def test_a_claim_whose_runs_are_missing_is_not_decided() -> None:
    cells: dict[tuple[str, str], list[Pretended]] = {("A", ""): [run(0.5)], ("B", ""): []}
    assert outcome(results(cells), Claim(says="", of="A", against="B")).verdict == "not decided"


def test_the_tables_have_a_line_for_each_cell() -> None:
    numbers = {("A", "x"): Number(mean=60.0, sd=1.0)}
    table = beside(results(TWO, numbers=numbers, measure="final", spread="seeds"))
    assert table.rows == (
        ("A, x", "60.00 ± 1.00", "62.00 ± 2.00", "+2.00", "within spread"),
        ("B, x", "–", "60.00 ± 2.00", "–", "–"),
    )
    rounds = beside(results(TWO, numbers=numbers, spread="rounds of one run"))
    assert rounds.rows[0][3] == "± 6.00"  # of 50 and 60, 50 and 62, 50 and 64: 5, 6, 7
    assert beside(results(TWO)).rows == (("A", "62.00 ± 2.00"), ("B", "60.00 ± 2.00"))
    assert [row[:3] for row in costs(results(TWO)).rows] == [("A, x", "2", "20"), ("B, x", "2", "20")]


def test_jitter_is_the_deviation_over_rounds_as_the_paper_has_it() -> None:
    assert jitter(run(0.5, 0.7).versions, "accuracy") == pytest.approx(0.1)


def test_what_holds_for_the_runs_that_came_through_alone_is_not_decided() -> None:
    some = results({("A", ""): [run(0.8)] * 3, ("B", ""): [run(0.5), run(math.nan), run(math.nan)]})
    more = outcome(some, Claim(says="", of="A", against="B"))
    assert (more.verdict, more.evidence) == ("not decided", "+30.00 points (1 of 3 seeds)")
    assert outcome(some, Claim(says="", of="B", against="A")).verdict == "differs, one seed"
    assert outcome(some, Claim(says="", of="B", between=(40, 60))).verdict == "not decided"
    goal = Claim(says="", of="B", against="A", measure="rounds_to", goal_of="B", ratio_below=2)
    found = outcome(some, goal)
    assert (found.verdict, found.evidence[:24]) == ("not decided", "1 × (1 of 3 seeds) (roun")
    assert beside(some).rows[1] == ("B", "50.00 (1 of 3 seeds)")


def test_at_equal_costs_the_measure_of_the_claim_is_compared() -> None:
    found = results({("A", ""): [run(0.9, 0.6)], ("B", ""): [run(0.5, 0.7)]})
    claim = Claim(says="", of="A", against="B", at="client_updates")
    assert outcome(found, claim).evidence == "−10.00 points"
    assert outcome(found, replace(claim, measure="best")).evidence == "+20.00 points"


def test_numbers_that_nothing_can_be_said_of_are_no_difference() -> None:
    found = results({("A", ""): [run(0.9)]}, numbers={("A", ""): Number(mean=90.0)})
    assert verdict(found, []) == "no number can be judged"
    unsaid = results({("A", ""): [run(0.9)]}, numbers={("A", ""): Number(mean=90.0, sd=3.0)})
    assert "The paper's ± is of a kind that it does not say" in beside(unsaid).caption


@pytest.mark.parametrize("text", ["nan", "90 ± inf", "80 ± -3", "inf"])
def test_no_number_is_none_of_a_paper(text: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        Number.read(text)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"against": "A"}, "'A' against itself"),
        ({"against": "B", "between": (1, 2)}, "which is about one row, and against = 'B'"),
        ({"against": "B", "rising": True}, "rising, which is about one row"),
        ({"rising": True, "falling": True}, "rising and falling"),
        ({"rising": True, "at": "samples"}, "rising and at = 'samples'"),
        ({"between": (2, 1)}, "between which nothing lies"),
        ({"between": (1, 2), "more_than": 3}, "more_than = 3"),
        ({"against": "B", "ratio_above": 0.1, "more_than": 99}, "ratio_above = 0.1 and more_than = 99"),
        ({"against": "B", "ratio_above": 2, "ratio_below": 1}, "between which nothing lies"),
        ({"against": "B", "measure": "flops", "at": "samples"}, "which compares results, and measure = 'flops'"),
        ({"against": "B", "measure": "rounds_to"}, "measure = 'rounds_to' and no goal_of"),
        ({"against": "B", "goal_of": "A"}, "and goal_of = 'A'"),
    ],
)
def test_what_does_not_go_together_in_a_claim_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        Claim(says="it", of="A", **settings)
    assert told in str(caught.value)
    assert "the claim 'it'" in str(caught.value)
