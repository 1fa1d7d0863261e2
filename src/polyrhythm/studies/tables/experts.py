"""The expert that a file asks for: a model trained on all the data, which says how difficult samples are."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from polyrhythm.experiments.expert import train_expert
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.tables.definition import Scaled, laid_over


def with_expert(scaled: Scaled, folder: Path) -> Scaled:
    """The same with the expert that the file asks for, trained now if it is not there yet.

    Args:
        scaled: what is run; all of its cells share data and model. An expert that is given is used instead.
        folder: where it is kept.

    Raises:
        UserError: the data are not there, or the training's settings are wrong.
        RunFailed: the training diverged.
        KeyboardInterrupt: it was stopped; there is no expert.
    """
    plan = scaled.expert_training
    if plan is None or "expert" in scaled.over:
        return scaled
    cell = scaled.cells[0].make
    configuration = cell.maker.configuration(cell.fixed, scaled.seeds[0])
    called, things = configuration.model or "mlp", configuration.things
    what = hashlib.sha256(to_json([configuration.data, called, plan]).encode()).hexdigest()
    path = folder / f"expert-{what[:6]}.safetensors"
    if not path.exists():
        collection = things.load()
        folder.mkdir(parents=True, exist_ok=True)
        if train_expert(collection, things.model, path, **plan, called=called)["status"] == "stopped":
            raise KeyboardInterrupt
    return dataclasses.replace(scaled, over=laid_over(scaled.over, {"expert": str(path)}))
