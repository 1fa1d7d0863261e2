"""Whoever wants to know how a run goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from polyrhythm.runs.at_work import AtWork
from polyrhythm.runs.records import (
    AnswerRecord,
    ClassResultsRecord,
    ClientRecord,
    ClientResultsRecord,
    EventRecord,
    ModelView,
    Plan,
    RunStatus,
    VersionRecord,
    VisitRecord,
)

if TYPE_CHECKING:
    from pathlib import Path

    from polyrhythm.base.messages import Model, Report


class Enough(BaseException):
    """An observer has seen all that it wanted: the run is stopped, as if by Ctrl-C."""


@final
@dataclass(frozen=True, kw_only=True)
class Start:
    """What the server knew when the run began, beyond its description.

    Args:
        initial: version 0.
        population: clients that the federation declares.
        clients: those that may be invited, in order.
        shape: of one sample.
        outputs: of the model.
        task: what the model is asked to do.
    """

    initial: Model
    population: int
    clients: tuple[int, ...]
    shape: tuple[int, ...]
    outputs: int
    task: str


class Observer:
    """Base of those who are told how a run goes. It steers nothing, but may end the run.

    `begin` comes first, and may raise a UserError to stop the run before any work; `end` comes last, whatever happens.
    Each hook does nothing until it is overridden, and what nobody overrides costs nothing.
    """

    wants_digests: ClassVar[bool] = False
    """Whether every version has the digest of its model, which takes a pass over all weights."""

    @property
    def path(self) -> Path:
        """The folder of the run's own files, after `begin`: whoever keeps checkpoints, in `at_rest`, has one."""
        raise NotImplementedError

    def begin(self, plan: Plan) -> None:
        """The run is about to start."""

    def goes_on(self, version: int, model: ModelView) -> None:
        """After `begin`: the run goes on from a version that was made before, with this model."""

    def started(self, start: Start) -> None:
        """After `begin`, when the run begins or goes on."""

    def members(self, records: Sequence[ClientRecord]) -> None:
        """After `started`: the clients, or of a large federation a sample, in the order of their numbers.

        Once more at the end of a run that ends as planned, with how long each was there.
        """

    def event(self, record: EventRecord) -> None:
        """The server heard something."""

    def answer(self, record: AnswerRecord) -> None:
        """A question about who is there was answered; after the event in which it was asked."""

    def report(self, report: Report) -> None:
        """A report was heard, with all that the client sent."""

    def visit(self, record: VisitRecord) -> None:
        """A client visit is over."""

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """The server made a version. `model` is called only when the weights are wanted."""

    def client_results(self, record: ClientResultsRecord) -> None:
        """What single clients get out of the version that was told last."""

    def class_results(self, record: ClassResultsRecord) -> None:
        """What the version that was told last makes of each class."""

    def at_rest(self, version: int, state: Callable[[], Any], *, surely: bool) -> None:
        """Nothing happens at the moment: a version is made, or the run is about to be stopped.

        Args:
            version: the last one.
            state: gives all that the run is now; valid until this returns.
            surely: whether it must be kept however short a time ago it was kept before.
        """

    def at_work(self, time: float, visits: Callable[[], Sequence[AtWork]]) -> None:
        """The server has decided, and visits go on until it hears something again.

        Args:
            time: virtual seconds since the run began.
            visits: gives those that are under way, those that have just been sent out included; valid until this
                returns.
        """

    def why_end(self) -> str:
        """Between two events, when nothing happens at the moment: why the run should end; "" to go on."""
        return ""

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """The run is over."""


def using(hook: str, observers: Iterable[Observer]) -> list[Observer]:
    """Those of some observers that have a hook of their own."""
    return [observer for observer in observers if getattr(type(observer), hook) is not getattr(Observer, hook)]
