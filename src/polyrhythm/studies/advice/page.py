"""The page of what pays when: setting by setting, over all of them, and how good advice is where it was not made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from polyrhythm.results.tables import HOLDS_ZERO, NONE, Table, rows, signed
from polyrhythm.runs.costs import COSTS
from polyrhythm.runs.paired import Difference, corrected, difference
from polyrhythm.studies.advice import judging
from polyrhythm.studies.advice.evidence import FIRST, RESOURCES, RULE, Resource, Tried, standings, tried
from polyrhythm.studies.advice.judging import ADVISED, FIRST_THREE, FIXED
from polyrhythm.studies.page.findings import Findings, Outcome, Verdict, holding

CURRICULUM, SWEPT = "Curriculum", "FedAvg by sweeps"


def told(table: Mapping[str, Any]) -> Findings:
    """The tables and claims of the page."""
    held_out, left_out = judging.cases(table), judging.left_out(table)
    judged = {"held-out": held_out, "left-out": left_out}
    claimed = [(name, other) for name, some in judged.items() if some for other in FIXED[:2]]
    found = corrected({str(n): _ahead(judged[name], other) for n, (name, other) in enumerate(claimed)})
    together = [_ahead(judged[name], other, 1.0 - 0.05 / len(claimed)) for name, other in claimed]  # Bonferroni's
    claims = [_claim(gain, wide, *of) for of, gain, wide in zip(claimed, found.values(), together, strict=True)]
    return Findings(
        verdict=holding(claims),
        tables=(
            *(_regrets(some, name) for name, some in judged.items() if some),
            *([_rules(table)] if judging.left_out(table, what="both") else []),
            *([_cases(held_out)] if held_out else []),
            *(_pays(table, resource) for resource in RESOURCES),
            _overall(table),
            *([_sweeps(table)] if {CURRICULUM, SWEPT} <= {*table["recipes"]} else []),
        ),
        claims=tuple(claims),
        notes=tuple(_notes(table)),
    )


def _claim(gain: Difference, wide: Difference, name: str, other: str) -> Outcome:
    """Whether the advice is better than always the same recipe, with an interval that holds for all claims together."""
    if gain.mean is None or gain.low is None or gain.high is None:
        verdict: Verdict = "not decided"
    elif gain.mean > 0:
        verdict = "holds" if gain.shown else "holds on average"
    else:
        verdict = "differs" if gain.shown else "not decided"
    says = f"The first of the advice is better than always {other}, in {_OF[name][0]}"
    chance = "" if gain.holm is None else f", p = {gain.holm:.2g} after Holm's correction for all claims"
    wider = "" if wide.low is None or wide.high is None else f", {_interval(wide)} where all claims are to hold at once"
    return Outcome(says=says, verdict=verdict, evidence=f"{_points(gain)} points{wider}{chance}")


def _loss(some: Sequence[judging.Case], policy: str) -> Difference:
    """What a policy loses to the best, in points."""
    return judging.by_place(some, lambda case: 100.0 * case.regret(policy))


def _ahead(some: Sequence[judging.Case], policy: str, level: float = 0.95) -> Difference:
    """How much more the advice gives than another policy, in points."""
    return judging.by_place(some, lambda case: 100.0 * (case.given(ADVISED) - case.given(policy)), level)


_OF: Mapping[str, tuple[str, str]] = {
    "held-out": ("held-out settings", "each held-out setting and budget"),
    "left-out": (
        "places left out in turn",
        "each setting of the evidence and budget, advised on by the other places, which are dealt in another way or to "
        "another cohort",
    ),
}


def _regrets(some: Sequence[judging.Case], name: str) -> Table:
    """What each policy loses, over settings that the advice was not made from."""
    lines, ahead = [], corrected({policy: _ahead(some, policy) for policy in FIXED})
    ahead[FIRST_THREE] = _ahead(some, FIRST_THREE)
    for policy in (ADVISED, FIRST_THREE, *FIXED):
        of = [[case for case in some if case.resource == resource] for resource in RESOURCES]
        losses = [_loss(cases, policy).mean for cases in (*of, some)]
        highest = sum(case.regret(policy) <= 0 for case in some) / len(some)
        lines.append(
            (
                policy if policy in (ADVISED, FIRST_THREE) else f"always {policy}",
                *(NONE if loss is None else f"{loss:.2f}" for loss in losses),
                f"{highest:.0%}",
                NONE if policy == ADVISED else _points(ahead[policy]),
            )
        )
    return Table(
        name=name,
        caption=f"What is lost to the best recipe of {_OF[name][1]}, in points of accuracy: mean over settings, each "
        "the mean of its three budgets. In how many of all it is the best. And how much more the first of the advice "
        f"gives, with its 95 % interval over {len({c.of.name for c in some})} places, each the mean of its fleets "
        f"(Student's t), as fleets of a place share data, seeds and many updates; {HOLDS_ZERO} the interval holds 0; * "
        f"the difference from a fixed recipe is also shown after Holm's correction for all {len(FIXED)} of them.",
        head=("who follows", *(f"by {r}" for r in RESOURCES), "all", "best", "the advice is ahead by"),
        rows=rows(lines),
    )


def _rules(table: Mapping[str, Any]) -> Table:
    """What the advice loses by how settings count, and by what is left out of the evidence."""
    lines = []
    by_what = [judging.by_rule(table, judging.RULES, what) for what in get_args(judging.Left)]
    for name, rule in judging.RULES.items():
        of = [found[name] for found in by_what]
        losses = [_short(_loss(some, ADVISED)) for some in of]
        called = f"{name} (the advice)" if rule == RULE else name
        lines.append((called, *losses, _points(_ahead(of[-1], "FedAdam"))))
    lines.append(("always FedAdam", *(_short(_loss(some, "FedAdam")) for some in of), NONE))
    return Table(
        name="rules",
        caption="What the first of the advice loses to the best recipe of each setting of the evidence, in points, by "
        "which settings it goes by and by what it does not know of the evidence: the setting's place, its fleet, or "
        "both; and with both left out how much more it gives than always FedAdam, with the interval over places. The "
        "rule was chosen by the column of both, which knows nothing of the held-out settings.",
        head=("goes by", "places left out", "fleets left out", "both left out", "ahead of FedAdam"),
        rows=rows(lines),
    )


def _short(found: Difference) -> str:
    return NONE if found.mean is None else f"{found.mean:.2f}"


def _cases(some: Sequence[judging.Case]) -> Table:
    """Case by case, at the whole budget."""
    whole = {(c.of.name, c.of.fleet, c.resource): c for c in some}  # the last budget is the whole one
    lines = [
        (
            f"{c.of.name}; {c.of.fleet}; by {resource}",
            f"{c.distance:.2f}",
            f"{c.order[0]}: {100 * c.mean(c.order[0]):.1f}",
            f"{c.best}: {100 * c.mean(c.best):.1f}",
            f"{100 * c.regret(ADVISED):.1f}",
            f"{100 * c.regret('FedAvg'):.1f}",
            f"{100 * c.regret('FedAdam'):.1f}",
        )
        for (_, _, resource), c in whole.items()
    ]
    return Table(
        name="cases",
        caption="Held-out settings at the whole budget: the distance of the nearest setting of the evidence, what was "
        "advised and what was best, in percent, and what the advice, always FedAvg and always FedAdam lose to that.",
        head=("setting", "distance", "advised", "best", "advice loses", "FedAvg loses", "FedAdam loses"),
        rows=rows(lines),
        numbers=False,
    )


def _pays(table: Mapping[str, Any], resource: Resource) -> Table:
    """What is highest in each setting, at each budget."""
    lines: dict[str, list[str]] = {}
    for one in tried(table, resource):
        first, *_ = order = standings([one])
        shown = [s.recipe for s in order if s.gain.shown and (s.gain.mean or 0.0) > 0]
        mark = "*" if first.recipe in shown else ""
        gain = signed(100.0 * (first.gain.mean or 0.0), digits=1)
        more = len([name for name in shown if name != first.recipe])
        text = f"{first.recipe} {gain}{mark}" + (f" and {more} more*" if more else "")
        lines.setdefault(f"{one.name}; {one.fleet}", []).append(text)
    return Table(
        name=f"pays-{resource}",
        caption=f"What pays at equal {COSTS[RESOURCES[resource]].words}: the recipe with the highest mean in each "
        "setting at what FedAvg spends in a quarter, half and all of its rounds, and its points over FedAvg. * Above "
        "FedAvg by the paired t-test over seeds at 5 %, after Holm's correction for all recipes; how many others are.",
        head=("setting", "quarter", "half", "all"),
        rows=rows([(name, *texts) for name, texts in lines.items()]),
        numbers=False,
    )


def _overall(table: Mapping[str, Any]) -> Table:
    """Each recipe over all settings of the evidence at the whole budget."""
    every = {resource: [one for n, one in enumerate(tried(table, resource)) if n % 3 == 2] for resource in RESOURCES}
    order = {resource: {s.recipe: s for s in standings(some)} for resource, some in every.items()}
    methods = sorted(order["updates"], key=lambda row: -(order["updates"][row].gain.mean or 0.0))
    lines = [
        (row, *(f"{_points(_in_points(order[r][row].gain))}, {order[r][row].best:.0%}" for r in RESOURCES))
        for row in methods
    ]
    return Table(
        name="overall",
        caption="Each recipe over all settings of the evidence at the whole budget: points over FedAvg, mean over "
        f"settings, with the 95 % interval over seeds ({HOLDS_ZERO} holds 0; * also apart after Holm's correction "
        "for all recipes), and in how many of all settings and seeds it is highest.",
        head=("recipe", *(f"by {r}" for r in RESOURCES)),
        rows=rows(lines),
    )


def _sweeps(table: Mapping[str, Any]) -> Table:
    """How much of what the curriculum gives is its participation, by fleet."""
    lines = []
    for resource in ("updates", "time"):
        whole = [one for n, one in enumerate(tried(table, resource)) if n % 3 == 2]
        for fleet in dict.fromkeys(one.fleet for one in whole):
            some = [one for one in whole if one.fleet == fleet]
            pairs = ((SWEPT, FIRST), (CURRICULUM, FIRST), (CURRICULUM, SWEPT))
            found = [_points(difference([100.0 * _above(one, *pair) for one in some])) for pair in pairs]
            met = sum(one.situation.met for one in some) / len(some)
            lines.append((f"{fleet}; by {resource}", str(len(some)), f"{met:.0%}", *found))
    return Table(
        name="sweeps",
        caption="The curriculum invites by sweeps: everybody once before anybody twice, and who is not there is waited "
        "for. How much of what it gives is that: points at the whole budget, mean over the places of the evidence on "
        f"each fleet, with the 95 % interval over places ({HOLDS_ZERO} holds 0; not corrected). Met: the share of the "
        "clients that are there at some time while FedAvg spends the budget, and that it can hear at all.",
        head=("fleet", "places", "met", f"{SWEPT} over FedAvg", "Curriculum over FedAvg", f"Curriculum over {SWEPT}"),
        rows=rows(lines),
    )


def _above(one: Tried, recipe: str, other: str) -> float:
    pairs = zip(one.scores[recipe], one.scores[other], strict=True)
    return sum(a - b for a, b in pairs) / len(one.scores[other])


def _notes(table: Mapping[str, Any]) -> Iterator[str]:
    seeds = table["seeds"]
    yield (
        f"Seeds of the evidence: {', '.join(map(str, seeds['evidence']))}; of the held-out settings: "
        f"{', '.join(map(str, seeds['held out']))}. Intervals over so few seeds are wide."
    )


def _in_points(found: Difference) -> Difference:
    values: dict[str, Any] = {
        key: None if (v := getattr(found, key)) is None else 100.0 * v for key in ("mean", "low", "high")
    }
    return replace(found, **values)


def _points(found: Difference) -> str:
    """A difference in points with its interval."""
    if found.mean is None:
        return NONE
    if found.low is None or found.high is None:
        return signed(found.mean, digits=2)
    mark = HOLDS_ZERO if found.holds_zero else "*" if found.shown else ""
    return f"{signed(found.mean, digits=2)} {_interval(found)}{mark}"


def _interval(found: Difference) -> str:
    return f"[{signed(found.low or 0.0, digits=2)}, {signed(found.high or 0.0, digits=2)}]"
