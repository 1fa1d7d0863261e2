"""How does the server step on the mean update?

All rules ascend along the mean update D (the negative of a gradient) and keep their moments as server state. They are
written elementwise, so a coordinate whose D has always been zero stays where it is. The letters are those of Reddi et
al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2, with epsilon for their tau.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Decay, NonNegative, Positive
from polyrhythm.methods.mechanism import Mechanism, Release, Setup
from polyrhythm.methods.privacy.effects import AFTER, refused
from polyrhythm.methods.secure_sum.effects import needs_single


@dataclass(frozen=True, kw_only=True)
class ServerStep(Mechanism):
    """Base: from weights [P] and mean update [P] to new weights [P], with a state of its own."""

    sees = ("seen",)

    @classmethod
    def label(cls) -> str:
        return f"server_{cls.__name__.lower()}"

    @property
    def reach(self) -> float:
        """By what share of the mean update the weights move, where that is the same for all; else 1."""
        return 1.0

    def seen(self, state: State, release: Release) -> State:
        """May note what the mean is made of, before the step."""
        return state

    def step(self, setup: Setup, state: State, weights: Tensor, mean: Tensor) -> tuple[State, Tensor]:
        """The new state and the new weights; the inputs are not changed."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Sgd(ServerStep):
    """x + lr * D. lr = 1 is exactly plain averaging. No state.

    Args:
        lr: server learning rate.
    """

    lr: Positive = 1.0

    privacy = AFTER

    @property
    def reach(self) -> float:
        return self.lr

    def step(self, setup: Setup, state: State, weights: Tensor, mean: Tensor) -> tuple[State, Tensor]:
        return state, torch.add(weights, mean, alpha=self.lr)


@final
@dataclass(frozen=True, kw_only=True)
class Momentum(ServerStep):
    """m <- beta * m + D (or + (1 - beta) * D, dampened); x + lr * m. beta = 0 is exactly `Sgd`. State: m.

    Args:
        lr: server learning rate.
        beta: momentum.
        dampened: whether D enters m with 1 - beta.

    Reference: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", 2019, section 4.2 (FedAvgM).
    """

    lr: Positive = 1.0
    beta: Decay = 0.9
    dampened: bool = False

    privacy = AFTER

    def server_start(self, setup: Setup) -> State:
        return {"m": setup.zeros(wide=True)}

    def step(self, setup: Setup, state: State, weights: Tensor, mean: Tensor) -> tuple[State, Tensor]:
        m = torch.add(state["m"] * self.beta, mean, alpha=1 - self.beta if self.dampened else 1.0)
        return {"m": m}, torch.add(weights, m, alpha=self.lr)


@final
@dataclass(frozen=True, kw_only=True)
class Extrapolation(ServerStep):
    """x + lr * e * D, with e = max(1, sum_i share_i * |scale_i * update_i|^2 / (2 * (|D|^2 + epsilon))).

    The more the updates of a version differ, the shorter is their mean beside them, and the further the server goes
    along it. Equal updates: e = 1, plain averaging. State: the mean squared length of the updates.

    Args:
        lr: times the step; 1 in the paper.
        epsilon: keeps e small where the mean nearly vanishes; a squared length.

    Departures: the authors' code adds |S| times epsilon; this is the paper's formula. What the paper reports is the
    mean of its last two models; here it is the last one.

    Reference: Jhunjhunwala, Wang, Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023,
    Algorithm 1.
    """

    lr: Positive = 1.0
    epsilon: NonNegative = 1e-3

    past_the_mean = True
    why_whole = "goes by the lengths of updates beside that of their mean, and here each is of other coordinates"
    privacy = refused(
        "how far it goes follows from the lengths of updates without noise", "take server_adam or server_momentum"
    )
    in_sums = needs_single("how far it goes follows from how long they are", "take server_adam or server_momentum")

    def server_start(self, setup: Setup) -> State:
        return {"square": 0.0, "factor": 1.0}

    def seen(self, state: State, release: Release) -> State:
        counted = zip(release.reports, release.shares, release.scales, strict=True)
        squares = [
            share * scale**2 * float(torch.linalg.vector_norm(r.update, dtype=torch.float64)) ** 2
            for r, share, scale in counted
            if r.update is not None
        ]
        return {**state, "square": math.fsum(squares)}

    def step(self, setup: Setup, state: State, weights: Tensor, mean: Tensor) -> tuple[State, Tensor]:
        length = float(torch.linalg.vector_norm(mean, dtype=torch.float64)) ** 2 + self.epsilon
        factor = max(1.0, state["square"] / (2 * length)) if length else 1.0
        return {**state, "factor": factor}, torch.add(weights, mean, alpha=self.lr * factor)

    def measures(self, state: State) -> Mapping[str, float]:
        return {"extrapolation": state["factor"]}


@dataclass(frozen=True, kw_only=True)
class Adaptive(ServerStep):
    """Base of the adaptive rules: moments m and v, then x + lr * m / denominator.

    Args:
        lr: server learning rate.
        beta1: decay of m; 0 means that m is D.
        epsilon: the least denominator (the papers' tau), see `epsilon_place`.
        initial: v_0. Reddi et al. suggest at least epsilon ** 2; 0 makes the first step nearly a sign step.
        bias_correction: divides m by 1 - beta1^t and v by 1 - beta2^t, as torch and Keras do and the papers' formulas
            do not.
        epsilon_place: "outside": sqrt(v) + epsilon; "inside": sqrt(v + epsilon^2); "floor": sqrt(max(v, epsilon)).
    """

    lr: Positive = 0.03
    beta1: Decay = 0.9
    epsilon: Positive = 1e-3
    initial: NonNegative = 0.0
    bias_correction: bool = False
    epsilon_place: Literal["outside", "inside", "floor"] = "outside"

    def server_start(self, setup: Setup) -> State:
        return {"m": setup.zeros(wide=True), "v": setup.zeros(wide=True) + self.initial, "t": 0}

    def second(self, state: State, square: Tensor) -> dict[str, Tensor]:
        """The second moments after a release, from those before it and D ** 2: "v", and "largest" if that divides."""
        raise NotImplementedError

    def correction(self, t: int) -> float:
        """What bias correction divides v by after t releases; 1 where v is a plain sum."""
        return 1.0

    def step(self, setup: Setup, state: State, weights: Tensor, mean: Tensor) -> tuple[State, Tensor]:
        t = state["t"] + 1
        m = torch.add(state["m"] * self.beta1, mean, alpha=1 - self.beta1)
        moments = self.second(state, mean * mean)
        divisor = moments.get("largest", moments["v"])
        lr = self.lr
        if self.bias_correction:
            lr /= 1 - self.beta1**t
            divisor = divisor / self.correction(t)
        return {"m": m, **moments, "t": t}, torch.addcdiv(weights.to(m.dtype), m, self._denominator(divisor), value=lr)

    def _denominator(self, v: Tensor) -> Tensor:
        if self.epsilon_place == "floor":
            return v.clamp(min=self.epsilon).sqrt_()
        if self.epsilon_place == "inside":
            return (v + self.epsilon**2).sqrt_()
        return v.sqrt().add_(self.epsilon)


@final
@dataclass(frozen=True, kw_only=True)
class Adagrad(Adaptive):
    """v <- v + D^2; x + lr * m / (sqrt(v) + epsilon). No neutral value. State: m, v, and the count of steps.

    Args:
        beta1: 0 in the paper, so that m is D.

    Reference: Reddi et al., ICLR 2021, Algorithm 2 (FedAdagrad).
    """

    lr: Positive = 0.1
    beta1: Decay = 0.0

    privacy = AFTER

    def second(self, state: State, square: Tensor) -> dict[str, Tensor]:
        return {"v": state["v"] + square}


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Adaptive):
    """v <- beta2 * v + (1 - beta2) * D^2; x + lr * m / (sqrt(v) + epsilon). No neutral value. State: m, v, count.

    Args:
        beta2: decay of v.

    Reference: Reddi et al., ICLR 2021, Algorithm 2 (FedAdam).
    """

    beta2: Decay = 0.99

    privacy = AFTER

    def second(self, state: State, square: Tensor) -> dict[str, Tensor]:
        return {"v": torch.add(state["v"] * self.beta2, square, alpha=1 - self.beta2)}

    def correction(self, t: int) -> float:
        return float(1 - self.beta2**t)


@final
@dataclass(frozen=True, kw_only=True)
class Yogi(Adaptive):
    """v <- v - (1 - beta2) * D^2 * sign(v - D^2); x + lr * m / (sqrt(v) + epsilon). State: m, v, count.

    v moves by no more than (1 - beta2) * D^2 and never below zero. No neutral value.

    Args:
        beta2: as for `Adam`.

    Reference: Reddi et al., ICLR 2021, Algorithm 2 (FedYogi).
    """

    beta2: Decay = 0.99

    privacy = AFTER

    def second(self, state: State, square: Tensor) -> dict[str, Tensor]:
        v = state["v"]
        return {"v": torch.addcmul(v, square, torch.sign(v - square), value=-(1 - self.beta2))}

    def correction(self, t: int) -> float:
        return float(1 - self.beta2**t)


@final
@dataclass(frozen=True, kw_only=True)
class AMSGrad(Adaptive):
    """Adam that divides by the largest v so far: x + lr * m / sqrt(max(largest, v, epsilon)).

    The denominator never shrinks. No neutral value. State: m, v, largest, and the count of steps.

    Args:
        beta2: as for `Adam`.
        epsilon_place: "floor" is the paper's: epsilon inside the maximum. "outside" adds it to the root.

    Reference: Wang, Lin, Chen, "Communication-Efficient Adaptive Federated Learning", ICML 2022, Algorithm 1 (FedAMS).
    """

    lr: Positive = 0.1
    beta2: Decay = 0.99
    epsilon_place: Literal["outside", "inside", "floor"] = "floor"

    privacy = AFTER

    def server_start(self, setup: Setup) -> State:
        v = setup.zeros(wide=True) + self.initial
        return {"m": setup.zeros(wide=True), "v": v, "largest": v, "t": 0}

    def second(self, state: State, square: Tensor) -> dict[str, Tensor]:
        v = torch.add(state["v"] * self.beta2, square, alpha=1 - self.beta2)
        return {"v": v, "largest": torch.maximum(state["largest"], v)}

    def correction(self, t: int) -> float:
        return float(1 - self.beta2**t)
