"""What makes the experiments of studies in tests: worker processes must be able to import it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import polyrhythm as pr
from polyrhythm.experiments.prepared import Planned
from polyrhythm.studies.space import Setting
from small import experiment, federation


def made(setting: Setting, seed: int, **changes: Any) -> Planned:
    """FedAvg on the blobs, with the rate and the epochs of a setting; half of the data are held out."""
    recipe = pr.fedavg(cohort=2, epochs=setting.get("epochs", 1), batch=5, lr=setting.get("lr", 0.1))
    values: dict[str, Any] = {"federation": federation(validation=0.5), "recipe": recipe, "seed": seed, "rounds": 4}
    return experiment(**values | changes), pr.Execution(checkpoint=pr.Checkpoint(every=1))


def stumbling(setting: Setting, seed: int) -> Planned:
    """The same, in a process that is killed as often as there are files in the folder of the setting."""
    for file in Path(setting["folder"]).glob(f"{setting['lr']}-*"):
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return made(setting, seed)
