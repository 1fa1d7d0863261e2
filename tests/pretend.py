"""A real federation that is not real: nodes in this process, a clock that jumps, a line on which things happen."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

import polyrhythm as pr
from polyrhythm.deployment.node import Node
from polyrhythm.deployment.registry import Reply, Transport
from polyrhythm.deployment.wire import Parcel
from polyrhythm.experiments.prepared import prepare


@final
class JumpingClock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def copied(parcel: Parcel) -> Parcel:
    """What arrives of a parcel: bytes that nobody shares, off the borders that kernels like."""
    arrays = []
    for array in parcel.arrays:
        raw = np.frombuffer(b"\0" * 3 + array.tobytes(), dtype=np.uint8)[3:]
        arrays.append(raw.view(array.dtype) if array.itemsize == 1 else np.array(raw).view(array.dtype))
    return Parcel(text=json.dumps(json.loads(parcel.text)), arrays=tuple(arrays))


@final
@dataclass
class PretendTransport:
    """Carries parcels between a server and nodes in this process.

    Args:
        clock: when answers are there.
        nodes_by: what answers, by the number of the node.
        takes: seconds from a message to its answer, by node and number of the message.
        away: when a node is away, (from, until), by its number; what it works on then is gone.
        doubled: the numbers of messages whose answers come twice.
        spoilt: changes answers, by number of the message.
    """

    clock: JumpingClock
    nodes_by: Mapping[int, Callable[[Parcel], Parcel]]
    takes: Callable[[int, int], float] = lambda node, number: 1.0
    away: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    doubled: Collection[int] = ()
    spoilt: Mapping[int, Callable[[Parcel], Parcel]] = field(default_factory=dict)
    sent: list[tuple[int, Parcel]] = field(default_factory=list)
    answers: list[Parcel] = field(default_factory=list)
    _heap: list[tuple[float, int, Reply]] = field(default_factory=list)

    def _is_there(self, node: int) -> bool:
        begin, end = self.away.get(node, (0.0, 0.0))
        return not begin <= self.clock.time < end

    def nodes(self) -> Collection[int]:
        return [node for node in self.nodes_by if self._is_there(node)]

    def push(self, letters: Sequence[tuple[int, Parcel]]) -> list[str]:
        ids = []
        for node, parcel in letters:
            number = len(self.sent)
            self.sent.append((node, parcel))
            ids.append(str(number))
            now, after = self.clock.time, self.takes(node, number)
            begin, _ = self.away.get(node, (0.0, 0.0))
            if not self._is_there(node) or now <= begin < now + after:
                gone = Reply(to=str(number), trouble="it does not answer", gone=True)
                heapq.heappush(self._heap, (max(now, begin), 2 * number, gone))
                continue
            try:
                answer = copied(self.nodes_by[node](copied(parcel)))
                answer = self.spoilt.get(number, lambda parcel: parcel)(answer)
                reply = Reply(to=str(number), parcel=answer)
                self.answers.append(answer)
            except Exception as error:
                reply = Reply(to=str(number), trouble=f"{type(error).__name__}: {error}")
            heapq.heappush(self._heap, (now + after, 2 * number, reply))
            if number in self.doubled:
                heapq.heappush(self._heap, (now + after, 2 * number + 1, reply))
        return ids

    def pull(self, messages: Collection[str]) -> list[Reply]:
        found, left = [], []
        while self._heap and self._heap[0][0] <= self.clock.time:
            entry = heapq.heappop(self._heap)
            if entry[2].to in messages or int(entry[2].to) in self.doubled:
                found.append(entry[2])
            else:
                left.append(entry)
        for entry in left:
            heapq.heappush(self._heap, entry)
        return found


def nodes_of(
    experiment: Callable[[], pr.Experiment],
    store: Path,
    clients: int,
    execution: pr.Execution | None = None,
    **options: Any,
) -> dict[int, Any]:
    """A node for each client, numbered from 100. Each message meets a node that knows nothing of those before."""

    def answering(client: int) -> Callable[[Parcel], Parcel]:
        made = prepare(
            experiment(), execution or pr.Execution()
        )  # building it anew for every message would take the time of the test
        return lambda parcel: Node(made, client, store / f"node-{client}", **options).reply(parcel)

    return {100 + client: answering(client) for client in range(clients)}


_: type[Transport] = PretendTransport
