"""Which node of a real federation is which client, and which of them are there.

Whatever carries messages knows nodes by numbers of its own, which change with a node's key. A client's number comes
from the node's own configuration: every node that appears is asked for it once, and for what it must have in common
with the server. Nodes that have not are refused, in words, and get no work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from polyrhythm.base.errors import UserError
from polyrhythm.deployment.messages import MOST_COUNTED, Greeting, Malformed, Present, Refusal, shown
from polyrhythm.deployment.wire import Parcel, pack, unpack

TRIES = 9
"""How often a message is sent to a node that goes away each time and is there again, waiting longer each time."""


def pause_before(tries: int) -> float:
    """Seconds until a message is sent again that was sent in vain so many times."""
    return 0.0 if tries <= 1 else 2.0 ** (tries - 2)


Tell = Callable[[str], None]
"""Says something to whoever watches the server."""


@final
@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back for a message.

    Args:
        to: the message's id.
        parcel: the answer; None if there will be none.
        trouble: why, in words.
        gone: whether that is since the node went away, so that another try may do.
        unreadable: whether something came that cannot be read, which `trouble` describes.
        unsent: whether the message was not even sent; another try may do.
    """

    to: str
    parcel: Parcel | None = None
    trouble: str = ""
    gone: bool = False
    unreadable: bool = False
    unsent: bool = False


class Transport(Protocol):
    """Carries messages to nodes and answers back. None of its calls waits."""

    def nodes(self) -> Collection[int]:
        """The nodes that are there."""

    def push(self, letters: Sequence[tuple[int, Parcel]]) -> Sequence[str]:
        """Sends messages, each to a node; gives their ids in that order."""

    def pull(self, messages: Collection[str]) -> Sequence[Reply]:
        """What has come for these messages since this was last asked, in the order of arrival."""


class Clock(Protocol):
    """Time as it passes."""

    def now(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Waits."""


@final
class WallClock:
    """The time that really passes."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@final
class Nodes:
    """The nodes by client. To a roster it is what a simulated world is: who belongs to it, and who is there.

    Args:
        transport: to the nodes.
        greeting: what they are asked.
        clock: for waiting.
        tell: says who came, and who was refused.
        pause: seconds between two looks for answers.
    """

    everybody_is_there = False

    def __init__(
        self,
        transport: Transport,
        greeting: Greeting,
        clock: Clock,
        *,
        tell: Tell = lambda text: None,
        pause: float = 0.1,
    ) -> None:
        self.population = greeting.population
        self._transport, self._greeting, self._clock, self._tell, self._pause = (
            transport,
            pack(greeting),
            clock,
            tell,
            pause,
        )
        self._asked: dict[str, int] = {}  # nodes by the greeting that they have not answered
        self._clients: dict[int, int] = {}  # by node
        self._nodes: dict[int, int] = {}  # by client
        self._held: dict[int, int] = {}
        self._refused: dict[int, str] = {}
        self._doubled: dict[int, int] = {}  # clients by the refused node that says it is one whose node is there
        self._vain: dict[int, tuple[int, float]] = {}  # by node: greetings in vain, and when to try again
        self._there: frozenset[int] = frozenset()
        self._settled = False
        self.engines: dict[int, str] = {}
        """What computes at each client."""

    @property
    def eligible(self) -> Sequence[int]:
        """The clients that hold data, or may: those that were not heard yet. In order."""
        return [client for client in range(self.population) if self._held.get(client, 1)]

    @property
    def num_samples(self) -> Sequence[int]:
        """The samples that each client has declared; 0 for those that were not heard."""
        return [self._held.get(client, 0) for client in range(self.population)]

    def span(self, client: int, now: float) -> tuple[bool, float]:
        """Whether a client was there at the last look. How long that stays so nobody knows."""
        return self.node(client) is not None, math.inf

    def node(self, client: int) -> int | None:
        """The node of a client, if it is there."""
        node = self._nodes.get(client)
        return node if node in self._there else None

    def client(self, node: int) -> int | None:
        """The client of a node, if it is known."""
        return self._clients.get(node)

    def declared(self, client: int) -> int:
        """The samples that a client has declared; 0 if it was not heard."""
        return self._held.get(client, 0)

    def ask_again(self, client: int) -> None:
        """Greets a client's node anew, since it holds something else now; it is there all the same."""
        node = self._nodes.get(client)
        if node is not None and node not in self._asked.values():
            self._greet([node])

    def _greet(self, nodes: Sequence[int]) -> None:
        self._asked |= zip(self._transport.push([(node, self._greeting) for node in nodes]), nodes, strict=True)

    def gather(self, wait: float) -> None:
        """Waits until every client is there.

        Args:
            wait: how long, in seconds.

        Raises:
            UserError: some are missing.
        """
        end, told = self._clock.now() + wait, self._clock.now() + 10.0
        while missing := self._missing():
            self.look()
            now = self._clock.now()
            if now >= end:
                raise self._not_there(missing, wait)
            if now >= told:
                self._tell(f"waiting for {listed(missing)}: {end - now:.0f} s more")
                told = now + 30.0
            self._clock.sleep(self._pause)
        self._settled = True
        self._say_if_heavy(max(self._held, key=lambda client: self._held[client]))

    def _missing(self) -> list[int]:
        return [client for client in range(self.population) if self.node(client) is None]

    def _not_there(self, missing: list[int], wait: float) -> UserError:
        refused = "".join(f"; refused: {words}" for words in self._refused.values())
        return UserError(
            f"{listed(missing)} not there after {wait:g} s, of {self.population}{refused}",
            expected="a node for each client, with a number of its own from 0",
            why="a cohort is drawn from all of them, and how much each holds is asked when it comes",
            fix="""start the nodes that are missing, each with --node-config 'client=…'; or wait longer""",
        )

    def look(self) -> list[int]:
        """Looks who is there and greets whoever is new; gives the clients that were not there at the last look."""
        before, self._there = self._there, frozenset(self._transport.nodes())
        for node in self._refused.keys() - self._there:
            del self._refused[node]  # with another configuration it may be let in
            self._vain.pop(node, None)
        for node, client in list(self._doubled.items()):
            if node not in self._refused or self.node(client) is None:
                self._let_ask_again(node)
        early = {node for node, (_, again) in self._vain.items() if self._clock.now() < again}
        busy = {*self._asked.values(), *self._refused, *self._clients, *early}
        new = sorted(node for node in self._there if node not in busy)
        if new:
            self._greet(new)
        came = [self._clients[node] for node in sorted(self._there - before) if node in self._clients]
        if self._asked:
            came += [client for reply in self._transport.pull(list(self._asked)) for client in self._heard(reply)]
        return came

    def _heard(self, reply: Reply) -> list[int]:
        """The client that has answered, if it belongs here."""
        node = self._asked.pop(reply.to, None)
        if node is None:
            return []
        if reply.parcel is None:
            self._unanswered(node, reply)
            return []
        self._vain.pop(node, None)
        try:
            present = unpack(reply.parcel, Present, Refusal)
        except Malformed as wrong:
            self._refuse(node, f"node {node} has sent {wrong}")
            return []
        if isinstance(present, Refusal):
            self._refuse(node, f"node {node} does not take part: {present.error()}")
            return []
        client, known = present.client, self._nodes.get(present.client)
        before = self._held.get(client)
        if not 0 <= client < self.population or not 0 <= present.num_samples <= MOST_COUNTED:
            self._refuse(
                node, f"node {node} says that it is client {client} of {self.population}, with {present.num_samples}"
            )
        elif self._settled and before is not None and bool(before) != bool(present.num_samples):
            # Who may be invited at all is settled before the run begins.
            self._refuse(
                node, f"node {node} says that client {client} holds {present.num_samples:,} samples, not {before:,}"
            )
        elif known is not None and known != node and known in self._there:
            self._refuse(
                node,
                f"node {node} says that it is client {client}, which node {known} is already: give each node a number "
                "of its own, --node-config 'client=…'",
            )
            self._doubled[node] = client  # it may be the same one, come back before Flower has noticed that it went
        else:
            self._forget(node)
            if known is not None:
                self._clients.pop(known, None)
            self._clients[node], self._nodes[client] = client, node
            self._held[client], self.engines[client] = present.num_samples, shown(present.engine, 40)
            self._tell(f"client {client} is there, with {present.num_samples:,} samples")
            if self._settled and present.num_samples != before:
                self._say_if_heavy(client)
            return [] if known == node else [client]
        return []

    def _say_if_heavy(self, client: int) -> None:
        """Says so of a client that counts for more than all others together: nobody can check how much it holds."""
        held, others = self._held[client], sum(n for other, n in self._held.items() if other != client)
        if self.population > 2 and held > others:
            self._tell(
                f"client {client} says that it holds {held:,} of all {held + others:,} samples, more than all others "
                "together: weighed by samples, the model is mostly its own; equal() weighs all clients alike"
            )

    def _unanswered(self, node: int, reply: Reply) -> None:
        """Whoever is gone, or was not reached, is greeted again when it is there; not without end."""
        trouble, tries = shown(reply.trouble), self._vain.get(node, (0, 0.0))[0] + 1
        if not (reply.gone or reply.unsent):
            self._refuse(node, f"node {node}: {'it has sent ' if reply.unreadable else ''}{trouble}")
        elif tries == TRIES:
            self._refuse(node, f"node {node} was asked {TRIES} times who it is, in vain: {trouble}")
        else:
            self._vain[node] = tries, self._clock.now() + pause_before(tries)

    def went_away(self, client: int) -> None:
        """Notes that a client's node has not answered; if another one says that it is that client, it is asked anew."""
        claimants = [node for node, claimed in self._doubled.items() if claimed == client]
        if claimants and client in self._nodes:
            self._forget(self._nodes[client])
        for node in claimants:
            self._let_ask_again(node)

    def _let_ask_again(self, node: int) -> None:
        del self._doubled[node]
        self._refused.pop(node, None)

    def _forget(self, node: int) -> None:
        """Takes a node for nobody's any more."""
        if self._nodes.get(self._clients.get(node, -1)) == node:
            del self._nodes[self._clients[node]]
        self._clients.pop(node, None)

    def _refuse(self, node: int, words: str) -> None:
        self._forget(node)
        self._refused[node] = words
        self._tell(f"refused: {words}")


def listed(clients: Sequence[int], most: int = 10) -> str:
    """Some clients in words."""
    shown = ", ".join(map(str, clients[:most])) + (f" and {len(clients) - most} more" if len(clients) > most else "")
    return f"client {shown}" if len(clients) == 1 else f"clients {shown}"
