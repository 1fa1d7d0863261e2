"""How a run stands and what it has come to: decided here for command line, report, notebook and dashboard."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, final

from polyrhythm.base.metric_names import NAN_OUTPUTS, in_words
from polyrhythm.runs import costs, holes, result_rule, run_lock, spread
from polyrhythm.runs.checkpoints import reached
from polyrhythm.runs.database import read_last_version, read_records

Status = Literal["running", "finished", "stopped", "failed", "killed"]
RECORDED = "recorded"
"""Beside the summary, for us: the rows that were written, by table."""


def as_it_stands(
    folder: Path, run_id: str, row: Mapping[str, Any], again: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """A run's row with its status as it is now: "killed" where its process ended without a word.

    Args:
        folder: the output folder.
        run_id: of the run.
        row: as it was read, with `status` at least.
        again: reads it once more.
    """
    if row["status"] != "running" or _is_alive(folder, run_id):
        return dict(row)
    # It may have ended between the two looks: it writes its end before it lets go of its lock.
    row = {**row, **again()}
    return {**row, "status": "killed"} if row["status"] == "running" else row


def _is_alive(folder: Path, run_id: str) -> bool:
    """Whether a run is going on; one with an id that would lead elsewhere is not."""
    return names_a_folder(run_id) and run_lock.is_alive(folder / run_id)


def names_a_folder(run_id: str) -> bool:
    """Whether an id is the name of a folder, so that it leads nowhere but into the output folder."""
    return Path(run_id).name == run_id and run_id not in ("", ".", "..") and "\0" not in run_id


@final
class RunView:
    """One run at one moment. What takes a look at more than its row is read when it is asked for, once.

    Args:
        folder: the output folder.
        row: of the run, with its status as it stands.
    """

    def __init__(self, folder: Path, row: Mapping[str, Any]) -> None:
        self._folder, self._row = folder, row
        self.status: Status = row["status"]

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """The fields of the `--json` line; empty until the run has ended."""
        return {key: value for key, value in (self._row["summary"] or {}).items() if key != RECORDED}

    @functools.cached_property
    def missing(self) -> tuple[str, ...]:
        """What is missing from its record, in words such as "versions 61 to 80"; nothing if it is whole."""
        finished = self.status == "finished"
        known = int(self.summary.get("rounds", -1)) if finished else reached(self._folder / str(self._row["run_id"]))
        recorded = (self._row["summary"] or {}).get(RECORDED)
        return holes.missing(self._folder, self._row["number"], reached=known, finished=finished, recorded=recorded)

    @property
    def standing(self) -> str:
        """Its status in words: "finished, with holes" where its record lacks something."""
        return f"{self.status}, with holes" if self.status == "finished" and self.missing else self.status

    @functools.cached_property
    def last(self) -> dict[str, Any] | None:
        """Its newest version; None before there is one."""
        return read_last_version(self._folder, self._row["number"])

    @functools.cached_property
    def numbers(self) -> dict[str, Any]:
        """What it has come to so far, as in a summary: `final_accuracy`, `best_accuracy`, `last20_mean` and so on."""
        if self.summary:
            return {name: self.summary.get(name) for name in result_rule.NUMBERS}
        rows = read_records(
            self._folder, "versions", self._row["number"], ("version", "test", "validation", "client_updates")
        )
        return result_rule.numbers(rows, self._row["headline"])

    @functools.cached_property
    def said(self) -> dict[str, str]:
        """What must be known to read its numbers, in words, a line for each: of its last tests, and of privacy."""
        return {**self._said_of_tests(), **self.said_of_privacy}

    @property
    def said_of_privacy(self) -> dict[str, str]:
        """What its clients' privacy has cost, in words; nothing where nobody is hidden."""
        if "privacy_law" in self.summary:
            epsilon, delta = self.summary.get("epsilon"), self.summary.get("delta")
            if epsilon is None:
                return {"privacy": "none: dp adds no noise"}
            kind = str((self.summary.get("privacy") or {}).get("guarantee") or "").partition(":")[0]
            return {"privacy": f"epsilon {epsilon:.4g} at delta {delta:g}, {self.summary['privacy_law']}, {kind}"}
        epsilon = ((self.last or {}).get("measures") or {}).get("epsilon")
        return {} if epsilon is None else {"privacy": f"epsilon {epsilon:.4g} so far, by Renyi divergences"}

    def _said_of_tests(self) -> dict[str, str]:
        last, headline = self.last or {}, self._row["headline"]
        test, own = last.get("test") or {}, last.get("clients") or {}
        said = {}
        if broken := test.get(NAN_OUTPUTS):
            said["NaN"] = f"the last version gives NaN for {int(broken):,} test samples: they count as wrong" + (
                ", and its loss has no value" if test.get("loss") is None or not math.isfinite(test["loss"]) else ""
            )
        mean, some = own.get(f"{headline}_mean"), own.get(f"{headline}_mean_clients")
        if own and (mean is not None or some is not None):
            value = "no mean over clients" if mean is None else f"{mean:.4f} as a mean over clients"
            those = "" if some is None else f", defined for {int(some):,} of {self._row['clients']:,} clients"
            said["own tests"] = f"{in_words(headline)} {value}{those}"
        if fair := spread.newest(self._folder, self._row["number"], headline):
            said["fairness"] = fair
        if own_models := spread.in_words(last.get("spread") or {}, headline):
            said["own models"] = own_models
        if unseen := spread.unseen_in_words(last.get("spread") or {}, headline):
            said["unseen"] = unseen
        return said

    @property
    def costs(self) -> dict[str, str]:
        """What it has cost, or so far, in words: a line for each kind."""
        last = self.last
        return costs.lines({**costs.totals(last), "faults": last["faults"], **self.summary} if last else {})
