"""Prototypes: the mean representation of each class, which clients exchange in place of a model, or beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.messages import Fault, Report, State
from polyrhythm.base.settings import NonNegative
from polyrhythm.methods.correction import BatchView, Correction, Term
from polyrhythm.methods.mechanism import Need, Outcome, Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class Prototypes(Correction):
    """Clients send the mean representation of each of their classes, and learn towards the mean of all clients' ones.

    Adds strength * mean over a batch of |z - c_y|^2 / F to the loss, with z the representation of F numbers of a sample
    of class y, and c_y the mean over clients of the means of y that they sent; samples of a class that has none yet
    count as 0. After training, each client sends the means of its samples' representations under its own model. Neutral
    value: strength = 0, where training is exactly that without this part; so is training on version 0. With
    `personal_layers(layers=["*"])` nothing else travels.

    Server state: a mean for each class. Bytes: F numbers for each class that a client has, up, and for each class that
    anybody has had, down, with a flag for each class. One more forward pass over the client's samples.

    Departures: clients count equally in a class, as in the authors' program; the paper weighs them by their samples of
    it. The mean is over the clients of a version, and a class of which none of them has samples keeps its last
    one, where the program hears everybody in every round.

    Args:
        strength: lambda, >= 0.
        layer: the representation: "features" (what goes into the last linear layer), "projection", "logits", or the
            name of a submodule.

    Reference: Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022,
    Algorithm 1.
    """

    strength: NonNegative = 1.0
    layer: str = "features"

    decides = "towards which prototypes a client learns"
    of_a_release = True
    privacy = refused("the mean representation of each class of a client is sent without noise", "take fine_tuning")
    why_whole = "compares representations, which have fewer coordinates in a part of the model"
    in_sums = needs_single("it sends the mean representation of each class of a client, bare")

    @property
    def of_whole_models(self) -> bool:
        return True

    @property
    def guesses(self) -> bool:
        return True

    def needs(self) -> frozenset[Need]:
        return frozenset({"class_means"})

    @property
    def layers(self) -> tuple[str, ...] | None:
        return (self.layer,) if self.strength else None

    @property
    def watches(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def looks_back(self) -> bool:
        return False

    def term_of(self, brief: State) -> Term | None:
        if not brief or not self.strength:
            return None
        return _Towards(self.strength, self.layer, brief["means"], brief["classes"])

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return state

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        if outcome.steps == 0 or outcome.class_means is None:
            return state, {}
        means, classes = outcome.class_means(self.layer)
        return state, {"means": means, "classes": classes}

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        sent = report.extras.get(self.label(), {})
        means, classes = sent.get("means"), sent.get("classes")
        if means is None and classes is None:
            return Fault("missing", "the means of its classes are missing") if report.fresh and report.steps else None
        if not isinstance(means, Tensor) or not isinstance(classes, Tensor):
            return Fault("shape", "the means of its classes are no tensors")
        fits = (means.dim(), classes.dim(), means.dtype, classes.dtype) == (2, 1, setup.dtype, torch.bool)
        if not fits or len(means) != int(classes.sum()) or (state and _shape(sent) != _shape(state)):
            return Fault("shape", "the means of its classes do not have the shape of a representation for each")
        return None

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        sent = [found for found in release.extras(self.label()) if "means" in found]
        # Before the first version nobody knew how wide a representation is: that of the first client counts.
        sent = [found for found in sent if _shape(found) == _shape(sent[0])]
        if not sent:
            return state
        size, width = _shape(sent[0])
        sums, counts = torch.zeros(size, width, dtype=torch.float64), torch.zeros(size, dtype=torch.int64)
        for found in sent:
            sums[found["classes"]] += found["means"].double()
            counts += found["classes"]
        means, there = (sums / counts[:, None].clamp(min=1)).to(setup.dtype), counts > 0
        if state:
            kept = state["classes"] & ~there
            means[kept] = state["means"][kept[state["classes"]]]
            there = there | kept
        return {"means": means[there], "classes": there}


def _shape(sent: State) -> tuple[int, int]:
    """How many classes there are, and numbers in a representation."""
    return len(sent["classes"]), int(sent["means"].shape[1])


@final
class _Towards:
    """The term of a visit.

    Args:
        strength, layer: as of the part.
        means: the prototypes, [c, F].
        classes: whether there is one of each class, bool [C].
    """

    def __init__(self, strength: float, layer: str, means: Tensor, classes: Tensor) -> None:
        self.layers: tuple[str, ...] | None = (layer,)
        self._strength, self._means = strength, means
        self._place = classes.cumsum(0) - 1
        self._there = classes

    def term(self, view: BatchView) -> Tensor | None:
        features, targets = view.features("current", self.layers[0] if self.layers else ""), view.targets
        there = self._there.to(targets.device)[targets]
        if not bool(there.any()):
            return None
        means = self._means.to(features)[self._place.to(targets.device)[targets[there]]]
        return self._strength * functional.mse_loss(features[there], means, reduction="sum") / features.numel()
