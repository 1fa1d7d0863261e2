"""Methods in which a client trains as much of the model as its device can hold: HeteroFL, FedRolex, FIARSE, DepthFL.

Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous Clients",
ICLR 2021. Alam, Liu, Yan, Zhang, "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction",
NeurIPS 2022. Caldas, Konečný, McMahan, Talwalkar, "Expanding the Reach of Federated Learning by Reducing Client
Resource Requirements", 2018 (Federated Dropout). Wu, Wang, Chen, Zhang, Xu, "FIARSE: Model-Heterogeneous Federated
Learning via Importance-Aware Submodel Extraction", NeurIPS 2024. Kim, Yu, Kim, Moon, "DepthFL: Depthwise Federated
Learning for Heterogeneous Clients", ICLR 2023.
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.capacity.base import LEVELS
from polyrhythm.methods.capacity.depth_prefix import DEPTHS, DepthPrefix
from polyrhythm.methods.capacity.largest_weights import SIZES, LargestWeights
from polyrhythm.methods.capacity.random_width import RandomWidth
from polyrhythm.methods.capacity.rolling_window import RollingWindow
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.correction import DynamicRegularisation
from polyrhythm.methods.local.schedules import Exponential
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import Equal

_HETEROFL = Common(epochs=5, batch=10, momentum=0.9, weight_decay=5e-4, clip=1.0)
_FIARSE = Common(steps=100, batch=20)
_DEPTHFL = Common(epochs=5, batch=50, weight_decay=1e-3, schedule=Exponential(gamma=0.998))

By = Literal["clients", "memory", "speed"]


def heterofl(
    *,
    ratio: float | tuple[float, ...] = LEVELS,
    by: By = "clients",
    redrawn: bool = False,
    scaler: bool = True,
    masked: bool = False,
    static_norms: bool = False,
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """HeteroFL: every client trains the first units of each layer, as many as it can (Diao, Ding, Tarokh, ICLR 2021).

    Args:
        ratio: the widths; a list is dealt to clients.
        by: to whom which: "clients" in equal parts, "memory" or "speed" of the fleet's devices.
        redrawn: deals anew for each version, the paper's dynamic assignment.
        scaler: multiplies what narrower layers give by 1 / r in training.
        masked: leaves outputs for classes that a client lacks out of its training and of the mean, as the authors' code
            does with data that differ from client to client; clients then tell which classes they have.
        static_norms: keeps statistics of BatchNorm out of training, as the paper does, and takes those of a model that
            is looked at from a pass of everybody's samples through it.
        preset: "paper": 5 epochs of batch 10, momentum 0.9, weight decay 5e-4, gradients clipped to length 1.
        common: settings of every recipe, see `Common`.
    """
    part = WidthPrefix(ratio=ratio, by=by, redrawn=redrawn, scaler=scaler, masked=masked, static_norms=static_norms)
    return recipe("heterofl", common, preset=preset, paper=_HETEROFL, sharing=Equal(), capacity=part)


def fedrolex(
    *,
    ratio: float | tuple[float, ...] = LEVELS,
    by: By = "clients",
    redrawn: bool = False,
    scaler: bool = True,
    static_norms: bool = False,
    **common: Unpack[Common],
) -> Recipe:
    """FedRolex: every client trains a window of each layer that rolls on (Alam, Liu, Yan, Zhang, NeurIPS 2022).

    Args:
        ratio: the widths; a list is dealt to clients.
        by: to whom which: "clients" in equal parts, "memory" or "speed" of the fleet's devices.
        redrawn: deals anew for each version.
        scaler: multiplies what narrower layers give by 1 / r in training, as the authors' code does.
        static_norms: as in `heterofl`.
        common: settings of every recipe, see `Common`.
    """
    part = RollingWindow(ratio=ratio, by=by, redrawn=redrawn, scaler=scaler, static_norms=static_norms)
    return recipe("fedrolex", common, sharing=Equal(), capacity=part)


def federated_dropout(
    *, ratio: float | tuple[float, ...] = 0.75, shared: bool = False, **common: Unpack[Common]
) -> Recipe:
    """Federated Dropout: every client trains random units of each layer (Caldas et al., 2018).

    Updates count by samples, as in FedAvg.

    Args:
        ratio: the share of units that is kept; a list is dealt to clients.
        shared: draws once for all clients of a version.
        common: settings of every recipe, see `Common`.
    """
    return recipe("federated_dropout", common, capacity=RandomWidth(ratio=ratio, shared=shared))


def fiarse(
    *,
    ratio: float | tuple[float, ...] = SIZES,
    by: Literal["clients", "memory"] = "clients",
    redrawn: bool = False,
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """FIARSE: every client trains the largest weights of the model, as many as it can (Wu et al., NeurIPS 2024).

    Args:
        ratio: shares of the weights and biases of linear layers and convolutions; a list is dealt to clients.
        by: to whom which: "clients" in equal parts, "memory" of the fleet's devices.
        redrawn: deals anew for each version.
        preset: "paper": 100 steps of batch 20.
        common: settings of every recipe, see `Common`.
    """
    part = LargestWeights(ratio=ratio, by=by, redrawn=redrawn)
    return recipe("fiarse", common, preset=preset, paper=_FIARSE, sharing=Equal(), capacity=part)


def depthfl(
    *,
    depth: int | tuple[int, ...] = DEPTHS,
    distillation: float = 1.0,
    ramp: int = 300,
    by: By = "clients",
    alpha: float | None = None,
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """DepthFL: every client trains the first blocks of the model, each with an exit (Kim et al., ICLR 2023).

    For a model with exits, such as mlp-exits and resnet18-exits. With alpha, clients train with FedDyn as in the paper
    (0.1 there), whose sum is here over the clients that hold a block, where the authors' program divides by all.

    Args:
        depth: how many exits; a list is dealt to clients.
        distillation: by how much exits learn from each other at most; 0 is none.
        ramp: the versions until they do.
        by: to whom which: "clients" in equal parts, "memory" or "speed" of the fleet's devices.
        alpha: strength of FedDyn's dynamic regularisation; None for none.
        preset: "paper": 5 epochs of batch 50, weight decay 1e-3, a rate that falls by 0.998 a version.
        common: settings of every recipe, see `Common`.
    """
    part = DepthPrefix(depth=depth, distillation=distillation, ramp=ramp, by=by)
    corrections = () if alpha is None else (DynamicRegularisation(alpha=alpha),)
    return recipe(
        "depthfl", common, preset=preset, paper=_DEPTHFL, sharing=Equal(), corrections=corrections, capacity=part
    )
