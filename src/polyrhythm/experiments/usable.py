"""The observer that writes down how a run's weights are used afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import final

from torch import nn

from polyrhythm.base.streams import seeded_everywhere
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.models.building import build
from polyrhythm.models.catalogue import Builder
from polyrhythm.results.using import Made, Use
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import Plan


@final
class Usable(Observer):
    """Writes down the model by name, and what becomes of rows before it reads them.

    Args:
        experiment: that is run.
        folder: gives the run's, once it has begun.
    """

    def __init__(self, experiment: Experiment, folder: Callable[[], Path]) -> None:
        self._experiment, self._folder = experiment, folder

    def begin(self, plan: Plan) -> None:
        federation = self._experiment.federation
        name, settings = _named(self._experiment.model)
        Use(
            model=name,
            settings=settings,
            shape=tuple(federation.train.shape),
            outputs=federation.outputs,
            task=self._experiment.aim,
            classes=federation.classes,
            preprocessing=federation.preprocessing,
            labels=federation.labels,
            structure=federation.structure,
            texts=federation.texts,
        ).write(self._folder())


def maker(experiment: Experiment) -> Made:
    """Makes an experiment's model anew, with any weights; holds no data."""
    model = experiment.model
    if isinstance(model, nn.Module):
        return lambda: model
    shape, outputs = experiment.federation.shape, experiment.federation.outputs

    def made() -> nn.Module:
        with seeded_everywhere(0, "init"):  # what is drawn is overwritten by the weights
            return build(model, shape, outputs)

    return made


def _named(model: str | Builder | nn.Module) -> tuple[str | None, dict[str, object]]:
    """A model's name or import path with its settings; None where it has none that another process could follow."""
    if isinstance(model, str):
        return model, {}
    if isinstance(name := getattr(model, "name", None), str) and not isinstance(model, nn.Module):
        return name, dict(getattr(model, "settings", {}))  # from an experiment file
    home, path = getattr(model, "__module__", ""), getattr(model, "__qualname__", "")
    if isinstance(model, nn.Module) or not path.isidentifier() or home in ("__main__", "builtins", ""):
        return None, {}
    return f"{home}:{path}", {}
