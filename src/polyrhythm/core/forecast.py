"""How long a visit will take on a client's device, and how much of a plan fits into a given time.

A driver that simulates devices knows; a node in a real federation measures its own pace; where nobody knows, nothing
is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Protocol, final

from polyrhythm.methods.work.base import Plan


class Forecast(Protocol):
    """How long a visit of one client would take, from its invitation to its report."""

    def seconds(self, samples: int, forward_samples: int) -> float:
        """Seconds, links included, for training on so many samples and so many forward passes; rises with both."""


@final
@dataclass(frozen=True, kw_only=True)
class Pace:
    """A forecast from a few numbers, such as a node measures in its earlier visits.

    Args:
        seconds_per_sample: to train on one sample.
        seconds_per_forward: of a forward pass of one sample; None for a third of that.
        link_seconds: to receive the assignment and to send the report.
    """

    seconds_per_sample: float
    seconds_per_forward: float | None = None
    link_seconds: float = 0.0

    def seconds(self, samples: int, forward_samples: int) -> float:
        forward = self.seconds_per_sample / 3 if self.seconds_per_forward is None else self.seconds_per_forward
        return self.link_seconds + samples * self.seconds_per_sample + forward_samples * forward


@final
@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What a visit computes on, by its number of steps: exactly, where all passes are of all samples, and at most else.

    Args:
        num_samples: n_i.
        batches: samples in each step of a pass, from where the visit begins; passes repeat them.
        pass_steps: steps in one pass over the client's samples.
        measured: samples whose gradients are measured before training.
        scored: forward passes before training.
        judged: forward passes of the local model for each sample trained on.
        frozen: outputs of frozen models that are asked for with each batch.
        reuse: whether these are computed for all samples at once in a visit of at least one pass.
        first: steps before those that are counted.
        beside: samples that are trained on after them, for a model of the client's own.
        gradients: of each batch in a step.
    """

    num_samples: int
    batches: tuple[int, ...]
    pass_steps: int
    measured: int = 0
    scored: int = 0
    judged: int = 0
    frozen: int = 0
    reuse: bool = True
    first: int = 0
    beside: int = 0
    gradients: int = 1

    def samples(self, steps: int) -> int:
        """Whose gradients are computed."""
        return self._used(self.first + steps) * self.gradients + self.measured + self.beside

    def forward_samples(self, steps: int) -> int:
        """That only go forward."""
        steps += self.first
        used = once = self._used(steps)
        if self.reuse and steps >= self.pass_steps:
            once = max(self.num_samples, self._used(self.pass_steps - 1))  # no less than for a step less
        return self.scored + self.judged * used + self.frozen * once

    def _used(self, steps: int) -> int:
        passes, rest = divmod(steps, len(self.batches))
        return passes * sum(self.batches) + sum(self.batches[:rest])


def fitting(plan: Plan, ahead: Ahead, forecast: Forecast | None) -> Plan:
    """The plan with the steps that fit into its seconds, at least one.

    Args:
        plan: what the visit is going to do.
        ahead: how much that is.
        forecast: how long it takes; None where nobody knows, and then nothing is cut.
    """
    if plan.within is None or forecast is None or not plan.steps:
        return plan

    def ends(steps: int) -> float:
        return forecast.seconds(ahead.samples(steps), ahead.forward_samples(steps))

    return replace(plan, steps=max(1, bisect_right(range(1, plan.steps + 1), plan.within, key=ends)))
