"""Many runs that differ in settings, judged on the validation hold-out: grids, draws, lists, and Optuna's TPE."""

from polyrhythm.studies.searches.definition import Side, Sweep
from polyrhythm.studies.searches.result import Swept
from polyrhythm.studies.searches.space import Range
from polyrhythm.studies.searches.sweeping import sweep

__all__ = ["Range", "Side", "Sweep", "Swept", "sweep"]
