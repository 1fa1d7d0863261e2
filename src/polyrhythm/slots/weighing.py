"""How much does an update count?

Two numbers per update: a share (normalised to sum 1 over the release) and a scale (not normalised). One mechanism
gives the shares; scales of several multiply. The mean of a release is sum_i share_i * scale_i * update_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from polyrhythm.slots.mechanism import Mechanism, Need
from polyrhythm.wires import Facts


@dataclass(frozen=True, kw_only=True)
class Sharing(Mechanism):
    """Base: gives each update its claim, which the server normalises."""

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        """One non-negative number per update; all zero means that the release counts for nothing and is skipped."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class BySamples(Sharing):
    """Shares n_i / sum of n: the mean over samples. No state.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017, Algorithm 1.
    """

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        return [float(f.held) for f in facts]


@final
@dataclass(frozen=True, kw_only=True)
class Equal(Sharing):
    """Shares 1 / |S|: the mean over clients. No state."""

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        return [1.0 for _ in facts]


def shares(claims: Sequence[float]) -> list[float] | None:
    """Claims divided by their sum; None if nobody claims anything."""
    total = math.fsum(claims)
    return [c / total for c in claims] if total > 0 else None


@dataclass(frozen=True, kw_only=True)
class Scaling(Mechanism):
    """Base: a factor per update."""

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        """One factor per update, given all facts of the release and the shares, which sum to 1."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class NormalisedAveraging(Scaling):
    """FedNova: every update counts by its direction, not by how many steps it took.

    scale_i = tau_eff / a_i, with a_i the travel of the client's local optimiser in units of its rate (tau_i steps for
    plain SGD; the momentum and proximal forms of the paper follow from the same recursion, exact for a constant
    gradient). tau_eff = sum_i p_i a_i, or sum_i p_i tau_i (`effective="steps"`).

    Neutral situation: equal steps and equal local optimisers, where every scale is 1 to rounding; under a pull only
    with `effective="travel"`. No state; the client sends one number.

    Args:
        effective: "travel" or "steps"; "auto" is "steps" where a proximal term makes travel and steps differ in kind
            (the paper's choice), otherwise "travel".

    Reference: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    NeurIPS 2020, eq. (8) and the authors' code for tau_eff.
    """

    effective: Literal["auto", "travel", "steps"] = "auto"

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"})

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        # a_i needs one common rate as its unit; with travel throughout, the unit cancels.
        travels = [f.travel for f in facts]
        if self.effective == "steps" or (self.effective == "auto" and any(f.pull for f in facts)):
            effective = math.fsum(s * f.steps * f.rate for s, f in zip(shares, facts, strict=True))
        else:
            effective = math.fsum(s * t for s, t in zip(shares, travels, strict=True))
        return [effective / t if t > 0 else 0.0 for t in travels]


@final
@dataclass(frozen=True, kw_only=True)
class PerStep(Scaling):
    """Divides every update by the work behind it, so that a client counts by its direction per step.

    divide = "none" is exactly no scaling. With "steps", an update is as small as one step, and the server's learning
    rate must make up for it. No state.

    Args:
        divide: "steps": by K_i, the steps truly taken (the paper); "travel": by the effective sum of their rates, which
            gives the mean gradient; "none".

    Reference: "Client-Centric Federated Adaptive Optimization", 2025, Algorithm 1 and appendix A(a).
    """

    divide: Literal["steps", "travel", "none"] = "steps"

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"}) if self.divide == "travel" else frozenset()

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        if self.divide == "none":
            return [1.0] * len(facts)
        by = [float(f.steps) if self.divide == "steps" else f.travel for f in facts]
        return [1 / b if b > 0 else 0.0 for b in by]
