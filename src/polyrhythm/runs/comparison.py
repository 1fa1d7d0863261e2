"""Several runs side by side: runs that differ in nothing but their seed are one method."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.settings import canonical_json
from polyrhythm.runs import holes, match
from polyrhythm.runs.costs import GOALS, On, reached, score_at
from polyrhythm.runs.labelling import baseline_of
from polyrhythm.runs.paired import Difference, difference, mean_and_spread
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.result_rule import Reading, read

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound=RecordedRun, covariant=True)
S = TypeVar("S", bound=RecordedRun)
_OF_NO_METHOD = ("seed", "evaluation")
_TRIAL = re.compile(r"(^|/)\d+$")


class ComparedRuns(Generic[R]):
    """What several methods gave, and what it cost them, over their seeds.

    Runs with the same configuration but for the seed are one method. Of two runs with the same seed the later counts.
    The trials of a search are a method of their own beside the runs with what it chose: the choice was made on their
    seeds, which flatters them.

    Args:
        runs: in any order; methods come in the order of their first runs, that of the pinned run before all others.

    Raises:
        UserError: nothing to compare, or runs that are judged by different metrics.
    """

    def __init__(self, runs: Sequence[R]) -> None:
        self.methods: Mapping[str, tuple[R, ...]] = by_method(runs)
        """The runs of each method, by seed."""
        self.versions: Mapping[str, list[list[dict[str, Any]]]] = {
            name: [run.versions for run in members] for name, members in self.methods.items()
        }
        """Their recorded versions, as plain values, read once."""
        self.headline = next(iter(self.methods.values()))[0].headline
        """The metric that "accuracy" stands for."""
        self.unfinished: Mapping[str, int] = {
            name: sum(run.status != "finished" for run in members) for name, members in self.methods.items()
        }
        """How many runs of each method did not end as planned."""
        self.notes = (
            *_notes(runs, self.methods),
            *match.notes({n: runs[0].config for n, runs in self.methods.items()}),
        )
        """What a reader should know: runs that do not count or did not end as planned, methods that are no match."""

    def results(
        self, *, to: float | None = None, at_time: float | None = None, on: On = "test"
    ) -> list[dict[str, Any]]:
        """One entry per method: `method`, `runs`, `seeds`, `n`, `unfinished`, and mean, sd and n of each number.

        `final_accuracy` is that of the last evaluated version. With `at_time`, `accuracy_at_time` is that of the last
        version evaluated by then, over the runs that went on as long. With `to`, `reached` counts the runs that reached
        the goal, and what it took is over those alone: read it together with `reached`.

        Args:
            to: a goal for the headline metric.
            at_time: virtual seconds.
            on: the set that all of it is judged on, "test" or "validation".
        """
        found = []
        for name, members in self.methods.items():
            versions = self.versions[name]
            entry: dict[str, Any] = {
                "method": name,
                "runs": [run.id for run in members],
                "seeds": [run.seed for run in members],
                "n": len(members),
                "unfinished": self.unfinished[name],
                "final_accuracy": spread([read(rows, self.headline, "final", on) for rows in versions]),
            }
            if at_time is not None:
                entry["at_time"] = at_time
                entry["accuracy_at_time"] = spread([score_at(rows, self.headline, at_time, on) for rows in versions])
            if to is not None:
                found_to = [reached(rows, self.headline, to, on) for rows in versions]
                there: list[Mapping[str, Any]] = [took for took in found_to if took is not None]
                entry |= {"to": to, "reached": len(there)}
                entry |= {cost: spread([took[cost] for took in there]) for cost in GOALS}
            found.append(entry)
        return found

    def differences(
        self, *, to: str | None = None, reading: Reading = "final", on: On = "test", level: float = 0.95
    ) -> dict[str, Difference]:
        """What each of the other methods gives more than one of them, paired by seed.

        A seed means the same clients, cohorts and initial model to every method, so that much of the chance is the same
        on both sides of a pair, and the interval is narrower than what the methods' own deviations would say. That
        holds only on the same data and the same fleet: a method on others has no pair.

        Args:
            to: the method that the others are compared with; None for the first.
            reading: which number of a run, "final", "best" or "last20".
            on: the set that it is judged on, "test" or "validation".
            level: how often such intervals cover the true difference.

        Raises:
            UserError: there is no such method or reading, or a level that is no share.
        """
        base = next(iter(self.methods)) if to is None else to
        if base not in self.methods:
            raise unknown("method", base, self.methods)
        if not 0 < level < 1:
            raise UserError(
                f"level = {level!r}",
                expected="a share between 0 and 1, such as 0.95",
                why="that share of such intervals covers the true difference",
                fix="level=0.95",
            )
        values = {name: self.read(name, reading, on) for name in self.methods}
        first = {name: members[0].config for name, members in self.methods.items()}
        return {
            name: difference([v - values[base][seed] for seed, v in found.items() if seed in values[base]], level)
            if match.paired(first[name], first[base])
            else Difference(mean=None, level=level)
            for name, found in values.items()
            if name != base
        }

    def read(self, method: str, reading: Reading = "final", on: On = "test") -> dict[int, float]:
        """One number for each seed of a method that has one."""
        pairs = zip(self.methods[method], self.versions[method], strict=True)
        found = {run.seed: read(rows, self.headline, reading, on) for run, rows in pairs}
        return {seed: value for seed, value in found.items() if value is not None}

    def table(self, *, to: float | None = None, at_time: float | None = None, on: On = "test") -> pd.DataFrame:
        """`results` as a table, a row per method: means under their names, standard deviations beside them."""
        import pandas as pd

        rows = []
        for entry in self.results(to=to, at_time=at_time, on=on):
            row: dict[str, Any] = {}
            for name, value in entry.items():
                if isinstance(value, dict):
                    row |= {name: value["mean"], f"{name}_sd": value["sd"]}
                elif not isinstance(value, list):
                    row[name] = value
            rows.append(row)
        return pd.DataFrame(rows).set_index("method")


def by_method(runs: Iterable[S]) -> dict[str, tuple[S, ...]]:
    """The runs of each method by seed, by the method's name; methods come in the order of their first runs.

    The method of the run that is pinned in its folder comes before all others, as the baseline.

    Raises:
        UserError: nothing to compare, or runs that are judged by different metrics.
    """
    kept: dict[str, dict[int, S]] = {}
    runs = sorted(runs, key=lambda run: run.id)
    for run in runs:
        kept.setdefault(method_of(run.config, run.first_name), {})[run.seed] = run
    groups = [tuple(of_seed[seed] for seed in sorted(of_seed)) for of_seed in kept.values()]
    _check_headline(groups)
    pinned = {baseline_of(folder) for folder in {run.folder for run in runs}}
    groups.sort(key=lambda members: not any(run.id in pinned for run in members))
    return dict(zip(_names(groups), groups, strict=True))


def method_of(config: Mapping[str, Any], name: str = "") -> str:
    """What runs of one method have in common: their configuration, but for the seed and what only looks on.

    Args:
        config: of a run.
        name: what it is called; the trials of a search are called by a number.
    """
    kept = {key: value for key, value in config.items() if key not in _OF_NO_METHOD}
    return canonical_json({**kept, "trial": True} if _TRIAL.search(name) else kept)


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


def _notes(given: Sequence[RecordedRun], methods: Mapping[str, Sequence[RecordedRun]]) -> list[str]:
    counted = {run.id for members in methods.values() for run in members}
    notes = [
        f"{run.id} does not count: a later run has the same settings and seed" for run in given if run.id not in counted
    ]
    those = [run for members in methods.values() for run in members]
    notes += [f"{run.id} (seed {run.seed}) is {run.status}" for run in those if run.status != "finished"]
    return notes + [
        f"{run.id} (seed {run.seed}): {holes.in_words(missing)}" for run in those if (missing := run.missing)
    ]


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """`mean` and sample standard deviation (`sd`) of what is known, and of how many (`n`)."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "sd": None, "n": 0}
    mean, sd = mean_and_spread(known)
    return {"mean": mean, "sd": sd, "n": len(known)}


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


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A configuration as one level of texts, with dots between the keys."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return found
