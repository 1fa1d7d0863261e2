"""A training visit: from the received model, by its plan, to the client's new state and its report."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import final

import numpy as np

from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.messages import Assignment, Report, State
from polyrhythm.base.streams import seeded_torch, stream, torch_generator, torch_seed
from polyrhythm.base.sums import difference
from polyrhythm.core.batches import cut
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.local_step import LocalRule
from polyrhythm.core.measuring import measuring
from polyrhythm.core.path import Path, Watch
from polyrhythm.core.protocols import ClientData, Done, Engine, Job, Opening, names_draws, takes_jobs
from polyrhythm.core.reports import report_on, substitute_on
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.methods.correction import Correction, Push, chain
from polyrhythm.methods.local.optimisers import carry
from polyrhythm.methods.mechanism import Model, Outcome, Setup
from polyrhythm.methods.order.base import Progress
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Substitute

Result = tuple[ClientState, Report]
Visiting = Generator[Job, Done | None, Result]
Batch = tuple[np.ndarray, tuple[int, int]]
"""Positions of its samples, and where the cursor is after it."""


@final
class Training:
    """One training visit.

    Args:
        recipe, setup, state, assignment, data, engine, plan: as for `client.work`.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        state: ClientState,
        assignment: Assignment,
        data: ClientData,
        engine: Engine,
        plan: VisitPlan,
    ) -> None:
        self.recipe, self.setup, self.state, self.assignment = recipe, setup, state, assignment
        self.data, self.engine, self.visit, self.plan = data, engine, plan.visit, plan.work
        self.packed = plan.packed
        self.parts = state.parts_of(recipe.mechanisms(), setup)

    def run(self) -> Visiting:
        """The visit; it waits where `client.visiting` says."""
        received = Model(weights=self.assignment.weights, buffers=self.assignment.buffers)
        if self.plan.substitute is not None:
            return self.state, self.substitute(self.plan.substitute, received)
        start = received
        if self.recipe.regime == "local" and self.state.previous is not None:
            start = self.state.previous
        rule = self._open(start, received)
        traces = self._traces(received) if self.plan.steps else {}
        path, watch = Path(cursor=self.state.cursor), Watch(self.plan.stop)
        yield from self._steps(rule, path, watch)
        return self._ended(rule, path, self._measures(path, watch, traces), len(traces) * self.visit.num_samples)

    def substitute(self, substitute: Substitute, received: Model) -> Report:
        """What a visit that does not train sends."""
        update = substitute.update
        if substitute.kind == "model" and self.state.previous is not None:
            update = self.state.previous.weights - received.weights
        return substitute_on(self.assignment, self.visit.num_samples, substitute, update=update, packed=self.packed)

    def _open(self, start: Model, received: Model) -> LocalRule:
        """Opens the visit, and says how its steps are taken."""
        recipe, needs, stop = self.recipe, self.recipe.needs(), self.plan.stop
        seed = torch_seed(self.visit.seed, "network", self.visit.client, self.visit.visit)
        push = self._push()
        self.engine.open(
            new_unchecked(
                Opening,
                data=self.data,
                start=start,
                received=received,
                previous=self.state.previous,
                reuse=not self.data.augmented and self.plan.steps >= self.visit.epoch_steps,
                seed=seed,
            )
        )
        return new_unchecked(
            LocalRule,
            optimiser=recipe.optimiser,
            push=push,
            start=start.weights,
            moments=carry(self.state.optimiser, self.engine.weights, recipe.optimiser),
            seed=seed,
            gradient_squares="gradient_square" in needs,
            squared_losses="squared_loss" in needs,
            terms=[m for m in recipe.corrections if m.layers is not None],
            watch=None if stop is None else stop.layer,
        )

    def _push(self) -> Push | None:
        """The affine corrections as one."""
        corrections = [(k, m) for k, m in self.recipe.mechanisms() if isinstance(m, Correction)]
        pushes = [m.push(self.setup, self.parts[k], self._brief(k)) for k, m in corrections]
        return chain([p for p in pushes if p is not None])

    def _steps(self, rule: LocalRule, path: Path, watch: Watch) -> Generator[Job, Done | None, None]:
        """Takes the steps of the plan, in the engine's weights and in the rule's moments."""
        engine, batches = self.engine, self.batches()
        if takes_jobs(self.engine) and not self.data.augmented:
            # Nothing is decided between two steps, or those of an epoch, so the engine may take them all at once.
            most = self.visit.epoch_steps if self.plan.stop is not None else self.plan.steps
            known: list[Batch] = []
            while not watch.says_stop() and (known := list(itertools.islice(batches, most))):
                job = self._job(rule, known, len(path.rates))
                seen = engine.forward_samples  # by the time of the answer others may have used the engine
                if (done := (yield job)) is None:
                    break
                path.forward_samples = seen + done.forward_samples
                watch.look(done.pair, job.ends)
                path.whole(job, done, known[-1][1])
            else:
                if not path.rates:
                    path.forward_samples = engine.forward_samples
                return
            batches = itertools.chain(known, batches)
        names = self.visit.client, self.visit.visit
        augment = torch_generator(self.visit.seed, "augment", *names) if self.data.augmented else None
        with contextlib.nullcontext() if names_draws(engine) else seeded_torch(self.visit.seed, "network", *names):
            for positions, after in batches:
                inputs, targets = self.data.batch(positions, augment)
                rate = self.rate(len(path.rates))
                computed = engine.step(inputs, targets, positions, rule, rate)
                watch.look(computed.pair, np.array([len(positions)]))
                path.add(rate, computed, len(positions), after)
                if len(path.rates) % self.visit.epoch_steps == 0 and watch.says_stop():
                    break
        path.forward_samples = engine.forward_samples

    def batches(self) -> Iterator[Batch]:
        """Batches of positions for the plan, each with the cursor after it."""
        plan, recipe, visit = self.plan, self.recipe, self.visit
        number, place = self.state.cursor if plan.continues else (0, 0)
        done = 0
        with self.looking("order"):
            ranking = recipe.order.rank(visit, self.engine.lens()) if plan.steps else None
        while done < plan.steps:
            name = ("pass", number) if plan.continues else ("visit", visit.visit, number)
            order = recipe.order.one_pass(visit, name, ranking, Progress(step=done, steps=plan.steps))
            pieces = cut(len(order), visit.batch, recipe.drop_last, self.engine.single_sample_fails)
            if not pieces:
                return  # nothing in this pass can be trained on, so nothing ever will
            for i in range(place, min(len(pieces), place + plan.steps - done)):
                done += 1
                after = (number, i + 1) if i + 1 < len(pieces) else (number + 1, 0)
                yield order[pieces[i]], after if plan.continues else self.state.cursor
            number, place = number + 1, 0

    def _job(self, rule: LocalRule, batches: Sequence[Batch], first: int) -> Job:
        """Some steps of the visit as one value."""
        return new_unchecked(
            Job,
            **vars(rule),
            data=self.data,
            positions=np.concatenate([positions for positions, _ in batches]),
            ends=np.cumsum([len(positions) for positions, _ in batches], dtype=np.int64),
            rates=[self.rate(first + i) for i in range(len(batches))],
            first=first,
        )

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        schedule = self.recipe.schedule
        if schedule.unit == "step":
            factor = schedule.factor(step, self.plan.steps)
        else:
            factor = schedule.factor(self.visit.version, self.visit.total_rounds)
        return self.recipe.optimiser.lr * factor

    def _traces(self, received: Model) -> dict[str, float]:
        """The Fisher traces that somebody asks for, by the measure's name."""
        needs, traces = self.recipe.needs(), {}
        if "fisher" in needs:
            with self.looking("fisher"):
                traces["fisher"] = self.engine.fisher(received, self.data)
        if "fisher_model" in needs:
            labels = stream(self.visit.seed, "labels", self.visit.client, self.visit.visit)
            with self.looking("fisher_model"):
                traces["fisher_model"] = self.engine.fisher(received, self.data, labels=labels)
        return traces

    def looking(self, what: str) -> contextlib.AbstractContextManager[None]:
        """A block that looks at the client's samples: its draws move none of the training's."""
        return measuring(self.engine, self.data, self.visit.seed, what, self.visit.client, self.visit.visit)

    def _measures(self, path: Path, watch: Watch, traces: dict[str, float]) -> dict[str, float]:
        """What was measured on the way, by the measure's name."""
        needs, steps = self.recipe.needs(), len(path.rates)
        found = {"gradient_square": path.gradient_square} if "gradient_square" in needs and steps else {}
        found |= traces | watch.measures(steps)
        return found | ({"squared_loss": path.squared_loss} if "squared_loss" in needs else {})

    def _ended(self, rule: LocalRule, path: Path, measures: dict[str, float], gradient_samples: int) -> Result:
        """The new state and the report of a visit whose steps are taken."""
        recipe, weights, pull = self.recipe, self.engine.weights, 0.0 if rule.push is None else rule.push.pull
        update, norm = difference(weights, rule.start)
        key = recipe.key_of(recipe.compression)
        self.parts[key], packed = recipe.compression.pack(self.engine.layout, self.parts[key], update, path.idle)
        outcome = new_unchecked(
            Outcome,
            version=self.visit.version,
            received=rule.start,
            update=update,
            sent=packed.update,
            packed=packed.size,
            steps=len(path.rates),
            travel=recipe.optimiser.travel(path.rates, pull),
            pull=pull,
            rate=path.rates[0] if path.rates else 0.0,
            idle=path.idle,
        )
        buffers = self.engine.buffers()
        parts, extras = {}, {}
        for key, mechanism in recipe.mechanisms():
            parts[key], extras[key] = mechanism.finish(self.setup, self.parts[key], self._brief(key), outcome)
        state = ClientState(
            parts={k: s for k, s in parts.items() if s},
            cursor=path.cursor,
            optimiser=rule.moments if recipe.optimiser.keep_state else {},
            previous=Model(weights=weights.clone(), buffers=buffers) if "previous" in recipe.needs() else None,
        )
        report = report_on(
            self.assignment,
            self.visit.num_samples,
            update=outcome.sent,
            packed=outcome.packed,
            buffers=buffers,
            steps=outcome.steps,
            samples=path.samples,
            forward_samples=path.forward_samples,
            gradient_samples=gradient_samples,
            rate=outcome.rate,
            travel=outcome.travel,
            pull=pull,
            idle=outcome.idle,
            loss=path.loss,
            extras={k: e for k, e in extras.items() if e},
            measures=measures,
        )
        known = norm is not None and report.update is update
        return state, replace_unchecked(report, norm=norm) if known else report

    def _brief(self, key: str) -> State:
        return self.assignment.briefs.get(key, {})
