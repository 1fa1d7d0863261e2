"""A training visit: from the received model, by its plan, to the client's new state and its report."""

from __future__ import annotations

from collections.abc import Generator
from typing import final

from torch import Tensor

from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.messages import Assignment, Report, State
from polyrhythm.base.streams import stream, torch_seed
from polyrhythm.base.sums import difference
from polyrhythm.base.vectors import Segment, clear_, with_statistics
from polyrhythm.core import personal
from polyrhythm.core.classes import class_means, present_in, rows_of
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.local_run import LocalRun
from polyrhythm.core.local_step import LocalRule
from polyrhythm.core.path import Path, Watch
from polyrhythm.core.protocols import ClientData, Done, Engine, Job, Opening
from polyrhythm.core.reports import report_on, substitute_on
from polyrhythm.core.returned import resting, returned
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.methods.capacity.base import Penalty
from polyrhythm.methods.correction import Correction, Push, chain
from polyrhythm.methods.local.optimisers import carry
from polyrhythm.methods.mechanism import Model, Outcome, Setup
from polyrhythm.methods.personal.guides import Guide
from polyrhythm.methods.personal.models import PersonalModel
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Substitute

Result = tuple[ClientState, Report]
Visiting = Generator[Job, Done | None, Result]


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
        self.own = recipe.scope.own(engine.layout)
        self.present = present_in(data, engine.layout) if recipe.capacity.by_classes else None
        self.averaged = 0  # samples whose representations were averaged
        self.lacking: Tensor | None = None  # the classes, int64, that the client has no sample of, if that matters
        if self.present is not None and not self.present.all():
            self.lacking = (~self.present).nonzero()[:, 0]
        names = plan.visit.client, plan.visit.visit
        self.run_ = LocalRun(
            recipe=recipe,
            order=recipe.order,
            data=data,
            engine=engine,
            visit=plan.visit,
            plan=plan.work,
            cursor=state.cursor,
            personal=self.own.segments,
            names=names,
            of_pass=("visit", plan.visit.visit),
            others=recipe.personal.others,
        )

    def run(self) -> Visiting:
        """The visit; it waits where `client.visiting` says."""
        sent = Model(weights=self.assignment.weights, buffers=self.assignment.buffers)
        received = personal.model_at(self.recipe, self.engine.layout, self.state, sent)
        if self.plan.substitute is not None:
            return self.state, self.substitute(self.plan.substitute, received)
        start = received
        if self.recipe.regime == "local" and self.state.previous is not None:
            start = self.state.previous
        known, looked, names = self._known(), 0, (self.visit.client, self.visit.visit)
        if self.recipe.personal.moves and self.plan.steps:
            given = self.recipe, self.visit, self.data, self.engine, self.state, received
            start, known, looked = personal.started(*given, *names)
        guide = self.recipe.personal.guide(known, received, self.recipe.optimiser, self.engine.layout)
        rule = self._open(start, received, guide)
        traces = self._traces(received) if self.plan.steps else {}
        path, watch = Path(cursor=self.state.cursor), Watch(self.plan.stop)
        yield from self.run_.take(rule, path, watch)
        ended = self._ended(
            rule, path, self._measures(path, watch, traces), looked + len(traces) * self.visit.num_samples
        )
        if guide is not None:
            model = Model(weights=self.engine.weights, buffers=self.engine.buffers())
            ended = personal.guided(self.recipe, guide, ended, model)
        if self.assignment.kind != "train":
            return ended  # of which nothing is kept
        return (yield from personal.beside(self.recipe, self.visit, self.data, self.engine, received, ended))

    def substitute(self, substitute: Substitute, received: Model) -> Report:
        """What a visit that does not train sends."""
        update = substitute.update
        if substitute.kind == "model" and self.state.previous is not None:
            update = self.state.previous.weights - received.weights
        return substitute_on(self.assignment, self.visit.num_samples, substitute, update=update, packed=self.packed)

    def _known(self) -> State:
        """What the client remembers of the model that it uses."""
        return next((self.parts[key] for key, _ in self.recipe.of(PersonalModel)), {})

    def _open(self, start: Model, received: Model, guide: Guide | None) -> LocalRule:
        """Opens the visit, and says how its steps are taken."""
        recipe, needs, stop = self.recipe, self.recipe.needs(), self.plan.stop
        seed = torch_seed(self.visit.seed, "network", self.visit.client, self.visit.visit)
        push, moved = self._push(), recipe.personal.moves
        self.engine.open(
            new_unchecked(
                Opening,
                data=self.data,
                start=start,
                received=received,
                previous=self.state.previous,
                reuse=not self.data.augmented and self.plan.in_all >= self.visit.epoch_steps,
                seed=seed,
                exits=recipe.capacity.exits(self.visit.version),
                lacking=self.lacking,
            )
        )
        return new_unchecked(
            LocalRule,
            optimiser=recipe.optimiser,
            push=push,
            # An update is from what was sent to where the visit ends, also where it begins elsewhere.
            start=received.weights if moved else start.weights,
            moments=self._moments(),
            seed=seed,
            gradient_squares="gradient_square" in needs,
            squared_losses="squared_loss" in needs,
            terms=[term for key, m in recipe.of(Correction) if (term := m.term_of(self._brief(key))) is not None],
            watch=None if stop is None else stop.layer,
            held=self._held(),
            away=moved and start is not received,
            guide=guide if guide is not None and guide.steers else None,
            penalty=self._penalty(),
        )

    def _penalty(self) -> Penalty | None:
        """What the capacity adds to the loss, by weights that it wants to be held no more."""
        capacity = self.recipe.capacity
        return None if capacity.whole else capacity.penalty(self.setup, self._brief(self.recipe.key_of(capacity)))

    def _held(self) -> tuple[Segment, ...]:
        """What no step of the visit changes."""
        rests = resting(self.recipe, self.engine.layout, self.visit.version)
        return rests if self.lacking is None else (*rests, *rows_of(self.lacking, self.engine.layout))

    def _moments(self) -> dict[str, Tensor | int]:
        """The state that the local optimiser begins with: its own, or what the server has sent of it."""
        moments = carry(self.state.optimiser, self.engine.weights, self.recipe.optimiser)
        for key, correction in self.recipe.of(Correction):
            moments |= {name: value.clone() for name, value in correction.moments(self._brief(key)).items()}
        return moments

    def _push(self) -> Push | None:
        """The affine corrections as one."""
        corrections = [(k, m) for k, m in self.recipe.mechanisms() if isinstance(m, Correction)]
        pushes = [m.push(self.setup, self.parts[k], self._brief(k)) for k, m in corrections]
        return chain([p for p in pushes if p is not None])

    def _traces(self, received: Model) -> dict[str, float]:
        """The Fisher traces that somebody asks for, by the measure's name."""
        needs, traces = self.recipe.needs(), {}
        if "fisher" in needs:
            with self.run_.looking("fisher"):
                traces["fisher"] = self.engine.fisher(received, self.data)
        if "fisher_model" in needs:
            labels = stream(self.visit.seed, "labels", self.visit.client, self.visit.visit)
            with self.run_.looking("fisher_model"):
                traces["fisher_model"] = self.engine.fisher(received, self.data, labels=labels)
        return traces

    def _measures(self, path: Path, watch: Watch, traces: dict[str, float]) -> dict[str, float]:
        """What was measured on the way, by the measure's name."""
        needs, steps = self.recipe.needs(), len(path.rates)
        found = {"gradient_square": path.gradient_square} if "gradient_square" in needs and steps else {}
        found |= traces | watch.measures(steps)
        return found | ({"squared_loss": path.squared_loss} if "squared_loss" in needs else {})

    def _ended(self, rule: LocalRule, path: Path, measures: dict[str, float], gradient_samples: int) -> Result:
        """The new state and the report of a visit whose steps are taken."""
        recipe, weights, pull = self.recipe, self.engine.weights, 0.0 if rule.push is None else rule.push.pull
        layout, idle = self.engine.layout, path.idle
        if self.lacking is not None:  # rows of a parameter are none
            wholes = {(s.offset, s.size) for s in layout.segments}
            idle = tuple(span for span in idle if span in wholes)
        update, norm = difference(weights, rule.start)
        if self.own:  # to all others it is as if no step had touched it
            clear_(update, self.own.spans)
            norm, idle = None, tuple(sorted({*idle, *self.own.spans}))
        key = recipe.key_of(recipe.compression)
        back = returned(recipe, recipe.scope.shared(layout), self.visit.version)
        self.parts[key], packed = recipe.compression.pack(back, self.parts[key], update, idle)
        rates = path.rates[min(self.plan.first, len(path.rates)) :]
        outcome = new_unchecked(
            Outcome,
            version=self.visit.version,
            received=rule.start,
            update=update,
            sent=packed.update,
            packed=packed.size,
            steps=len(rates),
            travel=recipe.optimiser.travel(rates, pull),
            pull=pull,
            rate=rates[0] if rates else 0.0,
            idle=idle,
            moments=rule.moments,
            class_means=self._class_means if "class_means" in recipe.needs() else None,
        )
        buffers = self.engine.buffers()
        if recipe.capacity.statistics_apart:
            buffers = with_statistics(layout, buffers, self.assignment.buffers)
        parts, extras = {}, {}
        for key, mechanism in recipe.mechanisms():
            parts[key], extras[key] = mechanism.finish(self.setup, self.parts[key], self._brief(key), outcome)
        if self.present is not None:
            key = recipe.key_of(recipe.capacity)
            extras[key] = {**extras[key], "classes": self.present}
        if kept := recipe.scope.kept(layout, Model(weights=weights, buffers=buffers)):
            parts[recipe.key_of(recipe.scope)] = kept
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
            buffers=self.own.put_buffers(buffers, [self.assignment.buffers[place] for place in self.own.buffers]),
            steps=outcome.steps,
            samples=path.samples * recipe.personal.gradients,
            forward_samples=path.forward_samples + self.averaged,
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

    def _class_means(self, layer: str) -> tuple[Tensor, Tensor]:
        """As `Outcome.class_means`, of the model that the client works with."""
        model = Model(weights=self.engine.weights, buffers=self.engine.buffers())
        self.averaged += len(self.data)
        with self.run_.looking("class means"):
            return class_means(*self.engine.represented(model, self.data, layer))

    def _brief(self, key: str) -> State:
        return self.assignment.briefs.get(key, {})
