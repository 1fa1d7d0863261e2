"""A run without training: the real server, clients, clock and fleet, with an engine that computes nothing.

What a run will cost follows from who is invited, how many samples they hold and how fast their devices are. All of that
is decided by the same code as in the run, so the counts are those of the run to the last one, unless something decides
by what training gives (a loss, a gradient, a similarity); `DryRun.guessed` names it. Vectors have a few elements
and count as many bytes as the real ones.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, final

import numpy as np
import torch
from immutables import Map
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.messages import Report, State
from polyrhythm.base.vectors import Buffers, Layout, Segment, Spans, bytes_of
from polyrhythm.core.local_step import Computed, LocalRule
from polyrhythm.core.measuring import measuring
from polyrhythm.core.protocols import ClientData, Done, Engine, Job, Opening
from polyrhythm.data.holding import Holding
from polyrhythm.experiments import visit_records
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.compression import Compression, Packed
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.personal.guides import Slope
from polyrhythm.methods.personal.scope import NOTHING, Part, Scope
from polyrhythm.simulation.event_queue import Underway
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep
from polyrhythm.simulation.transit import Transit

_SIZE = 16  # elements of a vector that stands for one of any size


@final
@dataclass(kw_only=True)
class DryRun:
    """What was counted.

    Args:
        versions: made.
        planned: versions of the whole run; None if nobody knows.
        whole: whether it came to the run's end.
        failure: why the run could not go on; empty if it could.
        guessed: what decides by what training gives, in words; the counts then hold as far as nothing comes of it.
        visits, updates, steps, samples: over all clients.
        flops, bytes_up, bytes_down, joules, virtual_seconds: as in a run's summary.
        client_bytes: what all clients keep from visit to visit, at the end.
        server_bytes: what the server keeps beside the model, at the end.
        table_bytes: of that, what it keeps of each client.
        under_way: visits under way at most.
        seconds: the dry run itself took: the server's and the simulator's part of a run.
    """

    versions: int = 0
    planned: int | None = None
    whole: bool = False
    failure: str = ""
    guessed: tuple[str, ...] = ()
    visits: int = 0
    updates: int = 0
    steps: int = 0
    samples: int = 0
    flops: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    joules: float = 0.0
    virtual_seconds: float = 0.0
    client_bytes: int = 0
    server_bytes: int = 0
    table_bytes: int = 0
    under_way: int = 0
    seconds: float = 0.0

    def heard(self, moment: SimulationStep) -> None:
        """Adds an event."""
        report, spent, done = moment.report, moment.spent, moment.done
        if report is not None:
            self.visits += 1
            verdict = moment.turn.verdict
            heard = isinstance(moment.event, Report) and (verdict is None or verdict.accepted)
            self.updates += heard and report.kind == "train" and report.fresh
            self.steps += int(done * report.steps) if report.stepped else 0
            self.samples += int(done * report.samples)
            self.flops += spent.flops
            self.bytes_up += spent.bytes_up
            self.bytes_down += spent.bytes_down
            self.joules += spent.joules
        self.versions = moment.turn.state.version
        self.virtual_seconds = moment.time

    def left(self, visit: Underway) -> None:
        """Adds what a visit has done that is under way when the run ends."""
        if visit.started < self.virtual_seconds:
            part = visit_records.part(visit, self.virtual_seconds)
            self.steps += part.steps
            self.samples += part.samples
            self.flops += part.spent.flops
            self.bytes_up += part.spent.bytes_up
            self.bytes_down += part.spent.bytes_down
            self.joules += part.spent.joules


def dry_run(prepared: Prepared, *, within: float = math.inf) -> DryRun:
    """Runs an experiment dry, to its end or until the time is over.

    Args:
        prepared: what would run.
        within: seconds that it may take.
    """
    experiment, engine = prepared.experiment, prepared.chosen.engine
    layout = replace(engine.layout, size=_SIZE)
    real, shared = experiment.recipe, experiment.recipe.scope.shared(engine.layout)
    recipe = replace(real, compression=_light(real.compression, shared))
    if real.scope.own(engine.layout):
        recipe = replace(recipe, scope=_AsMuch(own_size=real.scope.own(engine.layout).size, travels=shared))
    data_of = prepared.data_of
    few = Holding(experiment.federation.train, torch.arange(min(2, len(experiment.federation.train))))
    with measuring(engine, few, experiment.seed, "rehearsal"):
        metrics = list(engine.evaluate(engine.initial(), few))

    @functools.cache
    def widths(layer: str) -> tuple[int, int]:
        with measuring(engine, few, experiment.seed, "rehearsal"):
            outputs, features, _ = engine.represented(engine.initial(), few, layer)
        return outputs.shape[1], features.shape[1]

    dry = _Dry(engine, layout, experiment.federation.train.augmented, metrics, widths)
    driver = InlineDriver(
        recipe,
        replace(prepared.setup, size=_SIZE, cuts=None, places=(), adapters=()),
        dry,
        lambda client: _Unread(data_of(client)),
        prepared.world(),
        prepared.meter(layout, recipe.scope),
    )
    if driver.visits.transit is not None:  # what is spoiled on the way are the small vectors
        segments = (Segment("weights", (_SIZE,), 0, _SIZE, layout.dtype),)
        faults, seed = experiment.fleet.faults, experiment.seed
        driver.visits.transit = Transit(faults, seed, replace(layout, segments=segments))
    found = DryRun(planned=experiment.rounds, guessed=tuple(_guessed(experiment)))
    started, out = time.perf_counter(), 0
    try:
        for moment in driver.moments(dry.initial()):
            found.heard(moment)
            out += len(moment.turn.assignments) - (moment.report is not None)
            found.under_way = max(found.under_way, out)
            if (moment.turn.released is not None and found.versions) and _ended(experiment, moment, found):
                found.whole, found.planned = True, found.versions
                for visit in driver.under_way():
                    found.left(visit)
                break
            if time.perf_counter() - started > within and found.versions:
                break
        else:
            found.whole = True
    except RunFailed as failure:
        found.failure = str(failure)
    found.seconds = time.perf_counter() - started
    found.server_bytes = bytes_of(_plain(moment.turn.state.parts), layout)
    tables = [table for state in moment.turn.state.parts.values() for table in state.values() if _is_table(table)]
    found.table_bytes = bytes_of(_plain(tables), layout)
    found.client_bytes = sum(bytes_of(_plain(m), layout) for m in driver.store.snapshot(found.versions).values())
    return found


def _ended(experiment: Experiment, moment: SimulationStep, found: DryRun) -> bool:
    until = experiment.until
    enough = until.updates is not None and found.updates >= until.updates
    return enough or found.versions == experiment.rounds or (until.time is not None and moment.time >= until.time)


def _plain(value: object) -> object:
    """A state as mappings and lists, which can be weighed."""
    if hasattr(value, "__dataclass_fields__"):
        return [_plain(getattr(value, name)) for name in value.__dataclass_fields__]
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _is_table(value: object) -> bool:
    """Whether a part of a state keeps a vector for each client."""
    return isinstance(value, Map) and any(isinstance(inner, Tensor) for inner in value.values())


def _guessed(experiment: Experiment) -> Iterator[str]:
    """What in an experiment decides by what training gives."""
    for part in experiment.recipe.parts():
        if part.guesses:
            yield part.label()
    if experiment.until.accuracy is not None:
        yield "until.accuracy"
    if experiment.until.patience is not None:
        yield "until.patience"


def _light(compression: Compression, layout: Layout) -> Compression:
    """A compression that packs vectors of any size, and sends as many bytes."""
    size = compression.size(layout)
    return compression if size is None else _AsLarge(real=compression, left=compression.remembers)


@final
@dataclass(frozen=True, kw_only=True)
class _AsLarge(Compression):
    real: Compression
    left: bool

    def pack(self, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> tuple[State, Packed]:
        return {"left": update} if self.left else {}, Packed(update=update, size=self.size(layout))

    def size(self, layout: Layout) -> int | None:
        return self.real.size(layout)


@final
@dataclass(frozen=True, kw_only=True)
class _AsMuch(Scope):
    """A scope of vectors of any size, of which as much stays at clients, and as much travels."""

    own_size: int
    travels: Layout = field(metadata={"digest": False})

    def own(self, layout: Layout) -> Part:
        return NOTHING

    def shared(self, layout: Layout) -> Layout:
        return replace(self.travels, size=layout.size)

    def kept(self, layout: Layout, model: Model) -> State:
        return {"weights": torch.zeros(1, dtype=layout.dtype).expand(self.own_size), "buffers": []}


@final
class _Unread:
    """A client's samples, none of which is read."""

    augmented = False

    def __init__(self, held: ClientData) -> None:
        self._held = held

    def __len__(self) -> int:
        return len(self._held)

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        nothing = torch.empty(len(positions), 0)
        return nothing, nothing

    def fixed(self, name: str) -> np.ndarray:
        return self._held.fixed(name)


@final
class _Dry:
    """An engine in whose place nothing is computed: every loss is 1 and every gradient 0.

    Args:
        real: the engine that it stands for.
        layout: of small vectors.
        augmented: whether the real samples are augmented, so that frozen outputs cannot be used again.
        measured: the metrics of the task.
        widths: how many numbers the model gives for a sample, and a representation has.
    """

    releases_lock: ClassVar[bool] = False

    def __init__(
        self,
        real: Engine,
        layout: Layout,
        augmented: bool,
        measured: Sequence[str],
        widths: Callable[[str], tuple[int, int]],
    ) -> None:
        self.layout, self._augmented, self._widths = layout, augmented, widths
        self.single_sample_fails, self.one_mode = real.single_sample_fails, real.one_mode
        self._buffers = real.buffers()
        self.weights = layout.zeros()
        self._measured = measured
        self.forward_samples = 0
        self._seen: set[tuple[str, str]] = set()
        self._visit: Opening | None = None

    def initial(self) -> Model:
        return Model(weights=self.layout.zeros(), buffers=self._buffers)

    def open(self, visit: Opening) -> None:
        self.weights.zero_()
        self._visit, self.forward_samples = visit, 0
        self._seen.clear()

    def step(self, inputs: Tensor, targets: Tensor, positions: np.ndarray, rule: LocalRule, rate: float) -> Computed:
        visit = self._visit
        if visit is not None and visit.previous is not None:
            for layer in sorted({layer for term in rule.terms for layer in term.layers or ()}):
                self._look("received", layer, len(inputs))
                self._look("previous", layer, len(inputs))
        alike, none = None, torch.zeros((), dtype=torch.float64)
        if rule.watch is not None:
            self.forward_samples += 0 if self.one_mode else len(inputs)
            self._look("received", rule.watch, len(inputs))
            alike = torch.ones(len(inputs), 1)
        return Computed(
            loss=torch.ones(()),
            unused=(),
            pair=None if alike is None else (alike, alike),
            squares=none + len(inputs) if rule.squared_losses else None,
            gradient_square=none if rule.gradient_squares else None,
        )

    def represented(self, model: Model, data: ClientData, layer: str) -> tuple[Tensor, Tensor, Tensor]:
        outputs, features = self._widths(layer)
        return torch.zeros(outputs, outputs), torch.zeros(outputs, features), torch.arange(outputs)

    def slope(
        self, at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers | None
    ) -> Slope:
        return Slope(self.layout.zeros(), (), self._buffers, torch.ones(()))

    def _look(self, which: str, layer: str, batch: int) -> None:
        """Counts the passes of a frozen model, as the real engine makes them."""
        if self._visit is None or not self._visit.reuse or self._augmented:
            self.forward_samples += batch
        elif (which, layer) not in self._seen:
            self._seen.add((which, layer))
            self.forward_samples += len(self._visit.data)

    def local_round(self, job: Job) -> Done | None:
        if job.terms or job.watch is not None:
            return None  # what looks at batches is counted batch by batch
        samples, steps = float(len(job.positions)), float(len(job.rates))
        return Done(loss=samples, squared_loss=samples, gradient_squares=steps, idle=())

    def buffers(self) -> Buffers:
        return self._buffers

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> Mapping[str, float]:
        return dict.fromkeys(self._measured, 1.0)

    def lens(self) -> _Lens:
        assert self._visit is not None
        return _Lens(self, self._visit)

    def fisher(self, model: Model, data: ClientData, *, labels: np.random.Generator | None = None) -> float:
        self.forward_samples += 0 if labels is None else len(data)
        return 1.0


@final
class _Lens:
    """A visit's samples, all of them alike under every model."""

    def __init__(self, engine: _Dry, visit: Opening) -> None:
        self._engine, self._visit = engine, visit
        self._seen: set[str] = set()

    @property
    def has_previous(self) -> bool:
        return self._visit.previous is not None

    def losses(self, which: Literal["received", "previous"]) -> np.ndarray:
        if which not in self._seen:
            self._seen.add(which)
            self._engine.forward_samples += len(self._visit.data)
        return np.ones(len(self._visit.data))

    def predictions(self, which: Literal["received", "previous"]) -> np.ndarray:
        return self.losses(which)

    def targets(self) -> np.ndarray:
        return np.ones(len(self._visit.data))

    def fixed(self, name: str) -> np.ndarray:
        return self._visit.data.fixed(name)
