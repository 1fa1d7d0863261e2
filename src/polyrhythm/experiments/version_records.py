"""Versions as they are written down: which model each has, what that can do, and how it came about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from polyrhythm.base.messages import Report
from polyrhythm.base.tensor_names import frozen_in
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.server_state import Record, ServerState
from polyrhythm.experiments.evaluation import Evaluator, Metrics, Of, averaged
from polyrhythm.experiments.personal_models import PersonalModels
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.experiments.report_metrics import GAUGES
from polyrhythm.experiments.statistics import counted
from polyrhythm.methods.mechanism import Model
from polyrhythm.models.tally import Tally
from polyrhythm.runs.records import ClassResultsRecord, ClientResultsRecord, VersionRecord, VisitRecord
from polyrhythm.runs.summary import model_digest
from polyrhythm.simulation.simulator import SimulationStep


@final
class VersionRecords:
    """The versions of one run in progress, of which `server` is the newest state.

    Args:
        prepared: what is done.
        state_of: a client's state after the given accepted visit.
        server: where an earlier run stood, to go on from there.
        digests: whether anybody wants the digests of models.
        by_class: whether anybody wants to know what becomes of each class.
        states_known: whether clients' states are known here; those of nodes lie there.
    """

    def __init__(
        self,
        prepared: Prepared,
        state_of: Callable[[int, int], ClientState],
        *,
        server: ServerState | None,
        digests: bool,
        by_class: bool,
        states_known: bool = True,
    ) -> None:
        self.server = server
        self._prepared, self._experiment, self._digests = prepared, prepared.experiment, digests
        self._state_of = state_of
        self._shown: tuple[int, Model] | None = None
        self._evaluator = Evaluator(prepared, by_class=by_class)
        has_own = prepared.recipe.has_personal and states_known and prepared.recipe.regime != "centralised"
        self._personal = PersonalModels(prepared, state_of) if has_own else None
        self.measured: Sequence[int] = self._evaluator.measured
        """The clients whose own results are kept."""
        self.of_clients: ClientResultsRecord | None = None
        """What single clients get out of the newest version; None where it was not evaluated, or none is measured."""
        self._gauges = [GAUGES[name]() for name in self._experiment.evaluation.measure if name in GAUGES]

    def of(
        self, moment: SimulationStep, *, wall: float, silent: int, evaluate: bool, totals: Mapping[str, Any]
    ) -> VersionRecord:
        """The record of the version that a moment has brought.

        Args:
            moment: the newest one.
            wall: seconds since the start.
            silent: clients that said so since the last version.
            evaluate: whether it is measured even if it is not its turn.
            totals: what the run has cost so far.
        """
        state, released = moment.turn.state, moment.turn.released
        reports = released.release.reports if released is not None and released.release is not None else ()
        refused = released.refused if released is not None else ()
        look = evaluate or state.version % self._experiment.evaluation.every == 0
        own = self._evaluator.own_tests(self._model_of(), (state.version,)) if look else {}
        personal: Mapping[int, Tally] = {}
        alone = self._experiment.recipe.regime == "local"  # where all models are clients' own
        if own and self._personal is not None and self._personal.due(state.version, last=evaluate):
            personal = self._evaluator.own_tests(self._personal.models(state), (state.version, "personal"))
        unseen = self._unseen(state, last=evaluate) if look else ({}, {})
        stale = staleness(state.version, reports)
        record = VersionRecord(
            version=state.version,
            time=moment.time,
            wall=wall,
            cohort=len(reports) + len(refused) + silent,
            accepted=len(reports),
            dropped=len(refused),
            rate=reports[0].rate if reports else None,
            train_loss=_mean_loss(reports),
            test=self._measure(self._evaluator.test, state.version) if look else None,
            validation=self._measure(self._evaluator.validation, state.version) if look else None,
            train=self._measure(self._evaluator.train, state.version) if look else None,
            clients=self._evaluator.over_clients(own) if look else None,
            groups=self._evaluator.over_groups(own, self._shown_model(), (state.version,)) if look else None,
            spread=self._evaluator.spread(*(({}, own) if alone else (own, personal)), unseen) if look else None,
            staleness_mean=math.fsum(stale) / len(stale) if stale else None,
            staleness_max=max(stale, default=None),
            **totals,
            note=released.note if released is not None else "",
            measures=self._measures(state, look=look),
            digest=self.digest() if self._digests and (look or self._experiment.recipe.regime != "local") else "",
        )
        self.of_clients = self._evaluator.of_clients(state.version, own, personal)
        return record

    def _unseen(self, state: ServerState, *, last: bool) -> tuple[Mapping[int, Tally], Mapping[int, Tally]]:
        """What the task counts for clients that never train: of the global model, and of those that they would use."""
        tests, model, of = self._evaluator.unseen_tests, self._shown_model(), (state.version,)
        if not self._evaluator.unseen or self._personal is None or not self._personal.due_of_unseen(of[0], last=last):
            return tests(lambda _: model, of), {}
        return tests(lambda _: model, of), tests(self._personal.of_unseen(state), (*of, "personal"))

    def of_classes(self, version: int, *, last: bool) -> ClassResultsRecord | None:
        """What the newest version makes of each class; None where it was not evaluated, or samples have no class.

        Args:
            version: its number.
            last: whether the run ends with it.
        """
        return self._evaluator.of_classes(version, last=last or version == self._experiment.rounds)

    def gauged(self, moment: SimulationStep, record: VisitRecord) -> dict[str, float]:
        """What the measures that were asked for say of a visit that trained."""
        assignment, report = moment.assignment, moment.event
        if assignment is None or not isinstance(report, Report):
            return {}
        counts = record.status == "trained"
        return {k: v for gauge in self._gauges for k, v in gauge.visit(assignment, report, counts=counts).items()}

    def state_dict(self) -> dict[str, Tensor]:
        """The global model's, as it is looked at."""
        return self._prepared.chosen.engine.state_of(self._shown_model())

    def base(self) -> dict[str, Tensor]:
        """What of the global model nobody changes, by its names in that."""
        return frozen_in(self._prepared.chosen.engine.at_rest())

    def moved(self) -> bool:
        """Whether the model is another one than the initial one; true where clients keep models of their own."""
        now, initial = self._global_model(), self._prepared.initial
        pairs = zip((now.weights, *now.buffers), (initial.weights, *initial.buffers), strict=True)
        return self._experiment.recipe.regime == "local" or not all(torch.equal(a, b) for a, b in pairs)

    def digest(self) -> str:
        """SHA-256 of the global model, or of all clients' models where there is none."""
        if self._experiment.recipe.regime != "local":
            return model_digest(self._prepared.chosen.engine.state_of(self._global_model()))
        state_of, models = self._prepared.chosen.engine.state_of, enumerate(self._local_models())
        return model_digest({f"{i}.{n}": t for i, m in models for n, t in state_of(m).items()})

    def _measures(self, state: ServerState, *, look: bool) -> dict[str, float]:
        found: dict[str, float] = {}
        if look and "submodels" in self._experiment.evaluation.measure:
            found |= self._evaluator.submodels(self._shown_model(), (state.version,))
        for key, mechanism in self._experiment.recipe.mechanisms():
            found |= mechanism.measures(state.parts[key])
        for gauge in self._gauges:
            found |= gauge.version()
        return found

    def _measure(self, measure: Callable[[Model, Of], Metrics | None], version: int) -> Metrics | None:
        if self._experiment.recipe.regime == "local":
            clients = self._prepared.eligible.tolist()
            return averaged(lambda client: measure(self._local_model(client), (version, client)), clients)
        return measure(self._shown_model(), (version,))

    def _shown_model(self) -> Model:
        """The global model as it is looked at: with statistics of its norms, where training has none."""
        model, version = self._global_model(), 0 if self.server is None else self.server.version
        if not self._experiment.recipe.capacity.statistics_apart:
            return model
        if self._shown is None or self._shown[0] != version:
            self._shown = version, counted(self._prepared, model, version)
        return self._shown[1]

    def _global_model(self) -> Model:
        if self.server is None:
            return self._prepared.initial
        return Model(weights=self.server.weights, buffers=self.server.buffers)

    def _model_of(self) -> Callable[[int], Model]:
        """Which model a client would use: the global one, or its own where nobody exchanges anything."""
        if self._experiment.recipe.regime == "local":
            return self._local_model
        model = self._shown_model()
        return lambda _: model

    def _local_model(self, client: int) -> Model:
        """A client's own model; the initial one if it has not trained."""
        records = {} if self.server is None else self.server.clients
        state = self._state_of(client, records.get(client, Record()).accepted)
        return self._prepared.initial if state.previous is None else state.previous

    def _local_models(self) -> Iterator[Model]:
        """Every client's own model."""
        return map(self._local_model, self._prepared.eligible.tolist())


def staleness(version: int, reports: Sequence[Report]) -> list[int]:
    """Versions that each update of a version is behind the model that it was added to."""
    return [version - 1 - report.version for report in reports]


def _mean_loss(reports: Sequence[Report]) -> float | None:
    """Mean loss during local training, weighted by the samples trained on."""
    heard = [(r.loss, r.samples) for r in reports if r.loss is not None and r.samples]
    total = sum(samples for _, samples in heard)
    return math.fsum(loss * samples for loss, samples in heard) / total if total else None
