"""Many runs under one definition: tables of rows and columns, grids, lists and searches, with claims and a page."""

from polyrhythm.studies.claims import Claim, Number
from polyrhythm.studies.definition import AtScale, Search, Study
from polyrhythm.studies.planning import Plan, planned
from polyrhythm.studies.result import StudyResult
from polyrhythm.studies.space import Range
from polyrhythm.studies.studying import study

__all__ = ["AtScale", "Claim", "Number", "Plan", "Range", "Search", "Study", "StudyResult", "planned", "study"]
