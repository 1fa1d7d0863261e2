"""The expert that a study asks for: a model trained on all the data, which says how difficult samples are."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.experiments.expert import train_expert
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.definition import laid_over
from polyrhythm.studies.files.maker import Maker
from polyrhythm.studies.planning import Plan


def with_expert(plan: Plan, folder: Path, *, train: bool = True) -> Plan:
    """The same with the expert that the study asks for, trained now if it is not there yet.

    Args:
        plan: what is run; all of its cells share data and model. An expert that is given is used instead.
        folder: where it is kept.
        train: whether it may be trained.

    Raises:
        UserError: the data are not there, or the training's settings are wrong; or there is none and it may not be
            trained.
        RunFailed: the training diverged.
        KeyboardInterrupt: it was stopped; there is no expert.
    """
    training = plan.expert_training
    if training is None or "expert" in plan.over:
        return plan
    cell = plan.cells[0].make
    assert isinstance(cell.make, Maker)  # as only a file asks for one
    configuration = cell.make.configuration(cell.fixed, plan.seeds[0])
    called, things = configuration.model or "mlp", configuration.resolved_parts
    what = hashlib.sha256(to_json([configuration.data, called, training]).encode()).hexdigest()
    path = folder / f"expert-{what[:6]}.safetensors"
    if not path.exists():
        if not train:
            raise UserError(
                f"nothing has been made of {plan.of.name}, whose expert would be {path}",
                expected="a study that has trained its expert",
                why="its page shows what there is",
                fix="leave --so-far out: its expert is trained first, then its runs are made",
            )
        collection = things.load()
        folder.mkdir(parents=True, exist_ok=True)
        if train_expert(collection, things.model, path, **training, called=called)["status"] == "stopped":
            raise KeyboardInterrupt
    return dataclasses.replace(plan, over=laid_over(plan.over, {"expert": str(path)}))
