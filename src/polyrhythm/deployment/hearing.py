"""Whether the answer of a node fits what it was asked, and everything in it is of a size that can be counted with.

A simulated client is this program; a node is whoever answers. So what the core takes for granted of a report is held
here against the assignment that was sent, the recipe and the model, before anything is computed of it. What does not
fit is refused in words, and the visit is lost. What an honest client may send that is of no use (no step, numbers that
are not finite, too long by the recipe's own limit) is left to the core, which refuses it by its own rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.vectors import Layout, first_non_finite
from polyrhythm.core.sealing import misfit, refused
from polyrhythm.core.validation import checksum, misshapen
from polyrhythm.deployment.messages import MOST_COUNTED, Answer, Malformed, shown
from polyrhythm.methods.mechanism import Need, Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum.summands import numbers_of
from polyrhythm.methods.work.base import OfWork

LARGEST = 1e100
"""The largest number that a report may have: products and sums of such numbers are still numbers."""
MOST_MEASURES = 64
_APART = 1e9
"""How far a rate or a travel may be from what the recipe's learning rate would give, as a factor."""
_FEW = 10_000  # steps that are gone through again
_SAME = ("dispatch", "client", "visit", "version", "kind")
_COUNTS = ("num_samples", "steps", "samples", "forward_samples", "gradient_samples", "age")
_NUMBERS = ("rate", "travel", "pull", "duration", "time")
_MEASURED: frozenset[Need] = frozenset({"gradient_square", "squared_loss", "fisher", "fisher_model"})
_STOPPED = frozenset({"threshold", "similarity"})


@final
class Hearing:
    """Judges answers.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        layout: of the vectors.
    """

    def __init__(self, recipe: Recipe, setup: Setup, layout: Layout) -> None:
        self._recipe, self._setup, self._layout = recipe, setup, layout
        self.vectors = 2 + recipe.extra_vectors
        """How many vectors of the model's length an answer may hold; one more than there are."""

    def check(self, answer: Answer, sent: Assignment, *, run: str, num_samples: int) -> None:
        """Refuses an answer to anything else than what was sent.

        Args:
            answer: as it came.
            sent: what was asked.
            run: the id of the run.
            num_samples: the samples that the client has declared.

        Raises:
            Malformed: it does not fit.
        """
        report = answer.report
        if answer.run != run:
            raise Malformed(f"a report of the run {shown(repr(answer.run), 80)}, where {run!r} was asked")
        for name in _SAME:
            if getattr(report, name) != getattr(sent, name):
                raise Malformed(f"a report of {name} {getattr(report, name)}, where {getattr(sent, name)} was sent")
        if report.recipe != sent.recipe:
            raise Malformed("a report from another recipe", "recipe")
        if not 0 <= answer.seconds <= LARGEST:
            raise Malformed(f"a report after {answer.seconds:g} seconds of work")
        self._check_counts(report, num_samples)
        self._check_measures(report)
        if report.kind != "train":
            _check_bare(report)
        else:
            self._check_vectors(report)
            self._check_training(report)

    def _check_counts(self, report: Report, num_samples: int) -> None:
        for name in _COUNTS:
            if not 0 <= getattr(report, name) <= MOST_COUNTED:
                raise Malformed(f"a report of {getattr(report, name)} {name}", "samples")
        if report.num_samples != num_samples:
            raise Malformed(
                f"a report of {report.num_samples:,} samples held, where it has declared {num_samples:,}", "samples"
            )
        steps, samples = report.steps, report.samples
        # What is trained beside the update has samples, and no steps; its last pass may be cut to whole steps.
        beside = math.ceil(self._recipe.passes_beside + 1) * num_samples if self._recipe.passes_beside else 0
        trained = steps * num_samples * self._recipe.personal.gradients
        if report.stepped and not steps <= samples <= trained + beside:
            raise Malformed(f"a report of {steps:,} steps on {samples:,} samples, of {num_samples:,}", "samples")
        if not report.stepped and (samples or report.gradient_samples):
            raise Malformed(f"a report of {samples:,} samples where it did not train", "samples")
        if report.age > report.version or (report.age and not report.substitute):
            raise Malformed(f"a report {report.age:,} versions old", "samples")
        most = self._recipe.compression.size(self._recipe.scope.shared(self._layout))
        if most is not None and self._recipe.sums_only:
            most += 4 * (numbers_of(self._recipe, self._layout) - self._layout.parameters)
        if report.packed is not None and (most is None or not 0 <= report.packed <= most):
            raise Malformed(f"an update packed in {report.packed:,} bytes", "samples")

    def _check_measures(self, report: Report) -> None:
        if len(report.measures) > MOST_MEASURES:
            raise Malformed(f"{len(report.measures):,} measures")
        needed, needs = set[str](), self._recipe.needs()
        if report.kind == "measure":
            needed = {"loss", "expert_loss"} if "expert" in needs else {"loss"}
        elif report.kind == "rehearse":
            needed = {"norm"} if report.steps else set()
        elif report.fresh:
            needed = {*(_MEASURED & needs)} if report.steps else set()
            if strange := report.measures.keys() - (_MEASURED & needs) - _STOPPED:
                raise Malformed(f"measures that nobody asked for: {shown(', '.join(map(repr, sorted(strange))), 80)}")
        if missing := needed - report.measures.keys():
            raise Malformed(f"no measure of {', '.join(sorted(missing))}", "missing")
        for name, value in report.measures.items():
            if not name.isprintable() or not 0 < len(name) <= 100:
                raise Malformed(f"a measure called {shown(repr(name), 80)}")
            # What is no number refuses nothing, as everywhere; parts that read it pass over it.
            if (math.isfinite(value) and abs(value) > LARGEST) or (name in _MEASURED and value < 0):
                raise Malformed(f"a measure {name} of {value:g}")

    def _check_vectors(self, report: Report) -> None:
        if strange := report.extras.keys() - {key for key, _ in self._recipe.mechanisms()}:
            raise Malformed(f"what belongs to no part of the recipe: {shown(', '.join(sorted(strange)), 80)}")
        if report.substitute and (report.extras or report.buffers):
            raise Malformed("more than a substitute from a client that did not train")
        known = frozenset[str]().union(*(part.substitutes for _, part in self._recipe.of(OfWork)))
        if report.substitute and report.substitute not in known:
            raise Malformed(f"a {report.substitute} instead of training, which the recipe has no client send")
        if self._recipe.sums_only:
            self._check_masked(report)
        elif self._sends_none(report):
            if report.update is not None:
                raise Malformed(f"an update beside its {report.substitute}, which is none of its own")
        elif fault := misshapen(self._layout, report):
            raise Malformed(f"what does not fit: {fault.words}", fault.kind)
        if report.checksum is not None and report.checksum != checksum(report):
            raise Malformed("a report that was damaged on the way: its checksum does not fit", "damaged")
        if len(report.idle) > len(self._layout.segments):
            raise Malformed(f"{len(report.idle):,} idle parts of {len(self._layout.segments):,}")
        parts = {(segment.offset, segment.size) for segment in self._layout.segments}
        if not parts.issuperset(report.idle):
            raise Malformed("idle parts that are no parameters")

    def _check_masked(self, report: Report) -> None:
        if report.loss is not None or report.measures:
            raise Malformed("a loss or measures beside a masked update")
        none = report.substitute == "silence" or refused(report) is not None
        if report.extras and refused(report) is None:
            raise Malformed("more than a masked update")
        if none and report.update is not None:
            raise Malformed("a masked update beside word that there is none")
        if not none and (fault := misfit(self._recipe, self._layout, report)):
            raise Malformed(f"what does not fit: {fault.words}", fault.kind)

    def _sends_none(self, report: Report) -> bool:
        """Whether no update goes with a substitute: it is silence, or a movement that the server keeps."""
        if report.substitute != "movement":
            return report.substitute == "silence"
        return any(part.at_server(self._setup, report.client) for _, part in self._recipe.of(OfWork))

    def _check_training(self, report: Report) -> None:
        if report.update is not None and not math.isfinite(report.norm or 0.0):
            if first_non_finite(self._layout, report.update) or self._recipe.releasing.private:
                return  # as training that diverges would; or hidden, as any other update of no use
            raise Malformed(f"an update whose length is no number in {self._layout.dtype}", "too_far")
        numbers: Mapping[str, float | None] = {name: getattr(report, name) for name in _NUMBERS}
        for name, value in {**numbers, "loss": report.loss}.items():
            if value is not None and not abs(value) <= LARGEST:
                raise Malformed(f"a report with {name} {value:g}", "not_finite")
        self._check_rates(report)

    def _check_rates(self, report: Report) -> None:
        recipe, rate, travel = self._recipe, report.rate, report.travel
        most, least = _APART * recipe.optimiser.lr, recipe.optimiser.lr / _APART
        if recipe.schedule.unit == "version":  # and a substitute has the rate of the visit that it stems from
            due = recipe.rate(report.version - report.age, self._setup.total_rounds)
            fits = math.isclose(rate, due) or (rate == 0 and not (report.fresh and report.steps))
        else:
            fits = rate == 0 or least <= rate <= most
        if not fits:
            raise Malformed(f"a report with the learning rate {rate:g}, which is not the recipe's")
        # Whoever divides by a travel next to nothing makes numbers that are none.
        steps, turns = report.steps, rate * (report.pull + recipe.optimiser.weight_decay) > 1
        bounded = abs(travel) <= most * max(1, steps) and (travel == 0 or abs(travel) >= rate / _APART)
        if not bounded or (travel < 0 and not turns):
            raise Malformed(f"a report with a travel of {travel:g} in {steps:,} steps at {rate:g}")
        if report.fresh and recipe.schedule.unit == "version" and steps <= _FEW:
            due = recipe.optimiser.travel([rate] * steps, report.pull)
            if not math.isclose(travel, due):
                raise Malformed(f"a report with a travel of {travel:g}, where {steps:,} steps at {rate:g} have {due:g}")


def _check_bare(report: Report) -> None:
    """Refuses more than measures from a visit that measures or rehearses."""
    more = (report.update, report.loss, report.packed, report.checksum)
    if any(part is not None for part in more) or report.buffers or report.extras or report.idle or report.substitute:
        raise Malformed("more than measures from a visit that measures")
    if report.kind == "rehearse":
        return
    if report.steps or not all(getattr(report, name) == 0 for name in _NUMBERS):
        raise Malformed("training in a visit that measures")
    if report.forward_samples > report.num_samples:
        raise Malformed(f"{report.forward_samples:,} samples measured, of {report.num_samples:,}", "samples")
