"""How much does an update count?

Two numbers per update: a share (normalised to sum 1 over the release) and a scale (not normalised). One mechanism
gives the shares; scales of several multiply. The mean of a release is sum_i share_i * scale_i * update_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Facts, State
from polyrhythm.base.settings import NonNegative, Positive
from polyrhythm.methods.mechanism import Mechanism, Need, Setup
from polyrhythm.methods.privacy.effects import inside, refused
from polyrhythm.methods.secure_sum.effects import needs_single, works_in_sums

Rule = Literal["polynomial", "hinge", "cutoff", "delay_adaptive", "catch_up", "constant"]


@dataclass(frozen=True, kw_only=True)
class Sharing(Mechanism):
    """Base: gives each update its claim, which the server normalises."""

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        """One non-negative number per update; all zero means that the release counts for nothing and is skipped."""
        raise NotImplementedError

    sees = ("claims", "total")

    def alone(self, facts: Facts, most: int) -> float:
        """w_i, from 0 to 1: what a client counts in a sum, as it knows itself; the shares are w_i / sum of w.

        Args:
            facts: of its visit.
            most: max n_i, the samples of the client that holds most.
        """
        raise NotImplementedError

    def total(self, facts: Sequence[Facts], whole: float | None) -> float:
        """What the shares count together: 1, unless the claims are parts of a whole of which not all was heard."""
        return 1.0


@final
@dataclass(frozen=True, kw_only=True)
class BySamples(Sharing):
    """Shares n_i / sum of n: the mean over samples. No state.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017, Algorithm 1.
    """

    privacy = inside("counts a client by its samples, up to a cap")
    in_sums = works_in_sums("counts a client by its samples, which it knows itself")

    def alone(self, facts: Facts, most: int) -> float:
        return facts.num_samples / most

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        return [float(f.num_samples) for f in facts]


@final
@dataclass(frozen=True, kw_only=True)
class Equal(Sharing):
    """Shares 1 / |S|: the mean over clients. No state."""

    privacy = inside("counts clients alike")
    in_sums = works_in_sums("counts clients alike")

    def alone(self, facts: Facts, most: int) -> float:
        return 1.0

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        return [1.0 for _ in facts]


@final
@dataclass(frozen=True, kw_only=True)
class AsInvited(Sharing):
    """Shares that follow from how clients are chosen, so that the mean is not biased towards who is chosen often.

    share_i * scale_i = weight_i / sum of weights, with the weights that the participation gives: for how many clients
    one stands (`diverse_sampling`), how often it was drawn (`cluster_sampling`), what it holds over the chance that it
    had (`rate_sampling`, `norm_sampling`). These last are parts of a whole that not only those heard make up, so they
    are divided by it, and their sum is 1 in the mean only.

    With any other participation every weight is 1: exactly `equal`. No state.
    """

    privacy = refused("for how many clients one stands has no bound", "pipe equal onto the recipe")
    in_sums = needs_single("for how many clients one stands only the server knows", "pipe equal onto the recipe")

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        return [f.weight for f in facts]

    def total(self, facts: Sequence[Facts], whole: float | None) -> float:
        return 1.0 if whole is None else math.fsum(f.weight for f in facts) / whole


def shares(claims: Sequence[float]) -> list[float] | None:
    """Claims divided by their sum; None if nobody claims anything."""
    total = math.fsum(claims)
    return [c / total for c in claims] if total > 0 else None


@dataclass(frozen=True, kw_only=True)
class Scaling(Mechanism):
    """Base: a factor per update."""

    of_a_release = True
    sees = ("scales", "weigh")

    def alone(self, facts: Facts) -> float:
        """The part of its factor that a client knows itself, and multiplies its update by where only sums are known."""
        raise NotImplementedError

    def together(self, facts: Sequence[Facts], shares: Sequence[float]) -> float:
        """The rest of it, which all have in common, from what the server knows of them."""
        return 1.0

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        """One factor per update, given all facts of the release and the shares, which sum to 1."""
        raise NotImplementedError

    def weigh(
        self, setup: Setup, state: State, version: int, facts: Sequence[Facts], shares: Sequence[float]
    ) -> list[float]:
        """The same for a scaling that remembers something of clients: its state, and the server's version."""
        return self.scales(facts, shares)


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

    privacy = refused("one client's steps are in everybody's scale, so that it moves more than its own update")

    in_sums = works_in_sums("has clients divide by their own a_i, and the sum multiplied by tau_eff")

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"})

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        effective = self.together(facts, shares)
        return [effective / f.travel if f.travel > 0 else 0.0 for f in facts]

    def alone(self, facts: Facts) -> float:
        return 1 / facts.travel if facts.travel > 0 else 0.0

    def together(self, facts: Sequence[Facts], shares: Sequence[float]) -> float:
        # a_i needs one common rate as its unit; with travel throughout, the unit cancels.
        if self.effective == "steps" or (self.effective == "auto" and any(f.pull for f in facts)):
            return math.fsum(s * f.steps * f.rate for s, f in zip(shares, facts, strict=True))
        return math.fsum(s * f.travel for s, f in zip(shares, facts, strict=True))


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

    privacy = inside("scales an update before it is clipped")
    in_sums = works_in_sums("has each client divide by its own steps")

    def alone(self, facts: Facts) -> float:
        return self.scales([facts], [1.0])[0]

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"}) if self.divide == "travel" else frozenset()

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        if self.divide == "none":
            return [1.0] * len(facts)
        by = [float(f.steps) if self.divide == "steps" else f.travel for f in facts]
        return [1 / b if b > 0 else 0.0 for b in by]


@final
@dataclass(frozen=True, kw_only=True)
class Staleness(Scaling):
    """Scales an update by its staleness t: versions between the one that it was made from and the server's.

    | rule | scale | a | b |
    | --- | --- | --- | --- |
    | polynomial | (1 + t) ** -a | 0.5 | |
    | hinge | 1 if t <= b, else 1 / (a * (t - b) + 1) | 10 | 4 |
    | cutoff | 1 if t <= b, else 0 | | 4 |
    | delay_adaptive | 1 if t <= b, else b / t | | must be given |
    | catch_up | 1 + t | | |
    | constant | 1 | | |

    All but one scale down what is old. "catch_up" is for clients that were away (`last_received`): one update counts
    for all the versions that it comes after.

    A scale, not a share: a version of stale updates is a small step, it is not made up for by the others. So an update
    that is cut off still counts in a buffer, and keeps its share. rule = "constant" is exactly no scaling; so is every
    rule where nothing is stale. No state.

    "delay_adaptive" is what remains of step sizes of at most min(eta, 1 / (4 L t)) for delays beyond the concurrency b,
    at the largest eta that is allowed, 1 / (4 L b); eta is the recipe's own rate. The paper steps on one gradient at a
    time; with a buffer of k and M clients at work, delays of M / k versions are within the concurrency.

    Args:
        rule: how a scale falls.
        a: how fast, where the rule has it; None for the default above.
        b: up to which staleness an update counts in full, where the rule has it; likewise.

    Raises:
        UserError: a setting that the rule does not have, or lacks.

    Reference: polynomial, hinge: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019, section 5.2;
    catch_up: Xiang, Ioannidis, Yeh, Joe-Wong, Su, "Efficient Federated Learning against Heterogeneous and
    Non-stationary Client Unavailability", NeurIPS 2024; delay_adaptive: Koloskova, Stich, Jaggi, "Sharper Convergence
    Guarantees for Asynchronous SGD for Distributed and Federated Learning", NeurIPS 2022.
    """

    rule: Rule = "polynomial"
    a: Positive | None = None
    b: NonNegative | None = None

    privacy = inside("scales an update before it is clipped")
    in_sums = needs_single(
        "how stale its update will be a client does not know, and in rounds none is", "leave staleness out"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        has = _DEFAULTS[self.rule]
        for name, value in (("a", self.a), ("b", self.b)):
            if value is not None and name not in has:
                raise UserError(
                    f"staleness: {name} = {value:g} with rule={self.rule!r}",
                    expected=f"{' and '.join(has) or 'neither a nor b'} for this rule",
                    why=f"the rule has no {name}, so the setting would do nothing",
                    fix=f"leave {name} out, or choose a rule that has it",
                )
            if value is None and has.get(name, 0.0) is None:
                raise UserError(
                    f"staleness: rule={self.rule!r} without {name}",
                    expected=f"{name}, the delay up to which an update counts in full",
                    why="it is the concurrency in versions, which a weighing does not know",
                    fix=f"{name}=5 for 10 clients at work and a buffer of 2",
                )

    def scales(self, facts: Sequence[Facts], shares: Sequence[float]) -> list[float]:
        return [self.scale(f.staleness) for f in facts]

    def scale(self, staleness: int) -> float:
        """The scale of one update."""
        has = _DEFAULTS[self.rule]
        a, b = ((has.get(n) or 0.0) if own is None else own for n, own in (("a", self.a), ("b", self.b)))
        if self.rule == "catch_up":
            return 1.0 + staleness
        if self.rule == "constant" or (self.rule != "polynomial" and staleness <= b):
            return 1.0
        if self.rule == "polynomial":
            return float((1 + staleness) ** -a)
        if self.rule == "hinge":
            return 1 / (a * (staleness - b) + 1)
        return b / staleness if self.rule == "delay_adaptive" else 0.0


_DEFAULTS: dict[Rule, dict[str, float | None]] = {
    "polynomial": {"a": 0.5},
    "hinge": {"a": 10.0, "b": 4.0},
    "cutoff": {"b": 4.0},
    "delay_adaptive": {"b": None},
    "catch_up": {},
    "constant": {},
}
"""The settings of each rule; None where there is no default."""
