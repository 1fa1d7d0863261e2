"""The models that clients use, where they have their own: made of a version when they are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from polyrhythm.base.messages import State
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.newcomers import settled_in
from polyrhythm.core.personal import used
from polyrhythm.core.predicting import Used, asked, predicting
from polyrhythm.core.protocols import ClientData
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
        return self._due(version, last=last, there=not self._prepared.recipe.personal.tunes)

    def due_of_unseen(self, version: int, *, last: bool) -> bool:
        """The same of clients that never train: theirs are there only once they are made."""
        return self._due(version, last=last, there=False)

    def _due(self, version: int, *, last: bool, there: bool) -> bool:
        experiment = self._prepared.experiment
        every = experiment.evaluation.personal_every
        if last or (every is None and experiment.until.judges):  # any version may then be the last
            return True
        return there if every is None else version % every == 0

    def models(self, server: ServerState) -> Callable[[int], Used]:
        """Which model a client uses with a version of the global one."""
        data_of = self._prepared.data_of

        def model(client: int) -> Used:
            record = server.clients.get(client, Record())
            return self._used(server, client, record.visits, self._state_of(client, record.accepted), data_of(client))

        return model

    def of_unseen(self, server: ServerState) -> Callable[[int], Used]:
        """Which model a client that never trains would use: after visits of which it sends nothing."""
        prepared, data_of = self._prepared, self._prepared.data_of_unseen
        assert data_of is not None
        visits = prepared.experiment.evaluation.unseen_visits

        def model(client: int) -> Used:
            data = data_of(client)
            state = settled_in(prepared.recipe, prepared.setup, server, client, data, prepared.chosen.engine, visits)
            return self._used(server, client, visits, state, data)

        return model

    def _used(self, server: ServerState, client: int, visits: int, state: ClientState, data: ClientData) -> Used:
        sent = Model(weights=server.weights, buffers=server.buffers)
        brief = asked(self._prepared.recipe, self._prepared.setup, server.parts, client)
        return own_model(self._prepared, sent, server.version, client, visits, state, data, brief)


def own_model(
    prepared: Prepared,
    sent: Model,
    version: int,
    client: int,
    visits: int,
    state: ClientState,
    data: ClientData,
    brief: State,
) -> Used:
    """What a client uses when it is sent a version.

    Args:
        prepared: what is done.
        sent: the version's model.
        version: its number.
        client: who it is.
        visits: how many it has made.
        state: its state after its last accepted visit.
        data: its training samples.
        brief: what the server sends for its predictions.
    """
    recipe, engine, setup = prepared.recipe, prepared.chosen.engine, prepared.setup
    visit, _ = visit_of(
        recipe,
        len(data),
        engine.single_sample_fails,
        seed=setup.seed,
        client=client,
        visit=visits,
        version=version,
        total_rounds=setup.total_rounds,
    )
    return predicting(recipe, visit, used(recipe, visit, state, sent, data, engine), data, engine, brief)
