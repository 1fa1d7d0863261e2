"""The record of runs: what observers are told, where it is kept, and how to look at it afterwards."""

from polyrhythm.runs.checkpoints import Checkpoint
from polyrhythm.runs.comparison import ComparedRuns
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.records import (
    AnswerRecord,
    EventRecord,
    ModelView,
    Plan,
    RunStatus,
    VersionRecord,
    VisitRecord,
    VisitStatus,
)

__all__ = [
    "AnswerRecord",
    "Checkpoint",
    "ComparedRuns",
    "EventRecord",
    "ModelView",
    "Observer",
    "Plan",
    "RecordedRun",
    "RunStatus",
    "VersionRecord",
    "VisitRecord",
    "VisitStatus",
]
