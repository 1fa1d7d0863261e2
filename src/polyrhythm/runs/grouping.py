"""Which runs make a row of a comparison: those of one method, or those with one value of a setting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import canonical_json
from polyrhythm.runs import match
from polyrhythm.runs.labelling import baseline_of
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.settings_apart import NOT_SET, check_key, flat, full_key, settings, value_of

S = TypeVar("S", bound=RecordedRun)
_OF_NO_METHOD = ("seed", "evaluation")
_TRIAL = re.compile(r"(^|/)\d+$")
_WRITTEN = ("method", "fleet", "task")  # in words, what `resolved` holds in full


def by_method(runs: Iterable[S], group_by: str | None = None) -> dict[str, tuple[S, ...]]:
    """The runs of each row by seed, by the row's name: those of a method, in the order of the methods' first runs.

    The method of the run that is pinned in its folder comes before all others, as the baseline.

    Args:
        runs: in any order; of two of one method and seed the later counts.
        group_by: the dotted key of a setting; then a row is of a value of it, whatever else its runs differ in. Trials
            of a search, and runs on other data or another fleet, are never in a row with others.

    Raises:
        UserError: nothing to compare, runs that are judged by different metrics, or no such setting.
    """
    kept: dict[str, dict[int, S]] = {}
    runs = sorted(runs, key=lambda run: run.id)
    for run in runs:
        kept.setdefault(method_of(run.config, run.first_name), {})[run.seed] = run
    groups = [tuple(of_seed[seed] for seed in sorted(of_seed)) for of_seed in kept.values()]
    _check_headline(groups)
    pinned = {baseline_of(folder) for folder in {run.folder for run in runs}}
    groups.sort(key=lambda members: not any(run.id in pinned for run in members))
    if group_by is None:
        return dict(zip(_names(groups), groups, strict=True))
    return _by_value([run for members in groups for run in members], group_by)


def method_of(config: Mapping[str, Any], name: str = "") -> str:
    """What runs of one method have in common: their configuration, but for the seed and what only looks on.

    Args:
        config: of a run.
        name: what it was called when it began; the trials of a search are called by a number.
    """
    kept = {key: value for key, value in config.items() if key not in _OF_NO_METHOD}
    return canonical_json({**kept, "trial": True} if is_trial(name) else kept)


def is_trial(name: str) -> bool:
    """Whether a run of this name is a trial of a search."""
    return bool(_TRIAL.search(name))


def apart_from(config: Mapping[str, Any], key: str) -> str:
    """What runs share that differ in a setting alone: of two rows, such runs are pairs."""
    key = full_key(key)
    own = (f"{key}.", "recipe.") if key == "method" else (f"{key}.",)
    return canonical_json(
        {
            name: value
            for name, value in settings(config).items()
            if name != key and not name.startswith((*own, "evaluation")) and name not in _WRITTEN
        }
    )


def _by_value(runs: Sequence[S], key: str) -> dict[str, tuple[S, ...]]:
    check_key(key, [run.config for run in runs])
    found: dict[tuple[str, bool, int], list[S]] = {}
    grounds: list[S] = []  # a run of each data and fleet
    for run in runs:
        place = next((i for i, other in enumerate(grounds) if match.paired(run.config, other.config)), len(grounds))
        if place == len(grounds):
            grounds.append(run)
        value = value_of(run.config, key)
        found.setdefault((NOT_SET if value is None else value, is_trial(run.first_name), place), []).append(run)
    word = key.rpartition(".")[2].replace("_", " ")
    called = match.names([run.config for run in grounds])
    named: dict[str, tuple[S, ...]] = {}
    for (value, trial, place), members in sorted(found.items(), key=lambda item: _in_order(item[0][0])):
        name = f"{word} {value}" + (" (trials)" if trial else "")
        if len({at for other, _, at in found if other == value}) > 1:
            name += f" ({called[place]})"
        name += f" #{sum(other.startswith(name) for other in named) + 1}" if name in named else ""
        named[name] = tuple(sorted(members, key=lambda run: (run.seed, run.id)))
    return named


def _in_order(value: str) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        return 0, float(value), ""
    except ValueError:
        return 1, 0.0, value


def _check_headline(groups: Sequence[Sequence[RecordedRun]]) -> None:
    found = sorted({run.headline for members in groups for run in members})
    if len(found) == 1:
        return
    raise UserError(
        f"runs that are judged by {' and '.join(found)}" if found else "no run to compare",
        expected="runs of one task" if found else "at least one run",
        why="numbers of different metrics say nothing beside each other" if found else "there would be nothing to see",
        fix="compare those of each task on their own" if found else "run something first",
    )


def _names(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """A name for each method: what its runs are called, or its recipe; with what differs where that is not enough."""
    short, names = [_short_name(members) for members in groups], list[str]()
    for members, name in zip(groups, short, strict=True):
        alike = [flat(other[0].config) for other, its_name in zip(groups, short, strict=True) if its_name == name]
        called = name if len(alike) == 1 else f"{name} ({_difference(flat(members[0].config), alike)})"
        same = sum(other == called or other.startswith(f"{called} #") for other in names)
        names.append(f"{called} #{same + 1}" if same else called)
    return names


def _short_name(members: Sequence[RecordedRun]) -> str:
    called = {run.name for run in members}
    if len(called) == 1 and (name := next(iter(called))):
        return name
    method = members[0].config.get("method")
    return method if isinstance(method, str) else members[0].recipe


def _difference(own: Mapping[str, str], alike: Sequence[Mapping[str, str]]) -> str:
    """The settings in which a method differs from others of its name, the first three of them."""
    keys = [
        k for k in own if not k.startswith(("seed", "evaluation", "resolved")) and len({o.get(k) for o in alike}) > 1
    ]
    return ", ".join(f"{key.rpartition('.')[2]} {own[key]}" for key in keys[:3])
