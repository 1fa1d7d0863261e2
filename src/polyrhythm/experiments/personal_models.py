"""The models that clients use, where they have their own: made of a version when they are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from polyrhythm.core.client_state import ClientState
from polyrhythm.core.personal import used
from polyrhythm.core.server_state import Record, ServerState
from polyrhythm.core.visit_plan import visit_of
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.mechanism import Model


@final
class PersonalModels:
    """Personal models of one run in progress.

    A client that has never trained has its own part as version 0 has it.

    Args:
        prepared: what is done.
        state_of: a client's state after the given accepted visit.
    """

    def __init__(self, prepared: Prepared, state_of: Callable[[int, int], ClientState]) -> None:
        self._prepared, self._state_of = prepared, state_of

    def due(self, version: int, *, last: bool) -> bool:
        """Whether they are measured of an evaluated version.

        Args:
            version: which one.
            last: whether the run is known to end with it.
        """
        experiment = self._prepared.experiment
        every = experiment.evaluation.personal_every
        if last or (every is None and experiment.until.judges):  # any version may then be the last
            return True
        return not self._prepared.recipe.personal.tunes if every is None else version % every == 0

    def models(self, server: ServerState) -> Callable[[int], Model]:
        """Which model a client uses with a version of the global one."""
        prepared = self._prepared
        recipe, engine, setup = prepared.recipe, prepared.chosen.engine, prepared.setup
        sent = Model(weights=server.weights, buffers=server.buffers)

        def model(client: int) -> Model:
            record, data = server.clients.get(client, Record()), prepared.data_of(client)
            visit, _ = visit_of(
                recipe,
                len(data),
                engine.single_sample_fails,
                seed=setup.seed,
                client=client,
                visit=record.visits,
                version=server.version,
                total_rounds=setup.total_rounds,
            )
            return used(recipe, visit, self._state_of(client, record.accepted), sent, data, engine)

        return model
