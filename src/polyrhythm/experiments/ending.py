"""When a run ends: after all its rounds, or earlier by what `Until` says."""

from __future__ import annotations

import math

from polyrhythm.base.metric_names import FALLING
from polyrhythm.core.server_state import ServerState
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.privacy import Privacy
from polyrhythm.runs.records import VersionRecord
from polyrhythm.runs.summary import Best


def judge_of(experiment: Experiment) -> str:
    """The metric that a goal and patience go by."""
    return experiment.until.metric or experiment.aim.headline


def watched(experiment: Experiment) -> Best | None:
    """What keeps the best version that patience goes by; None without patience."""
    metric = judge_of(experiment)
    return None if experiment.until.patience is None else Best(metric, metric in FALLING)


def without_looking(experiment: Experiment, version: int, time: float, updates: int) -> str:
    """Why a run ends with a version, whatever its model can do; empty if it goes on.

    Args:
        experiment: of the run.
        version: its newest one.
        time: virtual seconds.
        updates: client visits that were accepted.
    """
    until = experiment.until
    if version == 0:
        return ""
    if version == experiment.rounds:
        return "all rounds made"
    if until.time is not None and time >= until.time:
        return f"{until.time:g} virtual seconds have passed"
    if until.updates is not None and updates >= until.updates:
        return f"{updates} client updates were made"
    return ""


def by_privacy(privacy: Privacy | None, state: ServerState) -> str:
    """Why a run ends with what its versions have cost in privacy; empty if it goes on, or hides nobody."""
    return "" if privacy is None else privacy.why_end(state)


def by_metric(experiment: Experiment, record: VersionRecord, best: Best | None) -> str:
    """Why a run ends with what a version can do; empty if it goes on. NaN reaches no goal, and is never better.

    Args:
        experiment: of the run.
        record: of its newest version.
        best: what `watched` gave, with all versions so far.
    """
    judged = record.test if record.validation is None else record.validation
    if judged is None:
        return ""
    metric, goal, patience = judge_of(experiment), experiment.until.accuracy, experiment.until.patience
    value = judged.get(metric, math.nan)
    if goal is not None and (value <= goal if metric in FALLING else value >= goal):
        return f"{metric} {value:.4f} has reached {goal:g}"
    if best is None or patience is None or record.version - (best.version or 0) < patience:
        return ""
    if best.version is None:
        return f"{metric} has had no value in {record.version} versions"
    return f"{metric} has not been better for {record.version - best.version} versions than in version {best.version}"
