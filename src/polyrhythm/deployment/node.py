"""A node of a real federation: one client's work, on its own data, from messages alone.

Whatever carries the messages starts a new process for each of them if it likes: all that is remembered from one to the
next lies in the node's store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report
from polyrhythm.base.threads import one_thread
from polyrhythm.base.vectors import Layout
from polyrhythm.core.client import work
from polyrhythm.core.protocols import ClientData
from polyrhythm.core.validation import misshapen_buffers
from polyrhythm.core.visit_plan import plan_visit
from polyrhythm.data import Collection, Federation
from polyrhythm.data.federation import Shares
from polyrhythm.data.partitions import Iid
from polyrhythm.data.samples import ArraySamples
from polyrhythm.data.schema import differences, scaling_of, schema_of
from polyrhythm.data.transforms import Normalise
from polyrhythm.deployment.held_part import HeldPart, part_of_order
from polyrhythm.deployment.messages import MOST_COUNTED, Answer, Greeting, Order, Present, Refusal
from polyrhythm.deployment.node_store import NodeStore
from polyrhythm.deployment.shared_part import SharedPart
from polyrhythm.deployment.sum_messages import SumAnswer, SumQuestion
from polyrhythm.deployment.wire import Parcel, pack, unpack
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.mechanism import Setup

ChangesReport = Callable[[Report], Report]
"""What may still happen to a report before it leaves the node, such as noise on its update."""


def layout_digest(layout: Layout) -> str:
    """SHA-256 of what is in a vector: names, shapes, places and types."""
    parts = [*map(repr, layout.segments), *map(repr, layout.buffers), repr(layout.size)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def with_own_data(experiment: Experiment, collection: Collection, asked: Greeting | Order) -> Experiment:
    """The experiment of a node that trains on a data set of its own: all of its training samples, as one client.

    Inputs that are scaled by statistics of these samples are scaled by the server's instead: one model needs one scale.
    """
    samples, scaling, own = collection.train, _server_scaling(asked), scaling_of(collection.train)
    if scaling is not None and own is not None and len(own.mean) == len(scaling.mean):
        assert isinstance(samples, ArraySamples), "no other samples are scaled by statistics of their own"
        samples = samples.scaled_as(scaling)
    federation = Federation(
        name=collection.name,
        task=collection.task,
        classes=collection.classes,
        shares=Shares.of(samples, np.arange(len(samples)), np.array([len(samples)])),
        test=collection.test,
        validation=None,
        local_tests=None,
        names=(),
        partition=Iid(),
        notes=collection.notes,
        features=collection.features,
        target=collection.target,
        structure=collection.structure,
    )
    return dataclasses.replace(experiment, federation=federation)


def understood(parcel: Parcel) -> Greeting | Order | SumQuestion:
    """What a server asks in a message.

    Raises:
        Malformed: it is no message of a server's.
    """
    return unpack(parcel, Greeting, Order, SumQuestion)


def _server_scaling(asked: Greeting | Order) -> Normalise | None:
    """By which means and standard deviations the server scales inputs, if by those of its own samples."""
    if isinstance(asked, Greeting):
        rows = asked.schema.scaling
    else:
        rows = () if asked.scaling is None else tuple(map(tuple, asked.scaling.tolist()))
    return Normalise(mean=rows[0], std=rows[1], fitted=True) if rows else None


@final
class Node:
    """Answers messages.

    Args:
        prepared: the same experiment as the server's; its federation's training data are the node's own, or those of
            all.
        client: the node's number in the federation.
        store: the folder in which it remembers.
        own: whether all training data of the experiment are the node's; else it holds those of its number.
        change: what happens to reports before they leave.
        clock: seconds.
    """

    def __init__(
        self,
        prepared: Prepared,
        client: int,
        store: Path,
        *,
        own: bool = False,
        change: ChangesReport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prepared, self._client, self._store = prepared, client, store
        self._own, self._change, self._clock = own, change, clock
        self._shared = SharedPart(prepared.recipe, self._layout)

    def reply(self, parcel: Parcel) -> Parcel:
        """The answer to a message; a refusal in words to what cannot be done.

        Raises:
            Malformed: it is no message.
        """
        return self.answer(understood(parcel))

    def answer(self, message: Greeting | Order | SumQuestion) -> Parcel:
        """The answer to what was in a message; a refusal in words to what cannot be done."""
        answer: Present | SumAnswer | Answer
        part: HeldPart | SharedPart = self._shared
        try:
            if isinstance(message, SumQuestion):
                answer = self._for_a_sum(message)
            elif isinstance(message, Greeting):
                answer = self._present(message)
            else:
                part = self._part_of(message)
                answer = self._carry_out(message, part)
        except UserError as error:
            return pack(
                Refusal(client=self._client, found=error.found, expected=error.expected, why=error.why, fix=error.fix)
            )
        packs = not self._prepared.recipe.sums_only  # what is masked looks like chance
        packed = packs and isinstance(answer, Answer) and answer.report.packed is not None
        if isinstance(answer, Answer):
            answer = dataclasses.replace(answer, report=part.answered(answer.report))
        return pack(answer, part.spans if packed else None)

    @property
    def _layout(self) -> Layout:
        return self._prepared.chosen.engine.layout

    def _present(self, greeting: Greeting) -> Present:
        prepared, client = self._prepared, self._client
        if not 0 <= client < greeting.population:
            raise UserError(
                f"a node with client={client}, in a federation of {greeting.population}",
                expected=f"a number from 0 to {greeting.population - 1}",
                why="the server counts clients by that number, and its draws are named by it",
                fix="""start the node with --node-config 'client=0 …', each node with a number of its own""",
            )
        _check_recipe(client, prepared.recipe.digest, prepared.recipe.title, greeting)
        differ = differences(schema_of(prepared.federation), greeting.schema)
        if differ:
            raise UserError(
                f"client {client} has other data than the server: {'; '.join(differ)}",
                expected="the same task, classes, features, shape and preparation of samples, in the same order",
                why="the same input or output of the model would mean something else at each of them",
                fix="prepare both alike: the node's data source takes classes=[…], features=[…], scaling=…",
            )
        if layout_digest(self._layout) != greeting.layout:
            raise UserError(
                f"client {client} has another model than the server: {self._layout.parameters:,} parameters",
                expected="the same parameters and buffers, with the same names, shapes and types",
                why="a vector is read by its place in the model",
                fix="start server and nodes from the same experiment, on samples of the same shape",
            )
        return Present(client=client, num_samples=len(self._data()), engine=prepared.chosen.name)

    def _setup(self, order: Order) -> Setup:
        """What is fixed for the run, as the order has it."""
        return dataclasses.replace(
            self._prepared.setup,
            population=order.population,
            eligible=order.eligible,
            total_rounds=order.assignment.total_rounds,
            seed=order.seed,
        )

    def _part_of(self, order: Order) -> HeldPart | SharedPart:
        """What travels of the vectors of an order; of one that is refused nobody asks."""
        if order.assignment.client != self._client or not _counts(order):
            return self._shared
        return part_of_order(self._prepared.recipe, self._setup(order), self._layout, order) or self._shared

    def _carry_out(self, order: Order, part: HeldPart | SharedPart) -> Answer:
        prepared, begun = self._prepared, self._clock()
        assignment = part.received(order.assignment)
        self._check_order(dataclasses.replace(order, assignment=assignment))
        setup = self._setup(order)
        kept = NodeStore(self._store, order.run, self._client)
        state = kept.state(assignment.accepted)
        engine = prepared.chosen.engine
        of = prepared.recipe, setup, state, assignment, self._data(), engine
        with one_thread():
            state, report = work(*of, plan_visit(*of, kept.pace()))
        if prepared.recipe.sums_only:
            report = kept.sums.masked(order, report)
        if self._change is not None and report.kind == "train":
            report = self._change(report)
        if assignment.kind == "train":
            kept.put(assignment.visit, state, (assignment.accepted, *order.keep))
        seconds = self._clock() - begun
        if report.fresh:
            kept.took(seconds, report.samples + report.gradient_samples + report.forward_samples / 3)
        return Answer(seconds=seconds, report=report, run=order.run)

    def _for_a_sum(self, question: SumQuestion) -> SumAnswer:
        recipe = self._prepared.recipe
        if question.client != self._client or question.recipe != recipe.digest or not recipe.sums_only:
            raise UserError(
                f"client {self._client} was asked for a sum of client {question.client}, of another recipe or of one "
                "without secagg",
                expected="a question to itself, in a recipe that hides single updates",
                why="what it would send belongs to nothing that it does",
                fix="start server and nodes from the same experiment",
            )
        return NodeStore(self._store, question.run, self._client).sums.answer(question)

    def _check_order(self, order: Order) -> None:
        """Refuses work that is not this client's, or that no server of the same experiment gives out."""
        assignment, layout = order.assignment, self._layout
        if assignment.client != self._client:
            raise UserError(
                f"an assignment for client {assignment.client} at client {self._client}",
                expected="work of its own",
                why="it would train on another client's behalf",
                fix="restart the server, so that it asks all nodes again who they are",
            )
        if assignment.weights.shape != (layout.size,) or assignment.weights.dtype != layout.dtype:
            raise UserError(
                f"client {self._client} was sent {assignment.weights.dtype} weights of shape "
                f"{tuple(assignment.weights.shape)}",
                expected=f"{layout.dtype} weights of shape {(layout.size,)}",
                why="a vector is read by its place in the model",
                fix="start server and nodes from the same experiment, on samples of the same shape",
            )
        strange = misshapen_buffers(layout.buffers, assignment.buffers)
        keys = {key for key, _ in self._prepared.recipe.mechanisms()}
        if strange is not None or not keys.issuperset(assignment.briefs) or not _counts(order):
            raise UserError(
                f"client {self._client} was sent an order that does not hold together"
                + (f": {strange.words}" if strange is not None else ""),
                expected="buffers of the model's layout, words of the recipe's parts, and counts that can be",
                why="it would train on something else than what its server believes",
                fix="start server and nodes from the same experiment file and version, and trust no other server",
            )

    def _data(self) -> ClientData:
        return self._prepared.data_of(0 if self._own else self._client)


def _counts(order: Order) -> bool:
    """Whether the numbers in an order are those of a federation, a run and a visit that there can be."""
    sent, total_rounds = order.assignment, order.assignment.total_rounds
    return (
        0 <= sent.client < order.population <= MOST_COUNTED
        and 0 <= order.eligible <= order.population
        and -1 <= sent.accepted < sent.visit <= MOST_COUNTED
        and 0 <= sent.version <= MOST_COUNTED
        and (total_rounds is None or sent.version <= total_rounds <= MOST_COUNTED)
        and (sent.samples is None or sent.samples > 0)
    )


def _check_recipe(client: int, digest: str, title: str, greeting: Greeting) -> None:
    if digest != greeting.recipe:
        raise UserError(
            f"client {client} has the recipe {title} ({digest[:12]}), the server {greeting.title} "
            f"({greeting.recipe[:12]})",
            expected="the same recipe at the server and at every client",
            why="a client that follows another method would send updates that mean something else",
            fix="start server and nodes from the same experiment file and version of polyrhythm",
        )
