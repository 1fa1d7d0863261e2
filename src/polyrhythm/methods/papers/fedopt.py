"""FedAvgM and the FedOpt family: FedAvg with an optimiser at the server.

Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019
(FedAvgM). Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive Federated Optimization", ICLR 2021,
Algorithm 2 (FedAdagrad, FedAdam, FedYogi). Wang, Lin, Chen, "Communication-Efficient Adaptive Federated Learning", ICML
2022, Algorithm 1 (FedAMS).
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adagrad, Adam, AMSGrad, Momentum, Yogi

_REDDI = Common(cohort=10, epochs=1.0, batch=20)
_WANG = Common(cohort=10, epochs=3.0, batch=20, lr=0.01)


def fedavgm(*, server_lr: float = 1.0, beta: float = 0.9, **common: Unpack[Common]) -> Recipe:
    """FedAvgM: momentum at the server (Hsu et al., 2019). beta=0 is FedAvg.

    Args:
        server_lr: server learning rate.
        beta: server momentum.
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedavgm", common, server_step=Momentum(lr=server_lr, beta=beta))


def fedadagrad(
    *, server_lr: float = 0.1, epsilon: float = 1e-3, preset: Preset = None, **common: Unpack[Common]
) -> Recipe:
    """FedAdagrad: Adagrad at the server (Reddi et al., ICLR 2021).

    Args:
        server_lr: server learning rate.
        epsilon: the paper's tau.
        preset: "paper": 10 clients, one epoch of batch 20.
        common: settings of every recipe, see `Common`.
    """
    step = Adagrad(lr=server_lr, epsilon=epsilon)
    return recipe("fedadagrad", common, preset=preset, paper=_REDDI, server_step=step)


def fedadam(
    *,
    server_lr: float = 0.03,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = 1e-3,
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """FedAdam: Adam at the server, as the paper's formulas, without bias correction (Reddi et al., ICLR 2021).

    Args:
        server_lr: server learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: the paper's tau.
        preset: "paper": 10 clients, one epoch of batch 20.
        common: settings of every recipe, see `Common`.
    """
    step = Adam(lr=server_lr, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return recipe("fedadam", common, preset=preset, paper=_REDDI, server_step=step)


def fedyogi(
    *,
    server_lr: float = 0.03,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = 1e-3,
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """FedYogi: Yogi at the server (Reddi et al., ICLR 2021).

    Args:
        server_lr: server learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: the paper's tau.
        preset: "paper": 10 clients, one epoch of batch 20.
        common: settings of every recipe, see `Common`.
    """
    step = Yogi(lr=server_lr, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return recipe("fedyogi", common, preset=preset, paper=_REDDI, server_step=step)


def fedams(
    *,
    server_lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = 1e-3,
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """FedAMS: AMSGrad at the server, epsilon inside the maximum (Wang et al., ICML 2022).

    Args:
        server_lr: server learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: the least second moment that divides.
        preset: "paper": 10 of 100 clients, 3 epochs of batch 20, rate 0.01.
        common: settings of every recipe, see `Common`.
    """
    step = AMSGrad(lr=server_lr, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return recipe("fedams", common, preset=preset, paper=_WANG, server_step=step)
