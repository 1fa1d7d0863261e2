"""The client: the only local training loop.

`work` is a pure function of its arguments: the state and the assignment are not changed, every random draw is named by
client and visit, and no clock, device list or global generator is read. The engine is scratch.

A client's new state is provisional until the server has accepted the report. The next assignment names the last visit
that was accepted, and the client goes on from the state of that visit.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.frozen import changed, made
from polyrhythm.base.messages import Assignment, Report, State
from polyrhythm.base.streams import seeded_torch, stream, torch_generator, torch_seed
from polyrhythm.base.vectors import Segment, Spans, difference
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.forecast import Ahead, Forecast, fitting
from polyrhythm.core.measuring import measuring
from polyrhythm.core.protocols import (
    ClientData,
    Computed,
    Descends,
    Done,
    Engine,
    Job,
    NamesDraws,
    Opening,
    TakesJobs,
)
from polyrhythm.methods.correction import Correction, Push, chain
from polyrhythm.methods.local.optimisers import carry, clip_
from polyrhythm.methods.mechanism import Model, Need, Outcome, Setup, Visit
from polyrhythm.methods.order.base import Progress
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Instead, Plan, Stop

Result = tuple[ClientState, Report]
Visiting = Generator[Job, Done | None, Result]


def work(
    recipe: Recipe,
    setup: Setup,
    state: ClientState,
    assignment: Assignment,
    data: ClientData,
    engine: Engine,
    pace: Forecast | None = None,
) -> Result:
    """Carries out one assignment.

    Args:
        recipe: the method; must be the one the assignment was made for.
        setup: what is fixed for the run.
        state: the client's state after its last accepted visit.
        assignment: what to do.
        data: the client's samples.
        engine: computes gradients.
        pace: how long the visit would take, for work that must be done by a certain time; None if nobody knows.

    Returns:
        The client's new, provisional state (the same one after measuring), and its report.

    Raises:
        UserError: the assignment was made for another recipe.
    """
    visit = visiting(recipe, setup, state, assignment, data, engine, pace)
    done: Done | None = None
    while True:
        try:
            job = visit.send(done)
        except StopIteration as end:
            result: Result = end.value
            return result
        assert _takes_jobs(engine)
        done = engine.local_round(job)


def visiting(
    recipe: Recipe,
    setup: Setup,
    state: ClientState,
    assignment: Assignment,
    data: ClientData,
    engine: Engine,
    pace: Forecast | None = None,
) -> Visiting:
    """An assignment that lets somebody else take its steps: the same as `work`, which see, but with a pause.

    Where nothing is decided between two steps and the engine takes jobs, it stops and asks for all of them, and goes on
    when it is told what came of them; told None, it takes them itself. So several visits can wait for one engine, which
    takes the steps of all at once.
    """
    if assignment.recipe != recipe.digest:
        raise UserError(
            f"client {assignment.client} has recipe {recipe.digest[:12]}, its work is for {assignment.recipe[:12]}",
            expected="the same recipe at the server and at every client",
            why="a client that follows another method would send updates that mean something else",
            fix="start server and clients from the same experiment file and version",
        )
    if assignment.kind == "measure":
        return state, _measure(recipe, setup, assignment, data, engine)
    return (yield from _Training(recipe, setup, state, assignment, data, engine, pace).run())


def foreseen(
    recipe: Recipe,
    setup: Setup,
    state: ClientState,
    assignment: Assignment,
    data: ClientData,
    engine: Engine,
    pace: Forecast | None = None,
) -> tuple[Report, bool]:
    """What can be told of a report before the work is done: one of as many steps, samples and bytes, with no content.

    Args:
        recipe, setup, state, assignment, data, engine, pace: as for `work`; of the engine nothing is computed.

    Returns:
        The report, and whether it is sure; otherwise the true one will be of as much work at most, or nobody knows.
    """
    if assignment.kind == "measure":
        samples = min(len(data), assignment.samples or len(data))
        return report_on(assignment, len(data), forward_samples=samples), False
    return _Training(recipe, setup, state, assignment, data, engine, pace).foreseen()


def _measure(recipe: Recipe, setup: Setup, assignment: Assignment, data: ClientData, engine: Engine) -> Report:
    model = Model(weights=assignment.weights, buffers=assignment.buffers)
    positions, wanted = None, len(data)
    if assignment.samples is not None and assignment.samples < wanted:
        wanted = assignment.samples
        drawn = stream(setup.seed, "sample", "measure", assignment.client, assignment.version)
        positions = drawn.permutation(len(data))[:wanted]
    with measuring(engine, data, setup.seed, "client", assignment.client, assignment.version):
        measures = dict(engine.evaluate(model, data, positions))
    if "expert" in recipe.needs():
        measures["expert_loss"] = float(data.fixed("expert").mean())
    return report_on(assignment, len(data), measures=measures, forward_samples=wanted)


def report_on(assignment: Assignment, held: int, **rest: object) -> Report:
    """A report on an assignment, with what is given of it; of a visit without an update, if nothing is."""
    given: dict[str, Any] = {"update": None, "extras": {}, "measures": {}, **rest}
    return made(
        Report,
        dispatch=assignment.dispatch,
        client=assignment.client,
        visit=assignment.visit,
        version=assignment.version,
        kind=assignment.kind,
        recipe=assignment.recipe,
        held=held,
        **given,
    )


@final
@dataclass(kw_only=True)
class _Path:
    """The steps of a visit so far: their rates, the samples they used, where the data cursor is, what was measured."""

    cursor: tuple[int, int]
    rates: list[float] = field(default_factory=list)
    samples: int = 0
    forward_samples: int = 0
    gradient_samples: int = 0
    measures: Mapping[str, float] = field(default_factory=dict)
    _unused: set[tuple[int, int]] = field(default_factory=set)
    _losses: list[Tensor] = field(default_factory=list)  # read at the end, so that no step waits for a number
    _weights: list[int] = field(default_factory=list)
    _squares: Tensor | float = 0.0

    def add(self, rate: float, computed: Computed, samples: int, cursor: tuple[int, int]) -> None:
        unused = {(s.offset, s.size) for s in computed.unused}
        self._unused = unused if not self.rates else self._unused & unused
        self.rates.append(rate)
        self._losses.append(computed.loss)
        self._weights.append(samples)
        if computed.squares is not None:
            self._squares += computed.squares
        self.samples += samples
        self.cursor = cursor

    def whole(self, job: Job, done: Done, cursor: tuple[int, int]) -> None:
        """Notes all the steps of a job."""
        self._unused = set(done.idle)
        self.rates += job.rates
        self._losses.append(torch.tensor(done.loss, dtype=torch.float64))
        self._weights.append(1)
        self._squares += done.squared_loss
        self.samples += len(job.positions)
        self.cursor = cursor

    @property
    def idle(self) -> Spans:
        """The parts of the vector that no step touched."""
        return tuple(sorted(self._unused))

    @property
    def loss(self) -> float | None:
        if not self.samples:
            return None
        total, few = 0.0, len(self._losses) < 8
        losses = [loss.item() for loss in self._losses] if few else torch.stack(self._losses).double().tolist()
        for loss, weight in zip(losses, self._weights, strict=True):
            total += loss * weight
        return total / self.samples

    @property
    def squared_loss(self) -> float:
        """The mean of the squared losses of single samples, where they were asked for."""
        return float(self._squares) / self.samples if self.samples else 0.0


@final
class _Watch:
    """What is measured at each step, on tensors, so that nothing waits for a number before it is needed."""

    def __init__(self, needs: frozenset[Need], stop: Stop | None) -> None:
        self._squares: Tensor | float | None = 0.0 if "gradient_square" in needs else None
        self._stop = stop
        self._reached: Tensor | bool = False
        self._similarity: Tensor | float = 0.0
        self._pairs: list[tuple[Tensor, Tensor, np.ndarray]] = []
        self.traces: dict[str, float] = {}

    @property
    def looks(self) -> bool:
        """Whether the gradient is measured at each step."""
        return self._squares is not None

    def look(self, gradient: Tensor) -> None:
        if self._squares is not None:
            # One read of the gradient; half precision is summed in float32.
            wide = torch.promote_types(gradient.dtype, torch.float32)
            self._squares += torch.linalg.vector_norm(gradient, dtype=wide).double().square()

    def look_at_features(self, pair: tuple[Tensor, Tensor] | None, ends: np.ndarray) -> None:
        """Keeps what some batches that end there gave, until somebody wants to know."""
        if self._stop is not None and pair is not None:
            self._pairs.append((pair[0].detach(), pair[1].detach(), np.diff(ends, prepend=0)))

    def whole(self, job: Job, done: Done) -> None:
        """Notes what was measured in all the steps of a job."""
        if self._squares is not None:
            self._squares += done.gradient_squares
        self.look_at_features(done.pair, job.ends)

    def _judge(self) -> None:
        """Judges what was kept, all batches of a size at once."""
        if self._stop is None or not self._pairs:
            return
        current, received, sizes = zip(*self._pairs, strict=True)
        self._pairs.clear()
        similarities = self._stop.similarity(torch.cat(current), torch.cat(received))
        counts = np.concatenate(sizes)
        for size in np.unique(counts):
            places = np.flatnonzero(np.repeat(counts == size, counts))
            batches = similarities.index_select(0, torch.from_numpy(places)).view(-1, int(size))
            self._reached |= self._stop.reached(batches).any()
            self._similarity += batches.double().mean(dim=-1).sum()

    def says_stop(self) -> bool:
        self._judge()
        return self._stop is not None and bool(self._reached)

    def measures(self, steps: int) -> dict[str, float]:
        self._judge()
        found: dict[str, float] = {}
        if self._squares is not None and steps:
            found["gradient_square"] = float(self._squares) / steps
        found |= self.traces
        if self._stop is not None and steps:
            found |= {"threshold": self._stop.threshold, "similarity": float(self._similarity) / steps}
        return found


@final
class _Training:
    """One training visit."""

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        state: ClientState,
        assignment: Assignment,
        data: ClientData,
        engine: Engine,
        pace: Forecast | None = None,
    ) -> None:
        self.recipe, self.setup, self.state, self.assignment = recipe, setup, state, assignment
        self.data, self.engine, self.pace = data, engine, pace
        held = len(data)
        batch = min(recipe.batch or held, held) or 1
        self.visit = made(
            Visit,
            seed=setup.seed,
            client=assignment.client,
            visit=assignment.visit,
            version=assignment.version,
            horizon=assignment.horizon,
            held=held,
            batch=batch,
            epoch_steps=len(cut(held, batch, recipe.drop_last, engine.single_sample_fails)),
            least=2 if engine.single_sample_fails else 1,
        )
        self.parts = {
            key: state.parts[key] if key in state.parts else mechanism.client_start(setup)
            for key, mechanism in recipe.mechanisms()
        }

    def plan(self) -> Plan:
        """What the work policy wants of this visit."""
        if not self.visit.epoch_steps:
            return Plan(steps=0)
        return self.recipe.planning.plan(self.setup, self.visit, self.parts, self.assignment.briefs)

    def foreseen(self) -> tuple[Report, bool]:
        """What `run` will report, as `foreseen` says."""
        plan, sent = self.plan(), self.assignment
        if plan.instead is not None:
            return self._substitute(plan.instead, Model(weights=sent.weights, buffers=sent.buffers)), True
        ahead = self._ahead(plan, self._terms())
        steps = fitting(plan, ahead, self.pace).steps
        report = report_on(
            sent,
            self.visit.held,
            update=sent.weights,
            packed=self.recipe.compression.size(self.engine.layout),
            buffers=sent.buffers,
            steps=steps,
            samples=ahead.samples(steps) - ahead.measured,
            forward_samples=ahead.forward_samples(steps) if steps else 0,
            gradient_samples=ahead.measured if steps else 0,
            extras={"": {"": [sent.weights] * sum(part.extra_vectors for part in self.recipe.parts())}}
            if steps
            else {},
        )
        return report, plan.stop is None and self.recipe.foreseeable

    def run(self) -> Visiting:
        """The visit; it waits where `visiting` says."""
        plan = self.plan()
        received = Model(weights=self.assignment.weights, buffers=self.assignment.buffers)
        if plan.instead is not None:
            return self.state, self._substitute(plan.instead, received)
        start = received
        if self.recipe.regime == "local" and self.state.previous is not None:
            start = self.state.previous
        push, terms = self._push(), self._terms()
        if plan.within is not None:
            plan = fitting(plan, self._ahead(plan, terms), self.pace)
        self.engine.open(
            made(
                Opening,
                data=self.data,
                start=start,
                received=received,
                previous=self.state.previous,
                reuse=not self.data.augmented and plan.steps >= self.visit.epoch_steps,
                seed=torch_seed(self.visit.seed, "network", self.visit.client, self.visit.visit),
            )
        )
        moments = carry(self.state.optimiser, self.engine.weights, self.recipe.optimiser)
        path = yield from self._train(plan, received, start, push, terms, moments)
        pull = push.pull if push is not None else 0.0
        update, norm = difference(self.engine.weights, start.weights)
        key = self.recipe.key_of(self.recipe.compression)
        self.parts[key], packed = self.recipe.compression.pack(self.engine.layout, self.parts[key], update, path.idle)
        outcome = made(
            Outcome,
            version=self.visit.version,
            received=start.weights,
            update=update,
            sent=packed.update,
            packed=packed.size,
            steps=len(path.rates),
            travel=self.recipe.optimiser.travel(path.rates, pull),
            pull=pull,
            rate=path.rates[0] if path.rates else 0.0,
            idle=path.idle,
        )
        buffers = self.engine.buffers()
        parts, extras = {}, {}
        for key, mechanism in self.recipe.mechanisms():
            parts[key], extras[key] = mechanism.finish(self.setup, self.parts[key], self._brief(key), outcome)
        state = ClientState(
            parts={k: s for k, s in parts.items() if s},
            cursor=path.cursor,
            optimiser=moments if self.recipe.optimiser.keep_state else {},
            previous=Model(weights=self.engine.weights.clone(), buffers=buffers)
            if "previous" in self.recipe.needs()
            else None,
        )
        report = report_on(
            self.assignment,
            self.visit.held,
            update=outcome.sent,
            packed=outcome.packed,
            buffers=buffers,
            steps=outcome.steps,
            samples=path.samples,
            forward_samples=path.forward_samples,
            gradient_samples=path.gradient_samples,
            rate=outcome.rate,
            travel=outcome.travel,
            pull=pull,
            idle=outcome.idle,
            loss=path.loss,
            extras={k: e for k, e in extras.items() if e},
            measures=path.measures,
        )
        known = norm is not None and report.update is update
        return state, changed(report, norm=norm) if known else report

    def _brief(self, key: str) -> State:
        return self.assignment.briefs.get(key, {})

    def _substitute(self, instead: Instead, received: Model) -> Report:
        """What a visit that does not train sends."""
        update = instead.update
        if instead.kind == "model" and self.state.previous is not None:
            update = self.state.previous.weights - received.weights
        packed = instead.packed
        if packed is None and update is not None:
            packed = self.recipe.compression.size(self.engine.layout)
        return report_on(
            self.assignment,
            self.visit.held,
            update=update,
            packed=packed,
            substitute=instead.kind,
            age=instead.age,
            steps=instead.steps,
            travel=instead.travel,
            pull=instead.pull,
            rate=instead.rate,
        )

    def _ahead(self, plan: Plan, terms: list[Correction]) -> Ahead:
        """How much the visit computes, for a forecast of the time it takes."""
        held, needs, has_previous = self.visit.held, self.recipe.needs(), self.state.previous is not None
        asked = {("received", layer) for term in terms for layer in term.layers or ()}
        if has_previous:
            asked |= {("previous", layer) for _, layer in asked}
        if plan.stop is not None:
            asked.add(("received", plan.stop.layer))
        return Ahead(
            held=held,
            batches=self._sizes(plan) or (held,),
            pass_steps=self.visit.epoch_steps,
            measured=held * len(needs & {"fisher", "fisher_model"}),
            scored=held * (self.recipe.order.looks(has_previous) + ("fisher_model" in needs)),
            judged=int(plan.stop is not None and not self.engine.one_mode),
            frozen=len(asked),
            reuse=not self.data.augmented,
        )

    def _sizes(self, plan: Plan) -> tuple[int, ...]:
        """Samples in the batches of a pass, from where the visit begins; full ones where a pass leaves samples out."""
        fold = self.engine.single_sample_fails
        if not self.recipe.order.complete:
            return (min(self.visit.held, self.visit.batch + fold),)
        sizes = [s.stop - s.start for s in cut(self.visit.held, self.visit.batch, self.recipe.drop_last, fold)]
        place = self.state.cursor[1] if plan.continues else 0
        return (*sizes[place:], *sizes[:place])

    def _push(self) -> Push | None:
        """The affine corrections as one."""
        corrections = [(k, m) for k, m in self.recipe.mechanisms() if isinstance(m, Correction)]
        pushes = [m.push(self.setup, self.parts[k], self._brief(k)) for k, m in corrections]
        return chain([p for p in pushes if p is not None])

    def _terms(self) -> list[Correction]:
        """The corrections that add a loss term."""
        return [m for _, m in self.recipe.mechanisms() if isinstance(m, Correction) and m.layers is not None]

    def _train(
        self,
        plan: Plan,
        received: Model,
        start: Model,
        push: Push | None,
        terms: list[Correction],
        moments: dict[str, Tensor | int],
    ) -> Generator[Job, Done | None, _Path]:
        """Takes the steps of the plan, in the engine's weights and in `moments`."""
        optimiser, engine = self.recipe.optimiser, self.engine
        weights, gradient = engine.weights, engine.gradient
        away = torch.empty_like(weights) if push is not None else weights
        names = (self.visit.client, self.visit.visit)
        augment = torch_generator(self.visit.seed, "augment", *names) if self.data.augmented else None
        watch = _Watch(self.recipe.needs(), plan.stop)
        path, squares = _Path(cursor=self.state.cursor), "squared_loss" in self.recipe.needs()
        if plan.steps:
            watch.traces = self._traces(received)
            path.gradient_samples = len(watch.traces) * self.visit.held
        straight, layer = self._straight(), plan.stop.layer if plan.stop else None
        batches = self._batches(plan)
        if _takes_jobs(engine) and not self.data.augmented:
            # Nothing is decided between two steps, or those of an epoch, so the engine may take them all at once.
            most = self.visit.epoch_steps if plan.stop is not None else plan.steps
            known: list[tuple[np.ndarray, tuple[int, int]]] = []
            while not watch.says_stop() and (known := list(itertools.islice(batches, most))):
                job = self._job(plan, known, len(path.rates), start, push, terms, moments)
                seen = self.engine.forward_samples  # by the time of the answer others may have used the engine
                if (done := (yield job)) is None:
                    break
                path.forward_samples = seen + done.forward_samples
                watch.whole(job, done)
                path.whole(job, done, known[-1][1])
            else:
                if not path.rates:
                    path.forward_samples = self.engine.forward_samples
                path.measures = self._measures(watch, path)
                return path
            batches = itertools.chain(known, batches)
        with contextlib.nullcontext() if _names_draws(engine) else seeded_torch(self.visit.seed, "network", *names):
            for positions, after in batches:
                inputs, targets = self.data.batch(positions, augment)
                rate = self._rate(len(path.rates), plan.steps)
                if push is not None and push.pull:
                    # The difference first: at w = w0 it is exactly zero, so the first step is FedAvg's.
                    torch.sub(weights, start.weights, out=away)
                if straight is not None and not watch.looks:
                    computed = straight.compute(inputs, targets, positions, terms, layer, squares, rate)
                    untouched = _keep(computed.unused, weights, moments) if push is not None else []
                    _push(weights, push, away, -rate)
                else:
                    computed = engine.compute(inputs, targets, positions, terms, layer, squares)
                    untouched = _keep(computed.unused, weights, moments)
                    if optimiser.clip is not None:
                        clip_(gradient, optimiser.clip)
                    watch.look(gradient)
                    if straight is None:
                        _push(gradient, push, away, 1.0)
                    optimiser.step_(weights, gradient, rate, moments)
                    if straight is not None:  # the same bits, watched or not
                        _push(weights, push, away, -rate)
                for part, before in untouched:
                    part.copy_(before)
                engine.stepped()
                watch.look_at_features(computed.pair, np.array([len(positions)]))
                path.add(rate, computed, len(positions), after)
                if len(path.rates) % self.visit.epoch_steps == 0 and watch.says_stop():
                    break
        path.forward_samples = engine.forward_samples
        path.measures = self._measures(watch, path)
        return path

    def _straight(self) -> Descends | None:
        """The engine, if it can step by the gradient itself: plain SGD, whose pushes then go to the weights."""
        optimiser, engine = self.recipe.optimiser, self.engine
        return engine if optimiser.plain and _descends(engine) and engine.descends else None

    def _measures(self, watch: _Watch, path: _Path) -> dict[str, float]:
        """What was measured on the way, by the measure's name."""
        asked = "squared_loss" in self.recipe.needs()
        return watch.measures(len(path.rates)) | ({"squared_loss": path.squared_loss} if asked else {})

    def _job(
        self,
        plan: Plan,
        batches: Sequence[tuple[np.ndarray, tuple[int, int]]],
        first: int,
        start: Model,
        push: Push | None,
        terms: Sequence[Correction],
        moments: dict[str, Tensor | int],
    ) -> Job:
        """Some steps of a visit as one value."""
        sizes = [len(positions) for positions, _ in batches]
        return Job(
            data=self.data,
            positions=np.concatenate([positions for positions, _ in batches]),
            ends=np.cumsum(sizes, dtype=np.int64),
            rates=[self._rate(first + i, plan.steps) for i in range(len(batches))],
            optimiser=self.recipe.optimiser,
            push=push,
            start=start.weights,
            moments=moments,
            seed=torch_seed(self.visit.seed, "network", self.visit.client, self.visit.visit),
            gradient_squares="gradient_square" in self.recipe.needs(),
            first=first,
            terms=terms,
            watch=plan.stop.layer if plan.stop is not None else None,
        )

    def _traces(self, received: Model) -> dict[str, float]:
        """The Fisher traces that somebody asks for, by the measure's name."""
        needs, traces = self.recipe.needs(), {}
        if "fisher" in needs:
            with self._looking("fisher"):
                traces["fisher"] = self.engine.fisher(received, self.data)
        if "fisher_model" in needs:
            labels = stream(self.visit.seed, "labels", self.visit.client, self.visit.visit)
            with self._looking("fisher_model"):
                traces["fisher_model"] = self.engine.fisher(received, self.data, labels=labels)
        return traces

    def _looking(self, what: str) -> contextlib.AbstractContextManager[None]:
        """A block that looks at the client's samples: its draws move none of the training's."""
        return measuring(self.engine, self.data, self.visit.seed, what, self.visit.client, self.visit.visit)

    def _rate(self, step: int, steps: int) -> float:
        schedule = self.recipe.schedule
        if schedule.unit == "step":
            factor = schedule.factor(step, steps)
        else:
            factor = schedule.factor(self.visit.version, self.visit.horizon)
        return self.recipe.optimiser.lr * factor

    def _batches(self, plan: Plan) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
        """Batches of positions for the plan, each with the cursor after it."""
        number, place = self.state.cursor if plan.continues else (0, 0)
        done = 0
        with self._looking("order"):
            ranking = self.recipe.order.rank(self.visit, self.engine.lens()) if plan.steps else None
        while done < plan.steps:
            name = ("pass", number) if plan.continues else ("visit", self.visit.visit, number)
            progress = Progress(step=done, steps=plan.steps)
            order = self.recipe.order.one_pass(self.visit, name, ranking, progress)
            pieces = cut(len(order), self.visit.batch, self.recipe.drop_last, self.engine.single_sample_fails)
            if not pieces:
                return  # nothing in this pass can be trained on, so nothing ever will
            for i in range(place, min(len(pieces), place + plan.steps - done)):
                done += 1
                after = (number, i + 1) if i + 1 < len(pieces) else (number + 1, 0)
                yield order[pieces[i]], after if plan.continues else self.state.cursor
            number, place = number + 1, 0


# As `isinstance` of these protocols, which takes as long as a small step.


def _takes_jobs(engine: Engine) -> TypeGuard[TakesJobs]:
    return hasattr(engine, "local_round")


def _names_draws(engine: Engine) -> TypeGuard[NamesDraws]:
    return hasattr(engine, "names_draws")


def _descends(engine: Engine) -> TypeGuard[Descends]:
    return hasattr(engine, "descends")


def cut(held: int, batch: int, drop_last: bool, fold_single: bool) -> list[slice]:
    """A pass over `held` samples as slices of `batch`.

    The last one is shorter, or left out with `drop_last`, but never the only one: a client with less than a batch
    trains on what it has. With `fold_single` (BatchNorm cannot train on one sample) a last slice of one joins the slice
    before it; a client that holds a single sample then has no slice at all.

    >>> cut(5, 2, False, False)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    >>> cut(5, 2, False, True)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    slices = [slice(i, min(i + batch, held)) for i in range(0, held, batch)]
    if drop_last and len(slices) > 1 and held % batch:
        slices.pop()
    if fold_single and slices and slices[-1].stop - slices[-1].start == 1:
        last = slices.pop()
        if slices:
            slices[-1] = slice(slices[-1].start, last.stop)
    return slices


def _push(vector: Tensor, push: Push | None, away: Tensor, times: float) -> None:
    """Adds a push to a vector [P], so many times, from how far the weights are away from w0."""
    if push is not None and push.pull:
        vector.add_(away, alpha=times * push.pull)
    if push is not None and push.shift is not None:
        vector.add_(push.shift, alpha=times)


def _keep(
    unused: tuple[Segment, ...], weights: Tensor, moments: dict[str, Tensor | int]
) -> list[tuple[Tensor, Tensor]]:
    """Parts that a step must leave as they are, each with a copy: what belongs to parameters without a gradient.

    torch.optim passes such parameters over altogether: no weight decay, no momentum, no count of the step. So a count
    that all weights shared until now becomes one for each.
    """
    if not unused:
        return []
    for name, value in moments.items():
        if not isinstance(value, Tensor):
            moments[name] = torch.full(weights.shape, value, dtype=torch.promote_types(weights.dtype, torch.float32))
    vectors = [weights, *(m for m in moments.values() if isinstance(m, Tensor))]
    parts = [v.narrow(0, s.offset, s.size) for v in vectors for s in unused]
    return [(part, part.clone()) for part in parts]
