"""The record of runs: what observers are told, where it is kept, and how to look at it afterwards."""

from polyrhythm.runs.checkpoints import Checkpoint
from polyrhythm.runs.comparison import Comparison, compare
from polyrhythm.runs.recorded import Run, all_runs
from polyrhythm.runs.records import (
    AnswerRecord,
    EventRecord,
    HearsAnswers,
    KeepsState,
    ModelView,
    Observer,
    Plan,
    RunStatus,
    VersionRecord,
    VisitRecord,
    VisitStatus,
)

__all__ = [
    "AnswerRecord",
    "Checkpoint",
    "Comparison",
    "EventRecord",
    "HearsAnswers",
    "KeepsState",
    "ModelView",
    "Observer",
    "Plan",
    "Run",
    "RunStatus",
    "VersionRecord",
    "VisitRecord",
    "VisitStatus",
    "all_runs",
    "compare",
]
