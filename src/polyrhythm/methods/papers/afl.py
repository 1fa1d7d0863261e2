"""AFL: anarchic federated learning, where workers come when they like and do as much as they like.

Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022: Algorithm 1 (AFA-CD) steps on what the first
workers sent, Algorithm 2 (AFA-CS) on the last that was heard of everybody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from polyrhythm.base.errors import unknown
from polyrhythm.methods.papers.common import Common, at_work, recipe, rolling
from polyrhythm.methods.participation.rolling import OnArrival
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal, PerStep

_PARTICIPATIONS = ("rolling", "on_arrival")


def afl(
    *,
    variant: Literal["cd", "cs"] = "cd",
    participation: Literal["rolling", "on_arrival"] = "rolling",
    concurrency: int | None = None,
    buffer: int = 5,
    server_lr: float = 10.0,
    **common: Unpack[Common],
) -> Recipe:
    """AFL: updates per step from whoever comes, in buffers of the first to report (Yang et al., ICML 2022).

    The paper's workers come by themselves: `participation="on_arrival"`, for fleets whose clients do. "rolling" runs on
    any fleet: whoever has reported is replaced at once.

    Args:
        variant: "cd", cross-device: steps on the buffer; "cs", cross-silo: on the last update of every client.
        participation: see above.
        concurrency: clients at work at a time; the cohort under another name (10). On arrival: at most so many; None
            for any number.
        buffer: updates per version, the paper's m.
        server_lr: server learning rate; an update is as small as one local step.
        common: settings of every recipe, see `Common`.
    """
    for kind, word, words in (("variant", variant, ("cd", "cs")), ("participation", participation, _PARTICIPATIONS)):
        if word not in words:
            raise unknown(kind, str(word), words, where="afl")
    made = recipe(
        "afl",
        at_work("afl", concurrency, common),
        sharing=Equal(),
        scalings=(PerStep(),),
        release=Buffer(size=buffer),
        server_step=Sgd(lr=server_lr),
    )
    if variant == "cs":
        made = replace(made, modifiers=(LastUpdates(),))
    if participation == "on_arrival":
        return replace(made, participation=OnArrival(most=common.get("cohort", concurrency)))
    return rolling(made)
