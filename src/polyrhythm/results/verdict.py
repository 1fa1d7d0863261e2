"""Which method is best, and whether that is shown: the sentence that sums a comparison up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.base.metric_names import in_words
from polyrhythm.results import tables
from polyrhythm.runs import match
from polyrhythm.runs.comparison import ComparedRuns, spread
from polyrhythm.runs.costs import On
from polyrhythm.runs.paired import Difference
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.result_rule import Reading


@final
@dataclass(frozen=True, kw_only=True)
class Best:
    """The method with the highest mean, and how it stands to the second.

    Args:
        method: its name.
        second: the next one; None if there is but one.
        gain: what it gives more than the second, paired by seed.
    """

    method: str
    second: str | None
    gain: Difference

    @property
    def shown(self) -> bool:
        """Whether the interval of the difference to the second leaves out 0."""
        return self.gain.holds_zero is False and (self.gain.mean or 0.0) > 0


def best(found: ComparedRuns[RecordedRun], reading: Reading, on: On, level: float = 0.95) -> Best | None:
    """The best method by a reading, among those on the baseline's data and fleet; None if none has a number.

    Args:
        found: the methods.
        reading: which number of a run.
        on: the set that it is judged on.
        level: of the interval.
    """
    means = {name: spread(list(found.read(name, reading, on).values()))["mean"] for name in comparable(found)}
    order = sorted((name for name in means if means[name] is not None), key=lambda name: -means[name])
    if not order:
        return None
    if len(order) == 1:
        return Best(method=order[0], second=None, gain=Difference(mean=None, level=level))
    gains = found.differences(baseline=order[1], reading=reading, on=on, level=level)
    return Best(method=order[0], second=order[1], gain=gains[order[0]])


def comparable(found: ComparedRuns[RecordedRun]) -> list[str]:
    """The methods on the data and fleet of the baseline: numbers on others are of another problem."""
    base = found.methods[found.baseline][0].config
    return [name for name, members in found.methods.items() if match.paired(members[0].config, base)]


def verdict(found: ComparedRuns[RecordedRun], on: On = "test", level: float = 0.95) -> str:
    """One sentence: which method ends highest, and whether it is shown to be better than the next one."""
    first = best(found, "final", on, level)
    if first is None:
        return f"No method has a final {in_words(found.headline)} on the {on} set."
    said = f"final {in_words(found.headline)} {_over_seeds(found, first.method, on)}"
    if first.second is None:
        return f"{first.method}: {said}.{_left_out(found)}"
    other = f"{first.second} ({_over_seeds(found, first.second, on)})"
    means = [spread(list(found.read(name, "final", on).values()))["mean"] for name in (first.method, first.second)]
    ends = f"and {first.second} end highest" if means[0] == means[1] else "ends highest"
    return f"{first.method} {ends}, {said}; next is {other}. {_gap(first.gain)}{_left_out(found)}"


def _left_out(found: ComparedRuns[RecordedRun]) -> str:
    others = [name for name in found.methods if name not in comparable(found)]
    if not others:
        return ""
    named = others[0] if len(others) == 1 else f"{len(others)} methods"
    return f" Left out, as on other data or another fleet: {named}."


def _over_seeds(found: ComparedRuns[RecordedRun], name: str, on: On) -> str:
    values = list(found.read(name, "final", on).values())
    seeds = f"{len(values)} seed{'s' if len(values) != 1 else ''}"
    return f"{tables.scores(spread(values), len(values))} over {seeds}"


def _gap(gain: Difference) -> str:
    if gain.mean is None:
        return "They have no seed in common, so neither is shown to be better."
    if gain.holds_zero is None:
        few = "one pair has" if gain.n == 1 else f"{gain.n} pairs that all differ by the same have"
        return f"The difference is {tables.gain(gain)}; {few} no interval, so neither is shown to be better."
    told = f"The paired difference is {tables.gain(gain)} over {gain.n} seeds; its {gain.level * 100:g} % interval"
    if gain.holds_zero:
        return f"{told} holds 0, so neither is shown to be better."
    return f"{told} leaves out 0."
