"""In which direction does a client train?

A correction is affine in the weights, factor * g + pull * (w - w0) + shift in place of each local gradient g, or a loss
term added to the task's loss on each batch. Corrections chain: factors multiply; pulls, shifts and loss terms add up.
The order inside a step is gradient, clip, corrections, weight decay, momentum, step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, final

import torch
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.messages import Fault, Report, State
from polyrhythm.base.portions import mean_of_held
from polyrhythm.base.settings import NonNegative, Positive
from polyrhythm.base.sums import mean_of_moved, weighted_sum
from polyrhythm.base.vectors import clear_
from polyrhythm.methods.mechanism import Mechanism, Need, Outcome, Release, Setup
from polyrhythm.methods.privacy.effects import INSIDE, refused
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class Push:
    """What becomes of every gradient g of a visit: factor * g + pull * (w - w0) + shift, with shift [P] or none."""

    pull: float = 0.0
    shift: Tensor | None = None
    factor: float = 1.0


DRIFT = "which path of a client is its drift"
Which = Literal["current", "received", "previous"]


class BatchView(Protocol):
    """What a loss term may look at, computed when asked for. Frozen models run in eval mode and draw nothing."""

    def features(self, which: Which, layer: str) -> Tensor:
        """Representation [B, F] of this batch under the current, the received or the previous local model."""

    @property
    def targets(self) -> Tensor:
        """The targets of this batch."""

    @property
    def has_previous(self) -> bool:
        """Whether this client has a last local model."""


class Term(Protocol):
    """What is added to the loss of each batch of a visit."""

    @property
    def layers(self) -> tuple[str, ...] | None:
        """The representations that it reads."""

    def term(self, view: BatchView) -> Tensor | None:
        """A scalar; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Correction(Mechanism):
    """Base: no correction."""

    def push(self, setup: Setup, state: State, brief: State) -> Push | None:
        """The affine part, fixed for a visit; None where there is none."""
        return None

    def moments(self, brief: State) -> Mapping[str, Tensor]:
        """What the local optimiser begins a visit with in place of its own state, by name."""
        return {}

    def term(self, view: BatchView) -> Tensor | None:
        """A scalar added to the mean loss of one batch; None where there is none."""
        return None

    @property
    def layers(self) -> tuple[str, ...] | None:
        """The representations that `term` reads, so that one forward pass serves all terms; None without a term."""
        return None

    def term_of(self, brief: State) -> Term | None:
        """The term of a visit that was sent this; None where there is none."""
        return None if self.layers is None else self

    @property
    def looks_back(self) -> bool:
        """Whether `term` compares with frozen models."""
        return self.layers is not None

    @property
    def watches(self) -> tuple[str, ...]:
        return self.layers or ()

    @property
    def pull(self) -> float:
        """By how much its pushes pull towards the received model, as far as its settings say."""
        return 0.0


def chain(pushes: Sequence[Push]) -> Push | None:
    """One push that does what several do; None if there are none."""
    if not pushes:
        return None
    shifts = [p.shift for p in pushes if p.shift is not None]
    total = shifts[0] if shifts else None
    for shift in shifts[1:]:
        total = total + shift if total is not None else shift
    return Push(pull=sum(p.pull for p in pushes), shift=total, factor=math.prod(p.factor for p in pushes))


@final
@dataclass(frozen=True, kw_only=True)
class Prox(Correction):
    """Pulls local weights towards the received model.

    Adds mu * (w - w0) to each local gradient, before the local optimiser: the gradient of (mu/2) * |w - w0|^2.
    mu = 0 is exactly no correction. No state, no extra bytes; one multiply-add per weight and step.

    Args:
        mu: strength, loss per squared weight, >= 0.

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, eq. (2).

    >>> Prox(mu=0.1).push(None, {}, {})
    Push(pull=0.1, shift=None, factor=1.0)
    """

    mu: NonNegative = 0.01

    privacy = INSIDE

    @property
    def pull(self) -> float:
        return self.mu

    def push(self, setup: Setup, state: State, brief: State) -> Push | None:
        return Push(pull=self.mu)


@final
@dataclass(frozen=True, kw_only=True)
class ControlVariates(Correction):
    """SCAFFOLD: replaces the client's drift by the federation's.

    Local gradient g - c_i + c. After the visit (option II) c_i <- c_i - c + (w0 - w_K) / travel, where travel = K * eta
    for plain SGD and the effective sum under momentum, pull and schedules. At the server c <- c + sum(dc_i) / N over
    the accepted reports, so c is the mean of all c_i at all times, with c_i = 0 for a client that never trained.

    Neutral situation: the first version, where c and every c_i are zero: exactly no correction. One vector of server
    state, one per client that has trained; one extra vector down and one up.

    Departures: K counts the steps truly taken. A parameter that a client never steps, because its loss does not depend
    on it, keeps its c_i. Local Adam and momentum kept over visits are refused, since
    (w0 - w_K) / travel would then be no gradient. Where clients hold fixed parts of the model, N is, of each
    coordinate, the clients that hold it.

    Reference: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020,
    Algorithm 1, option II.
    """

    decides = DRIFT
    of_a_release = True
    by_coordinate = "fixed"
    privacy = refused(
        "each client sends a second vector, which would go into everybody's correction without noise",
        "take prox or model_contrast",
    )
    in_sums = needs_single("it sends a second vector, a difference of control variates, bare")

    @property
    def of_whole_models(self) -> bool:
        return True

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"})

    @property
    def extra_vectors(self) -> int:
        return 1

    @property
    def sends_alike(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"control": setup.zeros(wide=True)}

    def client_start(self, setup: Setup) -> State:
        return {"control": setup.zeros()}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return {"control": state["control"].to(setup.dtype)}

    def push(self, setup: Setup, state: State, brief: State) -> Push | None:
        return Push(shift=brief["control"] - state["control"])

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        if outcome.steps == 0:
            return state, {}
        change = torch.add(outcome.update / -outcome.travel, brief["control"], alpha=-1)
        # What the client never stepped shows no gradient, not a gradient of zero.
        clear_(change, outcome.idle)
        return {"control": state["control"] + change}, {"change": change}

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        change = report.extras.get(self.label(), {}).get("change")
        if change is None:
            return Fault("missing", "the change of its control variate is missing") if report.fresh else None
        if not isinstance(change, Tensor) or change.shape != (setup.size,) or change.dtype != setup.dtype:
            return Fault("shape", "the change of its control variate does not have the model's layout")
        return None

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        changes = [extra["change"] for extra in release.extras(self.label()) if "change" in extra]
        if not changes:
            return state
        if setup.fixed_parts is not None:
            step = weighted_sum(changes, [1.0] * len(changes)) / setup.fixed_parts.holders
            return {"control": (state["control"] + step).to(state["control"].dtype)}
        step = weighted_sum(changes, [1 / setup.population] * len(changes))
        return {"control": state["control"] + step}


@final
@dataclass(frozen=True, kw_only=True)
class VarianceReduction(Correction):
    """VRL-SGD: corrects each client by the accumulated difference between its path and the mean path.

    Local gradient g - d_i. At the release d_i <- d_i + (mean(w_K) - w_K,i) / travel_i, with the plain mean over the
    clients in the release. With everybody present, equal weighing and equal steps, the d_i sum to zero.

    Neutral situation: the first visit of every client, d_i = 0: exactly no correction. The server keeps d_i of every
    client that has trained, and sends it down: one extra vector down, none up.

    Departures: partial participation is undefined in the source; here those in the release are updated, at the server,
    so a lost or refused report leaves nothing behind. The mean of a parameter is over the clients that stepped it; and
    of a coordinate over those that hold it, where clients hold fixed parts of the model.

    Reference: Liang et al., "Variance Reduced Local SGD with Lower Communication Complexity", 2019, Algorithm 1.
    """

    decides = DRIFT
    of_a_release = True
    by_coordinate = "fixed"
    privacy = refused(
        "the server sends each client a drift made of updates without noise", "take prox or model_contrast"
    )
    in_sums = needs_single("what it sends to each client is made of that one's own update")

    @property
    def of_whole_models(self) -> bool:
        return True

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"})

    def server_start(self, setup: Setup) -> State:
        return {"drift": {}}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        drift = state["drift"].get(client)
        return {} if drift is None else {"drift": drift}

    def push(self, setup: Setup, state: State, brief: State) -> Push | None:
        # A zero shift, not none: the neutral situation runs the same arithmetic as every other.
        return Push(shift=-brief["drift"] if "drift" in brief else setup.zeros())

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        trained = [r for r in release.fresh if r.update is not None and r.steps > 0]
        if not trained:
            return state
        updates = [r.update for r in trained if r.update is not None]
        mean = mean_of_moved(updates, [r.idle for r in trained])
        if release.portions:
            parts = {r.dispatch: part for r, part in zip(release.reports, release.portions, strict=True)}
            mean = mean_of_held(updates, [parts[r.dispatch] for r in trained], [r.idle for r in trained])
        drift = dict(state["drift"])
        for report in trained:
            assert report.update is not None
            change = clear_(((mean - report.update) / report.travel).to(setup.dtype), report.idle)
            if setup.fixed_parts is not None:
                change = setup.fixed_parts.held(report.client, change)
            before = drift.get(report.client)
            drift[report.client] = change if before is None else before + change
        return {"drift": drift}


@final
@dataclass(frozen=True, kw_only=True)
class DynamicRegularisation(Correction):
    """FedDyn: moves each client's optimum towards the federation's.

    Local gradient g - l_i + alpha * (w - w0); after the visit l_i <- l_i - alpha * update_i. At the server
    h <- h - alpha / N * sum(update_i), and the mean update becomes mean - h / alpha.

    There is no neutral value: h / alpha does not depend on alpha, so alpha -> 0 is not FedAvg, and alpha = 0 is
    refused. Neutral situation at the client: the first visit's first step. One vector of server state, one per client
    that has trained; no extra bytes. Where clients hold fixed parts of the model, N is, of each coordinate, the clients
    that hold it.

    Args:
        alpha: strength, > 0.

    Reference: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm 1.
    """

    alpha: Positive = 0.1

    privacy = refused("the server's memory h is made of updates without noise", "take prox or model_contrast")
    in_sums = needs_single(
        "its memory h adds updates as they are, whatever each of them counts", "take prox or model_contrast"
    )

    @property
    def pull(self) -> float:
        return self.alpha

    past_the_mean = True
    by_coordinate = "fixed"
    decides = DRIFT
    of_a_release = True

    @property
    def sends_alike(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"h": setup.zeros(wide=True)}

    def client_start(self, setup: Setup) -> State:
        return {"dual": setup.zeros()}

    def push(self, setup: Setup, state: State, brief: State) -> Push | None:
        return Push(pull=self.alpha, shift=-state["dual"])

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        # By what was sent, so that h stays the mean of all l_i where updates travel compressed.
        return {"dual": torch.add(state["dual"], outcome.sent, alpha=-self.alpha)}, {}

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        updates = [r.update for r in release.fresh if r.update is not None]
        if not updates:
            return state, torch.add(mean, state["h"], alpha=-1 / self.alpha)
        if setup.fixed_parts is not None:
            step = weighted_sum(updates, [-self.alpha] * len(updates)) / setup.fixed_parts.holders
        else:
            step = weighted_sum(updates, [-self.alpha / setup.population] * len(updates))
        h = (state["h"] + step).to(state["h"].dtype)
        return {"h": h}, torch.add(mean, h, alpha=-1 / self.alpha)


@final
@dataclass(frozen=True, kw_only=True)
class ModelContrast(Correction):
    """MOON: draws a client's representation towards the received model's and away from its own last model's.

    Adds mu * mean of -log(e^{s(z, z_g)/T} / (e^{s(z, z_g)/T} + e^{s(z, z_p)/T})) to the loss, with s the cosine and z,
    z_g, z_p the representations under the current, the received and the client's last local model. mu = 0 is exactly no
    correction, and so is a client's first visit, which has no last model. Client state: its last model; no extra bytes;
    two more forward passes per batch, in eval mode.

    Args:
        mu: strength, >= 0. The paper: 5 on CIFAR-10, 1 on CIFAR-100 and Tiny-ImageNet.
        temperature: T, > 0.
        layer: "projection" (the output of the module's `projection`, else as "features"), "features" (the input of the
            last linear layer), "logits", or the name of a submodule.

    Reference: Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, eq. (3) and (4).
    """

    mu: NonNegative = 1.0
    temperature: Positive = 0.5
    layer: str = "projection"

    privacy = INSIDE

    def needs(self) -> frozenset[Need]:
        return frozenset({"previous"})

    @property
    def layers(self) -> tuple[str, ...] | None:
        return (self.layer,)

    def term(self, view: BatchView) -> Tensor | None:
        if not view.has_previous:
            return None
        current = view.features("current", self.layer)
        near = functional.cosine_similarity(current, view.features("received", self.layer), dim=-1)
        far = functional.cosine_similarity(current, view.features("previous", self.layer), dim=-1)
        # -log(e^a / (e^a + e^b)) = softplus(b - a)
        return self.mu * functional.softplus((far - near) / self.temperature).mean()
