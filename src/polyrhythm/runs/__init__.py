"""The record of runs: what observers are told, where it is kept, and how to look at it afterwards."""

from polyrhythm.runs.records import ModelView, Observer, Plan, RunStatus, VersionRecord, VisitRecord, VisitStatus
from polyrhythm.runs.run import Run, all_runs

__all__ = [
    "ModelView",
    "Observer",
    "Plan",
    "Run",
    "RunStatus",
    "VersionRecord",
    "VisitRecord",
    "VisitStatus",
    "all_runs",
]
