"""FedAsync: every update moves the server's model at once, towards the client's and by less the older it is.

Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019 (OPT 2020), Algorithm 1.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.correction import Prox
from polyrhythm.methods.papers.common import Common, at_work, recipe, rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Rule, Staleness


def fedasync(
    *,
    concurrency: int | None = None,
    alpha: float = 0.6,
    rule: Rule = "polynomial",
    a: float | None = None,
    b: float | None = None,
    rho: float = 0.01,
    **common: Unpack[Common],
) -> Recipe:
    """FedAsync: the server moves towards each client's model as it comes, by less the older it is (Xie et al., 2019).

    x <- (1 - alpha_t) x + alpha_t w_K with alpha_t = alpha * s(staleness). A version is one update, so it takes as many
    versions as others take updates.

    Args:
        concurrency: clients at work at a time; the cohort under another name (10).
        alpha: how far the server moves towards a client's model.
        rule: s, see `Staleness`; "constant" for 1.
        a, b: settings of the rule.
        rho: of the local proximal term; the paper's grid is 0.001, 0.005, 0.01.
        common: settings of every recipe, see `Common`.
    """
    made = recipe(
        "fedasync",
        at_work("fedasync", concurrency, common),
        corrections=(Prox(mu=rho),),
        scalings=(Staleness(rule=rule, a=a, b=b),),
        release=Buffer(size=1),
        modifiers=(FromCurrent(),),
        server_step=Sgd(lr=alpha),
    )
    return rolling(made)
