"""Methods in which the server remembers what clients said: FedVARP, FedStale, CA2FL, ACE, ACED and AREA.

Jhunjhunwala, Sharma, Nagarkatti, Joshi, "FedVARP: Tackling the Variance Due to Partial Client Participation in
Federated Learning", UAI 2022. Rodio, Neglia, "FedStale: Leveraging Stale Client Updates in Federated Learning", ECAI
2024. Wang, Cao, Wu, Chen, Chen, "Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update
Calibration", ICLR 2024 (CA2FL). Chang et al., "Mitigating Participation Imbalance Bias in Asynchronous
Federated Learning", 2025, arXiv 2511.19066 (ACE, ACED).
Iakovidou, Kim, "Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under Arbitrary Delays",
2024 (AREA).
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.papers.common import Common, at_work, recipe, rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, ReleaseModifier
from polyrhythm.methods.release.last_models import LastModels
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.release.stale_updates import StaleUpdates
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal


def fedvarp(*, server_lr: float = 1.0, **common: Unpack[Common]) -> Recipe:
    """FedVARP: rounds corrected by the last update of every client (Jhunjhunwala et al., UAI 2022).

    Args:
        server_lr: server learning rate.
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedvarp", common, sharing=Equal(), modifiers=(StaleUpdates(),), server_step=Sgd(lr=server_lr))


def fedstale(*, beta: float = 0.5, server_lr: float = 1.0, **common: Unpack[Common]) -> Recipe:
    """FedStale: between FedAvg (beta = 0) and FedVARP (beta = 1), which is the other extreme (Rodio, Neglia, 2024).

    Args:
        beta: how much what clients said earlier counts; the paper tunes it.
        server_lr: server learning rate.
        common: settings of every recipe, see `Common`.
    """
    modifiers = (StaleUpdates(beta=beta),)
    return recipe("fedstale", common, sharing=Equal(), modifiers=modifiers, server_step=Sgd(lr=server_lr))


def ca2fl(
    *, concurrency: int | None = None, buffer: int = 10, server_lr: float = 1.0, **common: Unpack[Common]
) -> Recipe:
    """CA2FL: a buffer of late updates, calibrated by the last update of every client (Wang et al., ICLR 2024).

    Args:
        concurrency: clients at work at a time; the cohort under another name (10).
        buffer: updates per version, the paper's M.
        server_lr: server learning rate.
        common: settings of every recipe, see `Common`.
    """
    return _late("ca2fl", concurrency, common, StaleUpdates(), buffer, server_lr)


def ace(
    *,
    concurrency: int | None = None,
    unheard: Literal["zero", "wait"] = "wait",
    server_lr: float = 0.1,
    **common: Unpack[Common],
) -> Recipe:
    """ACE: with every update the server steps on the last one of every client (Chang et al., 2025).

    Args:
        concurrency: clients at work at a time; the cohort under another name (10).
        unheard: as for `last_updates`; the authors have every client compute once before the first step.
        server_lr: server learning rate. Every update is a step on the mean of all clients, so it is about one over the
            clients at work; with 1 the digits diverge.
        common: settings of every recipe, see `Common`.
    """
    return _late("ace", concurrency, common, LastUpdates(unheard=unheard), 1, server_lr)


def aced(
    *, concurrency: int | None = None, within: int = 50, server_lr: float = 0.1, **common: Unpack[Common]
) -> Recipe:
    """ACED: ACE on those updates alone that are not too old (Chang et al., 2025).

    Args:
        concurrency: clients at work at a time; the cohort under another name (10).
        within: versions, the paper's tau_algo.
        server_lr: server learning rate. Every update is a step on the mean of all clients, so it is about one over the
            clients at work; with 1 the digits diverge.
        common: settings of every recipe, see `Common`.
    """
    return _late("aced", concurrency, common, LastUpdates(within=within), 1, server_lr)


def area(*, concurrency: int | None = None, buffer: int = 1, **common: Unpack[Common]) -> Recipe:
    """AREA: the server's model is the mean of the models that clients sent last (Iakovidou, Kim, 2024).

    Args:
        concurrency: clients at work at a time; the cohort under another name (10).
        buffer: updates per version.
        common: settings of every recipe, see `Common`.
    """
    return _late("area", concurrency, common, LastModels(), buffer, 1.0)


def _late(
    title: str, concurrency: int | None, common: Common, memory: ReleaseModifier, buffer: int, server_lr: float
) -> Recipe:
    """A recipe that steps on so many updates, whoever is still at work, and on what it remembers."""
    made = recipe(
        title,
        at_work(title, concurrency, common),
        sharing=Equal(),
        release=Buffer(size=buffer),
        modifiers=(memory,),
        server_step=Sgd(lr=server_lr),
    )
    return rolling(made)
