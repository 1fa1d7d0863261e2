"""Many runs under one definition: tables of rows and columns, grids, lists and searches, with claims and a page."""

from polyrhythm.studies.advice.advising import Advice, advise
from polyrhythm.studies.advice.trying import Choice, attempt
from polyrhythm.studies.claims import Claim, Number
from polyrhythm.studies.definition import AtScale, ColumnSearch, Search, Study
from polyrhythm.studies.planning import Plan, planned
from polyrhythm.studies.result import StudyResult
from polyrhythm.studies.space import Range
from polyrhythm.studies.studying import study

__all__ = [
    "Advice",
    "AtScale",
    "Choice",
    "Claim",
    "ColumnSearch",
    "Number",
    "Plan",
    "Range",
    "Search",
    "Study",
    "StudyResult",
    "advise",
    "attempt",
    "planned",
    "study",
]
