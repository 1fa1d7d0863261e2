"""A tiny federation with data that differ from client to client, and two ways to run a recipe on it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.axes import Axes
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Assignment, Event, Report
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.streams import seeded_torch
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState, Memory
from polyrhythm.core.local_step import Computed
from polyrhythm.core.protocols import Opening
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import Released, ServerDecision, ServerState
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.fleet import Fleet, FleetState
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import Invitation, Invitations
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.exits import WithExits, depths_of
from polyrhythm.models.low_rank import adapted, hold_residuals
from polyrhythm.models.magnitudes import magnitudes_of
from polyrhythm.models.ranks import adapters_of, ranks_of
from polyrhythm.models.tasks import task
from polyrhythm.models.widths import axes_of
from polyrhythm.simulation.roster import OpenRoster
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep

torch.set_num_threads(1)

FEATURES, CLASSES, HIDDEN = 4, 3, 5

NETS: dict[str, Callable[[], nn.Module]] = {
    "logistic": lambda: nn.Linear(FEATURES, CLASSES),
    "perceptron": lambda: nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)),
    "batchnorm": lambda: nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    ),
    "dropout": lambda: nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.Dropout(0.4), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    ),
}


@final
class Odd(nn.Module):
    """Everything that a plain net has not: frozen, tied and unused parameters, and buffers of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.second.weight = self.first.weight
        self.head, self.unused = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)
        self.passes: Tensor
        self.mean: Tensor
        self.local: Tensor
        self.register_buffer("passes", torch.tensor(0))
        self.register_buffer("mean", torch.tensor(0.0))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("table", torch.arange(6, dtype=torch.int8).view(2, 3))
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("local", torch.zeros(2), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
            self.mean.lerp_(inputs.detach().mean(), 0.5)
            self.local += 1
        hidden = torch.tanh(self.first(torch.tanh(self.frozen(inputs)))) + self.local.sum()
        outputs: Tensor = self.head(torch.tanh(self.second(hidden)))
        return outputs


@final
class Hazy(nn.Module):
    """Draws in every pass, in training and in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.nn.functional.dropout(self.first(inputs), 0.3)
        outputs: Tensor = self.second(hidden + torch.randn_like(hidden))
        return outputs


class Shard:
    """One client's samples."""

    augmented = False

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        where = torch.as_tensor(positions)
        return self.inputs[where], self.targets[where]

    def fixed(self, name: str) -> np.ndarray:
        raise KeyError(name)


@final
class Spy:
    """Gives out engines, and notes the positions of every batch that they train on, visit by visit."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.shards = federation, federation.shards()
        self.visits: list[list[list[int]]] = []
        self._given: list[tuple[Shard, list[list[int]]]] = []

    def engine(self) -> TorchEngine:
        return self._noting(self.federation.engine())

    def _noting(self, engine: TorchEngine) -> TorchEngine:
        """An engine, and those of parts of its model, that note their batches."""
        begin, step, narrow = engine.open, engine.step, getattr(engine, "narrowed", None)
        current: list[list[int]] = []
        parts = dict[int, TorchEngine]()

        def opened(visit: Opening) -> None:
            nonlocal current
            current = next(noted for data, noted in self._given if data is visit.data)
            begin(visit)

        def noted(inputs: Tensor, targets: Tensor, positions: np.ndarray, *rest: Any) -> Computed:
            current.append(positions.tolist())
            return step(inputs, targets, positions, *rest)

        def narrowed(portion: Portion, scale: float = 1.0) -> TorchEngine:
            assert narrow is not None
            part = narrow(portion, scale)
            if id(part) not in parts:
                parts[id(part)] = self._noting(part)
            return parts[id(part)]

        vars(engine).update(open=opened, step=noted, narrowed=narrowed)
        return engine

    def data(self, client: int) -> Shard:
        """What a client holds, asked for once when a visit is planned."""
        self.visits.append([])
        shard = copy.copy(self.shards[client])
        self._given.insert(0, (shard, self.visits[-1]))
        return shard


def with_exits(count: int, norm: type[nn.Module] = nn.Identity) -> nn.Module:
    """So many blocks, with an exit behind each."""
    widths = (FEATURES, *(HIDDEN,) * count)
    blocks = [nn.Sequential(nn.Linear(a, b), norm(b), nn.Tanh()) for a, b in itertools.pairwise(widths)]
    return WithExits(blocks, [nn.Linear(HIDDEN, CLASSES) for _ in range(count)])


def with_adapters(rank: int = 3, *, served: bool = False, freeze: Literal["none", "A"] = "none") -> nn.Module:
    """A perceptron whose first layer has an adapter, and whose head learns whole."""
    made = adapted(NETS["perceptron"](), rank, alpha=2.0 * rank, freeze=freeze)
    return hold_residuals(made) if served else made


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "adapters": with_adapters,
    "adapters, served": lambda: with_adapters(served=True),
    "adapters, A frozen": lambda: with_adapters(freeze="A"),
    "adapters, small": lambda: with_adapters(1),
    "odd": Odd,
    "hazy": Hazy,
    "one exit": lambda: with_exits(1),
    "exits": lambda: with_exits(3),
    "normalised exits": lambda: with_exits(3, nn.BatchNorm1d),
}


@functools.cache
def _net(name: str, dtype: torch.dtype) -> nn.Module:
    with seeded_torch(0, "init", name.partition(",")[0]):
        return (OTHERS | NETS)[name]().to(dtype)


def _axes(name: str, dtype: torch.dtype) -> Axes | None:
    """Along what a net is cut; None of one that cannot be, or not under a mutant, which is not remembered."""
    try:
        return _found_axes(name, dtype)
    except UserError:
        return None


@functools.cache
def _found_axes(name: str, dtype: torch.dtype) -> Axes:
    return axes_of(_net(name, dtype), torch.linspace(-1, 1, 2 * FEATURES, dtype=dtype).view(2, FEATURES))


@functools.cache
def _samples(sizes: tuple[int, ...], seed: int, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], ...]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=1.5, size=(CLASSES, FEATURES))
    clients = []
    for size in sizes:
        targets = rng.choice(CLASSES, size=size, p=rng.dirichlet([0.5] * CLASSES))
        shift = rng.normal(scale=0.5, size=FEATURES)
        inputs = centres[targets] + shift + rng.normal(size=(size, FEATURES))
        clients.append((torch.as_tensor(inputs, dtype=dtype), torch.as_tensor(targets)))
    return tuple(clients)


@dataclass(frozen=True, kw_only=True)
class Federation:
    """A model and what each client holds.

    Args:
        sizes: samples of each client.
        net: one of `NETS` or `OTHERS`.
        dtype: of the model and the inputs.
        seed: the experiment's seed; the data do not depend on it.
        eligible: who may be invited; None for all.
        fleet: their devices.
        along: what the model is cut along, where clients train parts of it.
    """

    sizes: tuple[int, ...] = (5, 12, 7, 9)
    net: str = "perceptron"
    dtype: torch.dtype = torch.float32
    seed: int = 0
    eligible: tuple[int, ...] | None = None
    fleet: Fleet = field(default_factory=Fleet)
    along: Literal["widths", "depth", "magnitude", "ranks"] = "widths"

    def cuts(self) -> Cuts | None:
        """Along what the model is cut; None of one that cannot be."""
        if self.along == "magnitude":
            return magnitudes_of(self.module(), self.engine().layout)
        if self.along == "ranks":
            return ranks_of(self.module(), self.engine().layout)
        if self.along == "depth":
            return depths_of(self.module(), torch.linspace(-1, 1, 2 * FEATURES, dtype=self.dtype).view(2, FEATURES))
        return _axes(self.net, self.dtype)

    def module(self) -> nn.Module:
        """The initial model, to look at and not to change."""
        return _net(self.net, self.dtype)

    def shards(self) -> tuple[Shard, ...]:
        return tuple(Shard(*samples) for samples in _samples(self.sizes, 7, self.dtype))

    def engine(self) -> TorchEngine:
        return TorchEngine(self.module(), task("classification"))

    def roster(self) -> OpenRoster:
        everybody = range(len(self.sizes))
        return OpenRoster(len(self.sizes), everybody if self.eligible is None else self.eligible, self.sizes)

    def world(self) -> FleetState:
        everybody = range(len(self.sizes))
        eligible = everybody if self.eligible is None else self.eligible
        return FleetState(self.fleet, len(self.sizes), self.seed, eligible, num_samples=self.sizes)

    def setup(self, versions: int | None) -> Setup:
        layout = self.engine().layout
        return Setup(
            size=layout.size,
            dtype=layout.dtype,
            population=len(self.sizes),
            total_rounds=versions,
            seed=self.seed,
            eligible=None if self.eligible is None else len(self.eligible),
            cuts=self.cuts(),
            places=tuple((segment.offset, segment.size) for segment in layout.segments),
            steady=self.fleet.steady,
            most_samples=max(self.sizes),
            adapters=adapters_of(self.module(), layout),
        )


@final
@dataclass(kw_only=True)
class Run:
    """All that happened in a run, in the order it happened.

    Args:
        states: the server's state at every version, from 0 on.
        released: what each version from 1 on was made of.
        turns: every answer of the server.
        moments: everything that happened on the driver's clock; only from `run`.
        assignments, reports: by dispatch number, as the clients made them.
        clients: the states of the clients that had a visit accepted, after their last one.
        batches: positions of every batch, by dispatch number.
        starts, ends, accepted: a client's state before and after a visit, and whether the server took the report, by
            dispatch number; only from `play`.
    """

    states: list[ServerState] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    turns: list[ServerDecision] = field(default_factory=list)
    moments: list[SimulationStep] = field(default_factory=list)
    assignments: dict[int, Assignment] = field(default_factory=dict)
    reports: dict[int, Report] = field(default_factory=dict)
    clients: dict[int, ClientState] = field(default_factory=dict)
    batches: dict[int, list[list[int]]] = field(default_factory=dict)
    starts: dict[int, ClientState] = field(default_factory=dict)
    ends: dict[int, ClientState] = field(default_factory=dict)
    accepted: dict[int, bool] = field(default_factory=dict)

    @property
    def weights(self) -> Tensor:
        """The final weights [P]."""
        return self.states[-1].weights

    def visits(self, client: int) -> list[int]:
        """The dispatch numbers of one client's visits, in order."""
        return [d for d, a in self.assignments.items() if a.client == client]

    def _heard(self, turn: ServerDecision) -> None:
        self.turns.append(turn)
        if turn.released is not None:
            self.states.append(turn.state)
            self.released.append(turn.released)


def run(
    recipe: Recipe,
    federation: Federation,
    *,
    versions: int = 3,
    watch: Callable[[TorchEngine, ServerDecision], object] = lambda engine, turn: None,
) -> Run:
    """The recipe on the in-line driver, for so many versions; `watch` sees every turn."""
    spy, setup = Spy(federation), federation.setup(versions)
    engine = spy.engine()
    driver = InlineDriver(recipe, setup, engine, spy.data, federation.world(), tells_updates=True)
    story = Run()
    for moment in driver.moments(engine.initial()):
        assert len(story.moments) <= 60 * versions * len(
            federation.sizes
        )  # a mutant may never come to its total_rounds
        watch(engine, moment.turn)
        story.moments.append(moment)
        if not story.turns:
            story.states.append(moment.turn.state)
        if moment.assignment is not None:
            assert moment.report is not None
            story.assignments[moment.assignment.dispatch] = moment.assignment
            story.reports[moment.assignment.dispatch] = moment.report
        story._heard(moment.turn)
        if moment.turn.released is not None:
            # Now, since they forget what they do not go on from, also after the last version.
            story.clients = {
                client: driver.state_of(client, record.accepted)
                for client, record in moment.turn.state.clients.items()
                if record.accepted >= 0
            }
    story.batches = dict(enumerate(spy.visits))  # carried out in the order of dispatch
    return _sorted(story)


Arrival = Callable[[Sequence[Assignment]], Sequence[Assignment]]
Happening = Callable[[Assignment, Report], Event]


def play(
    recipe: Recipe,
    federation: Federation,
    *,
    versions: int = 3,
    arrival: Arrival = lambda invited: invited,
    happening: Happening = lambda assignment, report: report,
    apart: bool = False,
) -> Run:
    """The recipe without a driver, so that a law decides who answers when, and what the server hears.

    Args:
        recipe: what to run.
        federation: on whom.
        versions: for how long.
        arrival: the order in which the clients of a version work and answer.
        happening: what becomes of a report.
        apart: whether every visit has an engine of its own, as if in another process.
    """
    spy, setup, roster = Spy(federation), federation.setup(versions), federation.roster()
    engine = spy.engine()
    initial = engine.initial()
    server = Server(recipe=recipe, setup=setup, layout=engine.layout)
    turn = server.begin(initial.weights, initial.buffers, roster)
    story, memories = Run(states=[turn.state], turns=[turn]), dict[int, Memory]()
    while turn.assignments:
        assert len(story.states) <= versions
        assert len(story.turns) <= 2 * versions * len(federation.sizes)  # a mutant may never come to its total_rounds
        for assignment in arrival(turn.assignments):
            client = assignment.client
            memory = memories.get(client, Memory())
            start = memory.at(assignment.accepted)
            engine = spy.engine() if apart else engine
            state, report = work(recipe, setup, start, assignment, spy.data(client), engine)
            story.batches[assignment.dispatch] = spy.visits[-1]
            memories[client] = memory.then(start, state, assignment.visit)
            story.assignments[assignment.dispatch], story.reports[assignment.dispatch] = assignment, report
            turn = server.receive(turn.state, happening(assignment, report), roster)
            story._heard(turn)
            assert turn.verdict is not None
            story.starts[assignment.dispatch], story.ends[assignment.dispatch] = start, state
            story.accepted[assignment.dispatch] = turn.verdict.accepted
    story.clients = {
        client: memories[client].at(record.accepted)
        for client, record in turn.state.clients.items()
        if record.accepted >= 0
    }
    return _sorted(story)


def _sorted(story: Run) -> Run:
    """By dispatch number, whoever answered first."""
    story.assignments = dict(sorted(story.assignments.items()))
    story.reports = dict(sorted(story.reports.items()))
    story.batches = dict(sorted(story.batches.items()))
    return story


def invitations(clients: Iterable[int]) -> Invitations:
    """Invitations to train on the current version."""
    return tuple(Invitation(client=c) for c in clients)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the last bit, however deep: tensors with dtype, states, reports, turns."""
    if isinstance(one, Tensor):
        if not isinstance(other, Tensor) or (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        return bool(((one == other) | ((one != one) & (other != other))).all())  # NaN is the same as NaN
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(same(v, other[k]) for k, v in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def copied(value: Any) -> Any:
    """A copy of a value down to its tensors, to compare with later."""
    if isinstance(value, Tensor):
        return value.clone()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: copied(getattr(value, f.name)) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(v) for v in value)
    return value


def alike(one: Run, other: Run) -> bool:
    """Whether two runs gave the same models at every version and the same updates, to the last bit."""
    return (
        [(s.version, len(s.weights)) for s in one.states] == [(s.version, len(s.weights)) for s in other.states]
        and all(
            same((a.weights, a.buffers), (b.weights, b.buffers)) for a, b in zip(one.states, other.states, strict=True)
        )
        and one.reports.keys() == other.reports.keys()
        and all(
            same((a.client, a.update, a.buffers, a.steps, a.loss), (b.client, b.update, b.buffers, b.steps, b.loss))
            for a, b in zip(one.reports.values(), other.reports.values(), strict=True)
        )
    )


def near(one: Tensor, other: Tensor, tolerance: float = 1e-6) -> bool:
    """Whether two tensors agree to a tolerance, relative to the larger of 1 and the largest entry."""
    scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
    return bool(((one.double() - other.double()).abs() <= tolerance * scale).all())
