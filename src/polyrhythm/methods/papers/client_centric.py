"""Client-centric federated adaptive optimisation: every client at its own pace, an optimiser at the server.

"Client-Centric Federated Adaptive Optimization", 2025 (arXiv 2501.09946), Algorithm 1: updates divided by the steps
behind them, a buffer of M, delays sampled among the last models, clients that weigh equally, and no local momentum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypedDict, Unpack, cast

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.methods.papers.common import Common, Preset, recipe, rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.server_step import Adagrad, Adam, AMSGrad, ServerStep, Sgd, Yogi
from polyrhythm.methods.weighing import Equal, PerStep
from polyrhythm.methods.work.base import RandomEpochs

_PAPER = Common(cohort=5, batch=20, lr=0.03)


class Asynchrony(TypedDict, total=False):
    """What all these recipes share.

    clock: "sampled" (default): delays are drawn, as in the paper, and the fleet's clock decides nothing; "event": the
        cohort is at work all the time, and delays follow from the speed of its devices.
    max_delay: how many models back a client may work on where delays are sampled (5).
    buffer: updates per version; the cohort's size if it is not given.
    spread: local epochs vary by so much around 3, by client and visit (2); unless epochs or steps are given.
    """

    clock: Literal["sampled", "event"]
    max_delay: int
    buffer: int
    spread: int


class Settings(Common, Asynchrony, total=False):
    """Settings of every recipe, and those of `Asynchrony`."""


def cc_fedavg(*, preset: Preset = None, **settings: Unpack[Settings]) -> Recipe:
    """CC-FedAvg: client-centric averaging; slow by definition, as updates count per step (arXiv 2501.09946).

    Args:
        preset: "paper": 5 of 100 clients, rate 0.03 and batch 20 from the stated ranges.
        settings: settings of every recipe, and those of `Asynchrony`.
    """
    return _client_centric("cc_fedavg", Sgd(lr=1.0), preset, settings)


def cc_fedsgd(*, server_lr: float = 10.0, preset: Preset = None, **settings: Unpack[Settings]) -> Recipe:
    """CC-FedSGD: client-centric averaging with a tuned server rate (arXiv 2501.09946).

    Args:
        server_lr: server learning rate; an update is as small as one local step.
        preset: as for `cc_fedavg`.
        settings: settings of every recipe, and those of `Asynchrony`.
    """
    return _client_centric("cc_fedsgd", Sgd(lr=server_lr), preset, settings)


def cc_fedadagrad(
    *, server_lr: float = 0.1, epsilon: float = 1e-3, preset: Preset = None, **settings: Unpack[Settings]
) -> Recipe:
    """CC-FedAdagrad: client-centric Adagrad (arXiv 2501.09946).

    Args:
        server_lr: server learning rate.
        epsilon: added to the root of v.
        preset: as for `cc_fedavg`.
        settings: settings of every recipe, and those of `Asynchrony`.
    """
    return _client_centric("cc_fedadagrad", Adagrad(lr=server_lr, beta1=0.9, epsilon=epsilon), preset, settings)


def cc_fedadam(
    *, server_lr: float = 0.01, epsilon: float = 1e-3, preset: Preset = None, **settings: Unpack[Settings]
) -> Recipe:
    """CC-FedAdam: client-centric Adam (arXiv 2501.09946).

    Args:
        server_lr: server learning rate.
        epsilon: added to the root of v.
        preset: as for `cc_fedavg`.
        settings: settings of every recipe, and those of `Asynchrony`.
    """
    return _client_centric("cc_fedadam", Adam(lr=server_lr, epsilon=epsilon), preset, settings)


def cc_fedams(
    *, server_lr: float = 0.1, epsilon: float = 1e-4, preset: Preset = None, **settings: Unpack[Settings]
) -> Recipe:
    """CC-FedAMS: client-centric AMSGrad (arXiv 2501.09946).

    Args:
        server_lr: server learning rate.
        epsilon: the least second moment that divides.
        preset: as for `cc_fedavg`.
        settings: settings of every recipe, and those of `Asynchrony`.
    """
    return _client_centric("cc_fedams", AMSGrad(lr=server_lr, epsilon=epsilon), preset, settings)


def cc_fedyogi(
    *, server_lr: float = 0.01, epsilon: float = 1e-3, preset: Preset = None, **settings: Unpack[Settings]
) -> Recipe:
    """CC-FedYogi: client-centric Yogi, not in the paper (arXiv 2501.09946).

    Args:
        server_lr: server learning rate.
        epsilon: added to the root of v.
        preset: as for `cc_fedavg`.
        settings: settings of every recipe, and those of `Asynchrony`.
    """
    return _client_centric("cc_fedyogi", Yogi(lr=server_lr, epsilon=epsilon), preset, settings)


def _client_centric(title: str, step: ServerStep, preset: Preset, settings: Settings) -> Recipe:
    given = dict(settings)
    clock, spread = given.pop("clock", "sampled"), given.pop("spread", 2)
    max_delay, buffer = given.pop("max_delay", None), given.pop("buffer", None)
    common = cast(Common, {"cohort": 5} | given)
    made = recipe(
        title,
        common,
        preset=preset,
        paper=_PAPER,
        sharing=Equal(),
        scalings=(PerStep(),),
        server_step=step,
    )
    if "epochs" not in common and "steps" not in common:
        made = replace(made, work=RandomEpochs(epochs=3, spread=cast(int, spread)))
    made = replace(made, release=Buffer(size=made.participation.size if buffer is None else cast(int, buffer)))
    if clock == "event":
        _no_sampled_delays(title, max_delay)
        return rolling(made)
    if clock != "sampled":
        raise unknown("clock", str(clock), ("sampled", "event"), where=title)
    delays = 5 if max_delay is None else cast(int, max_delay)
    return replace(made, modifiers=(SampledStaleness(max_delay=delays),))


def _no_sampled_delays(title: str, max_delay: object) -> None:
    if max_delay is not None:
        raise UserError(
            f"{title}: max_delay={max_delay} with clock='event'",
            expected="max_delay only where delays are sampled",
            why="on the event clock a delay is what it takes the devices",
            fix="leave max_delay out, or clock",
        )
