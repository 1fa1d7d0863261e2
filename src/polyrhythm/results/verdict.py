"""Which method is best, and whether that is shown: the sentence that sums a comparison up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.base.metric_names import in_words
from polyrhythm.results import tables
from polyrhythm.runs import match
from polyrhythm.runs.comparison import ComparedRuns, spread
from polyrhythm.runs.costs import On
from polyrhythm.runs.paired import Difference, difference
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


def best_used(found: ComparedRuns[RecordedRun], level: float = 0.95) -> Best | None:
    """The method that serves the mean client best by the models that clients use, on their own tests.

    None where no client has a model of its own, or fewer than two methods have such results: then `best` says it all.

    Args:
        found: the methods.
        level: of the interval.
    """
    names = comparable(found)
    if not any(found.has_own_models(name) for name in names):
        return None
    used = {name: of for name in names if (of := found.used(name))}
    if len(used) < 2:
        return None
    first, second, *_ = sorted(used, key=lambda name: -spread(list(used[name].values()))["mean"])
    both = sorted(used[first].keys() & used[second].keys())
    return Best(
        method=first,
        second=second,
        gain=difference([used[first][seed] - used[second][seed] for seed in both], level),
    )


def verdict(found: ComparedRuns[RecordedRun], on: On = "test", level: float = 0.95) -> str:
    """Which method ends highest, and whether it is shown to be better than the next one.

    A sentence by the models that clients use stands before that of the global ones where clients have their own.
    """
    first = best(found, "final", on, level)
    own = best_used(found, level) if on == "test" else None
    if first is None and own is None:
        return f"No method has a final {in_words(found.headline)} on the {on} set."
    told = "" if own is None else _of_clients(found, own)
    if first is None:
        return f"{told}{_left_out(found)}"
    said = f"final {in_words(found.headline)} {_over_seeds(found, first.method, on)}"
    if first.second is None:
        return f"{first.method}: {said}.{_left_out(found)}"
    means = [spread(list(found.read(name, "final", on).values()))["mean"] for name in (first.method, first.second)]
    if means[0] == means[1]:
        ends = f"{first.method} and {first.second} end highest, {said}."
    else:
        ends = f"{first.method} ends highest, {said}; next is {first.second} ({_over_seeds(found, first.second, on)})."
    return f"{told}{' Of global models, ' if told else ''}{ends} {_gap(first.gain)}{_left_out(found)}"


def _of_clients(found: ComparedRuns[RecordedRun], own: Best) -> str:
    values = {name: list(found.used(name).values()) for name in (own.method, own.second) if name is not None}
    first, second = (f"{tables.scores(spread(of), len(of))} over {_seeds(len(of))}" for of in values.values())
    return (
        f"By the models that clients use, on their own tests, {own.method} serves the mean client best, "
        f"{in_words(found.headline)} {first}; next is {own.second} ({second}). {_gap(own.gain)}"
    )


def _left_out(found: ComparedRuns[RecordedRun]) -> str:
    others = [name for name in found.methods if name not in comparable(found)]
    if not others:
        return ""
    named = others[0] if len(others) == 1 else f"{len(others)} methods"
    return f" Left out, as on other data or another fleet: {named}."


def _over_seeds(found: ComparedRuns[RecordedRun], name: str, on: On) -> str:
    values = list(found.read(name, "final", on).values())
    return f"{tables.scores(spread(values), len(values))} over {_seeds(len(values))}"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"


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
