"""Mutants that laws of several files share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from polyrhythm.base.messages import Event, Report
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import Record, ServerDecision, ServerState

from .law import swap

# What mutants wrap.
_RECEIVE = Server.receive


def _forgetful(self: Server, state: ServerState, event: Event, roster: Any) -> ServerDecision:
    turn = _RECEIVE(self, state, event, roster)
    if turn.verdict is None or not turn.verdict.accepted or not isinstance(event, Report):
        return turn
    clients = {**turn.state.clients, event.client: Record(visits=event.visit + 1)}
    return replace(turn, state=replace(turn.state, clients=clients))


def _restless(self: Server, state: ServerState, event: Event, roster: Any) -> ServerDecision:
    return _RECEIVE(self, replace(state, resting=()), event, roster)


FORGETS_WHAT_IT_ACCEPTS = swap(Server, "receive", _forgetful)
RESTS_FOR_ONE_EVENT = swap(Server, "receive", _restless)
"""Who skipped or was refused may be invited again as soon as anything else happens."""
