"""FedCL: more clients take part while the federation is in a critical learning period."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count, Fraction, Positive, Settings
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Need, Release, Setup
from polyrhythm.methods.participation.base import InvitationContext, ParticipationModifier
from polyrhythm.methods.privacy.effects import PrivacyEffect, adapting, refused, timed
from polyrhythm.methods.secure_sum.effects import SumEffect, needs_single
from polyrhythm.methods.work.budgets import EPSILON, part_of

LEAST_NORM = 1e-7
HOW_MANY = "how large the cohort is"


@dataclass(frozen=True, kw_only=True)
class Signal(Settings):
    """Base: one number per version by which critical periods show."""

    of_mean: ClassVar[bool] = False
    """Whether it is of the mean that the server steps on, and of nothing that a single client said."""

    def needs(self) -> frozenset[Need]:
        """What clients must measure."""
        return frozenset()

    def read(self, release: Release, length: float | None) -> float | None:
        """The number of a version; None if there is none.

        Args:
            release: what it was made of.
            length: the squared length of its mean update, less what noise adds to it on average, where `of_mean`.
        """
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class ReleasedNorm(Signal):
    """The squared length of the mean update that the server steps on, |D|^2, so that clients measure nothing.

    With `dp` it is that of the noised mean, less P times the variance of the noise on each weight: what is left is
    |D|^2 without noise on average, and may be less than zero. So it is made of what is released, and how many are
    invited by it costs no more privacy than how often a client may be in: pipe at_most(visits=…) onto the recipe.

    Departure: the paper asks clients for their gradients' norms, and does not speak of privacy.
    """

    of_mean = True

    def read(self, release: Release, length: float | None) -> float | None:
        return length


@dataclass(frozen=True, kw_only=True)
class Detector(Signal):
    """Base: the mean over clients of one number that each of them measured.

    Args:
        weigh: "samples" (the paper's equation 1) or "equal" (the authors' code).
    """

    weigh: Literal["samples", "equal"] = "samples"

    def needs(self) -> frozenset[Need]:
        raise NotImplementedError

    def value(self, report: Report) -> float:
        """One client's number."""
        raise NotImplementedError

    def over(self, reports: Sequence[Report]) -> float | None:
        """The mean over clients that trained; None if none did."""
        heard = [r for r in reports if r.fresh and r.steps]
        weights = [float(r.num_samples) if self.weigh == "samples" else 1.0 for r in heard]
        if not math.fsum(weights):
            return None
        return math.fsum(w * self.value(r) for w, r in zip(weights, heard, strict=True)) / math.fsum(weights)

    def read(self, release: Release, length: float | None) -> float | None:
        return self.over(release.reports)


@final
@dataclass(frozen=True, kw_only=True)
class GradientNorm(Detector):
    """FGN: the federated norm of the local gradients, gathered while clients train, at no extra pass.

    eta * mean over the batches of |g_b|^2, with g_b the clipped gradient before corrections and weight decay.

    Args:
        reduce: "mean" over batches (free of the client's size), or "sum" over the batches of an epoch (the code).
        with_rate: multiplies by the learning rate, as the paper does; without, a decaying rate does not lower it.

    Reference: FedCL, equation 1 (see `CriticalPeriods`).
    """

    reduce: Literal["mean", "sum"] = "mean"
    with_rate: bool = True

    def needs(self) -> frozenset[Need]:
        return frozenset({"gradient_square"})

    def value(self, report: Report) -> float:
        norm = report.measures["gradient_square"]
        if self.reduce == "sum":
            norm *= report.steps / (report.samples / report.num_samples)
        return norm * report.rate if self.with_rate else norm


@final
@dataclass(frozen=True, kw_only=True)
class FisherTrace(Detector):
    """FedFIM: the trace of the Fisher information at the received model.

    The mean over a client's samples of |grad loss(w, x_i, y_i)|^2, the squared norm of that sample's own gradient, in
    eval mode. With the labels in the data this is the empirical Fisher. With one label per sample drawn from what the
    model itself predicts, it is an unbiased estimate of the Fisher information, which does not ask who is right: zero
    for a model that is certain.

    What the model predicts is read from its task: one of the classes, or the next character, by the softmax; each
    label on its own by the sigmoid; numbers from a normal distribution around the outputs of variance d / 2 each, for
    which the mean squared error of d numbers is the negative log-likelihood. The loss of `multilabel` is that of C
    labels divided by C, unless it is summed, so the trace there is that of the Fisher information divided by C^2.

    One gradient per sample and visit, and one forward pass more for the model's labels: by far the dearer detector.

    Args:
        labels: "data" or "model", where they come from. Both may be watched at once.

    Reference: FedCL, section 3 and appendix (see `CriticalPeriods`). On the difference: Kunstner, Balles, Hennig,
    "Limitations of the Empirical Fisher Approximation for Natural Gradient Descent", NeurIPS 2019.
    """

    labels: Literal["data", "model"] = "data"

    def needs(self) -> frozenset[Need]:
        return frozenset({self._measure})

    def value(self, report: Report) -> float:
        return report.measures[self._measure]

    @property
    def _measure(self) -> Need:
        return "fisher" if self.labels == "data" else "fisher_model"


@final
@dataclass(frozen=True, kw_only=True)
class CriticalPeriods(ParticipationModifier):
    """Doubles the cohort while the federation is in a critical learning period, and halves it otherwise.

    Critical is a version whose detector has grown by at least `delta` of its last value (rule "literal"), and the first
    version. Then the next cohort is min(2 c, cap * N), otherwise max(c - floor(c / 2), floor * m), with m the cohort
    that the recipe says. Nobody fresh in a release: the detector keeps its value, and the cohort its
    size.

    Rule "windowed" (the authors' code): every second version; critical is (new - old) / old > delta for the means over
    the last `window` checks and over those one check earlier, both over a history that begins with zeros, or one of the
    first five checks; a check that finds the cohort at its cap ends all growth.

    Neutral value: `act=False`, which only watches and changes nothing. Server state: the detector's history
    and the size.

    Args:
        delta: growth that counts as critical.
        detector: decides: what clients measured, or the mean update that the server has (`ReleasedNorm`).
        watch: further detectors that are only recorded.
        rule: "literal" or "windowed".
        cap: largest cohort as a share of the population.
        floor: smallest cohort as a share of m.
        act: whether the cohort changes at all.
        window: checks in a mean, for "windowed".

    Reference: "FedCL: Critical Learning Periods-aware Adaptive Client Selection in Federated Learning", Algorithm 2 and
    equation 2; published as Yan, Wang, Yuan, Li, "CriticalFL: A Critical Learning Periods Augmented Client Selection
    Framework for Efficient Federated Learning", KDD 2023.
    """

    delta: float = 0.01
    detector: Signal = GradientNorm()
    watch: tuple[Signal, ...] = ()
    rule: Literal["literal", "windowed"] = "literal"
    cap: Fraction = 1.0
    floor: Positive = 0.5
    act: bool = True
    window: Count = 10

    privacy = refused(
        "how many are invited follows from gradients or Fisher traces that clients report without noise",
        "take detector=released_norm, which is of released models, or random_resize",
    )
    in_sums = needs_single("clients tell their own gradients or Fisher traces")
    by_coordinate = "any"

    def under_privacy(self) -> PrivacyEffect:
        if self._of_means:
            return adapting("invites as many as released models say")
        return self.privacy

    def under_secagg(self) -> SumEffect:
        if self._of_means:
            return needs_single("how many a sum may have must be known before the first round")
        return self.in_sums

    @property
    def _of_means(self) -> bool:
        return all(signal.of_mean for signal in (self.detector, *self.watch))

    @property
    def takes_mean(self) -> bool:
        return any(signal.of_mean for signal in (self.detector, *self.watch))

    def needs(self) -> frozenset[Need]:
        return self.detector.needs().union(*(detector.needs() for detector in self.watch))

    decides = HOW_MANY

    @property
    def guesses(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        start: dict[str, Any] = {"size": setup.cohort, "history": [], "critical": True, "latched": False}
        return {**start, "cohort": setup.cohort, "watched": {}}

    def wanted(self, state: State) -> int | None:
        return int(state["size"]) if self.act else None

    def asked(self, setup: Setup, state: State, context: InvitationContext) -> InvitationContext:
        return replace(context, count=state["size"]) if self.act else context

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        """The mean as it is: participation comes before what changes it."""
        if not self.takes_mean:
            return state, mean
        noisy = math.fsum(size for _, size in setup.places) or setup.size
        square = float(torch.linalg.vector_norm(mean, dtype=torch.float64)) ** 2
        return {**state, "length": square - noisy * release.spread**2}, mean

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        length = state.get("length")
        watched = {name: v for name, d in self._named() if (v := d.read(release, length)) is not None}
        state = {**state, "watched": {**state["watched"], **watched}}
        value = self.detector.read(release, length)
        if value is None or (self.rule == "windowed" and release.version % 2 == 1):
            return state
        history = [*state["history"], value]
        critical = self._critical(history)
        cap = max(1, part_of(setup.population, self.cap))
        latched = state["latched"] or (self.rule == "windowed" and state["size"] >= cap)
        size = self._next(state["size"], critical and not latched, critical, cap, state["cohort"])
        keep = self.window + 1 if self.rule == "windowed" else 1
        del history[: max(0, len(history) - max(keep, 5))]
        return {**state, "history": history, "critical": critical, "latched": latched, "size": size}

    def _named(self) -> list[tuple[str, Signal]]:
        """All detectors under names of their own: a second of a kind has a number."""
        named: dict[str, Signal] = {}
        for detector in (self.detector, *self.watch):
            key, number = detector.label(), 2
            while key in named:
                key, number = f"{detector.label()}_{number}", number + 1
            named[key] = detector
        return list(named.items())

    def _critical(self, history: list[float]) -> bool:
        if self.rule == "literal":
            if len(history) < 2:
                return True
            old, new = history[-2:]
            return (new - old) / max(abs(old), LEAST_NORM) >= self.delta
        padded = [0.0] * (self.window + 1) + history
        new = math.fsum(padded[-self.window :]) / self.window
        old = max(math.fsum(padded[-self.window - 1 : -1]) / self.window, LEAST_NORM)
        return len(history) <= 5 or (new - old) / old > self.delta

    def _next(self, size: int, grow: bool, critical: bool, cap: int, cohort: int) -> int:
        if grow:
            return max(size, min(2 * size, cap))
        if critical:
            return size
        least = max(1, math.ceil(self.floor * cohort - EPSILON))
        return min(size, max(size - size // 2, least))

    def measures(self, state: State) -> Mapping[str, float]:
        return {
            **state["watched"],
            "critical": float(state["critical"]),
            "next_cohort": float(state["size"] if self.act else state["cohort"]),
        }


@final
@dataclass(frozen=True, kw_only=True)
class RandomResize(ParticipationModifier):
    """The control experiment for critical periods: doubles or halves the cohort by chance.

    At most one move a version, on the current size: doubled with probability `up`, up to cap * N; halved with
    probability `down`, down to `floor`. up = down = 0 changes nothing. Server state: the size.

    Args:
        up: probability of doubling.
        down: probability of halving; up + down <= 1.
        cap: largest cohort as a share of the population.
        floor: smallest cohort, clients.

    Reference: FedCL, appendix A.4.
    """

    up: Fraction = 0.3
    down: Fraction = 0.3
    cap: Fraction = 1.0
    floor: Count = 1

    privacy = timed("draws how many are invited")
    in_sums = needs_single("how many a sum may have must be known before the first round")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.up + self.down > 1:
            raise UserError(
                f"random_resize: up={self.up} and down={self.down}",
                expected="up + down at most 1",
                why="a version makes at most one of the two moves",
                fix="lower one of them",
            )

    decides = HOW_MANY

    def server_start(self, setup: Setup) -> State:
        return {"size": setup.cohort}

    def wanted(self, state: State) -> int | None:
        return int(state["size"])

    def asked(self, setup: Setup, state: State, context: InvitationContext) -> InvitationContext:
        return replace(context, count=state["size"])

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        size, drawn = state["size"], stream(setup.seed, "cohort", "resize", release.version).random()
        if drawn < self.up:
            size = max(size, min(2 * size, part_of(setup.population, self.cap)))
        elif drawn < self.up + self.down:
            size = min(size, max(size - size // 2, self.floor))
        return {**state, "size": size}

    def measures(self, state: State) -> Mapping[str, float]:
        return {"next_cohort": float(state["size"])}
