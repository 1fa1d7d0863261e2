"""Many runs that differ in settings, judged on the validation hold-out: grids, draws, lists, and Optuna's TPE."""

from polyrhythm.sweeps.definition import Side, Sweep
from polyrhythm.sweeps.result import Swept
from polyrhythm.sweeps.space import Range
from polyrhythm.sweeps.sweeping import sweep

__all__ = ["Range", "Side", "Sweep", "Swept", "sweep"]
