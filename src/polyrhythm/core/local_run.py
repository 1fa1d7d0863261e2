"""The local training loop: the steps of a plan over a client's samples, by whichever engine computes them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.streams import seeded_torch, torch_generator
from polyrhythm.base.vectors import Segment
from polyrhythm.core.batches import cut
from polyrhythm.core.local_step import Batch, LocalRule
from polyrhythm.core.measuring import measuring
from polyrhythm.core.path import Path, Watch
from polyrhythm.core.protocols import ClientData, Done, Engine, Job, names_draws, takes_jobs
from polyrhythm.methods.mechanism import Visit
from polyrhythm.methods.order.base import Order, Progress
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Plan

Upcoming = tuple[np.ndarray, tuple[int, int], tuple[np.ndarray, ...]]
"""Positions of a batch's samples, where the cursor is after it, and positions of the others that are looked at."""
Steps = Generator[Job, Done | None, None]
Phase = tuple[int, tuple[Segment, ...]]
"""How many steps, and what they hold."""


@final
@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """Local training from where an engine is open.

    Args:
        recipe: its local optimiser, schedule, and how a short last batch is dealt with.
        order: of samples.
        data: the client's.
        engine: computes.
        visit: whose draws these are.
        plan: how many steps, in which phases, and when they end early.
        cursor: where the pass over the data is.
        personal: what of the model is the client's own, where phases tell it from the rest.
        names: name the draws of the network and of augmentation.
        of_pass: names passes that begin afresh.
        lr: the rate of every step; None for that of the recipe.
        others: how many batches a step looks at beside its own, each from passes of its own.
    """

    recipe: Recipe
    order: Order
    data: ClientData
    engine: Engine
    visit: Visit
    plan: Plan
    cursor: tuple[int, int]
    personal: tuple[Segment, ...]
    names: tuple[int | str, ...]
    of_pass: tuple[int | str, ...]
    lr: float | None = None
    others: int = 0

    def take(self, rule: LocalRule, path: Path, watch: Watch) -> Steps:
        """Takes the steps of the plan, in the engine's weights and in the rule's moments.

        It waits where `client.visiting` says.
        """
        batches = self.batches()
        if not self.plan.apart:
            yield from self._phase(rule, batches, path, watch, ())
            return
        for number, (steps, held) in enumerate(self._phases()):
            some, of_phase = itertools.islice(batches, steps), replace_unchecked(rule, held=(*rule.held, *held))
            # What draws from a generator must not draw the same again; by steps, draws go on anyway.
            yield from self._phase(of_phase, some, path, watch, (number,) if number else ())

    def _phases(self) -> Iterator[Phase]:
        own = frozenset(self.personal)
        yield self.plan.first, tuple(s for s in self.engine.layout.segments if s not in own)
        yield self.plan.steps, self.personal

    def _phase(
        self, rule: LocalRule, batches: Iterator[Upcoming], path: Path, watch: Watch, number: tuple[int, ...]
    ) -> Steps:
        """Takes steps on some batches, all by one rule."""
        engine, names = self.engine, (*self.names, *number)
        alone = rule.guide is None and rule.penalty is None
        if takes_jobs(self.engine) and not self.data.augmented and alone:
            # Nothing is decided between two steps, or those of an epoch, so the engine may take them all at once.
            most = self.visit.epoch_steps if self.plan.stop is not None else self.plan.in_all
            known: list[Upcoming] = []
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
        augment = torch_generator(self.visit.seed, "augment", *names) if self.data.augmented else None
        with contextlib.nullcontext() if names_draws(engine) else seeded_torch(self.visit.seed, "network", *names):
            for positions, after, others in batches:
                inputs, targets = self.data.batch(positions, augment)
                if others:
                    rule = replace_unchecked(rule, others=self._drawn(others, (*names, len(path.rates))))
                rate = self.rate(len(path.rates))
                computed = engine.step(inputs, targets, positions, rule, rate)
                watch.look(computed.pair, np.array([len(positions)]))
                path.add(rate, computed, len(positions), after)
                if len(path.rates) % self.visit.epoch_steps == 0 and watch.says_stop():
                    break
        path.forward_samples = engine.forward_samples

    def _drawn(self, others: tuple[np.ndarray, ...], names: tuple[int | str, ...]) -> tuple[Batch, ...]:
        """Batches beside that of a step, by draws of their own."""
        seed, drawn = self.visit.seed, list[Batch]()
        for number, positions in enumerate(others):
            augment = torch_generator(seed, "augment", "beside", number, *names) if self.data.augmented else None
            drawn.append((*self.data.batch(positions, augment), positions))
        return tuple(drawn)

    def batches(self) -> Iterator[Upcoming]:
        """Batches of positions for the plan, each with the cursor after it."""
        plan, recipe, visit = self.plan, self.recipe, self.visit
        number, place = self.cursor if plan.continues else (0, 0)
        done, steps = 0, plan.in_all
        with self.looking("order"):
            ranking = self.order.rank(visit, self.engine.lens()) if steps else None
        while done < steps:
            name = ("pass", number) if plan.continues else (*self.of_pass, number)
            progress = Progress(step=done, steps=steps)
            order, *others = (
                self.order.one_pass(visit, name + which, ranking, progress)
                for which in ((), *((f"beside {i}",) for i in range(self.others)))
            )
            pieces = cut(len(order), visit.batch, recipe.drop_last, self.engine.single_sample_fails)
            if not pieces:
                return  # nothing in this pass can be trained on, so nothing ever will
            for i in range(place, min(len(pieces), place + steps - done)):
                done += 1
                after = (number, i + 1) if i + 1 < len(pieces) else (number + 1, 0)
                beside = tuple(other[pieces[i]] for other in others)
                yield order[pieces[i]], after if plan.continues else self.cursor, beside
            number, place = number + 1, 0

    def looking(self, what: str) -> contextlib.AbstractContextManager[None]:
        """A block that looks at the client's samples: its draws move none of the training's."""
        return measuring(self.engine, self.data, self.visit.seed, what, *self.names)

    def _job(self, rule: LocalRule, batches: Sequence[Upcoming], first: int) -> Job:
        """Some steps of the visit as one value."""
        return new_unchecked(
            Job,
            **vars(rule),
            data=self.data,
            positions=np.concatenate([positions for positions, *_ in batches]),
            ends=np.cumsum([len(positions) for positions, *_ in batches], dtype=np.int64),
            rates=[self.rate(first + i) for i in range(len(batches))],
            first=first,
        )

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        if self.lr is not None:
            return self.lr
        schedule = self.recipe.schedule
        if schedule.unit == "step":
            factor = schedule.factor(step, self.plan.in_all)
        else:
            factor = schedule.factor(self.visit.version, self.visit.total_rounds)
        return self.recipe.optimiser.lr * factor
