"""Visits that are out at nodes: sent, sent again where a node went away and came back, answered or lost.

A visit whose node goes away is sent again when the node is back; it is the same visit, with the same draws, from the
same state, so nothing shows that it was interrupted. Only if the node stays away is it lost. An answer that does not
fit what was asked (`hearing`) is a lost visit with its reason, billed for what came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import torch

from polyrhythm.base.faults import FaultKind
from polyrhythm.base.filed import Files
from polyrhythm.base.messages import Assignment, Event, Lost, Report
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import Flight, Record
from polyrhythm.data.transforms import Normalise
from polyrhythm.deployment.hearing import Hearing
from polyrhythm.deployment.held_part import HeldPart, held_part
from polyrhythm.deployment.messages import Answer, Malformed, Order, Refusal, shown
from polyrhythm.deployment.registry import TRIES, Nodes, Reply, Tell, Transport, pause_before
from polyrhythm.deployment.shared_part import SharedPart
from polyrhythm.deployment.sums import Mail
from polyrhythm.deployment.wire import Parcel, Sums, pack, unpack
from polyrhythm.simulation.client_store.vector_files import with_vectors

LOOK = 1.0
"""Seconds between two looks at who is there."""
AT_ONCE = 2**26
"""Bytes of answers that are asked for at the same time, if that is more than one."""
LONG = 300.0
"""Seconds after which it is said that a visit takes long, and again whenever it has taken twice as long."""


@final
@dataclass
class Out:
    """A visit that is out: sent at `started`, in `message`; None while its node is away, since `away`.

    Where single updates are hidden, `mail` is what neighbours have written to its client, by sender. It was sent in
    vain `tries` times, and is not sent again before `again`. When it has taken `long` that is said.
    """

    assignment: Assignment
    started: float
    message: str | None = None
    away: float | None = None
    tries: int = 0
    again: float = 0.0
    long: float = LONG
    mail: Mapping[int, bytes] = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class Heard:
    """An event, the visit that it ends, the seconds that its node says it worked, and the bytes that came.

    `failed` if the node itself says that it has failed, or refuses.
    """

    event: Event
    visit: Out | None = None
    seconds: float = 0.0
    came: int = 0
    failed: bool = False

    def at(self, now: float) -> Heard:
        """The same, heard now."""
        event, out = self.event, self.visit
        if isinstance(event, Report):
            event = event.heard(after=now - (now if out is None else out.started), at=now)
        elif isinstance(event, Lost):
            event = Lost(dispatch=event.dispatch, reason=event.reason, time=now, fault=event.fault)
        return replace(self, event=event)


@final
class Outstanding:
    """All visits that are out.

    Args:
        server: who has sent them.
        transport: to the nodes.
        nodes: who they are; gathered already.
        run: gives the run's id, once it has begun.
        scaling: by which statistics of its samples the server scales inputs, if by any.
        retain: how many checkpoints the server may go back to.
        returns: seconds that a visit waits for its node to come back, 0 for none.
        tell: says what happens to nodes.
        folder: gives that on whose file system long vectors of answers wait for their version.
    """

    def __init__(
        self,
        server: Server,
        transport: Transport,
        nodes: Nodes,
        *,
        run: Callable[[], str],
        folder: Callable[[], Path],
        scaling: Normalise | None,
        retain: int,
        returns: float,
        tell: Tell,
    ) -> None:
        self._server, self._transport, self._nodes = server, transport, nodes
        self._run, self._returns, self._tell, self._folder = run, returns, tell, folder
        rows = None if scaling is None else (scaling.mean, scaling.std)
        self._scaling = None if rows is None else torch.tensor(rows, dtype=torch.float64)
        self._hearing = Hearing(server.recipe, server.setup, server.layout)
        self._shared = SharedPart(server.recipe, server.layout)
        vectors = (1 + server.recipe.extra_vectors) * max(1, server.layout.vector_bytes)
        self._at_once = max(1, AT_ONCE // vectors)
        self._files: Files | None = None
        self._out: dict[int, Out] = {}
        self._messages: dict[str, int] = {}  # dispatch numbers
        # Accepted visits as they were at the checkpoints that may be gone back to.
        self._points: deque[Mapping[int, Record]] = deque(maxlen=retain + 1)

    def __bool__(self) -> bool:
        return bool(self._out)

    def __iter__(self) -> Iterator[Out]:
        """By dispatch number."""
        return (self._out[dispatch] for dispatch in sorted(self._out))

    def kept(self, clients: Mapping[int, Record]) -> None:
        """Notes what is known of clients at a checkpoint: nodes keep the states after these visits."""
        self._points.append(clients)

    def take_up(self, outs: Sequence[Out], flights: Mapping[int, Flight], now: float) -> None:
        """Sends out again what was out; whoever nobody waited for any more is lost."""
        self._out |= {out.assignment.dispatch: out for out in outs}
        self._push([out for out in outs if not flights[out.assignment.dispatch].given_up], now)

    def send(self, assignments: Iterable[Assignment], now: float, mail: Mail = {}) -> None:  # noqa: B006  # not changed
        """Sends visits to their nodes, with the letters that there are for each client."""
        outs = [Out(assignment, now, mail=mail.get(assignment.client, {})) for assignment in assignments]
        self._out |= {out.assignment.dispatch: out for out in outs}
        self._push(outs, now)

    def _push(self, outs: Iterable[Out], now: float) -> None:
        """Sends visits to their nodes; those whose node is away wait for it."""
        letters, sent, sums = list[tuple[int, Parcel]](), list[Out](), Sums()
        for out in outs:
            node = self._nodes.node(out.assignment.client)
            if node is None:
                out.message, out.away = None, now if out.away is None else out.away
                continue
            letters.append((node, pack(self._order(out), sums=sums)))
            sent.append(out)
        if letters:
            for message, out in zip(self._transport.push(letters), sent, strict=True):
                out.message = message
                self._messages[message] = out.assignment.dispatch

    def _order(self, out: Out) -> Order:
        assignment = out.assignment
        client, setup = assignment.client, self._server.setup
        keep = {points[client].accepted for points in self._points if client in points}
        part = self._part(assignment)
        return Order(
            run=self._run(),
            seed=setup.seed,
            population=setup.population,
            eligible=setup.holders,
            keep=tuple(sorted(keep)),
            assignment=part.sent(assignment),
            held=part.index,
            scaling=self._scaling,
            senders=tuple(out.mail),
            letters=b"".join(out.mail.values()) if out.mail else None,
        )

    def _part(self, assignment: Assignment) -> HeldPart | SharedPart:
        """What travels of the vectors of a visit."""
        server = self._server
        return held_part(server.recipe, server.setup, server.layout, assignment) or self._shared

    def hear(self, now: Callable[[], float]) -> list[Heard]:
        """What the answers mean that have come: so many are asked for at a time as `AT_ONCE` has room for."""
        messages, heard, step = list(self._messages), list[Heard](), self._at_once
        for first in range(0, len(messages), step):
            replies = deque(self._transport.pull(messages[first : first + step]))
            while replies:
                heard += self._understood(replies.popleft(), now)
        return heard

    def _understood(self, reply: Reply, now: Callable[[], float]) -> Sequence[Heard]:
        """What a reply means; nothing, if its visit is to be sent again."""
        dispatch = self._messages.pop(reply.to, None)
        out = None if dispatch is None else self._out.get(dispatch)
        if out is not None and out.message != reply.to:
            out = None  # it was sent again meanwhile, and answered already
        if reply.parcel is None:
            return () if out is None else self._unanswered(out, reply, now())
        came = reply.parcel.bytes
        try:
            answer = self._read(reply.parcel, out)
        except Malformed as wrong:
            return () if out is None else (self.unfit(out, f"sent {wrong}", came, wrong.kind),)
        if isinstance(answer, Refusal):
            return () if out is None else (self.unfit(out, f"refused: {answer.error()}", came, failed=True),)
        if out is None:
            return self._stray(answer.report)
        del self._out[out.assignment.dispatch]
        return (Heard(event=self._set_aside(answer.report), visit=out, seconds=answer.seconds, came=came),)

    def _set_aside(self, report: Report) -> Report:
        """The same report, its long vectors in files: they wait for those of the others."""
        if report.kind != "train" or self._server.recipe.releasing.base.release_size == 1:
            return report
        if self._files is None:
            self._files = Files(self._folder())
        waiting: Report = with_vectors(report, self._files.put)
        return waiting

    def _unanswered(self, out: Out, reply: Reply, now: float) -> Sequence[Heard]:
        """What it means that no answer comes: the visit is sent again if its node went away, or lost."""
        trouble, assignment = shown(reply.trouble), out.assignment
        if not (reply.gone or reply.unsent):
            if reply.unreadable:
                return (self.unfit(out, f"sent {trouble}"),)
            return (self.unfit(out, f"failed: {trouble}", failed=True),)
        what = "was not sent" if reply.unsent else "went away in"
        self._tell(f"client {assignment.client} {what} its visit {assignment.visit}: {trouble}")
        self._nodes.went_away(assignment.client)
        out.message, out.away, out.tries = None, now, out.tries + 1
        if out.tries == TRIES and reply.unsent:
            return (self._lost(out, f"it was not sent, in {TRIES} tries: {trouble}", fault="transit"),)
        if out.tries == TRIES:
            return (self._lost(out, f"its node went away {TRIES} times: {trouble}"),)
        out.again = now + pause_before(out.tries)
        return ()

    def _read(self, parcel: Parcel, out: Out | None) -> Answer | Refusal:
        """The answer in a parcel, if it is one to the visit.

        Raises:
            Malformed: it is not.
        """
        part = self._shared if out is None else self._part(out.assignment)

        def check(answer: Answer | Refusal) -> None:
            if out is not None and isinstance(answer, Answer):
                sent = out.assignment
                held = self._nodes.declared(sent.client)
                if answer.report.num_samples != held:
                    self._nodes.ask_again(sent.client)
                self._hearing.check(_whole(answer, part), sent, run=self._run(), num_samples=held)

        answer = unpack(parcel, Answer, Refusal, spans=part.spans, vectors=self._hearing.vectors, check=check)
        return answer if isinstance(answer, Refusal) else _whole(answer, part)

    def _stray(self, report: Report) -> Sequence[Heard]:
        """What an answer means that no message is waiting for; the server says why nobody does."""
        if report.dispatch in self._out:  # whose answer is still to come, and must not be taken for this one
            self._tell(f"an answer to visit {report.dispatch} that was not asked for now is ignored")
            return ()
        return (Heard(event=report),)

    def back_or_lost(self, flights: Mapping[int, Flight], now: float, overdue: bool = False) -> list[Heard]:
        """Sends out again what waits for a node that is back; gives up on those that stay away.

        Args:
            flights: what is out, to the core.
            now: seconds since the run began.
            overdue: whether a deadline is over for so long that nobody waits for an answer any more.
        """
        lost, back = list[Heard](), list[Out]()
        for out in self:
            flight = flights.get(out.assignment.dispatch)
            if overdue and flight is not None and not flight.given_up:
                lost.append(self._lost(out, "no answer long after the deadline"))
                continue
            if out.message is not None:
                self._say_if_long(out, now)
                continue
            if flight is not None and flight.given_up:
                lost.append(self._lost(out, "its node went away, and nobody waited for it any more"))
            elif self._nodes.node(out.assignment.client) is not None and now >= out.again:
                back.append(out)
            elif out.away is not None and now - out.away >= self._returns:
                lost.append(self._lost(out, f"its node went away and was not back within {self._returns:g} s"))
        for out in back:
            self._tell(f"client {out.assignment.client} is there: its visit {out.assignment.visit} is sent again")
            out.away = None
        self._push(back, now)
        return lost

    def _say_if_long(self, out: Out, now: float) -> None:
        taken, assignment = now - out.started, out.assignment
        if taken >= out.long:
            out.long = 2 * taken
            self._tell(
                f"client {assignment.client} has been at its visit {assignment.visit} for {taken:.0f} s; "
                "time_out(seconds=…) in the method would give up on such visits"
            )

    def unfit(self, out: Out, words: str, came: int = 0, kind: FaultKind = "unfit", *, failed: bool = False) -> Heard:
        """A visit whose answer is no good."""
        assignment, reason = out.assignment, f"it has {words}"
        self._tell(f"client {assignment.client}, visit {assignment.visit}: {reason}")
        return replace(self._lost(out, reason, came=came, fault=kind), failed=failed)

    def _lost(self, out: Out, reason: str, *, came: int = 0, fault: FaultKind = "lost") -> Heard:
        assignment, fault = out.assignment, "away" if fault == "lost" and out.away is not None else fault
        self._out.pop(assignment.dispatch, None)
        return Heard(event=Lost(dispatch=assignment.dispatch, reason=reason, fault=fault), visit=out, came=came)


def _whole(answer: Answer, part: HeldPart | SharedPart) -> Answer:
    """The answer with vectors as long as the model's."""
    return replace(answer, report=part.heard(answer.report))
