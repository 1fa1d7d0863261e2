"""Visits whose steps are taken together, by an engine that takes cohorts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from polyrhythm.core.protocols import Done as Answer
from polyrhythm.core.protocols import Job, TakesCohorts
from polyrhythm.core.training import Visiting
from polyrhythm.simulation.workers.executors import Clients, Done, VisitFuture, VisitTask, groups


@final
class AtOnce:
    """Visits that begin at once, here: their steps are taken together, so many visits at a time.

    Args:
        clients: what visits need; the engine must be one that takes cohorts.
        size: of a group; None for all of them.
    """

    goes_on = False
    deaths = 0

    def __init__(self, clients: Clients, size: int | None = None) -> None:
        engine: TakesCohorts = clients.engine  # type: ignore[assignment]
        self._clients, self._engine, self._size = clients, engine, size

    def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        futures = [VisitFuture(task) for task in tasks]
        for group in groups(futures, self._size):
            for future, done in zip(group, self._together([future.task for future in group]), strict=True):
                future.outcome.set_result(done)
        return futures

    def done(self, future: VisitFuture) -> Done:
        return future.outcome.result()

    def _together(self, tasks: Sequence[VisitTask]) -> list[Done]:
        waiting: dict[int, tuple[Visiting, Job]] = {}
        done: dict[int, Done] = {}
        for place, visit in enumerate(map(self._clients.begin, tasks)):
            try:
                waiting[place] = visit, next(visit)
            except StopIteration as end:
                done[place] = end.value
        answers = self._answers([tasks[place] for place in waiting], [job for _, job in waiting.values()])
        for (place, (visit, _)), answer in zip(waiting.items(), answers, strict=True):
            if answer is not None:
                done[place] = self._ended(visit, answer)
        # What was not taken is begun anew, one after the other: a visit is a pure function.
        return [done[place] if place in done else self._clients.visit(task) for place, task in enumerate(tasks)]

    def _answers(self, tasks: Sequence[VisitTask], jobs: Sequence[Job]) -> Iterator[Answer | None]:
        """What comes of the steps; an error in them says whose they were."""
        try:
            yield from self._engine.local_rounds(jobs) if jobs else ()
        except Exception as error:
            clients = ", ".join(str(task.assignment.client) for task in tasks)
            error.add_note(f"this happened in the steps of clients {clients}, on version {tasks[0].assignment.version}")
            raise

    def _ended(self, visit: Visiting, answer: Answer | None) -> Done:
        """What comes of a visit that is told what came of its steps; what it trains after these is its own."""
        while True:
            try:
                job = visit.send(answer)
            except StopIteration as end:
                done: Done = end.value
                return done
            answer = self._engine.local_round(job)

    def close(self) -> None:
        """Nothing to end."""
