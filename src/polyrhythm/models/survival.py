"""How soon something befalls a sample: Cox regression."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.models.metrics import nan_rows
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task
from polyrhythm.models.task_checks import bad_outputs, bad_targets
from polyrhythm.models.task_parts import as_rows, broken, full_precision

_BLOCK = 512  # events whose pairs are counted at once


@final
@dataclass(frozen=True, kw_only=True)
class Survival(Task):
    """Cox regression: a risk for each sample, higher where the event comes sooner; judged by concordance.

    outputs: [B, 1] or [B], the logarithm η of the relative risk; targets: [B, 2] float, the time and 1 for an event at
    that time, 0 for a sample of which no more is known than that it came later (censored).

    The loss is the negative log partial likelihood per event,

        −1/E Σ_{i: event} (η_i − log Σ_{j: t_j ≥ t_i} exp η_j),

    by Breslow; with Efron's rule, the l-th of d events at one time (l = 0 … d − 1) has l / d of the risks of these d
    taken off the sum. Without equal times of events both are the same. **The risk set of a step is its batch**: the sum
    goes over the batch's samples and no others, so a step minimises the partial likelihood of a random subset, whose
    gradient has a like direction and not the same mean as that of all samples at once; a larger batch is nearer to it.
    A batch without an event has loss and gradient 0. "loss" as a metric is over the whole set that is evaluated.

    Metrics: "concordance", Harrell's C. Of the pairs of which is known who came first (an event at t, and anything
    later or censored at t), it is the share in which that one has the higher risk, equal risks counting half; it is
    left out without such a pair. Over clients' own tests, `concordance_pooled` is over all pairs, also of two
    clients, `concordance_within` over pairs within a client, pooled, and `concordance_mean` the mean over clients.
    Risks of clients' own models are comparable only within a client.

    A sample has no loss of its own, as what it adds depends on who else is there: parts that rank, weigh or choose by
    losses of single samples are refused. Not on the stacked and the native engine.

    Args:
        ties: "efron" or "breslow", of events at one time in a batch.

    Reference: Cox, "Regression Models and Life-Tables", 1972; Efron, "The Efficiency of Cox's Likelihood Function for
    Censored Data", 1977; Harrell et al., "Evaluating the Yield of Medical Tests", 1982.
    """

    name: ClassVar[str] = "survival"

    ties: Literal["efron", "breslow"] = "efron"

    @property
    def headline(self) -> str:
        return "concordance"

    @property
    def sums_over_samples(self) -> bool:
        return False

    @property
    def samples_have_losses(self) -> bool:
        return False

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What each sample adds to the batch's loss, times B: its mean is the loss. [B]"""
        risks = as_rows(full_precision(outputs))[:, 0]
        times, events = targets[:, 0], targets[:, 1] > 0
        there = events.sum().clamp(min=1).to(risks.dtype)
        # By time, the latest first: a running sum from there is over all that came no sooner.
        order = torch.argsort(times, descending=True, stable=True)
        risk, time, event = risks[order], times[order], events[order]
        _, place, counts = torch.unique_consecutive(time, return_inverse=True, return_counts=True)
        logs = torch.logcumsumexp(risk, dim=0)[counts.cumsum(0) - 1][place]
        if self.ties == "efron":
            logs = logs + self._taken_off(risk, event, place, len(counts), logs)
        added = torch.where(event, logs - risk, torch.zeros_like(risk)) * (len(risk) / there)
        return torch.zeros_like(risk).index_put((order,), added)

    @staticmethod
    def _taken_off(risk: Tensor, event: Tensor, place: Tensor, groups: int, logs: Tensor) -> Tensor:
        """log(1 − l/d · share of the d events at that time in its risk set) for the l-th of them; 0 where d is 1."""
        number = event.to(risk.dtype)
        each = torch.zeros(groups, dtype=risk.dtype, device=risk.device).index_add(0, place, number)
        before = number.cumsum(0) - number - (each.cumsum(0) - each)[place]
        weight = torch.where(event, (risk - logs).exp(), torch.zeros_like(risk))
        share = torch.zeros_like(each).index_add(0, place, weight)
        part = before / each[place].clamp(min=1)
        return torch.where(event, torch.log1p(-part * share[place]), torch.zeros_like(risk))

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Refuses: a partial likelihood says who comes first, and nothing of when.

        Raises:
            UserError: always.
        """
        raise UserError(
            "targets drawn from what a model of survival predicts",
            expected="a task that says how likely each target is",
            why="a partial likelihood knows the order of events, and no times",
            fix="leave out the part that asks for it",
        )

    @torch.no_grad()
    def tally(self, outputs: Tensor, targets: Tensor, *, by_class: bool = False) -> Tally:
        return Tally(len(targets), self._metric_sums(outputs, targets), self._rows(outputs, targets))

    def _rows(self, outputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        return ((as_rows(full_precision(outputs)).detach().cpu()[:, 0], targets.detach().cpu()),)

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return broken(nan_rows(as_rows(outputs)))

    def read(self, tally: Tally) -> dict[str, float]:
        found = super().read(tally)
        risks, targets = (torch.cat(parts) for parts in zip(*tally.rows, strict=True))
        return {**found, "loss": float(self.losses(risks.double(), targets).mean())}

    def _metrics(self, tally: Tally) -> dict[str, float]:
        agreeing, pairs = pairs_of(tally)
        return {"concordance": agreeing / pairs} if pairs else {}

    def over_clients(self, tallies: Iterable[Tally]) -> dict[str, float]:
        counts = [pairs_of(tally) for tally in tallies if tally.count]
        pairs = sum(pairs for _, pairs in counts)
        return {"concordance_within": sum(agreeing for agreeing, _ in counts) / pairs} if pairs else {}

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) not in (1, 2) or (len(outputs_shape) == 2 and outputs_shape[1] != 1):
            raise bad_outputs(self.name, outputs_shape, "[batch] or [batch, 1]")
        if not targets.is_floating_point() or targets.dim() != 2 or targets.shape[1] != 2:
            form = "float targets [samples, 2]: the time, and 1 for an event or 0 for none"
            raise bad_targets(self.name, targets, form, "np.stack([time, event], axis=1) makes them")
        times, events = targets[:, 0], targets[:, 1]
        if not bool(torch.isfinite(times).all()) or not bool(((events == 0) | (events == 1)).all()):
            raise UserError(
                "a time that is no number, or an event that is neither 0 nor 1",
                expected="finite times, and 1 for an event or 0 for none",
                why="the likelihood is of who had the event first",
                fix="give the time in the first column and the event in the second; leave out samples without a time",
            )


def pairs_of(tally: Tally) -> tuple[float, float]:
    """Of the pairs whose order is known, in how many the risks agree, equal ones by half; and how many there are.

    Takes operations by events times samples. A risk of NaN never agrees.
    """
    if not tally.rows:
        return 0.0, 0.0
    risks, targets = (torch.cat(parts).double().numpy() for parts in zip(*tally.rows, strict=True))
    times, events = targets[:, 0], targets[:, 1] > 0
    agreeing = known = 0.0
    firsts = np.flatnonzero(events)
    for begin in range(0, len(firsts), _BLOCK):
        some = firsts[begin : begin + _BLOCK]
        later = (times[some, None] < times) | ((times[some, None] == times) & ~events)
        higher, equal = risks[some, None] > risks, risks[some, None] == risks
        agreeing += float((later & higher).sum()) + 0.5 * float((later & equal).sum())
        known += float(later.sum())
    return agreeing, known
