"""Personalised federated learning: what each client keeps for itself.

Every one of these is FedAvg with a part of the model that stays at clients, or with a model of the client's own made of
the global one. Each client's own test judges them: federate(…, local_test=0.2), or a natural test of each.
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.papers.common import DEFAULTS, Common, Preset, recipe
from polyrhythm.methods.personal.guided import MetaStep, MoreauEnvelope, PersonalMixture
from polyrhythm.methods.personal.models import FineTuning, PersonalCopy
from polyrhythm.methods.personal.neighbours import NearestNeighbours, NearestPrototype
from polyrhythm.methods.personal.phases import PersonalFirst
from polyrhythm.methods.personal.prototypes import Prototypes
from polyrhythm.methods.personal.scope import PersonalLayers
from polyrhythm.methods.personal.starts import AdaptiveStart
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal

_HEAD, _BODY, _NORMS = (PersonalLayers(layers=(kind,)) for kind in ("head", "body", "norms"))


def fedavg_ft(*, tuning: float = 5.0, **common: Unpack[Common]) -> Recipe:
    """FedAvg + fine-tuning: each client trains the global model on its own data before it uses it. tuning=0 is FedAvg.

    What every personalised method should be compared with.

    Args:
        tuning: passes over the client's training samples.
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedavg_ft", common, personal=FineTuning(epochs=tuning))


def fedper(**common: Unpack[Common]) -> Recipe:
    """FedPer: the last linear layer stays at each client (Arivazhagan et al., 2019).

    Args:
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedper", common, scope=_HEAD)


def lg_fedavg(**common: Unpack[Common]) -> Recipe:
    """LG-FedAvg: all but the last linear layer stays at each client; the head is shared (Liang et al., 2020).

    The authors begin with a model that FedAvg has trained: give it as the experiment's `initial`.

    Args:
        common: settings of every recipe, see `Common`.
    """
    return recipe("lg_fedavg", common, scope=_BODY, sharing=Equal())


def fedbn(*, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedBN: normalisation layers stay at each client, with their statistics (Li et al., ICLR 2021).

    Layers are found by what they are, not by what they are called. Of a model without any, it is FedAvg.

    Args:
        preset: "paper": rate 0.01, batch 32, 1 epoch.
        common: settings of every recipe, see `Common`.
    """
    paper = Common(lr=0.01, batch=32, epochs=1.0)
    return recipe("fedbn", common, preset=preset, paper=paper, scope=_NORMS, sharing=Equal())


def fedrep(*, head_epochs: float = 10.0, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedRep: each client trains its own head first, and then the shared body (Collins et al., ICML 2021).

    Args:
        head_epochs: passes for the head; `epochs` are those for the body.
        preset: "paper": 1 epoch for the body, rate 0.01, momentum 0.5, weight decay 0.0001, batch 10.
        common: settings of every recipe, see `Common`.
    """
    paper = Common(epochs=1.0, lr=0.01, momentum=0.5, weight_decay=1e-4, batch=10)
    phases = (PersonalFirst(epochs=head_epochs),)
    return recipe("fedrep", common, preset=preset, paper=paper, scope=_HEAD, modifiers=phases)


def fedbabu(*, tuning: float = 5.0, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedBABU: the head is never trained for the server, only when a client fine-tunes (Oh, Kim, Yun, ICLR 2022).

    All clients have the head that the model began with, so it does not travel. Fine-tuning trains all layers.

    Args:
        tuning: passes over the client's training samples, when it comes to use the model.
        preset: "paper": rate 0.1, momentum 0.9, batch 50.
        common: settings of every recipe, see `Common`.
    """
    paper = Common(lr=0.1, momentum=0.9, batch=50)
    slots = {"scope": _HEAD, "modifiers": (PersonalFirst(epochs=0),), "personal": FineTuning(epochs=tuning)}
    return recipe("fedbabu", common, preset=preset, paper=paper, sharing=Equal(), **slots)


def ditto(*, strength: float = 1.0, personal_epochs: float | None = None, **common: Unpack[Common]) -> Recipe:
    """Ditto: a model of each client's own, trained beside the global one and pulled towards it (Li et al., ICML 2021).

    Args:
        strength: of the pull; 0 is training alone.
        personal_epochs: passes for the client's own model; None for as many as `epochs`.
        common: settings of every recipe, see `Common`.
    """
    epochs = common.get("epochs", DEFAULTS["epochs"]) if personal_epochs is None else personal_epochs
    return recipe("ditto", common, sharing=Equal(), personal=PersonalCopy(strength=strength, epochs=epochs))


def apfl(*, share: float = 0.5, adapt: bool = False, **common: Unpack[Common]) -> Recipe:
    """APFL: each client mixes the global model with one of its own, trained for the mixture (Deng et al., 2020).

    Args:
        share: of the client's own model; 0 is FedAvg, 1 training alone.
        adapt: whether each client adapts it.
        common: settings of every recipe, see `Common`.
    """
    return recipe("apfl", common, sharing=Equal(), personal=PersonalMixture(share=share, adapt=adapt))


def pfedme(
    *,
    strength: float = 15.0,
    personal_steps: int = 5,
    personal_lr: float = 0.01,
    beta: float = 1.0,
    **common: Unpack[Common],
) -> Recipe:
    """pFedMe: each local step is towards a model of the client's own, made under a pull (Dinh et al., NeurIPS 2020).

    `lr` times `strength` is how much of the way to it a step goes: below 1.

    Args:
        strength: of the pull.
        personal_steps: of the client's own model on each batch.
        personal_lr: its learning rate.
        beta: how far the server goes to the clients' mean.
        common: settings of every recipe, see `Common`; `lr` is 0.005 if it is not given.
    """
    own = MoreauEnvelope(strength=strength, steps=personal_steps, lr=personal_lr)
    given = Common(lr=0.005) | common
    return recipe("pfedme", given, sharing=Equal(), server_step=Sgd(lr=beta), personal=own)


def per_fedavg(
    *,
    inner_lr: float = 0.01,
    form: Literal["first_order", "hessian_free"] = "first_order",
    delta: float = 1e-3,
    **common: Unpack[Common],
) -> Recipe:
    """Per-FedAvg: a global model that is good after one step on a client's own data (Fallah et al., NeurIPS 2020).

    Args:
        inner_lr: of that step; 0 is FedAvg.
        form: "first_order", or "hessian_free" with second derivatives by differences.
        delta: half of the distance of a difference.
        common: settings of every recipe, see `Common`.
    """
    ahead = MetaStep(lr=inner_lr, form=form, delta=delta)
    return recipe("per_fedavg", common, sharing=Equal(), personal=ahead)


def fedala(*, tensors: int = 2, rate: float = 1.0, share: float = 0.8, **common: Unpack[Common]) -> Recipe:
    """FedALA: each client learns how to mix its last model with the new one before it trains (Zhang et al., AAAI 2023).

    Args:
        tensors: how many of the last parameters are mixed; a layer has two.
        rate: at which the mixture is learned; 0 is FedAvg.
        share: of its samples that a client learns it on.
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedala", common, personal=AdaptiveStart(tensors=tensors, rate=rate, share=share))


def knn_per(*, share: float = 0.5, neighbours: int = 7, scale: float = 1.0, **common: Unpack[Common]) -> Recipe:
    """kNN-Per: FedAvg, and each client looks for like ones among its own samples (Marfoq et al., ICML 2022).

    Args:
        share: of the neighbours in what is predicted; 0 is FedAvg.
        neighbours: how many.
        scale: of squared distances, for each number of a representation.
        common: settings of every recipe, see `Common`.
    """
    own = NearestNeighbours(share=share, neighbours=neighbours, scale=scale)
    return recipe("knn_per", common, personal=own)


def fedproto(*, strength: float = 1.0, **common: Unpack[Common]) -> Recipe:
    """FedProto: the mean representations of classes are exchanged in place of a model (Tan et al., AAAI 2022).

    A client puts a sample into the class whose mean is nearest. All clients train models of one kind here.

    Args:
        strength: of the pull towards the means; 0 is training alone.
        common: settings of every recipe, see `Common`.
    """
    means, alone = (Prototypes(strength=strength),), PersonalLayers(layers=("*",))
    return recipe("fedproto", common, scope=alone, corrections=means, personal=NearestPrototype(), sharing=Equal())
