"""Several runs side by side: runs that differ in nothing but their seed are one method."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.runs import client_gains, holes, match
from polyrhythm.runs.client_gains import ClientDifference, Scores
from polyrhythm.runs.costs import GOALS, On, reached, score_at
from polyrhythm.runs.grouping import apart_from, by_method
from polyrhythm.runs.heard import By, behind, heard, numbers
from polyrhythm.runs.paired import Difference, corrected, difference, mean_and_spread
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.result_rule import Reading, read
from polyrhythm.runs.settings_apart import differing, varying
from polyrhythm.runs.spread import of_clients

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound=RecordedRun, covariant=True)
_SHOWN = 3  # settings by name
FINE_TUNED = "fedavg_ft"
"""The recipe that clients' gains are measured against where nothing else is said."""


class ComparedRuns(Generic[R]):
    """What several methods gave, and what it cost them, over their seeds.

    Runs with the same configuration but for the seed are one method. Of two runs with the same seed the later counts.
    The trials of a search are a method of their own beside the runs with what it chose: the choice was made on their
    seeds, which flatters them.

    With `group_by`, the values of a setting take the place of methods. Of a value there may be several runs with one
    seed; the mean over them counts as one, and pairs are of runs that differ in nothing but that setting.

    Args:
        runs: in any order; methods come in the order of their first runs, that of the pinned run before all
            others, and values by size.
        group_by: the dotted key of a setting, such as "recipe.optimiser.lr".
        baseline: the method, or the row, that the others are compared with; None for the first. Client by client it is
            then FedAvg with fine-tuning, where that is among them.

    Raises:
        UserError: nothing to compare, runs that are judged by different metrics, no such setting, or no such method.
    """

    def __init__(self, runs: Sequence[R], *, group_by: str | None = None, baseline: str | None = None) -> None:
        self.methods: Mapping[str, tuple[R, ...]] = by_method(runs, group_by)
        """The runs of each method, by seed."""
        self.group_by = group_by
        """The setting whose values are the rows, if not methods are."""
        self.baseline = next(iter(self.methods)) if baseline is None else baseline
        """The method that the others are compared with."""
        if self.baseline not in self.methods:
            raise unknown("method", self.baseline, self.methods, why="the others are compared with it")
        tuned = next((name for name, runs in self.methods.items() if runs[0].recipe == FINE_TUNED), self.baseline)
        self.client_baseline = tuned if baseline is None else self.baseline
        """The method that clients' results are compared with: what is said, else FedAvg with fine-tuning, if there."""
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
            *_pooled(self.methods, group_by),
        )
        """What a reader should know: runs that do not count or did not end as planned, methods that are no match."""

    @property
    def settings(self) -> Mapping[str, Mapping[str, str | None]]:
        """The settings in which methods differ, by dotted key: the value in each; None where it has none."""
        found = differing([[run.config for run in members] for members in self.methods.values()])
        return {key: dict(zip(self.methods, values, strict=True)) for key, values in found.items()}

    @property
    def grouping_keys(self) -> list[str]:
        """The keys of all settings that the runs do not share: what they can be grouped by."""
        return varying(run.config for members in self.methods.values() for run in members)

    def results(
        self, *, to: float | None = None, at_time: float | None = None, on: On = "test"
    ) -> list[dict[str, Any]]:
        """One entry per method: `method`, `runs`, `seeds`, `n`, `unfinished`, and mean, sd and n of each number.

        `final_accuracy` is that of the last evaluated version, and `clients` has how it serves them on their own tests,
        where they have some: `global_mean`, `personal_mean`, `unseen_personal_mean` and so on.

        With `at_time`, `accuracy_at_time` is that of the last
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
            seeds = sorted({run.seed for run in members})
            entry: dict[str, Any] = {
                "method": name,
                "runs": [run.id for run in members],
                "seeds": seeds,
                "n": len(seeds),
                "unfinished": self.unfinished[name],
                "final_accuracy": self.over_seeds(name, [read(rows, self.headline, "final", on) for rows in versions]),
            }
            lasts = [last_spread(rows) for rows in versions]
            if names := list(dict.fromkeys(key for last in lasts for key in last)):
                entry["clients"] = {key: self.over_seeds(name, [last.get(key) for last in lasts]) for key in names}
            if at_time is not None:
                entry["at_time"] = at_time
                at = [score_at(rows, self.headline, at_time, on) for rows in versions]
                entry["accuracy_at_time"] = self.over_seeds(name, at)
            if to is not None:
                took = [reached(rows, self.headline, to, on) for rows in versions]
                entry |= {"to": to, "reached": sum(one is not None for one in took)}
                for cost in GOALS:
                    spent = [None if one is None else one[cost] for one in took]  # type: ignore[literal-required]
                    entry[cost] = self.over_seeds(name, spent)
            found.append(entry)
        return found

    def bias(self) -> list[dict[str, Any]]:
        """One entry per method on who was heard, and served: `method`, `n`, `by`, and mean, sd and n of each number.

        The numbers are those of `run.bias`: `never_heard`, `never_heard_samples`, `gini`, `samples_behind`,
        `loss_rare`, `loss_common`, `score_rare`, `score_common`, `loss_by_availability`, `loss_by_participation`.
        Quarters of clients are `by` "there", how long they were there, if that is on record of all runs and differs;
        else by "heard", how often they were heard.
        """
        read = {
            name: [heard(run.folder, run.number, run.clients) for run in members]
            for name, members in self.methods.items()
        }
        by: By = "there" if all(one.varies("there") for of in read.values() for one in of) else "heard"
        found = []
        for name, members in self.methods.items():
            pairs = zip(members, read[name], strict=True)
            of = [numbers(held, behind(run.folder, run.number, held), by) for run, held in pairs]
            seeds = len({run.seed for run in members})
            entry = {key: self.over_seeds(name, [one[key] for one in of]) for key in of[0]}
            found.append({"method": name, "n": seeds, "by": by, **entry})
        return found

    def over_seeds(self, method: str, values: Sequence[float | None]) -> dict[str, Any]:
        """`mean`, `sd` and `n` of a number over the seeds of a method; of several runs with a seed the mean counts.

        Args:
            method: its name.
            values: of each of its runs; None where there is none.
        """
        of_seed: dict[int, list[float]] = {}
        for run, value in zip(self.methods[method], values, strict=True):
            if value is not None:
                of_seed.setdefault(run.seed, []).append(value)
        return spread([mean_and_spread(found)[0] for found in of_seed.values()])

    def differences(
        self, *, baseline: str | None = None, reading: Reading = "final", on: On = "test", level: float = 0.95
    ) -> dict[str, Difference]:
        """What each of the other methods gives more than one of them, paired by seed.

        A seed means the same clients, cohorts and initial model to every method, so that much of the chance is the same
        on both sides of a pair, and the interval is narrower than what the methods' own deviations would say. That
        holds only on the same data and the same fleet: a method on others has no pair. Of grouped runs a pair differs
        in the setting alone, and of several with one seed the mean counts as one.

        Args:
            baseline: the method that the others are compared with; None for that of the comparison.
            reading: which number of a run, "final", "best" or "last20".
            on: the set that it is judged on, "test" or "validation".
            level: how often such intervals cover the true difference.

        Returns:
            A difference for each of the others, with the p-value of its paired t-test, and `holm`, the same corrected
            for as many tests as there are.

        Raises:
            UserError: there is no such method or reading, or a level that is no share.
        """
        base = self._known(baseline)
        if not 0 < level < 1:
            raise UserError(
                f"level = {level!r}",
                expected="a share between 0 and 1, such as 0.95",
                why="that share of such intervals covers the true difference",
                fix="level=0.95",
            )
        values = {name: self._read(name, reading, on) for name in self.methods}
        first = {name: members[0].config for name, members in self.methods.items()}
        return corrected(
            {
                name: difference(_pairs(found, values[base]), level)
                if match.paired(first[name], first[base])
                else Difference(mean=None, level=level)
                for name, found in values.items()
                if name != base
            }
        )

    def used(self, method: str) -> dict[int, float]:
        """The mean over clients' own tests of the models that they use, their own where they have some, by seed.

        Empty where clients have no tests of their own. Of several runs with one seed the mean counts.
        """
        found: dict[int, list[float]] = {}
        for run, rows in zip(self.methods[method], self.versions[method], strict=True):
            last = last_spread(rows)
            if (value := last.get("personal_mean", last.get("global_mean"))) is not None:
                found.setdefault(run.seed, []).append(value)
        return {seed: statistics.fmean(values) for seed, values in found.items()}

    def has_own_models(self, method: str) -> bool:
        """Whether clients use models of their own, and these were measured."""
        return any("personal_mean" in last_spread(rows) for rows in self.versions[method])

    def client_gains(self, baseline: str | None = None) -> dict[str, dict[int, dict[int, float]]]:
        """What each client gets more from each of the other methods, by method, seed and client.

        Of the model that the client uses, on its own test, after the last version that it was measured of; a seed means
        the same clients to every method. Methods on other data have no pairs, nor have clients that are not measured
        (`Evaluation.client_results`).

        Args:
            baseline: the method that the others are compared with; None for `client_baseline`.
        """
        base = self._known(self.client_baseline if baseline is None else baseline)
        first = {name: members[0].config for name, members in self.methods.items()}
        alike = [name for name in self.methods if name != base and match.paired(first[name], first[base])]
        scores = {name: self._client_scores(name) for name in (base, *alike)} if alike else {}
        found: dict[str, dict[int, dict[int, float]]] = {name: {} for name in self.methods if name != base}
        for name in alike:
            for seed in sorted(scores[name].keys() & scores[base].keys()):
                ours, theirs = scores[name][seed], scores[base][seed]
                pairs = [client_gains.gains(ours[rest], theirs[rest]) for rest in ours if rest in theirs]
                if gained := client_gains.mean_of(pairs):
                    found[name][seed] = gained
        return found

    def client_differences(self, *, baseline: str | None = None, level: float = 0.95) -> dict[str, ClientDifference]:
        """The same summed up: the mean gain with its interval over seeds, and apart from it how clients differ in it.

        Args:
            baseline: the method that the others are compared with; None for `client_baseline`.
            level: how often such intervals cover the true difference.
        """
        gained = self.client_gains(baseline)
        found = {name: client_gains.client_difference(of.values(), level) for name, of in gained.items()}
        tested = corrected({name: one.mean for name, one in found.items()})
        return {name: dataclasses.replace(one, mean=tested[name]) for name, one in found.items()}

    def _client_scores(self, name: str) -> dict[int, dict[str, Scores]]:
        """Of each run of a method what its clients have, by seed and by what it shares with its pair."""
        found: dict[int, dict[str, Scores]] = {}
        for run in self.methods[name]:
            if scores := client_gains.scores_used(of_clients(run.folder, run.number, last=True)):
                rest = "" if self.group_by is None else apart_from(run.config, self.group_by)
                found.setdefault(run.seed, {})[rest] = scores
        return found

    def _known(self, baseline: str | None) -> str:
        base = self.baseline if baseline is None else baseline
        if base not in self.methods:
            raise unknown("method", base, self.methods, why="the others are compared with it")
        return base

    def read(self, method: str, reading: Reading = "final", on: On = "test") -> dict[int, float]:
        """One number for each seed of a method that has one; of several runs with a seed their mean."""
        return {seed: statistics.fmean(of.values()) for seed, of in self._read(method, reading, on).items()}

    def _read(self, method: str, reading: Reading, on: On) -> dict[int, dict[str, float]]:
        """One number for each run that has one, by seed and by what it shares with its pair."""
        found: dict[int, dict[str, float]] = {}
        for run, rows in zip(self.methods[method], self.versions[method], strict=True):
            if (value := read(rows, self.headline, reading, on)) is not None:
                rest = "" if self.group_by is None else apart_from(run.config, self.group_by)
                found.setdefault(run.seed, {})[rest] = value
        return found

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


def _pooled(methods: Mapping[str, Sequence[RecordedRun]], group_by: str | None) -> list[str]:
    """What else the runs of a row differ in, where a row is of a value and not of a method."""
    told = []
    for name, members in methods.items() if group_by is not None else ():
        others = [key for key in varying(run.config for run in members) if not key.startswith("evaluation")]
        if others:
            shown = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
            told.append(
                f"{name}: its {len(members)} runs also differ in {shown}; of those with one seed the mean counts"
            )
    return told


def _pairs(ours: Mapping[int, Mapping[str, float]], theirs: Mapping[int, Mapping[str, float]]) -> list[float]:
    """A difference for each seed that both have: the mean over its pairs, which are not independent of each other."""
    found = []
    for seed in sorted(ours.keys() & theirs.keys()):
        rests = [rest for rest in ours[seed] if rest in theirs[seed]]
        if rests:
            found.append(statistics.fmean(ours[seed][rest] - theirs[seed][rest] for rest in rests))
    return found


def last_spread(versions: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """How the last evaluated of a run's versions serves clients, as `VersionRecord.spread`; empty where none says."""
    return next((row["spread"] for row in reversed(versions) if row["spread"]), {})


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """`mean` and sample standard deviation (`sd`) of what is known, and of how many (`n`)."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "sd": None, "n": 0}
    mean, sd = mean_and_spread(known)
    return {"mean": mean, "sd": sd, "n": len(known)}
