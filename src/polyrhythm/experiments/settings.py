"""Settings of runs that hold nothing: when one stops early, and what is measured of it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Le, MaxLen

from polyrhythm.base.settings import Count, Positive, Settings, Whole
from polyrhythm.runs.records import Measure

Name = Annotated[str, MaxLen(200)]


@final
@dataclass(frozen=True, kw_only=True)
class Until(Settings):
    """Stops a run once something is reached, at the end of the version that reaches it.

    Args:
        accuracy: a goal for the metric, on the validation data if there are any, otherwise on the test set. A version
            for which the metric is NaN or undefined has reached nothing.
        time: virtual seconds.
        updates: client visits that were accepted.
        patience: versions that may follow the best one by the metric, on the same set, before the run ends; the initial
            model apart. A resumed run ends at the same version.
        metric: that `accuracy` and `patience` go by: one that the task measures, such as "auc", or "loss", "rmse" or
            "mae", of which less is better; None for the task's headline.
        epsilon: what may be spent of the privacy of clients (`dp`): the run ends before the version that might take it
            beyond.
    """

    accuracy: Annotated[float, Le(1)] | None = None
    time: Positive | None = None
    updates: Count | None = None
    patience: Count | None = None
    metric: Name | None = None
    epsilon: Positive | None = None

    @property
    def anything(self) -> bool:
        """Whether there is a condition at all."""
        return any(value is not None for value in self._ends)

    @property
    def _ends(self) -> tuple[float | None, ...]:
        return self.accuracy, self.time, self.updates, self.patience, self.epsilon

    @property
    def judges(self) -> bool:
        """Whether one of the conditions goes by what a model can do."""
        return self.accuracy is not None or self.patience is not None


@final
@dataclass(frozen=True, kw_only=True)
class Evaluation(Settings):
    """What is measured of the global model, and how often. Changes no weight.

    Args:
        every: versions between evaluations; the first and the last are always evaluated.
        train_samples: how many training samples, drawn once over all clients, the global model is also measured on; 0
            for none.
        groups: whether it is also measured for each group of like devices, such as a tier: on the own tests of the
            group's clients, or where there are none on `train_samples` (1,000 if that is 0) of its training samples.
        client_results: of how many clients that have a test of their own their own results are kept: of all, where
            they are no more, else of a sample that has every group of like devices in proportion, and small and large
            clients; 0 for none.
        personal_every: of the evaluated versions, those whose number it divides have clients' own models measured, too,
            and the last one; None for all of them where these models are there anyway, and for the last one alone where
            each has to be trained for it (`fine_tuning`), unless a metric ends the run.
        unseen_visits: visits that a client which never trains (`unseen`) makes on the last version to settle in, of
            which it sends nothing, before its own model is measured; on others that `personal_every` names, too.
        measure: what else is measured, by name: "update_similarity", how far the updates of a version agree;
            "estimation_error", how well each client's past foretells its update (both in
            `polyrhythm.experiments.report_metrics`); "sample_losses", how hard single training samples are, with the
            extremes as images; "submodels", what the parts of the model that clients hold give on the test set.
    """

    every: Count = 1
    train_samples: Whole = 0
    groups: bool = False
    client_results: Whole = 100
    personal_every: Count | None = None
    unseen_visits: Count = 1
    measure: tuple[Measure, ...] = ()
