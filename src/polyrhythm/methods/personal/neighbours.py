"""Predictions by representations: of a client's own samples, or of prototypes that all clients have made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count, Fraction, Positive
from polyrhythm.methods.personal.models import PersonalModel
from polyrhythm.methods.personal.prototypes import Prototypes
from polyrhythm.methods.privacy.effects import inside

_AT_HOME = inside("makes a model that stays at the client")
_AT_ONCE = 2**24  # distances


def squared_distances(ours: Tensor, theirs: Tensor) -> Tensor:
    """|a - b|^2 of each row a of one matrix and each row b of another, [n, m]; of integers exactly."""
    rows = max(1, _AT_ONCE // max(1, theirs.numel()))
    parts = (ours[i : i + rows, None] - theirs for i in range(0, len(ours), rows))
    return torch.cat([part.square().sum(dim=2) for part in parts])


@final
@dataclass(frozen=True, kw_only=True)
class NearestNeighbours(PersonalModel):
    """Each client mixes what its model predicts with the classes of its own samples that look most alike to the model.

    p = share * p_near + (1 - share) * softmax(outputs), where p_near of a class is the sum over the `neighbours`
    nearest of the client's training samples that are of it of e^(-d^2 / (F * scale)), normalised, with d the distance
    of representations of F numbers. Nothing is trained, sent or kept: representations of the client's samples are made
    anew for each model that is measured. share = 0 is exactly the model without it. Costs a pass over the client's
    training samples, billed to nobody, and n * F numbers while it is measured.

    Departures: share is the same at all clients and is not chosen by any test; as the authors' program, one scale for
    all. The probability of a class never counts as less than 1e-30, so that the loss stays finite.

    Args:
        share: lambda, of the neighbours' word, 0 to 1.
        neighbours: k; all samples, if a client has fewer.
        scale: of squared distances, for each number of a representation.
        layer: the representation: "features" (what goes into the last linear layer), "projection", "logits", or the
            name of a submodule.

    Reference: Marfoq, Neglia, Kameni, Vidal, "Personalized Federated Learning through Local Memorization", ICML 2022,
    section 3.
    """

    share: Fraction = 0.5
    neighbours: Count = 7
    scale: Positive = 1.0
    layer: str = "features"

    of_a_release = True
    privacy = _AT_HOME

    @property
    def tunes(self) -> bool:
        return self.share > 0

    @property
    def reads(self) -> str:
        return self.layer if self.share else ""

    @property
    def compares(self) -> bool:
        return True

    def predicts(self, outputs: Tensor, features: Tensor, own: tuple[Tensor, Tensor] | None, brief: State) -> Tensor:
        if own is None or not len(own[1]):
            return outputs
        theirs, classes = own
        far, place = squared_distances(features, theirs).topk(min(self.neighbours, len(classes)), largest=False)
        # Of what all are away nothing is left but how much further some are: no weight underflows for all.
        weights = torch.softmax(-far / (features.shape[1] * self.scale), dim=1)
        near = torch.zeros_like(outputs).scatter_add_(1, classes[place], weights.to(outputs.dtype))
        mixed = self.share * near + (1 - self.share) * torch.softmax(outputs, dim=1)
        return mixed.clamp(min=1e-30).log()


@final
@dataclass(frozen=True, kw_only=True)
class NearestPrototype(PersonalModel):
    """Each client puts a sample into the class whose prototype is nearest, of those that `prototypes` has made.

    outputs = -|z - prototype|^2 / F for a representation z of F numbers; a class without a prototype comes after all
    others. Where there is no prototype yet, the model's outputs count. No state, no bytes of its own.

    Reference: Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022, section 4.
    """

    layer: str = "features"

    of_a_release = True
    privacy = _AT_HOME

    @property
    def reads(self) -> str:
        return self.layer

    @property
    def asks(self) -> str:
        return Prototypes.label()

    def predicts(self, outputs: Tensor, features: Tensor, own: tuple[Tensor, Tensor] | None, brief: State) -> Tensor:
        if not brief:
            return outputs
        far = squared_distances(features, brief["means"].to(features.dtype)) / features.shape[1]
        behind = -far.max(dim=1, keepdim=True).values - 1
        found = behind.expand(len(features), outputs.shape[1]).clone().to(outputs.dtype)
        found[:, brief["classes"]] = -far.to(outputs.dtype)
        return found
