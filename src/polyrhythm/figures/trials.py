"""Trials of a search as figures need them: settings, scores, when; and how much each key matters."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from polyrhythm.base.metric_names import in_words
from polyrhythm.runs.json_text import to_json

LEAST = 10
"""Finished trials from which on importance is told."""
_BINS = 4  # groups of a number that has more values
_LOG = 20.0  # times the least, from where a number is spread over orders of magnitude


@final
@dataclass(frozen=True, kw_only=True)
class Tried:
    """Tried setting, and what it gave.

    Args:
        number: of the trial, from 1.
        setting: a value for each key.
        state: "waiting", "finished", "pruned" or "failed".
        score: on the validation data, more is better; None without one.
        reason: why it was pruned or failed.
        started, ended: seconds since the first trial began; None where nobody knows.
        runs: ids of its runs, by seed.
        same_as: the earlier trial whose results these are; None if they are its own.
    """

    number: int
    setting: Mapping[str, Any]
    state: str = "waiting"
    score: float | None = None
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    runs: Mapping[str, str] = field(default_factory=dict)
    same_as: int | None = None


class Share(NamedTuple):
    """How much of the variance of trials' ranks one key explains alone, and in how many groups of its values."""

    share: float
    groups: int


@final
@dataclass(frozen=True)
class Trials:
    """Trials of one arm of a study.

    Args:
        name: of the study, and of the arm.
        headline: the metric that judges.
        tried: in the order of their numbers.
    """

    name: str
    headline: str
    tried: tuple[Tried, ...]

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """What is set, in order."""
        return tuple(dict.fromkeys(key for trial in self.tried for key in trial.setting))

    @functools.cached_property
    def varied(self) -> tuple[str, ...]:
        """Those of which more than one value was tried."""
        return tuple(k for k in self.keys if len({as_text(t.setting.get(k)) for t in self.tried}) > 1)

    @functools.cached_property
    def finished(self) -> tuple[Tried, ...]:
        """Those that ended as planned: only their scores are of the same number of versions."""
        return tuple(trial for trial in self.tried if trial.state == "finished" and trial.score is not None)

    @functools.cached_property
    def best(self) -> Tried | None:
        """The finished one with the highest score; of equal ones the first."""
        return max(self.finished, key=lambda trial: (trial.score or 0.0, -trial.number), default=None)

    @property
    def judged(self) -> str:
        """What a score is, in words."""
        return f"validation {in_words(self.headline)}" if self.headline else "score"

    @property
    def counted(self) -> str:
        """How many there are, and how they ended, in words."""
        many = {state: sum(t.state == state for t in self.tried) for state in ("pruned", "failed", "waiting")}
        told = [f"{count:,} {'not over' if state == 'waiting' else state}" for state, count in many.items() if count]
        return f"{len(self.tried):,} trials" + (f", {', '.join(told)}" if told else "")

    def importance(self) -> dict[str, Share]:
        """Of each varied key, the share of the variance of the ranks of finished trials that it explains alone.

        Trials are put into groups by the key's value, of a number with many values into quarters; the share is
        omega squared of that grouping, (B - (k - 1) W / (n - k)) / (B + W + W / (n - k)), with B the sum of squares
        between and W within k groups of n trials. What groups would explain by chance is taken off, so that a key that
        does nothing has a share near 0. Ranks, since one trial that diverges would else decide alone. What two keys do
        together is in neither share. Empty where there are too few trials for any key.
        """
        trials = [trial for trial in self.finished if trial.same_as is None]
        if len(trials) < LEAST:
            return {}
        ranks = _ranks([float(trial.score or 0.0) for trial in trials])
        found = {}
        for key in self.varied:
            groups = _groups([trial.setting.get(key) for trial in trials])
            if 1 < len(set(groups)) <= len(trials) // 2:
                found[key] = _explained(ranks, groups)
        return dict(sorted(found.items(), key=lambda pair: -pair[1].share))


def is_number(values: Sequence[Any]) -> bool:
    """Whether all values are numbers, and not all the same one."""
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
    return len(numbers) == len(values) and len(set(numbers)) > 1


def is_spread(values: Sequence[float]) -> bool:
    """Whether numbers lie over orders of magnitude, so that on a plain axis most would lie at one end."""
    return min(values) > 0 and max(values) / min(values) >= _LOG


def as_text(value: Any) -> str:
    """A value as a text."""
    return value if isinstance(value, str) else to_json(value)


def _groups(values: Sequence[Any]) -> list[Hashable]:
    """The group of each value: equal ones together; of numbers with many values, quarters."""
    if not is_number(values) or len(set(values)) <= _BINS:
        return [as_text(value) for value in values]
    ranks = _ranks(values)
    return [min(_BINS - 1, int(_BINS * (rank - 0.5) / len(values))) for rank in ranks]


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1, equal ones with their mean rank."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks, place = [0.0] * len(values), 0
    while place < len(order):
        end = place
        while end + 1 < len(order) and values[order[end + 1]] == values[order[place]]:
            end += 1
        for i in order[place : end + 1]:
            ranks[i] = 1 + (place + end) / 2
        place = end + 1
    return ranks


def _explained(ranks: Sequence[float], groups: Sequence[Hashable]) -> Share:
    members: dict[Hashable, list[float]] = {}
    for rank, group in zip(ranks, groups, strict=True):
        members.setdefault(group, []).append(rank)
    many, mean = len(ranks), math.fsum(ranks) / len(ranks)
    means = {group: math.fsum(some) / len(some) for group, some in members.items()}
    between = math.fsum(len(some) * (means[group] - mean) ** 2 for group, some in members.items())
    within = math.fsum((rank - means[group]) ** 2 for group, some in members.items() for rank in some)
    noise = within / (many - len(members))
    whole = between + within + noise
    share = (between - (len(members) - 1) * noise) / whole if whole else 0.0
    return Share(max(0.0, share), len(members))
