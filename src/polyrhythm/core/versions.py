"""The next version: what the reports that wait weigh, and the step that is taken with them.

Updates are summed in dispatch order over a fixed tree, never in the order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.frozen import cached, new_unchecked, replace_unchecked
from polyrhythm.base.messages import Facts, Report, Roster, State
from polyrhythm.base.portions import Portion
from polyrhythm.base.sums import combine_buffers
from polyrhythm.base.vectors import Buffers, Layout, first_non_finite, with_statistics
from polyrhythm.core.classes import without_lacking
from polyrhythm.core.portions import kept_state, mean_of_held, over_holders, portion_of
from polyrhythm.core.readiness import given_up
from polyrhythm.core.server_state import Released, ServerState
from polyrhythm.core.sums import Opened, counted, noted, opened
from polyrhythm.core.validation import diverged
from polyrhythm.methods.capacity.base import with_fixed_parts
from polyrhythm.methods.mechanism import Release, Setup, States
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import Scaling, shares

Refused = tuple[tuple[int, str], ...]
"""What was left out of a version: clients, and why."""


@final
@dataclass(frozen=True, kw_only=True)
class Versions:
    """Maker of versions.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        layout: of the vectors.
    """

    recipe: Recipe
    setup: Setup
    layout: Layout

    @cached
    def informed(self) -> Setup:
        """The setup with the parts of the model that clients always hold, where there are such."""
        return with_fixed_parts(self.recipe.capacity, self.setup)

    def step(self, state: ServerState, now: float, roster: Roster) -> tuple[ServerState, Released]:
        """The version after `state`, of all that waits there.

        Args:
            state: as it was.
            now: seconds since the run began.
            roster: helps to read a sum.

        Raises:
            RunFailed: every update had to be dropped, or the step gave no finite number.
        """
        reports = tuple(sorted(state.waiting, key=lambda r: r.dispatch))
        state, refused = self._close(state)
        recipe, sum_ = self.recipe, None
        if recipe.sums_only:
            sum_ = opened(recipe, self.setup, self.layout, roster, state.version, reports)
            parts = noted(recipe, self.setup, self.layout, state.parts, len(reports))
            state, reports = replace_unchecked(state, parts=parts), sum_.reports
        settled = replace_unchecked(
            state, version=state.version + 1, waiting=(), refused=(), resting=(), began=now, invited=0
        )
        settled = replace_unchecked(settled, past=still_needed(settled))
        skipped, normalised, facts = self._counted(state, reports, refused)
        if sum_ is not None and sum_.total is None:
            return settled, Released(version=settled.version, release=None, refused=refused, note=sum_.why)
        private = self.recipe.releasing.private
        if not reports and not private:
            if refused and all(diverged(reason) for _, reason in refused):
                raise RunFailed(
                    f"version {state.version + 1}: every update had to be dropped ({_reasons(refused)}). "
                    "The last good model is kept. Training diverges: lower the learning rate, or set clip=10; or the "
                    "model or a loss of your own gives no number, whatever the rate"
                )
            return settled, Released(version=settled.version, release=None, refused=refused, note=skipped)
        while True:
            # What is known of clients goes on from the visits that they had accepted, also where no step comes of them:
            # else c would no longer be the mean of all c_i.
            release = self._release(state, reports, facts, normalised or [0.0] * len(reports))
            if sum_ is not None:
                release = self._summed(release, sum_, facts)
            if self.recipe.regime == "local":
                return settled, Released(version=settled.version, release=release, refused=refused)
            parts, stepped, buffers, held_back = self._taken(state, release, skipped)
            name = first_non_finite(self.layout, stepped)
            if not name:
                break
            if private:  # whose update it was is nobody's business, and leaving it out would tell
                raise self._failed(settled.version, name)
            worst = _largest(release)
            refused = (*refused, (worst.client, f"its update would leave no finite number in {name}"))
            reports = tuple(report for report in reports if report is not worst)
            if not reports:
                raise self._failed(settled.version, name)
            skipped, normalised, facts = self._counted(state, reports, refused)
        settled = replace_unchecked(settled, weights=stepped, buffers=buffers, parts=parts)
        used = None if skipped else release
        note = held_back or ("" if sum_ is None else sum_.why) or self._why_unmoved(state, settled, release)
        return settled, Released(version=settled.version, release=used, refused=refused, note=note)

    def _failed(self, version: int, name: str) -> RunFailed:
        return RunFailed(
            f"version {version}: the server step gave no finite number in {name}. The last good model "
            "is kept. The server's learning rate is too high, or its epsilon too small"
        )

    def _counted(
        self, state: ServerState, reports: tuple[Report, ...], refused: Refused
    ) -> tuple[str, list[float] | None, list[Facts]]:
        """Why there is no step with some reports, if there is none; their shares; what weighing knows of them."""
        invited, part = self.recipe.participation, state.parts[self.recipe.inviting.key]
        facts = [facts_of(state.version, r, invited.weight(self.setup, part, r.client)) for r in reports]
        normalised, releasing = shares(self.recipe.sharing.claims(facts)) if facts else None, self.recipe.releasing
        counts = normalised is not None or releasing.private
        if not counts or len(reports) < (0 if releasing.private and releasing.least == 1 else releasing.least):
            return self._why_skipped(state, reports, refused), normalised, facts
        return "", normalised, facts

    def _close(self, state: ServerState) -> tuple[ServerState, Refused]:
        """Gives up whoever is still under way, if the release policy does so; and all that is left out."""
        if not self.recipe.releasing.forgets or self.recipe.fills_places:
            return state, state.refused
        late = {d: f for d, f in state.flights.items() if f.kind == "train" and not f.given_up}
        state = given_up(state, late, f"version {state.version + 1} was complete without it")
        return state, state.refused

    def _why_skipped(self, state: ServerState, reports: tuple[Report, ...], refused: Refused) -> str:
        if not reports:
            if refused:
                return f"nobody reported ({_reasons(refused)})"
            if not state.invited and self.recipe.participation.may_be_empty:
                return "nobody was drawn, or nobody of them is there"
            return "nobody reported in time" if state.training else "everybody was silent"
        if len(reports) < self.recipe.releasing.least:
            return f"reports: {len(reports)}, where at least {self.recipe.releasing.least} are needed"
        return "no report has any weight"

    def _why_unmoved(self, before: ServerState, after: ServerState, release: Release) -> str:
        """Why a step has changed nothing, if that is so."""
        if not torch.equal(before.weights, after.weights) or _other_statistics(before.buffers, after.buffers):
            return ""
        if any(release.scales) or not self.recipe.scalings:
            return "the updates moved no weight"
        return f"every update was scaled to 0: {' | '.join(scaling.label() for scaling in self.recipe.scalings)}"

    def _release(
        self, state: ServerState, reports: tuple[Report, ...], facts: list[Facts], weights: list[float]
    ) -> Release:
        """The reports of a version, and what each of them counts."""
        whole = self.recipe.participation.whole(self.setup, state.parts[self.recipe.inviting.key])
        scales = [self.recipe.sharing.total(facts, whole)] * len(reports)
        for key, scaling in self.recipe.of(Scaling):
            factors = scaling.weigh(self.setup, state.parts[key], state.version, facts, weights)
            scales = [a * b for a, b in zip(scales, factors, strict=True)]
        return Release(
            version=state.version,
            reports=reports,
            shares=tuple(weights),
            scales=tuple(scales),
            weights=state.weights,
            bases=tuple(state.past[r.version] for r in reports) if "base" in self.recipe.needs() else (),
            rate=self.recipe.rate(state.version, self.setup.total_rounds),
            portions=self._portions(state, reports),
            wanted=wanted_in(self.recipe, state.parts),
        )

    def _summed(self, release: Release, sum_: Opened, facts: list[Facts]) -> Release:
        """The release with the sum in place of what is in it."""
        divided = counted(self.recipe, self.setup, facts, release.shares)
        return replace_unchecked(release, total=sum_.total, counted=divided or 1.0, tally=sum_.tally)

    def _portions(self, state: ServerState, reports: tuple[Report, ...]) -> tuple[Portion | None, ...]:
        """What each client held; empty if all held all of the model."""
        if self.recipe.capacity.whole:
            return ()
        remembers = "base" in self.recipe.needs()
        sent = [state.past[report.version] if remembers else state.weights for report in reports]
        pairs = zip(reports, sent, strict=True)
        found = tuple(portion_of(self.recipe, self.setup, report, weights) for report, weights in pairs)
        if self.recipe.capacity.by_classes:
            key, layout = self.recipe.key_of(self.recipe.capacity), self.layout
            told = zip(found, reports, strict=True)
            found = tuple(without_lacking(portion, layout, report, key) for portion, report in told)
        return found if any(portion is not None for portion in found) else ()

    def _taken(
        self, state: ServerState, release: Release, skipped: str
    ) -> tuple[dict[str, State], Tensor, Buffers, str]:
        """The mechanisms' states, the weights and the buffers after a step; and why it was not taken, if it was not."""
        recipe, setup = self.recipe, self.informed
        (found, mean, of_holders), nobody = recipe.releasing.mean(setup, state.parts, release), None
        if release.portions:
            over, nobody = over_holders(mean, release)
            mean = mean if of_holders else over
        parts: dict[str, State] = dict(found)
        spread = recipe.releasing.spread(state.parts, release)
        with_noise = replace_unchecked(release, spread=spread) if spread else release
        for key, mechanism in recipe.overriding("before_step"):
            parts[key], mean = mechanism.before_step(setup, parts[key], with_noise, mean)
        nobody = None if recipe.releasing.sets_all else nobody
        rests = recipe.rests(state.version)
        if rests is not None and setup.adapters:  # a dry run has none
            nobody = torch.zeros(setup.size, dtype=torch.bool) if nobody is None else nobody.clone()
            for adapter in setup.adapters:
                adapter.factor(rests).of(nobody).fill_(True)
        held_back = skipped or recipe.releasing.holds_back(setup, parts)
        stepped, buffers = state.weights, state.buffers
        if not held_back:
            key = recipe.key_of(recipe.server_step)
            seen = recipe.server_step.seen(parts[key], release)
            parts[key], stepped = recipe.server_step.step(setup, seen, state.weights, mean)
            if nobody is not None:  # where nobody holds a coordinate, or it rests, there was no step
                parts[key] = kept_state(parts[key], state.parts[key], nobody, setup.size)
                stepped = torch.where(nobody, state.weights.to(stepped.dtype), stepped)
            if (stride := recipe.releasing.stride(release)) != 1.0:
                stepped = torch.lerp(state.weights.to(stepped.dtype), stepped, stride)
            mixes = recipe.fills_places and self.layout.buffers
            buffers = self._mixed(state, release) if mixes else self._mean_buffers(state, release)
            own = recipe.scope.own(self.layout)
            buffers = own.put_buffers(buffers, [state.buffers[place] for place in own.buffers])
            if recipe.capacity.statistics_apart:
                buffers = with_statistics(self.layout, buffers, state.buffers)
        for key, mechanism in recipe.overriding("after_step"):
            parts[key] = mechanism.after_step(setup, parts[key], release)
        return parts, stepped.to(self.layout.dtype), buffers, held_back

    def _mean_buffers(self, state: ServerState, release: Release) -> Buffers:
        """Buffers averaged by samples, each of their elements over those who hold it."""
        means = mean_buffers(self.layout, state, release.reports)
        if not self.layout.buffers or not release.portions:
            return means
        counted = [(r, p) for r, p in zip(release.reports, release.portions, strict=True) if r.fresh]
        held = shares([float(r.num_samples) for r, _ in counted])
        if held is None:
            return means
        floats = mean_of_held(
            self.layout, [r.buffers for r, _ in counted], [p for _, p in counted], held, state.buffers
        )
        kinds = [slot.dtype.is_floating_point or slot.dtype.is_complex for slot in self.layout.buffers]
        return tuple(a if real else b for real, a, b in zip(kinds, floats, means, strict=True))

    def _mixed(self, state: ServerState, release: Release) -> Buffers:
        """Buffers after a step without rounds: they move towards those of the clients by as much as the weights do.

        A version is then of few clients, or of one, whose statistics would otherwise be taken whole.
        """
        counted = [(r, scale) for r, scale in zip(release.reports, release.scales, strict=True) if r.fresh]
        held = shares([float(r.num_samples) for r, _ in counted])
        if held is None:
            return state.buffers
        reach = self.recipe.server_step.reach * self.recipe.releasing.stride(release)
        moves = [h * min(1.0, max(0.0, reach * scale)) for h, (_, scale) in zip(held, counted, strict=True)]
        if (stays := 1.0 - math.fsum(moves)) <= 0.0:
            return self._mean_buffers(state, release)
        portions = dict(zip((r.dispatch for r in release.reports), release.portions, strict=False))
        theirs = [
            r.buffers if (p := portions.get(r.dispatch)) is None else _filled(p, r.buffers, state.buffers)
            for r, _ in counted
        ]
        # Counters and masks have no middle: those of the clients count, as ever.
        ours = tuple(
            known if slot.dtype.is_floating_point or slot.dtype.is_complex else first
            for slot, known, first in zip(self.layout.buffers, state.buffers, theirs[0], strict=True)
        )
        return combine_buffers(self.layout, [*theirs, ours], [*moves, stays])


def wanted_in(recipe: Recipe, parts: States) -> int | None:
    """How many clients the version under way was to have, where that changes from one to the next."""
    return recipe.inviting.wanted(parts) if recipe.resized else None


def _filled(portion: Portion, theirs: Buffers, ours: Buffers) -> Buffers:
    """A client's buffers, with the server's where it holds none."""
    return portion.put_buffers(portion.taken_buffers(theirs), ours)


def still_needed(state: ServerState) -> Mapping[int, Tensor]:
    """The past models that somebody who is waited for was sent."""
    if not state.past:
        return state.past
    sent = {f.version for f in state.flights.values() if f.kind == "train" and not f.given_up}
    return {version: weights for version, weights in state.past.items() if version in sent}


def _largest(release: Release) -> Report:
    """The report that counts for the largest change of all in a release."""

    def change(number: int) -> float:
        update = release.reports[number].update
        length = 0.0 if update is None else torch.linalg.vector_norm(update, dtype=torch.float64).item()
        change = abs(release.shares[number] * release.scales[number]) * length
        return math.inf if math.isnan(change) else change

    return release.reports[max(range(len(release.reports)), key=change)]


def _other_statistics(before: Buffers, after: Buffers) -> bool:
    """Whether buffers differ; counters go on also where nothing else does."""
    pairs = zip(before, after, strict=True)
    return any((a.is_floating_point() or a.is_complex()) and not torch.equal(a, b) for a, b in pairs)


def _reasons(refused: Refused, most: int = 3) -> str:
    words = [f"client {client}: {reason}" for client, reason in refused[:most]]
    more = len(refused) - most
    return "; ".join(words) + (f" and {more} more" if more > 0 else "")


def facts_of(version: int, report: Report, weight: float = 1.0) -> Facts:
    """What weighing may know of a report in a release of a version."""
    assert 0 <= report.version <= version, f"an update of version {report.version} in a release of version {version}"
    return new_unchecked(
        Facts,
        dispatch=report.dispatch,
        client=report.client,
        num_samples=report.num_samples,
        steps=report.steps,
        travel=report.travel,
        pull=report.pull,
        rate=report.rate,
        staleness=version - report.version,
        weight=weight,
    )


def mean_buffers(layout: Layout, state: ServerState, reports: tuple[Report, ...]) -> Buffers:
    """Buffers averaged by samples, whatever weighs the updates: they are statistics of the data.

    Clients that did not train have none to offer.
    """
    fresh = [r for r in reports if r.fresh]
    held = shares([float(r.num_samples) for r in fresh]) if layout.buffers and fresh else None
    return state.buffers if held is None else combine_buffers(layout, [r.buffers for r in fresh], held)
