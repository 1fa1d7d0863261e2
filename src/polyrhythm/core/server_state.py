"""Server state: all that the server remembers, and its answer to one event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from immutables import Map
from torch import Tensor

from polyrhythm.base.messages import Assignment, FaultKind, Kind, Report, State
from polyrhythm.base.vectors import Buffers
from polyrhythm.methods.mechanism import Release


@final
@dataclass(frozen=True, kw_only=True)
class Flight:
    """An assignment that is neither answered nor lost.

    Args:
        client, kind, visit, version: of the assignment.
        sent: when, in seconds since the run began.
        given_up: why nobody waits for it any more; empty while somebody does.
    """

    client: int
    kind: Kind
    visit: int
    version: int
    sent: float = 0.0
    given_up: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """What the server knows of one client: training visits that are over, and the last one accepted (-1 for none)."""

    visits: int = 0
    accepted: int = -1


@final
@dataclass(frozen=True, kw_only=True)
class ServerState:
    """Everything the server remembers. Its maps are persistent: a changed one costs the logarithm of their size.

    Args:
        version: how many steps it has taken.
        weights: [P].
        buffers: beside the weights.
        parts: the mechanisms' states, by key.
        dispatched: assignments made so far: the next dispatch number.
        flights: what is out, by dispatch number, given up or not.
        busy: the dispatch number of what is out, by client: nobody has two.
        training, measuring: how many visits of each kind somebody waits for.
        waiting: accepted reports that are not yet in a version.
        refused: (client, reason) of what was dropped or lost since the last version.
        resting: clients that are not invited again before the next version.
        clients: what is known of each client that had a visit.
        began: when the work on the next version began.
        invited: training visits begun since then.
        past: the weights of earlier versions that visits under way were sent, by version, where the release needs them.
    """

    version: int
    weights: Tensor
    buffers: Buffers
    parts: Mapping[str, State]
    dispatched: int = 0
    flights: Mapping[int, Flight] = field(default_factory=Map)
    busy: Mapping[int, int] = field(default_factory=Map)
    training: int = 0
    measuring: int = 0
    waiting: tuple[Report, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    resting: tuple[int, ...] = ()
    clients: Mapping[int, Record] = field(default_factory=Map)
    began: float = 0.0
    invited: int = 0
    past: Mapping[int, Tensor] = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class Released:
    """What a version was made of, for observers.

    Args:
        version: the new version.
        release: the reports, shares and scales; None if the version was skipped and the weights are as before.
        refused: (client, reason) of what was left out.
        note: why the version was skipped, or why the server kept its weights all the same.
    """

    version: int
    release: Release | None
    refused: tuple[tuple[int, str], ...]
    note: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one report or lost assignment, and under which kind it counts if something was wrong."""

    dispatch: int
    accepted: bool
    reason: str = ""
    fault: FaultKind | None = None


@final
@dataclass(frozen=True, kw_only=True)
class ServerDecision:
    """The answer to one event.

    Args:
        state: the new state.
        assignments: what to send out now.
        wake_up: when the server wants a `Timer`, in seconds since the run began, if at all.
        wanting: whether it would invite more clients if there were any: the driver says so when one is there.
        released: the version that this event completed, if any.
        verdict: what became of the report, if the event was one.
    """

    state: ServerState
    assignments: tuple[Assignment, ...] = ()
    wake_up: float | None = None
    wanting: bool = False
    released: Released | None = None
    verdict: Verdict | None = None
